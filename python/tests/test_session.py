"""Sessions in this process: values of recorded runs, memory, structures, errors and misuse."""

import collections
import html
import importlib.util
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import PACKAGE

numpy = pytest.importorskip("numpy")
pytest.importorskip("plimsoll._native", reason="the native module is not built", exc_type=ImportError)

import plimsoll  # noqa: E402
from plimsoll import errors, saved_model  # noqa: E402

PROJECT = Path(__file__).resolve().parent.parent.parent
CASES = sorted(path.parent for path in (PROJECT / "crates" / "cli" / "tests" / "cases").glob("*/case.json"))
SHARED = PROJECT.parent / "shared"
LARGE = sorted(path.parent for folder in ("golden", "models") for path in (SHARED / folder).glob("*/case.json"))


def attr(name, value):
    return f'attr {{ key: "{name}" value {{ {value} }} }}'


def node(name, op, inputs=(), *attrs):
    return f'node {{ name: "{name}" op: "{op}" {" ".join(f"input: {json.dumps(i)}" for i in inputs)} {" ".join(attrs)} }}'


FLOAT = attr("dtype", "type: DT_FLOAT")
T = attr("T", "type: DT_FLOAT")
GRAPH = "\n".join(
    [
        node("x", "Placeholder", (), FLOAT),
        node("y", "Placeholder", (), FLOAT),
        node("sum", "AddV2", ("x", "y"), T),
        node("double", "AddV2", ("sum", "sum"), T),
        node("v", "VarHandleOp", (), FLOAT, attr("shape", "shape { dim { size: 2 } }"), attr("shared_name", 's: "v"')),
        node("one", "Const", (), FLOAT, attr("value", "tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } float_val: 1 }")),
        node("init", "AssignVariableOp", ("v", "one"), FLOAT),
        node("step", "AssignAddVariableOp", ("v", "one"), FLOAT),
        node("read", "ReadVariableOp", ("v",), FLOAT),
        node("text", "Placeholder", (), attr("dtype", "type: DT_STRING")),
        node("same", "Identity", ("text",), attr("T", "type: DT_STRING")),
    ]
).encode()
ENDLESS = "\n".join(
    [
        node("zero", "Const", (), FLOAT, attr("value", "tensor { dtype: DT_FLOAT tensor_shape { } float_val: 0 }")),
        node("enter", "Enter", ("zero",), T, attr("frame_name", 's: "f"')),
        node("merge", "Merge", ("enter", "next"), T, attr("N", "i: 2")),
        node("true", "LessEqual", ("merge", "merge"), T),
        node("test", "LoopCond", ("true",)),
        node("fork", "Switch", ("merge", "test"), T),
        node("next", "NextIteration", ("fork:1",), T),
        node("out", "Exit", ("fork",), T),
    ]
).encode()


@pytest.fixture
def session():
    with plimsoll.Session(GRAPH) as session:
        yield session


def test_fetches_come_in_their_structure(session):
    feed = {"x:0": [1, 2], "y:0": numpy.float32([3, 4])}
    Pair = collections.namedtuple("Pair", "first second")
    assert session.run("sum:0", feed).tolist() == [4, 6]
    made = session.run({"a": ["sum:0", ("double:0",)], "b": Pair("sum:0", "init"), "c": "init"}, feed)
    assert made["a"][0].tolist() == [4, 6] and made["a"][1][0].tolist() == [8, 12]
    assert isinstance(made["a"][1], tuple) and isinstance(made["b"], Pair)
    assert made["b"].second is None and made["c"] is None
    assert session.run([], feed) == []


def test_types_are_those_of_the_graph(session):
    made = session.run("sum:0", {"x": [1, 2], "y": numpy.arange(2)})
    assert made.dtype == numpy.float32
    scalar = session.run("sum:0", {"x": 1, "y": 2.5})
    assert isinstance(scalar, numpy.float32) and scalar == 3.5
    assert session.run("sum:0", {"x": numpy.zeros((0, 3)), "y": numpy.zeros((0, 3))}).shape == (0, 3)


