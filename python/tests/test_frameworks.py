"""PyTorch, TensorFlow and JAX themselves, in the builds that are here, under a lease of 2 of 4 GiB: the calls are made, with the right
numbers. They have no card; what asks the driver is replaced.

Each runs in the interpreter that PLIMSOLL_TEST_TORCH, PLIMSOLL_TEST_TENSORFLOW and PLIMSOLL_TEST_JAX name; else in this one.
"""

import functools
import os
import subprocess
import sys
import textwrap

import pytest

import plimsoll


@functools.lru_cache(None)
def interpreter(framework):
    """The one that has it; skipped where there is none."""
    program = os.environ.get(f"PLIMSOLL_TEST_{framework.upper()}", sys.executable)
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({framework!r}) is None)"
    return program if subprocess.run([program, "-c", code], stdin=subprocess.DEVNULL).returncode == 0 else None


@pytest.fixture
def run(machine, tmp_path):
    """Runs a program under a lease: what it printed, and the warnings."""

    def run(framework, source, *options, memory="2GiB", gpus="1", python=(), **variables):
        program = interpreter(framework)
        if program is None:
            pytest.skip(f"{framework} is not installed; PLIMSOLL_TEST_{framework.upper()} names an interpreter that has it")
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(source))
        command = [plimsoll.binary(), "run", "--quiet", "--gpus", gpus, "--memory", memory, *options, "--", program, *python, str(path)]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", **variables}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        warnings = [line for line in done.stderr.splitlines() if line.startswith("plimsoll") and "warning: " in line]
        return done.stdout.strip().splitlines(), warnings

    return run


# The driver's part of PyTorch, so that it starts: what is called below is written down.
TORCH = """
import os, sys
import torch
C, calls = torch._C, []
if not hasattr(C, "_cuda_setMemoryFraction"):
    print("built without CUDA")
    sys.exit()
C._cuda_init = lambda: calls.append("init")
C._cuda_getDevice = lambda: 0
C._cuda_getDeviceCount = lambda: int(os.environ.get("CARDS", "1"))
# The hook's own function stays around the one that writes down.
wrapper = C._cuda_setMemoryFraction
cell = next(cell for cell in wrapper.__closure__ if cell.cell_contents is wrapper.__plimsoll__)
cell.cell_contents = wrapper.__plimsoll__ = lambda fraction, card: calls.append((card, fraction))
ours = [call for call in torch.cuda._queued_calls if "plimsoll" in getattr(getattr(call[0], "func", None), "__module__", "")]
assert len(ours) == 1, ours
torch.cuda._queued_calls[:] = ours
"""


def skip_without_cuda(lines):
    if lines == ["built without CUDA"]:
        pytest.skip("this PyTorch is built without CUDA: it has no such allocator")


def test_pytorch_has_its_share(run):
    lines, warnings = run("torch", TORCH + "torch.cuda.init()\nprint(C._accelerator_getAllocatorSettings(), calls)")
    skip_without_cuda(lines)
    assert (lines, warnings) == (["per_process_memory_fraction:0.3750 ['init']"], [])


def test_pytorch_that_asks_for_more(run):
    source = TORCH + (
        "torch.cuda.set_per_process_memory_fraction(0.9)\n"
        "torch.cuda.set_per_process_memory_fraction(0.2, 0)\n"
        "C._accelerator_setAllocatorSettings('per_process_memory_fraction:1.0,max_split_size_mb:64')\n"
        "print(C._accelerator_getAllocatorSettings(), calls)\n"
    )
    lines, warnings = run("torch", "import os\nos.environ['PYTORCH_ALLOC_CONF'] = 'per_process_memory_fraction:0.8'" + source)
    skip_without_cuda(lines)
    assert lines == ["max_split_size_mb:64,per_process_memory_fraction:0.3750 ['init', (0, 0.375), (0, 0.2)]"]
    assert len(warnings) == 3
    lines, warnings = run("torch", TORCH + "print(C._accelerator_getAllocatorSettings())", PYTORCH_CUDA_ALLOC_CONF="per_process_memory_fraction:0.2")
    assert (lines, warnings) == (["per_process_memory_fraction:0.2"], [])


