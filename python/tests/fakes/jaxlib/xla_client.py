import os


def generate_pjrt_gpu_plugin_options():
    share, older = os.environ.get("XLA_CLIENT_MEM_FRACTION", ""), os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", "")
    if share and older:
        raise ValueError("XLA_CLIENT_MEM_FRACTION is specified together with XLA_PYTHON_CLIENT_MEM_FRACTION.")
    options = {"allocator": os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "default")}
    if share or older:
        options["memory_fraction"] = float(share or older)
    if os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE"):
        options["preallocate"] = os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] not in ("false", "False", "0")
    return options