def test_arrays_that_are_not_contiguous_or_not_native_are_copied(session):
    x = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    assert (session.run("sum:0", {"x": x.T, "y": x.T[::-1]}) == x.T + x.T[::-1]).all()
    assert (session.run("sum:0", {"x": x.astype(">f4"), "y": x}) == 2 * x).all()
    odd = numpy.frombuffer(b"\0" + x.tobytes(), numpy.uint8)[1:].view(numpy.float32).reshape(3, 4)
    assert (session.run("sum:0", {"x": odd, "y": x}) == 2 * x).all()


def test_strings_are_refused_by_name(session):
    for text in ("word", [["a", b"\xff"], ["", "ü"]], numpy.array(["a", "bc"])):
        with pytest.raises(errors.UnimplementedError, match="string"):
            session.run("same:0", {"text:0": text})


def test_results_are_the_callers(session):
    x = numpy.ones(4, numpy.float32)
    made = session.run("sum:0", {"x": x, "y": x})
    made[:] = 7
    assert session.run("sum:0", {"x": x, "y": x}).tolist() == [2, 2, 2, 2]
    session.close()
    assert made.tolist() == [7, 7, 7, 7]


def test_large_feeds_are_not_copied(session):
    """What is resident while it runs: the feeds, and the result."""
    source = f"""
import numpy, resource, plimsoll
x = numpy.ones(25_000_000, numpy.float32)
with plimsoll.Session({GRAPH!r}) as session:
    call = session.make_callable("sum:0", ["x:0", "y:0"])
    call(x[:1], x[:1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = call(x, x)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=PACKAGE)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 160_000  # KiB: one array of 100 MB, and no second one


def test_variables_live_in_the_session(session, tmp_path):
    with pytest.raises(errors.FailedPreconditionError):
        session.run("read:0")
    assert session.run("init") is None
    session.run(["step", "step"])
    assert session.run("read:0").tolist() == [2, 2]
    assert session.variables == [("v", "float", (2,))]
    session.save(tmp_path / "checkpoint")
    session.write_variable("v", [5, 6])
    assert session.read_variable("v").tolist() == [5, 6]
    session.restore(tmp_path / "checkpoint")
    assert session.run("read:0").tolist() == [2, 2]


def test_a_callable_takes_every_shape(session):
    call = session.make_callable("sum:0", ["x", "y"])
    for size in (1, 5, 5, 2, 1):
        assert call(numpy.ones(size), numpy.ones(size)).tolist() == [2.0] * size
    assert session.make_callable(["sum:0", "init"], ["x", "y"])(1, 2) == [3, None]
    assert session.make_callable("init")() is None
    with pytest.raises(ValueError, match="Expected 2 feeds, but got 1"):
        call(1)


def test_a_plan_says_the_peak_and_the_line_holds():
    feed = {"x:0": numpy.zeros(1000, numpy.float32), "y:0": numpy.zeros(1000, numpy.float32)}
    with plimsoll.Session(GRAPH) as session:
        plan = session.plan("double:0", feed)
    assert plan.fits and "peak" in str(plan)
    facts = plan.to_dict()
    peak = facts["devices"][0]["peak_bytes"]
    assert peak == plan.minimum_limit_bytes == sum(value for name, value in facts["devices"][0].items() if name in PARTS)
    with plimsoll.Session(GRAPH, limits={"CPU:0": peak}) as session:
        session.run("double:0", feed)
        assert session.memory_info("CPU:0")["peak"] == peak
    with plimsoll.Session(GRAPH, limits={"CPU:0": peak - 1}) as session:
        assert session.plan("double:0", feed).shortfall_bytes == 1
        with pytest.raises(errors.ResourceExhaustedError) as refused:
            session.run("double:0", feed)
        assert isinstance(refused.value, MemoryError) and refused.value.error_code == 8
    assert plimsoll.plan(GRAPH, "double:0", feed, limits={"CPU:0": peak}).fits


PARTS = ["variables_bytes", "constants_bytes", "activations_bytes", "workspace_bytes", "transfer_bytes", "overhead_bytes"]


def test_simulated_cards_and_config():
    with plimsoll.Session(GRAPH, config="device_count { key: 'CPU' value: 2 }", sim_gpus="2x1GiB") as session:
        assert [name.rsplit("device:")[-1] for name in session.list_devices()] == ["CPU:0", "CPU:1", "GPU:0", "GPU:1"]
        assert session.run("sum:0", {"x": 1, "y": 2}) == 3
    with pytest.raises(errors.DataLossError, match="this is not a ConfigProto"):
        plimsoll.Session(GRAPH, config=b"\xff\xff")


def test_errors_have_names_and_facts(session):
    with pytest.raises(errors.InvalidArgumentError):
        session.run("nothing:0")
    with pytest.raises(errors.InvalidArgumentError) as failed:
        session.run("sum:0", {"x": [1, 2], "y": [1, 2, 3]})
    assert failed.value.node == failed.value.op == "sum"
    again = pickle.loads(pickle.dumps(failed.value))
    assert (type(again), str(again), again.node) == (type(failed.value), str(failed.value), "sum")
    with pytest.raises(errors.NotFoundError):
        plimsoll.Session("no/such/file.pb")
    with pytest.raises(errors.InvalidArgumentError):
        plimsoll.Session(b"no graph at all")


def test_misuse_is_an_exception(session):
    for feed in ({"x": object(), "y": 1}, {"x": "text", "y": 1}, {3: 1}, {"x": [[1], [1, 2]], "y": 1}):
        with pytest.raises((TypeError, ValueError)):
            session.run("sum:0", feed)
    for fetches in (None, 3, [None], {"a": 1.5}):
        with pytest.raises(TypeError):
            session.run(fetches)
    for wrong in (
        lambda: session.partial_run(),
        lambda: session.run("sum:0", options=1),
        lambda: session.make_callable("x:0", accept_options=True),
    ):
        with pytest.raises(NotImplementedError):
            wrong()
    call = session.make_callable("read:0")
    session.close()
    session.close()
    for closed in (lambda: session.run("sum:0"), lambda: session.plan("sum:0"), lambda: session.save("x"), call):
        with pytest.raises(RuntimeError, match="Attempted to use a closed Session"):
            closed()


def test_threads_run_one_session(session):
    session.run("init")
    call = session.make_callable("double:0", ["x", "y"])
    wrong = []

    def work(number):
        for size in range(1, 40):
            x = numpy.full(size % 7 + 1, number, numpy.float32)
            if not (call(x, x) == 4 * number).all() or not (session.run("sum:0", {"x": x, "y": 1}) == number + 1).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_sessions_give_their_memory_back():
    source = f"""