def test_pytorch_that_is_called_wrongly(run):
    source = """
import torch
if not hasattr(torch._C, "_cuda_setMemoryFraction"):
    print("built without CUDA")
    raise SystemExit
for name, arguments in [("_cuda_setMemoryFraction", ()), ("_cuda_setMemoryFraction", ("x", 0)), ("_cuda_setMemoryFraction", (0.1, 0, 3)),
                        ("_cuda_setMemoryFraction", (0.1, "x")), ("_cuda_setDevice", ()), ("_cuda_setDevice", ("x",)),
                        ("_accelerator_setAllocatorSettings", (3,)), ("_accelerator_setAllocatorSettings", ("x:y",))]:
    try:
        print(getattr(torch._C, name)(*arguments))
    except Exception as error:
        print(type(error).__name__, str(error)[:60].replace(chr(10), " "))
"""
    lines, warnings = run("torch", source)
    skip_without_cuda(lines)
    assert warnings == [] and len(lines) == 8 and lines == run("torch", source, PLIMSOLL_HOOK="0")[0]


def test_pytorch_whose_variable_was_lost(run):
    """A program that replaces the variable after the import, and before PyTorch reads it, is told by the call."""
    source = TORCH + "os.environ['PYTORCH_ALLOC_CONF'] = 'max_split_size_mb:64'\ntorch.cuda.init()\nprint(calls)"
    lines, _ = run("torch", source, gpus="2", CARDS="2")
    skip_without_cuda(lines)
    assert lines == ["['init', (1, 0.375), (0, 0.375)]"]


# A machine with cards, as far as TensorFlow's Python sees it.
TENSORFLOW = """
import os
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context
names = ["CPU:0", *("GPU:%d" % card for card in range(int(os.environ.get("CARDS", "1"))))]
pywrap_tfe.TF_ListPhysicalDevices = lambda: [("/physical_device:" + name).encode() for name in names]
def limits():
    return [[int(size) for size in entry.memory_limit_mb] for entry in context.context().config.gpu_options.experimental.virtual_devices]
"""


def test_tensorflow_has_its_limit(run):
    source = TENSORFLOW + """
gpus = tf.config.list_physical_devices("GPU")
tf.config.experimental.set_memory_growth(gpus[0], True)
print(tf.config.get_logical_device_configuration(gpus[0]))
assert int(tf.constant(1) + 1) == 2
print(limits(), [device.memory_limit for device in tf.config.get_logical_device_configuration(gpus[0])])
print(os.environ["TF_FORCE_GPU_ALLOW_GROWTH"])
"""
    assert run("tensorflow", source) == (["None", "[[1536]] [1536]", "true"], [])
    assert run("tensorflow", TENSORFLOW + "tf.constant(1)\nprint(limits())", gpus="2", memory="1GiB", CARDS="2") == (["[[512], [512]]"], [])
    assert run("tensorflow", TENSORFLOW + "tf.constant(1)\nprint(limits())", PLIMSOLL_HOOK="0")[0] == ["[]"]


def test_tensorflow_that_asks_for_more(run):
    source = TENSORFLOW + """
gpus = tf.config.list_physical_devices("GPU")
make = tf.config.LogicalDeviceConfiguration
for call in (tf.config.set_logical_device_configuration, tf.config.experimental.set_virtual_device_configuration):
    call(gpus[0], [make(memory_limit=3000), make(memory_limit=1000)])
try:
    tf.config.experimental.set_memory_growth(gpus[0], True)
except ValueError as error:
    print("as always:", error)
tf.constant(1)
tf.config.set_logical_device_configuration(gpus[0], [make(memory_limit=3000), make(memory_limit=1000)])
print(limits())
"""
    lines, warnings = run("tensorflow", source)
    assert lines == ["as always: Cannot set memory growth on device when virtual devices configured", "[[1152, 384]]"] and len(warnings) == 1
    smaller = source.replace("3000", "300").replace("1000", "100")
    lines, warnings = run("tensorflow", smaller)
    assert lines[-1] == "[[300, 100]]" and warnings == []


