"""The hook for PyTorch, TensorFlow and JAX, with small stand-ins for them (`fakes`): when it acts, and when it does not matter."""

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import textwrap

import pytest
from conftest import PACKAGE, ROOT

import plimsoll

HOOK = PACKAGE / "plimsoll" / "_hook"
FAKES = ROOT / "tests" / "fakes"
GIB = 1 << 30

# Says in one line what each framework would use.
SAYS = """
import os, sys
import torch
torch_most = torch.cuda.most()
import tensorflow
context = tensorflow.context.context()
context.ensure_initialized()
tf = [device.memory_limit for device in context.get_logical_device_configuration(context.list_physical_devices()[0]) or []]
import jax
options = jax.options()
print(torch_most >> 20, tf, options.get("memory_fraction"), options.get("preallocate"))
"""
HELD = "1536 [1536] 0.375 False"
FREE = "4096 [] None None"


@pytest.fixture(scope="module")
def hook(tmp_path_factory):
    """The hook's files where `plimsoll run` would put them: in a folder of their own."""
    folder = tmp_path_factory.mktemp("hook") / "a b\u00e9"
    shutil.copytree(HOOK, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def frameworks(tmp_path):
    """Stand-ins; PyTorch in a version that knows a share."""
    shutil.copytree(FAKES, tmp_path / "fakes", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "fakes" / "torch" / "lib").mkdir(exist_ok=True)
    (tmp_path / "fakes" / "torch" / "lib" / "libc10_cuda.so").write_bytes(b"\0" * 4096 + b"per_process_memory_fraction\0")
    return tmp_path / "fakes"


def limits(*cards):
    """What `plimsoll run` says of cards: bytes, of so many; 512 MiB are for contexts."""
    document = []
    for number, (share, total) in enumerate(cards):
        limit = total if share >= total else share - min(GIB // 2, share // 2)
        names = dict.fromkeys(("pytorch", "tensorflow", "jax"), limit)
        document.append({"name": str(number), "uuid": f"GPU-{number}", "bytes": share, "total": total, **names})
    return json.dumps({"cards": document})


def environment(hook, frameworks, *path, **variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XLA", "TF_", "PLIMSOLL", "CUDA"))}
    paths = [hook, *path, frameworks]
    known = {"PLIMSOLL_FRAMEWORK_LIMITS": limits((2 * GIB, 4 * GIB)), "CUDA_VISIBLE_DEVICES": "0"}
    return {**kept, "PYTHONPATH": os.pathsep.join(str(path) for path in paths), **known, **variables}


def said(command, environment, **options):
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.strip()


def python(source, environment, *options):
    return said([sys.executable, *options, "-c", textwrap.dedent(source)], environment)


def test_each_framework_is_held(hook, frameworks):
    assert python(SAYS, environment(hook, frameworks)) == (HELD, "")


@pytest.mark.parametrize("variables", [{"PLIMSOLL_HOOK": "0"}, {"PLIMSOLL_FRAMEWORK_LIMITS": ""}, {"PLIMSOLL_FRAMEWORK_LIMITS": limits((4 * GIB, 4 * GIB))}])
def test_switched_off_and_without_a_share_nothing_is_changed(hook, frameworks, variables):
    source = "import os; before = dict(os.environ)" + SAYS + "assert os.environ == before"
    assert python(source, environment(hook, frameworks, **variables)) == (FREE, "")


def test_a_program_without_them_is_left_alone(hook, frameworks):
    source = """
        import json, sys
        print(len(sys.meta_path), [name for name in sys.modules if name.startswith("plimsoll_hook.")], "sitecustomize" in sys.modules)
    """
    held, _ = python(source, environment(hook, frameworks))
    free, _ = python(source, {**environment(hook, frameworks), "PYTHONPATH": str(frameworks)})
    assert held == "%d [] False" % (int(free.split()[0]) + 1) and free.endswith("[] False")


@pytest.mark.parametrize("setting", ["0.9", "1.0"])
def test_a_program_that_asks_for_more_is_held(hook, frameworks, setting):
    source = f"""
        import os
        os.environ["XLA_CLIENT_MEM_FRACTION"] = "{setting}"
        os.environ["PYTORCH_ALLOC_CONF"] = "max_split_size_mb:64,per_process_memory_fraction:{setting}"
        import torch
        torch.cuda.set_per_process_memory_fraction({setting}, 0)
        torch.cuda.memory_allocated()
        from tensorflow import context
        make, card = context.LogicalDeviceConfiguration, context.context().list_physical_devices()[0]
        context.context().set_logical_device_configuration(card, [make(memory_limit=3000), make(memory_limit=1000)])
        context.context().ensure_initialized()
        context.context().set_logical_device_configuration(card, [make(memory_limit=3000), make(memory_limit=1000)])
        import jax
        os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
        print(torch.cuda.most() >> 20, [d.memory_limit for d in context.context().get_logical_device_configuration(card)], jax.options())
    """
    out, err = python(source, environment(hook, frameworks, XLA_PYTHON_CLIENT_MEM_FRACTION="0.3750"))
    assert out == "1536 [1152, 384] {'allocator': 'default', 'memory_fraction': 0.375, 'preallocate': False}"
    lines = err.splitlines()
    assert len(lines) == 5 and all(line.startswith("plimsoll: warning: ") for line in lines), err


def test_a_program_that_asks_for_less_gets_that(hook, frameworks):
    source = """
        import os
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "per_process_memory_fraction:0.25"
        os.environ["XLA_CLIENT_MEM_FRACTION"] = ".2"
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
        import torch
        print(torch.cuda.most() >> 20, end=" ")
        torch.cuda.set_per_process_memory_fraction(0.3)
        print(torch.cuda.most() >> 20, end=" ")
        from tensorflow import context
        card = context.context().list_physical_devices()[0]
        context.context().set_logical_device_configuration(card, [context.LogicalDeviceConfiguration(memory_limit=100)])
        context.context().ensure_initialized()
        import jax
        print([d.memory_limit for d in context.context().get_logical_device_configuration(card)], jax.options())
    """
    out, err = python(source, environment(hook, frameworks, XLA_PYTHON_CLIENT_MEM_FRACTION="0.3750"))
    assert (out, err) == ("1024 1228 [100] {'allocator': 'default', 'memory_fraction': 0.2, 'preallocate': True}", "")


@pytest.mark.parametrize("by_program", [False, True])
def test_memory_growth_is_what_it_is_without_the_hook(hook, frameworks, by_program):
    source = f"""
        from tensorflow import context
        made = context.context()
        card = made.list_physical_devices()[0]
        def grow(enable, card=card):
            try:
                made.set_memory_growth(card, enable)
            except (RuntimeError, ValueError) as error:
                return str(error)
        said = [grow(True), grow(True)]
        if {by_program}:
            made.set_logical_device_configuration(card, [context.LogicalDeviceConfiguration(memory_limit=100)])
        made.ensure_initialized()
        print(said, grow(True), grow(False), grow(True))
        import sys
        print([device.memory_limit for device in made.get_logical_device_configuration(card) or []], file=sys.stderr)
    """
    held, limit = python(source, environment(hook, frameworks))
    assert held == python(source, environment(hook, frameworks, PLIMSOLL_HOOK="0"))[0]
    assert limit == ("[100]" if by_program else "[1536]"), "it stays"


@pytest.mark.parametrize("sizes", ["float('nan')", "float('inf')", "-1, 100", "Big()", "1e300, 1e300"])
def test_sizes_that_are_no_sizes_are_held(hook, frameworks, sizes):
    source = f"""
        from tensorflow import context
        class Big:
            def __float__(self):
                return 3000.0
        made = context.context()
        card = made.list_physical_devices()[0]
        made.set_logical_device_configuration(card, [context.LogicalDeviceConfiguration(memory_limit=size) for size in [{sizes}]])
        got = [device.memory_limit for device in made.get_logical_device_configuration(card)]
        assert 0 < sum(got) <= 1536 and all(0 <= size <= 1536 for size in got), got
    """
    assert "more than the lease" in python(source, environment(hook, frameworks))[1]


@pytest.mark.parametrize(
    "variables, warned",
    [
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "PYTORCH_NO_CUDA_MEMORY_CACHING=1 is removed"),
        ({"TF_GPU_ALLOCATOR": "cuda_malloc_async"}, "TF_GPU_ALLOCATOR=cuda_malloc_async is removed"),
        ({"TF_DEVICE_MIN_SYS_MEMORY_IN_MB": "1"}, "TF_DEVICE_MIN_SYS_MEMORY_IN_MB=1 is removed"),
        ({"TF_FORCE_UNIFIED_MEMORY": "true"}, "TF_FORCE_UNIFIED_MEMORY=true is removed"),
        ({"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}, "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async is removed"),
    ],
)
def test_settings_that_know_no_limit_are_removed(hook, frameworks, variables, warned):
    out, err = python(SAYS, environment(hook, frameworks, **variables))
    assert out == HELD and warned in err and len(err.splitlines()) == 1


OLD_TORCH = "import torch; print(torch.cuda.most() >> 20, torch.cuda.current_device(), torch._C.calls)"


def test_an_older_pytorch_is_told_when_it_first_uses_a_card(hook, frameworks):
    (frameworks / "torch" / "lib" / "libc10_cuda.so").unlink()
    two = environment(hook, frameworks, FAKE_CARDS=f"{4 * GIB},{8 * GIB}", CUDA_VISIBLE_DEVICES="0,1")
    two["PLIMSOLL_FRAMEWORK_LIMITS"] = limits((2 * GIB, 4 * GIB), (2 * GIB, 8 * GIB))
    assert python("import torch; print(torch._C.calls)", two)[0] == "[]", "it makes no context"
    assert python(OLD_TORCH, two)[0] == "1536 0 ['init', (0.1875, 1), (0.375, 0)]", "the current card stays it"
    # An option that a newer version was given by the program around this one would end it.
    inherited = {**two, "PYTORCH_ALLOC_CONF": "max_split_size_mb:9,per_process_memory_fraction:0.3750"}
    assert python(OLD_TORCH, inherited)[0] == "1536 0 ['init', (0.1875, 1), (0.375, 0)]"
    # One of several programs has contexts on its own card alone.
    ranked = "import torch; torch.cuda.set_device(1); print(torch.cuda.most(1) >> 20, torch._C.calls)"
    assert python(ranked, {**two, "LOCAL_RANK": "1"})[0] == "1536 [('to', 1), 'init', (0.1875, 1)]"
    late = "import torch; torch.cuda.current_device(); torch.cuda.set_device(1); print(torch.cuda.most(1) >> 20, torch._C.calls)"
    assert python(late, {**two, "LOCAL_RANK": "1"})[0] == "1536 ['init', (0.375, 0), ('to', 1), (0.1875, 1)]"


def test_cards_with_different_shares_have_one_each(hook, frameworks):
    two = environment(hook, frameworks, FAKE_CARDS=f"{4 * GIB},{8 * GIB}", CUDA_VISIBLE_DEVICES="0,1")
    two["PLIMSOLL_FRAMEWORK_LIMITS"] = limits((2 * GIB, 4 * GIB), (2 * GIB, 8 * GIB))
    source = "import torch; print(torch.cuda.most(0) >> 20, torch.cuda.most(1) >> 20, torch._C.calls)"
    assert python(source, two)[0] == "1536 1536 ['init', (0.375, 0)]", "the variable is right for the other"
    hidden = {**two, "CUDA_VISIBLE_DEVICES": "1", "FAKE_CARDS": str(8 * GIB)}
    assert python("import torch; print(torch.cuda.most(0) >> 20)", hidden)[0] == "1536", "cards go by name"
    unknown = {**two, "CUDA_VISIBLE_DEVICES": "7", "FAKE_CARDS": str(8 * GIB)}
    assert python("import torch; print(torch.cuda.most(0) >> 20)", unknown)[0] == "1536"


WAYS = ["script", "module", "zipapp", "stdin", "child", "os.exec", "spawn", "forkserver", "fork", "executor", "venv", "safe path"]


@pytest.mark.parametrize("way", WAYS)
def test_however_a_program_is_started(hook, frameworks, tmp_path, way):
    known = environment(hook, frameworks)
    script = tmp_path / "program.py"
    script.write_text(SAYS)
    command = [sys.executable, str(script)]
    if way == "module":
        command = [sys.executable, "-m", "program"]
    elif way == "zipapp":
        import zipapp

        source = tmp_path / "app"
        source.mkdir()
        (source / "__main__.py").write_text(SAYS)
        zipapp.create_archive(source, tmp_path / "app.pyz")
        command = [sys.executable, str(tmp_path / "app.pyz")]
    elif way == "stdin":
        assert said([sys.executable, "-"], known, input=SAYS)[0] == HELD
        return
    elif way == "child":
        command = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, {str(script)!r}], check=True)"]
    elif way == "os.exec":
        command = ["sh", "-c", f"exec {shlex.quote(sys.executable)} -c 'import os, sys; os.execv(sys.executable, [sys.executable, {str(script)!r}])'"]
        command[2] = command[2].replace(repr(str(script)), f'"{script}"')
    elif way in ("spawn", "forkserver", "fork"):
        source = f"""
        import multiprocessing, runpy
        if __name__ == "__main__":
            process = multiprocessing.get_context({way!r}).Process(target=runpy.run_path, args=({str(script)!r},))
            process.start()
            process.join()
            raise SystemExit(process.exitcode)
        """
        (tmp_path / "starter.py").write_text(textwrap.dedent(source))
        command = [sys.executable, str(tmp_path / "starter.py")]
    elif way == "executor":
        source = f"""
        import concurrent.futures, runpy
        if __name__ == "__main__":
            with concurrent.futures.ProcessPoolExecutor(1) as pool:
                pool.submit(runpy.run_path, {str(script)!r}).exception()
        """
        (tmp_path / "starter.py").write_text(textwrap.dedent(source))
        command = [sys.executable, str(tmp_path / "starter.py")]
    elif way == "venv":
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
        command = [str(tmp_path / "venv" / "bin" / "python"), str(script)]
    elif way == "safe path":
        if sys.version_info < (3, 11):
            pytest.skip("this Python has no -P")
        command = [sys.executable, "-P", "-s", "-u", "-O", str(script)]
    assert said(command, known, cwd=tmp_path) == (HELD, "")


@pytest.mark.parametrize("options, out", [(["-I"], "4096 [] 0.375 False"), (["-E"], "4096 [] 0.375 False"), (["-S"], "4096 [] 0.375 False")])
def test_where_python_does_not_look_variables_remain(hook, frameworks, options, out):
    known = environment(hook, frameworks, XLA_PYTHON_CLIENT_MEM_FRACTION="0.3750", XLA_PYTHON_CLIENT_PREALLOCATE="false")
    assert python(f"import sys; sys.path.insert(0, {str(frameworks)!r})" + SAYS, known, *options) == (out, "")


def test_uv_run(hook, frameworks, tmp_path):
    uv = shutil.which("uv") or shutil.which("uv", path=os.path.dirname(sys.executable))
    if uv is None:
        pytest.skip("uv is not installed")
    (tmp_path / "program.py").write_text(SAYS)
    command = [uv, "run", "--offline", "--no-project", "--python", sys.executable, str(tmp_path / "program.py")]
    out, _ = said(command, environment(hook, frameworks, UV_CACHE_DIR=str(tmp_path / "cache")), cwd=tmp_path)
    assert out == HELD


def test_a_notebooks_kernel(hook, frameworks):
    pytest.importorskip("ipykernel")
    pytest.importorskip("jupyter_client")
    source = f"""
        import jupyter_client
        manager, client = jupyter_client.manager.start_new_kernel(kernel_name="python3")
        heard = []
        client.execute_interactive({SAYS!r}, output_hook=lambda message: heard.append(message["content"].get("text", "")), timeout=60)
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        print("".join(heard).strip())
    """
    assert python(source, environment(hook, frameworks))[0] == HELD


def test_the_sitecustomize_that_is_hidden_runs(hook, frameworks, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("import sys, beside\nsys.mine = __file__, __name__, beside.x\n")
    (mine / "beside.py").write_text("x = 3\n")
    source = """
        import sitecustomize, sys
        assert sys.mine == (sitecustomize.__file__, "sitecustomize", 3), sys.mine
        print(sys.path[1], sys.path[2])
    """ + textwrap.indent(SAYS, " " * 8)
    assert python(source, environment(hook, frameworks, mine))[0].splitlines() == [f"{hook} {mine}", HELD]
    # One that is broken says so as it always did, and the hook is there all the same.
    (mine / "sitecustomize.py").write_text("import sys\nraise ValueError('mine is broken')\n")
    out, err = python(SAYS, environment(hook, frameworks, mine))
    assert out == HELD and err.startswith("Error in sitecustomize") and "mine is broken" in err
    (mine / "sitecustomize.py").write_text("import nothing_of_the_kind\n")
    out, err = python(SAYS, environment(hook, frameworks, mine))
    assert out == HELD and "nothing_of_the_kind" in err
    (mine / "sitecustomize.py").write_text("import os\nos._exit(7)\n")
    assert subprocess.run([sys.executable, "-c", ""], env=environment(hook, frameworks, mine)).returncode == 7


def other_pythons():
    """Other versions, where PLIMSOLL_TEST_PYTHONS names them; old ones must start as they did."""
    named = os.environ.get("PLIMSOLL_TEST_PYTHONS", "").split(os.pathsep)
    return [name for name in [*named, *(shutil.which(f"python{version}") for version in ("2.7", "3.9", "3.12", "3.13"))] if name]


@pytest.mark.parametrize("program", other_pythons() or [None])
def test_other_versions_of_python(hook, frameworks, tmp_path, program):
    if program is None:
        pytest.skip("no other Python is here; PLIMSOLL_TEST_PYTHONS names some")
    if subprocess.run([program, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip(f"{program} does not run")
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.mine = 1\n")
    version = said([program, "-c", "import sys; print('%d %d' % sys.version_info[:2])"], dict(os.environ))[0]
    for path in ([], [tmp_path]):
        known = environment(hook, frameworks, *path)
        out, err = said([program, "-c", "import sys; print(hasattr(sys, 'mine'))"], known)
        assert (out, err) == (str(bool(path)), "")
        if tuple(map(int, version.split())) >= (3, 7):
            assert said([program, "-c", SAYS], known) == (HELD, "")


def test_reload_and_failing_imports(hook, frameworks):
    source = """
        import importlib, os, sys
        os.environ["FAKE_TORCH_FAILS"] = "1"
        for _ in range(2):
            try:
                import torch
            except OSError as error:
                assert "torch" not in sys.modules and "libcudart" in str(error)
            else:
                raise SystemExit("it should fail")
        del os.environ["FAKE_TORCH_FAILS"]
        import torch, jax, jaxlib.xla_client, tensorflow.python.eager.context
        for module in (torch, jaxlib.xla_client, tensorflow.python.eager.context, tensorflow.python.client.session, jax):
            assert importlib.reload(module) is module
        torch.cuda.set_per_process_memory_fraction(0.9)
        print(torch.cuda.most() >> 20, jax.options()["memory_fraction"], len([f for f in sys.meta_path if hasattr(f, "is_plimsoll_hook")]))
    """
    assert python(source, environment(hook, frameworks))[0] == "1536 0.375 1"


def test_what_is_found_and_not_imported_can_be_copied(hook, frameworks):
    source = """
        import copy, importlib.util, pickle, sys
        spec = importlib.util.find_spec("torch")
        assert b"plimsoll" not in pickle.dumps(spec)
        for other in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec), copy.copy(spec)):
            assert other.loader.path == spec.loader.path
            module = importlib.util.module_from_spec(other)
            other.loader.exec_module(module)
            assert module.cuda
            for name in [name for name in sys.modules if name.split(".")[0] == "torch"]:
                del sys.modules[name]
    """
    assert python(textwrap.dedent(source) + SAYS, environment(hook, frameworks)) == (HELD, "")


def test_a_module_of_the_programs_in_the_place_of_one_that_the_hook_needs(hook, frameworks):
    source = """
        import sys, types
        sys.modules["json"] = types.ModuleType("json")
    """
    out, err = python(textwrap.dedent(source) + SAYS, environment(hook, frameworks))
    assert out == FREE and "cannot be read" in err, "it runs"


LOOKS = """
import importlib, importlib.resources, importlib.util, inspect, pickle, runpy, sys, traceback
import torch, jax, jaxlib.xla_client, tensorflow.python.eager.context
modules = [torch, jax, jaxlib.xla_client, tensorflow, tensorflow.python.eager.context, tensorflow.python.client.session]
for module in modules + [importlib.reload(torch)]:
    loader = module.__loader__
    assert loader is module.__spec__.loader and type(loader) is importlib.machinery.SourceFileLoader
    print(module.__name__, sorted(vars(loader)), loader.exec_module.__qualname__, sorted(vars(module.__spec__)), sorted(vars(module)))
    assert vars(pickle.loads(pickle.dumps(loader))) == vars(loader)
    assert pickle.loads(pickle.dumps(module.__spec__)) == module.__spec__
    print(len(inspect.getsource(module)), inspect.getsourcefile(module), inspect.getmodule(module.__spec__.loader.exec_module))
    print(loader.get_resource_reader(module.__name__) is None, importlib.util.find_spec(module.__name__) is module.__spec__)
print(runpy.run_module("jaxlib.xla_client")["__name__"], (importlib.resources.files("torch") / "cuda.py").is_file())
"""


def test_modules_look_as_without_the_hook(hook, frameworks):
    (frameworks / "torch" / "__init__.py").write_text("assert not hasattr(__loader__, '__dict__') or 'exec_module' not in vars(__loader__)\n" + (FAKES / "torch" / "__init__.py").read_text())
    known = environment(hook, frameworks)
    assert python(LOOKS, known) == python(LOOKS, {**known, "PYTHONPATH": str(frameworks)})


def test_frameworks_in_an_archive_with_one_loader_for_all(hook, frameworks, tmp_path):
    (frameworks / "beside.py").write_text("import sys\nsys.beside = __name__\n")
    archive = shutil.make_archive(str(tmp_path / "all"), "zip", frameworks)
    source = "import beside, torch, jax, tensorflow, sys\nassert sys.beside == 'beside'\nimport beside\n"
    source += "loaders = [m.__loader__ for m in (torch, jax, tensorflow, tensorflow.context)]\n"
    source += "assert not any('exec_module' in vars(loader) for loader in loaders), [vars(loader) for loader in loaders]\n"
    # What is in an archive has no library that could say what it knows, so PyTorch is told by the call.
    assert python(source + SAYS, environment(hook, archive)) == (HELD, "")


def test_loaders_of_other_kinds(hook, frameworks):
    source = f"""
        import importlib.machinery, importlib.util, os, sys
        class Kept:
            __slots__ = ()
            def create_module(self, spec): return None
            def exec_module(self, module): module.torch = 1
        class Static:
            @staticmethod
            def create_module(spec): return None
            @staticmethod
            def exec_module(module): module.__name__ = module.__name__
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name in ("torch", "jaxlib", "other"):
                    return importlib.machinery.ModuleSpec(name, Kept() if name == "torch" else Static)
        sys.meta_path.insert(1, Finder())
        sys.path[:] = [entry for entry in sys.path if entry != {str(frameworks)!r}]
        before = vars(Static)["exec_module"]
        import torch, jaxlib, other
        assert vars(Static)["exec_module"] is before and torch.torch == 1
        print(os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"])
    """
    assert python(source, environment(hook, frameworks)) == ("0.3750", "")


def test_a_program_that_empties_the_tables(hook, frameworks):
    source = f"""
        import sys
        for name in [name for name in sys.modules if name.startswith("plimsoll") or name == "sitecustomize"]:
            del sys.modules[name]
        sys.path[:] = [entry for entry in sys.path if entry != {str(hook)!r}]
    """
    assert python(textwrap.dedent(source) + SAYS, environment(hook, frameworks)) == (HELD, "")


def test_threads_that_import_at_once(hook, frameworks):
    source = """
        import threading, sys
        sys.setswitchinterval(1e-5)
        gate, seen = threading.Barrier(16), []
        def run(name):
            gate.wait()
            seen.append(__import__(name))
        threads = [threading.Thread(target=run, args=(name,)) for name in ("torch", "tensorflow", "jax", "jaxlib.xla_client") * 4]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(seen) == 16 and len(set(seen)) == 4
    """
    assert python(textwrap.dedent(source) + SAYS, environment(hook, frameworks)) == (HELD, "")


def test_other_hooks_and_programs_that_touch_the_finders(hook, frameworks):
    # As tools that watch imports do it: by asking for the specification while they are asked for it.
    asking = """
        import importlib.util, sys
        class Asking:
            busy = set()
            def find_spec(self, name, path=None, target=None):
                if name in self.busy:
                    return None
                self.busy.add(name)
                try:
                    return importlib.util.find_spec(name)
                finally:
                    self.busy.discard(name)
        sys.meta_path.insert(0, Asking())
        sys.meta_path.append(Asking())
    """
    assert python(textwrap.dedent(asking) + SAYS, environment(hook, frameworks)) == (HELD, "")
    # Without its finder the hook cannot know; the program runs, and its variables remain.
    removing = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'plimsoll' not in type(f).__module__]"
    assert python(removing + SAYS, environment(hook, frameworks)) == (FREE, "")
    lazy = """
        import importlib.util, sys
        spec = importlib.util.find_spec("torch")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        sys.modules["torch"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    """
    assert python(textwrap.dedent(lazy) + SAYS, environment(hook, frameworks)) == (HELD, "")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"cards": []}', '{"cards": [{"name": 1}]}', "\u00e9", '{"cards": [{"name": "0", "total": "x", "pytorch": 1}]}'])
def test_what_cannot_be_read_ends_no_program(hook, frameworks, text):
    out, err = python(SAYS, environment(hook, frameworks, PLIMSOLL_FRAMEWORK_LIMITS=text))
    assert out == FREE and all(line.startswith("plimsoll: warning: ") for line in err.splitlines())


def test_no_standard_error_and_warnings_as_errors(hook, frameworks):
    known = environment(hook, frameworks, PYTORCH_ALLOC_CONF="per_process_memory_fraction:0.9")
    assert python("import sys; sys.stderr = None" + SAYS, known) == (HELD, "")
    assert python(SAYS, known, "-W", "error", "-X", "dev")[0] == HELD


def test_fifty_programs_at_once(hook, frameworks):
    programs = [
        subprocess.Popen([sys.executable, "-c", SAYS], env=environment(hook, frameworks), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for _ in range(50)
    ]
    assert {program.communicate(timeout=120)[0].decode().strip() for program in programs} == {HELD}


# Under `plimsoll run`.


def test_a_lease_of_half_a_card(machine, frameworks, tmp_path):
    known = {**os.environ, "PYTHONPATH": str(frameworks)}
    run = [plimsoll.binary(), "run", "--memory", "2GiB", "--gpus", "1", "--"]
    for command in ([sys.executable, "-c", SAYS], ["sh", "-c", 'env PYTHONUNBUFFERED=1 "$@"', "sh", sys.executable, "-c", SAYS]):
        assert said([*run, *command], known)[0] == HELD
    out, err = said([*run, sys.executable, "-c", SAYS], {**known, "XLA_CLIENT_MEM_FRACTION": "0.9"})
    assert out == HELD and "warning: XLA_CLIENT_MEM_FRACTION=0.9 is more than the lease" in err
    inner = [plimsoll.binary(), "run", "--quiet", "--memory", "1GiB", "--", sys.executable, "-c", SAYS]
    assert said([*run, *inner], known)[0] == "512 [512] 0.125 False"
    assert said([plimsoll.binary(), "run", "--", sys.executable, "-c", SAYS], known)[0] == FREE
    assert said([*run, sys.executable, "-c", SAYS], {**known, "PLIMSOLL_HOOK": "0"})[0] == "4096 [] 0.375 False"
    folders = list((tmp_path / "state").glob("hook-*"))
    assert len(folders) == 1 and folders[0].stat().st_mode & 0o777 == 0o700


def test_workers_and_leases_of_this_process_are_held(machine, frameworks, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(frameworks))

    def share():
        import jax
        import torch

        return torch.cuda.most() >> 20, jax.options()["memory_fraction"]

    with_path = pathlib.Path(frameworks)
    monkeypatch.syspath_prepend(str(with_path))
    assert plimsoll.call(share, gpus=1, memory="2GiB") == (1536, 0.375)
    with plimsoll.Pool(1, gpus=1, memory="1GiB") as pool:
        assert pool.submit(share).result() == (512, 0.125)
    source = f"""
        import sys, plimsoll
        sys.path.insert(0, {str(frameworks)!r})
        with plimsoll.lease(gpus=1, memory="2GiB"):
            import torch
            print(torch.cuda.most() >> 20)
    """
    known = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    assert python(source, known)[0] == "1536"
    assert said([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(PACKAGE)!r})\n" + textwrap.dedent(source)], known)[0] == "1536"