import os, numpy, plimsoll
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
x = numpy.ones(1_000_000, numpy.float32)
for number in range(100):
    with plimsoll.Session({GRAPH!r}) as session:
        session.run("init")
        assert session.run("double:0", {{"x": x, "y": x}})[0] == 4
    if number == 10:
        before = resident()
print(resident() - before)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=PACKAGE)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 8 << 20


def test_ctrl_c_ends_a_run(tmp_path):
    source = f"""
import sys, plimsoll
session = plimsoll.Session({ENDLESS!r})
print("now", flush=True)
try:
    session.run("out:0")
except KeyboardInterrupt:
    print("ended", flush=True)
session.close()
"""
    program = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, cwd=PACKAGE)
    assert program.stdout.readline() == "now\n"
    # The run may not have begun: Python raises KeyboardInterrupt in either case.
    time.sleep(0.2)
    program.send_signal(signal.SIGINT)
    assert program.communicate()[0] == "ended\n" and program.returncode == 0


COUNTED = ENDLESS.replace(b'node { name: "true" op: "LessEqual" input: "merge" input: "merge"', b'node { name: "true" op: "Less" input: "merge" input: "most"').replace(
    b'node { name: "next" op: "NextIteration" input: "fork:1"', b'node { name: "more" op: "AddV2" input: "fork:1" input: "step" attr { key: "T" value { type: DT_FLOAT } } }\nnode { name: "next" op: "NextIteration" input: "more"'
) + "\n".join(
    [
        "",
        node("n", "Placeholder", (), FLOAT, attr("shape", "shape { }")),
        node("one_step", "Const", (), FLOAT, attr("value", "tensor { dtype: DT_FLOAT tensor_shape { } float_val: 1 }")),
        *(
            node(name, "Enter", (of,), T, attr("frame_name", 's: "f"'), attr("is_constant", "b: true"))
            for name, of in (("most", "n"), ("step", "one_step"))
        ),
    ]
).encode()