def test_tensorflow_that_repeats_itself(run):
    """What TensorFlow allows and refuses after it has started is the same under the hook."""
    source = TENSORFLOW + """
gpu = tf.config.list_physical_devices("GPU")[0]
make = tf.config.LogicalDeviceConfiguration
def tried(function, *arguments):
    try:
        return function(*arguments)
    except (RuntimeError, ValueError) as error:
        return type(error).__name__, str(error)
def all_calls():
    config = tf.config
    return [
        tried(config.experimental.set_memory_growth, gpu, True),
        tried(config.experimental.set_memory_growth, [gpu], True),
        config.experimental.get_memory_growth(gpu),
        tried(config.set_visible_devices, [gpu], "GPU"),
        tried(config.set_visible_devices, [], "GPU") if context.context()._context_handle else None,
        config.get_visible_devices("GPU"),
        tried(config.experimental.get_memory_info, "CPU:0"),
        tried(config.experimental.reset_memory_stats, "CPU:0"),
    ] if context.context()._context_handle else [tried(config.experimental.set_memory_growth, gpu, True)]
print(all_calls(), all_calls())
tf.constant(1)
print(all_calls(), all_calls())
print(tried(tf.config.experimental.set_memory_growth, gpu, False))
print(tried(tf.config.set_logical_device_configuration, gpu, [make(memory_limit=100)]))
print([device.name for device in tf.config.list_logical_devices()])
"""
    held, warnings = run("tensorflow", source)
    assert warnings == [] and held == run("tensorflow", source, PLIMSOLL_HOOK="0")[0] and len(held) == 5
    assert "cannot be modified after being initialized" in held[2]
    assert run("tensorflow", source + "print(limits())")[0][-1] == "[[1536]]"


def test_tensorflow_with_a_configuration_of_the_first_version(run):
    """TensorFlow ends where a fraction and logical devices are both set."""
    source = TENSORFLOW.replace("import tensorflow as tf", "import tensorflow as tf; v1 = tf.compat.v1; v1.disable_eager_execution()") + """
from tensorflow.python.framework import ops
options = lambda: context.context().config.gpu_options
def start(**given):
    context._context = None
    proto = v1.ConfigProto(gpu_options=v1.GPUOptions(**given))
    before = proto.SerializeToString()
    context._set_context_locked(context.Context(config=proto))
    assert not context.context()._initialized
    context.context().ensure_initialized()
    assert proto.SerializeToString() == before
    print("%.4f" % options().per_process_gpu_memory_fraction, limits(), options().experimental.use_unified_memory)
start(per_process_gpu_memory_fraction=0.9)
start(per_process_gpu_memory_fraction=0.25)
start(allow_growth=True)
start(experimental=v1.GPUOptions.Experimental(use_unified_memory=True))
"""
    lines, warnings = run("tensorflow", source)
    assert lines == ["0.3750 [] False", "0.2500 [] False", "0.0000 [[1536]] False", "0.0000 [[1536]] False"]
    assert len(warnings) == 2


def test_tensorflow_with_sizes_of_other_kinds(run):
    source = TENSORFLOW + """
import numpy
gpu = tf.config.list_physical_devices("GPU")[0]
make = tf.config.LogicalDeviceConfiguration
tf.config.set_logical_device_configuration(gpu, [make(memory_limit=numpy.int64(3000))])
tf.config.set_logical_device_configuration(gpu, mine := [make(memory_limit=numpy.float32(100)), make(memory_limit=-1)])
print([device.memory_limit for device in tf.config.get_logical_device_configuration(gpu)])
mine = [make(memory_limit=100)]
tf.config.set_logical_device_configuration(gpu, mine)
mine.append(make(memory_limit=4000))
tf.constant(1)
print(sum(map(sum, limits())) <= 1536, len(limits()[0]))
"""
    lines, warnings = run("tensorflow", source)
    assert lines == ["[0, 1535]", "True 2"] and len(warnings) == 3


