"""What sessions are given and give: structures of fetches, tensors of other libraries, and arguments that make no sense."""

import collections
import subprocess
import sys

import pytest
from conftest import PACKAGE

np = pytest.importorskip("numpy")
pytest.importorskip("plimsoll._native", reason="the native module is not built", exc_type=ImportError)

import plimsoll  # noqa: E402
from test_session import ENDLESS, GRAPH  # noqa: E402

FEED = {"x:0": [1, 2], "y:0": [3, 4]}


@pytest.fixture
def session():
    with plimsoll.Session(GRAPH) as session:
        yield session


def test_mappings_keep_their_type(session):
    ordered = session.run(collections.OrderedDict([("b", "sum:0"), ("a", "init")]), FEED)
    assert type(ordered) is collections.OrderedDict and list(ordered) == ["b", "a"] and ordered["a"] is None
    default = session.run(collections.defaultdict(list, c="sum:0"), FEED)
    assert type(default) is collections.defaultdict and default["c"].tolist() == [4, 6] and default["d"] == []


def test_classes_of_attrs_are_structures(session):
    attr = pytest.importorskip("attr")

    @attr.s
    class Pair:
        first = attr.ib()
        second = attr.ib()

    made = session.run([Pair("sum:0", ["double:0"])], FEED)
    assert type(made[0]) is Pair and made[0].first.tolist() == [4, 6] and made[0].second[0].tolist() == [8, 12]


class Halves:
    """A tensor whose elements NumPy's DLPack does not know, as bfloat16 of JAX; it makes an array by itself."""

    def __dlpack__(self, **options):
        raise RuntimeError("Unsupported dtype in DLTensor.")

    def __dlpack_device__(self):
        return 1, 0

    def __array__(self, dtype=None, copy=None):
        return np.array([1, 2], dtype or np.float16)


def test_tensors_that_dlpack_does_not_hand_over_are_arrays(session):
    assert session.run("sum:0", {"x:0": Halves(), "y:0": 1}).tolist() == [2, 3]
    assert session.make_callable("sum:0", ["x:0", "y:0"])(Halves(), Halves()).tolist() == [2, 4]
    numpy = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    assert session.run("sum:0", {"x:0": numpy.ones(3, numpy.bfloat16), "y:0": 1}).tolist() == [2, 2, 2]


@pytest.mark.parametrize("graph", [None, 10**12, 1.5, [b"node"], object()])
def test_what_is_no_graph_is_a_type_error(graph):
    with pytest.raises(TypeError, match="graph"):
        plimsoll.Session(graph)


@pytest.mark.parametrize("config", [3, {}, object()])
def test_what_is_no_config_is_a_type_error(config):
    with pytest.raises(TypeError, match="config"):
        plimsoll.Session(GRAPH, config=config)


def test_ctrl_c_ends_a_close_that_waits_with_the_runs_that_it_waits_for():
    source = f"""
import os, signal, threading, time, plimsoll
session = plimsoll.Session({ENDLESS!r})
ends = []
def work():
    try:
        session.run("out:0")
    except BaseException as error:
        ends.append(type(error).__name__)
thread = threading.Thread(target=work)
thread.start()
time.sleep(0.5)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    session.close()
except KeyboardInterrupt:
    print("ended")
thread.join()
print(ends)
try:
    session.run("out:0")
except RuntimeError as error:
    print(error)
session.close()
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=PACKAGE, timeout=60)
    assert done.stdout == "ended\n['CancelledError']\nAttempted to use a closed Session.\n", done.stdout + done.stderr


def test_a_session_runs_while_the_interpreter_ends():
    """Its first result is made where modules are found no more."""
    source = f"""
import plimsoll
class Last:
    def __init__(self):
        self.session = plimsoll.Session({GRAPH!r})
    def __del__(self):
        print(self.session.run("sum:0", {{"x:0": 1, "y:0": 2}}), flush=True)
last = Last()
last.self = last
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=PACKAGE, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3.0\n", ""), done.stdout + done.stderr
