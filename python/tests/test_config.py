"""`plimsoll.config`: the table that the Rust settings are tested with, through Python, and sessions on what it sets up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PACKAGE

numpy = pytest.importorskip("numpy")
pytest.importorskip("plimsoll._native", reason="the native module is not built", exc_type=ImportError)

import plimsoll  # noqa: E402
from plimsoll import _native, config, debugging, errors  # noqa: E402
from plimsoll.config import _context  # noqa: E402

PROJECT = Path(__file__).resolve().parent.parent.parent
TABLE = PROJECT / "crates" / "formats" / "tests" / "data" / "config.txt"
RAISED = {"INVALID_ARGUMENT": ValueError, "FAILED_PRECONDITION": RuntimeError, "NOT_FOUND": errors.NotFoundError}
GRAPH = b"""
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "y" op: "AddV2" input: "x" input: "x" device: "/device:GPU:0" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "v" op: "VarHandleOp" device: "/device:GPU:0" attr { key: "dtype" value { type: DT_FLOAT } }
       attr { key: "shape" value { shape { dim { size: 256 } } } } attr { key: "shared_name" value { s: "v" } } }
node { name: "set" op: "AssignVariableOp" input: "v" input: "x" attr { key: "dtype" value { type: DT_FLOAT } } }
"""


@pytest.fixture(autouse=True)
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("PLIMSOLL_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("PLIMSOLL_NVML", "")
    for name in ("CUDA_VISIBLE_DEVICES", "PLIMSOLL_SIM_GPUS", "PLIMSOLL_LEASE"):
        monkeypatch.delenv(name, raising=False)
    _context.reset()
    yield
    _context.reset()


def blocks():
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return [block.splitlines() for block in "\n".join(lines).strip().split("\n\n") if block.strip()]


def physical(text):
    return config.PhysicalDevice(text if text.startswith("/") else f"/physical_device:{text}", text.split(":")[-2])


def part(text):
    text, _, ordinal = text.partition("#")
    limit, _, priority = text.partition("@")
    numbers = float(limit) if limit != "-" else None, int(priority) if priority else None, int(ordinal) if ordinal else None
    return config.LogicalDeviceConfiguration(*numbers)


def field(name):
    options = _context.settings().options()
    if name == "device_count":
        return " ".join(f"{kind}={count}" for kind, count in sorted(options["device_count"].items()))
    if name == "virtual_devices":

        def one(limits, priorities, ordinals):
            marks = [("@", priorities), ("#", ordinals)]
            return ",".join(f"{limit:g}" + "".join(f"{m}{n[at]}" for m, n in marks if n) for at, limit in enumerate(limits))

        return " ".join(f"{{{one(*message)}}}" for message in options["virtual_devices"])
    names = {"intra_op": "intra_op_parallelism_threads", "inter_op": "inter_op_parallelism_threads"}
    names.update(soft_placement="allow_soft_placement", log_placement="log_device_placement")
    return text(options[names.get(name, name)])


def text(answer):
    return str(answer).lower() if isinstance(answer, bool) or answer is None else str(answer)


def listed(devices):
    return " ".join(device.name.partition("device:")[2] for device in devices)


def kind(word):
    return None if word == "all" else word


def call(name, *words):
    """What the Python function of a line of the table gives, as the table writes it."""
    experimental, first = config.experimental, words[0] if words else ""
    if name in ("list_physical_devices", "get_visible_devices", "list_logical_devices"):
        return listed(getattr(config, name)(kind(first)))
    if name == "set_visible_devices":
        return config.set_visible_devices([physical(word) for word in words[1:]], kind(first)) or "ok"
    if name == "set_memory_growth":
        return experimental.set_memory_growth(physical(first), words[1] == "true") or "ok"
    if name == "get_memory_growth":
        return text(experimental.get_memory_growth(physical(first)))
    if name == "set_logical":
        parts = [part(word) for word in words[1:]]
        config.set_logical_device_configuration(physical(first), parts)
        assert config.get_logical_device_configuration(physical(first)) == parts
        return "ok"
    if name.endswith("_parallelism_threads"):
        return getattr(config.threading, name)(int(first)) or "ok"
    if name == "set_soft_device_placement":
        config.set_soft_device_placement(first == "true")
        assert config.get_soft_device_placement() == (first == "true")
        return "ok"
    if name == "set_log_device_placement":
        debugging.set_log_device_placement(first == "true")
        assert debugging.get_log_device_placement() == (first == "true")
        return "ok"
    if name == "get_device_details":
        details = experimental.get_device_details(physical(first))
        return "{device_name} {compute_capability[0]}.{compute_capability[1]}".format(**details) if details else "nothing"
    if name == "get_memory_info":
        return "current={current} peak={peak}".format(**experimental.get_memory_info(first))
    if name in ("get_memory_usage", "reset_memory_stats"):
        return text(getattr(experimental, name)(first))
    if name == "initialize":
        return config.list_logical_devices() and "ok"
    if name == "initialized":
        return "yes" if _context.settings().is_open() else "no"
    assert name == "config", name
    return field(first)


def answer(line):
    asked, expected = (side.strip() for side in line.split("=>"))
    code, _, said = expected.partition(" ")
    if code not in RAISED:
        given = call(*asked.split())
        assert given == expected, line
        return
    with pytest.raises(RAISED[code]) as raised:
        call(*asked.split())
    assert said in str(raised.value), line


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block[0])
def test_the_table_of_configurations(block, monkeypatch):
    head, *lines = block
    calls = [line for line in lines if "=>" in line]
    if any(line.startswith(("use ", "uncounted ")) for line in calls):
        pytest.skip("it counts memory that no session has: see test_memory_is_counted")
    for line in lines:
        if line.startswith("cards "):
            monkeypatch.setenv("PLIMSOLL_SIM_GPUS", line[6:])
    proto = [line[7:] for line in lines if line.startswith("config ") and "=>" not in line]
    if proto:
        text = proto[0].encode()
        if calls[0].startswith("import "):
            with pytest.raises(ValueError, match=calls[0].split("=>")[1].split(" ", 2)[2]):
                _native.Config(text)
            return
        _context.settings(is_set=True)
        _context.context().settings = _native.Config(text)
    for line in calls:
        answer(line)


def test_memory_is_counted(monkeypatch):
    monkeypatch.setenv("PLIMSOLL_SIM_GPUS", "1x1GiB")
    with plimsoll.Session(GRAPH) as session:
        session.run("set", {"x:0": numpy.zeros(256, numpy.float32)})
        made = config.experimental.get_memory_info("GPU:0")
        assert set(made) == {"current", "peak"} and 1024 <= made["current"] <= made["peak"]
        assert config.experimental.get_memory_usage("/gpu:0") == made["current"]
        session.run("y:0", {"x:0": numpy.zeros(100_000, numpy.float32)})
        most = config.experimental.get_memory_info("GPU:0")["peak"]
        assert most > made["peak"]
    config.experimental.reset_memory_stats("GPU:0")
    assert config.experimental.get_memory_info("GPU:0") == {"current": 0, "peak": 0}


def test_sessions_share_the_devices(monkeypatch):
    monkeypatch.setenv("PLIMSOLL_SIM_GPUS", "1x64MiB")
    [gpu] = config.list_physical_devices("GPU")
    config.set_logical_device_configuration(gpu, [config.LogicalDeviceConfiguration(memory_limit=2)] * 2)
    with plimsoll.Session(GRAPH) as one, plimsoll.Session(GRAPH) as two:
        assert one.list_devices() == two.list_devices() and len(one.list_devices()) == 3
        for session in (one, two):
            session.run("set", {"x:0": numpy.zeros(256, numpy.float32)})
        assert config.experimental.get_memory_usage("GPU:0") >= 2048
        with pytest.raises(errors.ResourceExhaustedError):
            one.run("y:0", {"x:0": numpy.zeros(1 << 20, numpy.float32)})


def test_placement_may_change_at_any_time(monkeypatch, capsys):
    config.list_logical_devices()
    config.set_soft_device_placement(False)
    with pytest.raises(errors.InvalidArgumentError, match="Cannot assign a device"):
        plimsoll.Session(GRAPH)
    config.set_soft_device_placement(True)
    debugging.set_log_device_placement(True)
    plimsoll.Session(GRAPH).close()
    said = capsys.readouterr()
    assert "y: (AddV2): /job:localhost/replica:0/task:0/device:CPU:0" in said.out
    assert "Device mapping: no known devices." in said.err
    debugging.set_log_device_placement(False)
    plimsoll.Session(GRAPH).close()
    assert capsys.readouterr().out == ""


def test_a_config_of_its_own_logs_too(capsys):
    plimsoll.Session(GRAPH, "log_device_placement: true allow_soft_placement: true").close()
    assert "y: (AddV2): " in capsys.readouterr().out


def test_what_is_no_device():
    for wrong in ("GPU:0", None, config.LogicalDevice("/device:GPU:0", "GPU")):
        for use in (
            lambda: config.set_visible_devices([wrong]),
            lambda: config.set_logical_device_configuration(wrong, []),
            lambda: config.experimental.set_memory_growth(wrong, True),
            lambda: config.experimental.get_device_details(wrong),
        ):
            with pytest.raises(ValueError):
                use()
    with pytest.raises(TypeError):
        config.threading.set_intra_op_parallelism_threads("many")
    assert config.list_physical_devices("TPU") == config.get_visible_devices("TPU") == config.list_logical_devices("TPU") == []


def test_floats_are_whole_until_cards_may_round_them(monkeypatch):
    experimental = config.experimental
    asked = lambda: _context.settings().options()["tensor_float_32_execution"]  # noqa: E731
    assert not experimental.tensor_float_32_execution_enabled() and not asked()
    for enabled in (True, False, True):
        assert experimental.enable_tensor_float_32_execution(enabled) is None
        assert experimental.tensor_float_32_execution_enabled() is enabled is asked()
    # Also without a card, and as set settings: the environment begins no new ones.
    monkeypatch.setenv("PLIMSOLL_SIM_GPUS", "1x1GiB")
    config.list_logical_devices()
    assert asked()
    experimental.enable_tensor_float_32_execution(True)
    with pytest.raises(RuntimeError, match="TensorFloat-32 execution cannot be modified after being initialized"):
        experimental.enable_tensor_float_32_execution(False)
    assert experimental.tensor_float_32_execution_enabled()


def test_settings_follow_the_environment_until_something_is_set(monkeypatch):
    assert len(config.list_logical_devices()) == 1
    monkeypatch.setenv("PLIMSOLL_SIM_GPUS", "2x1GiB")
    assert len(config.list_logical_devices()) == 3
    config.set_soft_device_placement(True)
    monkeypatch.setenv("PLIMSOLL_SIM_GPUS", "1x1GiB")
    assert len(config.list_logical_devices()) == 3


def test_a_session_in_an_isolated_function_has_the_cards_of_its_lease(machine):
    def cards():
        from plimsoll import config

        return [device.name for device in config.list_physical_devices("GPU")]

    pytest.importorskip("cloudpickle")
    assert plimsoll.call(cards, gpus=1) == ["/physical_device:GPU:0"]
    with plimsoll.lease(gpus=1):
        assert len(config.list_physical_devices("GPU")) == 1
    assert len(config.list_physical_devices("GPU")) == 2


def test_a_forked_child_has_settings_of_its_own():
    config.list_logical_devices()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            config.threading.set_intra_op_parallelism_threads(1)
            code = len(config.list_logical_devices()) - 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_importing_opens_nothing():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import plimsoll.config, threading; print(threading.active_count(), len(__import__('os').listdir('/proc/self/task')))",
        ],
        capture_output=True,
        text=True,
        cwd=PACKAGE,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.stdout.split() == ["1", "1"], done.stderr