def test_ctrl_c_ends_a_run_that_was_short_before():
    source = f"""
import plimsoll
session = plimsoll.Session({COUNTED!r})
for n in range(5):
    assert session.run("out:0", {{"n:0": float(n)}}) == n
print("now", flush=True)
try:
    session.run("out:0", {{"n:0": 1e30}})
except KeyboardInterrupt:
    print("ended", flush=True)
session.close()
"""
    program = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, cwd=PACKAGE)
    assert program.stdout.readline() == "now\n"
    time.sleep(0.3)
    program.send_signal(signal.SIGINT)
    assert program.communicate(timeout=60)[0] == "ended\n" and program.returncode == 0


def test_ctrl_c_ends_a_wait_for_another_run():
    """A thread's run has all that the line allows; the next run waits for it."""
    source = f"""
import os, signal, threading, time, numpy, plimsoll
x = numpy.ones((700, 700), numpy.float32)
graph = {PRODUCT!r}
with plimsoll.Session(graph) as session:
    most = session.plan("far:0", {{"x:0": x}}).minimum_limit_bytes
session = plimsoll.Session(graph, limits={{"CPU:0": most}})
small = numpy.ones((1, 1), numpy.float32)
near = session.make_callable("near:0", ["x:0"])
near(small)
thread = threading.Thread(target=lambda: [session.run("far:0", {{"x:0": x}}) for _ in range(100)], daemon=True)
thread.start()
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    while time.monotonic() - begin < 30:
        near(small)
except KeyboardInterrupt:
    print("ended", time.monotonic() - begin < 20, thread.is_alive())
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=PACKAGE, timeout=120)
    assert done.stdout.startswith("ended True"), done.stdout + done.stderr


PRODUCT = "\n".join(
    [
        node("x", "Placeholder", (), FLOAT),
        node("near", "MatMul", ("x", "x"), T),
        *(node(f"p{i}", "MatMul", (f"p{i - 1}" if i else "x", "x"), T) for i in range(20)),
        node("far", "Identity", ("p19",), T),
    ]
).encode()


def test_a_closed_session_gives_everything_back(monkeypatch, tmp_path):
    monkeypatch.setenv("PLIMSOLL_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("PLIMSOLL_NVML", "")
    options = {"config": "gpu_options { per_process_gpu_memory_fraction: 0.9 }", "sim_gpus": "1x64MiB"}
    kept = []
    for _ in range(3):
        with plimsoll.Session(GRAPH, **options) as session:
            call = session.make_callable("sum:0", ["x:0", "y:0"])
            assert call(1, 2) == 3
            kept += [session, call, session.plan("sum:0", {"x:0": 1, "y:0": 2})]
            with pytest.raises(errors.ResourceExhaustedError):
                plimsoll.Session(GRAPH, **options)
    for use in (call.__call__, session.list_devices, lambda: session.memory_info("CPU:0")):
        with pytest.raises((RuntimeError, ValueError)):
            use()


def test_another_job_is_refused_with_the_engines():
    graph = GRAPH.replace(b'name: "sum"', b'name: "sum" device: "/job:worker/task:1/gpu:0"')
    for config in (None, "allow_soft_placement: false", "allow_soft_placement: true"):
        with pytest.raises(errors.InvalidArgumentError) as refused:
            plimsoll.Session(graph, config=config).run("sum:0", {"x:0": 1, "y:0": 2})
        assert 'engine="ray"' in refused.value.remedy and "Slurm" in str(refused.value)


def _in_a_child(queue):
    with plimsoll.Session(GRAPH) as session:
        queue.put(float(session.run("sum:0", {"x": 1, "y": 2})))


@pytest.mark.parametrize("how", ["spawn", "forkserver"])
def test_other_processes_open_their_own(how, session):
    session.run("sum:0", {"x": 1, "y": 2})
    context = multiprocessing.get_context(how)
    queue = context.Queue()
    process = context.Process(target=_in_a_child, args=(queue,))
    process.start()
    assert queue.get(timeout=60) == 3
    process.join()
    assert process.exitcode == 0


def test_the_interpreter_may_end_while_something_runs():
    source = f"""