def test_tensorflows_sessions(run):
    source = TENSORFLOW + """
v1 = tf.compat.v1
def options(**given):
    with tf.Graph().as_default(), v1.Session(**given) as session:
        gpu = session._config.gpu_options
        return gpu.per_process_gpu_memory_fraction, [list(entry.memory_limit_mb) for entry in gpu.experimental.virtual_devices]
make = lambda **given: v1.ConfigProto(gpu_options=v1.GPUOptions(**given))
print(options(), options(config=make()), options(config=make(per_process_gpu_memory_fraction=0.25)))
given = make(per_process_gpu_memory_fraction=0.9)
print(options(config=given), given.gpu_options.per_process_gpu_memory_fraction)
several = v1.GPUOptions.Experimental(virtual_devices=[v1.GPUOptions.Experimental.VirtualDevices(memory_limit_mb=[2000, 1000])])
print(options(config=v1.ConfigProto(gpu_options=v1.GPUOptions(experimental=several))))
print(options(config=make(experimental=v1.GPUOptions.Experimental(use_unified_memory=True), per_process_gpu_memory_fraction=3.0)))
with tf.Graph().as_default():
    print(v1.InteractiveSession()._config.gpu_options.per_process_gpu_memory_fraction)
try:
    options(config="no configuration")
except TypeError as error:
    print("as always:", str(error)[:30])
"""
    lines, warnings = run("tensorflow", source)
    assert lines[:5] == [
        "(0.375, []) (0.375, []) (0.25, [])",
        "(0.375, []) 0.9",
        "(0.0, [[1024.0, 512.0]])",
        "(0.375, [])",
        "0.375",
    ]
    assert lines[5].startswith("as always: Argument `config` must be") and len(warnings) == 4


JAX = """
import os
import jax
import jax.numpy
from jax._src.lib import xla_client
def options():
    made = xla_client.generate_pjrt_gpu_plugin_options()
    return made.get("memory_fraction"), made.get("preallocate"), made.get("allocator")
"""


def test_jax_has_its_share(run):
    source = JAX + "print(options(), int(jax.numpy.ones(3).sum()))"
    assert run("jax", source) == (["(0.375, False, 'default') 3"], [])
    # Variables are enough where the hook is not there.
    assert run("jax", source, PLIMSOLL_HOOK="0") == (["(0.375, False, 'default') 3"], [])
    assert run("jax", source, python=["-I"]) == (["(0.375, False, 'default') 3"], [])


def test_jax_that_asks_for_more(run):
    source = "import os\nos.environ['XLA_CLIENT_MEM_FRACTION'] = '.9'" + JAX + """
print(options())
os.environ["XLA_CLIENT_MEM_FRACTION"], os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "0.95", "platform"
print(options())
os.environ["XLA_CLIENT_MEM_FRACTION"] = "0.1"
print(options())
"""
    lines, warnings = run("jax", source)
    assert lines == ["(0.375, False, 'default')"] * 2 + ["(0.1, False, 'default')"] and len(warnings) == 3
    lines, warnings = run("jax", JAX + "print(options())", XLA_PYTHON_CLIENT_MEM_FRACTION="0.9")
    assert lines == ["(0.375, False, 'default')"] and warnings == [
        "plimsoll run: warning: XLA_PYTHON_CLIENT_MEM_FRACTION=0.9 is more than the lease: the program gets 0.3750"
    ]


@pytest.mark.parametrize("framework, module", [("torch", "torch"), ("tensorflow", "tensorflow"), ("jax", "jax")])
def test_they_work_in_a_child_as_well(run, framework, module):
    source = f"""
        import subprocess, sys
        code = "import sys, {module}; print('plimsoll_hook' in sys.modules, any(hasattr(f, 'is_plimsoll_hook') for f in sys.meta_path))"
        print(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip())
    """
    assert run(framework, source)[0] == ["True True"]