import threading, time, plimsoll
session = plimsoll.Session({ENDLESS!r})
threading.Thread(target=lambda: session.run("out:0"), daemon=True).start()
time.sleep(0.1)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=PACKAGE, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_readme_is_true():
    text = (PROJECT / "README.md").read_text()
    program, wanted = text.split("```py\n")[1].split("```")[0], text.split("```text\n")[1].split("```")[0]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=PROJECT, env=environment)
    assert (done.stdout, done.stderr) == (wanted, "")


def replay(folder):
    case = json.loads((folder / "case.json").read_text())
    config = (folder / case["config"]).read_bytes() if case.get("config") else None
    path = folder / (case.get("saved_model") or case["graph"])
    with saved_model.load(path, case.get("tags"), config=config) as model:
        session = model.session
        if case.get("init"):
            session.run(case["init"])
        for step in case["steps"]:
            # Extended types are files of their bytes, which only the program reads.
            feeds = {name: numpy.load(folder / file) for name, file in step.get("feeds", {}).items()}
            wanted = {name: numpy.load(folder / file) for name, file in step.get("fetches", {}).items()}
            try:
                if step.get("signature"):
                    made = model.signatures[step["signature"]](**feeds)
                else:
                    made = session.run({**{name: name for name in wanted}, "targets": step.get("targets", [])}, feeds)
            except errors.OpError as error:
                if isinstance(error, errors.UnimplementedError) and not step.get("error"):
                    raise
                assert step.get("error") and type(error).__name__.lower() == step["error"].replace("_", "").lower() + "error", error
                continue
            assert not step.get("error"), "it does not fail"
            for name, value in wanted.items():
                if value.dtype.kind in "fc":
                    numpy.testing.assert_allclose(made[name], value, rtol=case["rtol"], atol=case["atol"], err_msg=name)
                else:
                    assert (made[name] == value).all(), name


@pytest.mark.parametrize("folder", CASES + LARGE, ids=lambda folder: folder.name)
def test_recorded_runs(folder):
    try:
        replay(folder)
    except errors.UnimplementedError as error:
        pytest.skip(f"not yet: {error.message}")


def test_nothing_is_left():
    assert not multiprocessing.active_children()
    assert len(os.listdir("/proc/self/fd")) < 200


def test_a_forked_child_gets_an_exception(session):
    session.run("sum:0", {"x": 1, "y": 2})
    call = session.make_callable("sum:0", ["x", "y"])
    call(1, 2)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for use in (lambda: session.run("sum:0", {"x": 1, "y": 2}), lambda: call(1, 2), session.list_devices, session.close):
                with pytest.raises(RuntimeError, match="belong to the process that opened them"):
                    use()
            with plimsoll.Session(GRAPH) as own:
                assert own.run("sum:0", {"x": 1, "y": 2}) == 3
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert call(1, 2) == 3


RESHAPE = "\n".join(
    [
        node("x", "Placeholder", (), FLOAT),
        node("shape", "Placeholder", (), attr("dtype", "type: DT_INT32")),
        node("y", "Reshape", ("x", "shape"), T),
    ]
).encode()


def test_a_plan_is_a_picture_in_a_notebook():
    feed = {"x:0": numpy.zeros(1000, numpy.float32), "y:0": numpy.zeros(1000, numpy.float32)}
    with plimsoll.Session(GRAPH) as session:
        plan = session.plan("double:0", feed)
    frame = plan._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts"') and frame.endswith("</iframe>") and frame.count("<") == 2
    page = html.unescape(frame.split('srcdoc="')[1].split('"></iframe>')[0])
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert data["models"][0]["needs"][0]["peak"] == plan.to_dict()["devices"][0]["peak_bytes"]


def test_a_plan_that_depends_on_elements_is_for_these():
    x = numpy.arange(6, dtype=numpy.float32)
    with plimsoll.Session(RESHAPE) as session:
        call = session.make_callable("y:0", ["x:0", "shape:0"])
        for shape in ([2, 3], [3, 2], [2, 3], [6, 1]):
            shape = numpy.int32(shape)
            assert call(x, shape).shape == session.run("y:0", {"x:0": x, "shape:0": shape}).shape == tuple(shape)
        with pytest.raises(errors.InvalidArgumentError):
            call(x, numpy.int32([4, 4]))
        assert call(x, numpy.int32([1, 6])).shape == (1, 6)


class Foreign:
    """A tensor of another library, as DLPack hands it over."""

    def __init__(self, array):
        self.array, self.taken = array, 0

    def __dlpack__(self, **options):
        self.taken += 1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_in_and_out(session):
    x = Foreign(numpy.arange(4, dtype=numpy.float32))
    made = session.run("sum:0", {"x:0": x, "y:0": Foreign(numpy.ones(4, numpy.int64))})
    assert made.tolist() == [1, 2, 3, 4] and x.taken == 1
    other = numpy.from_dlpack(made)
    assert other.ctypes.data == made.ctypes.data
    if importlib.util.find_spec("torch") is not None:
        import torch

        made = session.run("sum:0", {"x:0": torch.ones(3), "y:0": torch.zeros(3)})
        assert torch.from_dlpack(made).sum() == 3


@pytest.mark.parametrize("value", [1, 1.5, True, -3, 2**24 + 1, 2**40, numpy.float64(0.1), numpy.int8(3), 0.1, -0.0, float("nan")])
def test_numbers_are_what_numpy_makes_of_them(session, value):
    call = session.make_callable("sum:0", ["x:0", "y:0"])
    made = call(value, 0)
    assert type(made) is numpy.float32 and made.tobytes() == (numpy.float32(value) + numpy.float32(0)).tobytes()


def test_runs_are_kept_apart(session):
    feed = {"x:0": 1, "y:0": 2}
    for _ in range(3):
        assert session.run("sum:0", feed) == 3 and session.run("double:0", feed) == 6
        assert session.run(("sum:0", "double:0"), feed) == (3, 6) and session.run(["sum:0"], feed) == [3]
        assert session.run("sum:0", {"y:0": 5, "x:0": 1}) == 6 and session.run("double:0", {"sum:0": numpy.float32(4)}) == 8
    for size in range(1, 200):
        assert session.run("sum:0", {"x": numpy.ones(size % 3 + 1), "y": size}).shape == (size % 3 + 1,)
    with pytest.raises(errors.InvalidArgumentError):
        session.run("sum:0", {"x": 1, "x:0": 1, "y": 1})
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.run("sum:0", feed)
