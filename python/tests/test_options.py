"""Options of sessions beyond a ConfigProto's: a file in which values wait, exact convolutions, plans as they are, and machines that are not here."""

import json
import os
import subprocess
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("plimsoll._native", reason="the native module is not built", exc_type=ImportError)

import plimsoll  # noqa: E402
import plimsoll.compat.v1 as tf  # noqa: E402
from plimsoll import errors, saved_model  # noqa: E402

TOWERS = Path(__file__).resolve().parent.parent.parent / "crates" / "cli" / "tests" / "cases" / "towers2_adam_ref" / "graph.pb"
RANDOM = np.random.default_rng(3)
FEED = {"x:0": RANDOM.normal(size=(64, 8, 8, 3)).astype("f4"), "y:0": RANDOM.integers(0, 5, 64)}


def devices(plan):
    return {device["name"].rsplit(":", 2)[1]: device for device in plan.to_dict()["devices"]}


def losses(session):
    session.run("init")
    return [session.run(["tower_0/model/total_loss:0", "train"], FEED)[0].tobytes() for _ in range(2)]


def test_values_wait_in_a_file(tmp_path):
    spill = f"{tmp_path}=4MiB"
    plan = plimsoll.plan(TOWERS, ["tower_0/model/total_loss:0", "train"], FEED, spill=spill)
    least = plan.minimum_limit_bytes
    with plimsoll.Session(TOWERS) as session:
        wanted = losses(session)
    with plimsoll.Session(TOWERS, limits={"CPU:0": f"{least}B"}, spill=spill) as session:
        planned = devices(session.plan(["tower_0/model/total_loss:0", "train"], FEED))
        assert planned["SPILL"]["limit_bytes"] == 4 << 20 and 0 < planned["SPILL"]["peak_bytes"]
        assert losses(session) == wanted
        for kind, name in (("CPU", "CPU:0"), ("SPILL", "SPILL:0")):
            assert session.memory_info(name)["peak"] == planned[kind]["peak_bytes"] <= planned[kind]["limit_bytes"]
        assert not list(tmp_path.iterdir())  # it has no name
    with saved_model.load(TOWERS, spill=spill) as model:
        assert any(name.endswith("SPILL:0") for name in model.session.list_devices())
    for wrong in ("/tmp", "/nowhere=1MiB", "/tmp=0", "=", "", f"{tmp_path}=1048576GiB"):
        with pytest.raises(errors.OpError, match="spill|file"):
            plimsoll.Session(TOWERS, spill=wrong)
    for wrong in (Path("/tmp"), 4, b"/tmp=1MiB", ["/tmp=1MiB"]):
        with pytest.raises(TypeError, match="spill"):
            plimsoll.Session(TOWERS, spill=wrong)


def test_a_plan_may_stay_as_it_is():
    peak = plimsoll.plan(TOWERS, "train", FEED, fit=False).minimum_limit_bytes
    limits = {"CPU:0": f"{peak - 1}B"}
    assert plimsoll.plan(TOWERS, "train", FEED, limits=limits).fits
    refused = plimsoll.plan(TOWERS, "train", FEED, limits=limits, fit=False)
    assert (refused.fits, refused.shortfall_bytes) == (False, 1)
    with plimsoll.Session(TOWERS, limits=limits, fit=False) as session:
        session.run("init")
        with pytest.raises(errors.ResourceExhaustedError) as short:
            session.run("train", FEED)
        assert short.value.missing == 1


def convolution():
    """A layer for which the table of costs takes a form with fewer multiplications, wherever there is one."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [1, 28, 28, 128], name="x")
        filters = np.random.default_rng(1).normal(size=(3, 3, 128, 128)).astype("f4")
        tf.nn.conv2d(x, tf.constant(filters), [1, 1, 1, 1], "SAME", name="y")
    return graph


def test_convolutions_are_exact_where_that_is_asked_for():
    graph, feed = convolution(), {"x:0": np.random.default_rng(2).normal(size=(1, 28, 28, 128)).astype("f4")}

    def of(**options):
        with plimsoll.Session(graph, **options) as session:
            return session.run("y:0", feed).tobytes()

    text = "allow_soft_placement: true experimental { exact_convolutions: true }"
    exact = of(exact_convolutions=True)
    assert exact == of(config=text) == of(config=text, exact_convolutions=True) != of() == of(config="")
    experimental = tf.ConfigProto.Experimental(exact_convolutions=True)
    for config in (tf.ConfigProto(experimental=experimental), tf.ConfigProto(experimental=tf.ConfigProto.Experimental()), None):
        with tf.Session(graph=graph, config=config) as session:
            is_exact = config is not None and config.experimental.exact_convolutions
            assert (session.run("y:0", feed).tobytes() == exact) == is_exact
    with pytest.raises(NotImplementedError, match="Experimental.use_tfrt"):
        tf.ConfigProto.Experimental(use_tfrt=True)
    with pytest.raises(TypeError):
        plimsoll.Session(graph, exact_convolutions="yes")


def test_operands_of_products_are_rounded_where_that_is_asked_for():
    graph, feed = convolution(), {"x:0": np.random.default_rng(2).normal(size=(1, 28, 28, 128)).astype("f4")}

    def of(**options):
        with plimsoll.Session(graph, **options) as session:
            return session.run("y:0", feed)

    exact, rounded = of(exact_convolutions=True), of(matmul_precision="bf16")
    # As far as bf16 goes, or as they were where the processor has no instructions for it.
    assert 0 <= np.abs(rounded - exact).max() <= np.abs(exact).max() / 64
    experimental = tf.ConfigProto.Experimental(matmul_precision="bf16")
    assert of(config="allow_soft_placement: true experimental { matmul_precision: 'bf16' }").tobytes() == rounded.tobytes()
    with tf.Session(graph=graph, config=tf.ConfigProto(experimental=experimental)) as session:
        assert session.run("y:0", feed).tobytes() == rounded.tobytes()
    assert of(matmul_precision="float32").tobytes() == of().tobytes()
    for options in ({"matmul_precision": "bf8"}, {"matmul_precision": "bf16", "exact_convolutions": True}):
        with pytest.raises(plimsoll.errors.InvalidArgumentError):
            plimsoll.Session(graph, **options)


@pytest.fixture
def description(machine, tmp_path, monkeypatch):
    """A machine with two cards that is not here."""
    path = tmp_path / "machine.json"
    done = subprocess.run([plimsoll.binary(), "devices", "--describe", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    monkeypatch.delenv("PLIMSOLL_SIM_GPUS")
    return path


GRAPH = b"""
node { name: "x" op: "Placeholder" device: "/gpu:1" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "y" op: "AddV2" device: "/gpu:1" input: "x" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
"""


def test_plans_are_made_for_machines_that_are_not_here(description, tmp_path):
    feed = {"x:0": np.ones(1000, "f4")}
    hard = "allow_soft_placement: false"
    with pytest.raises(errors.InvalidArgumentError):
        plimsoll.plan(GRAPH, "y:0", feed, hard)
    plan = plimsoll.plan(GRAPH, "y:0", feed, hard, devices=description)
    there = {device["name"][-5:]: device for device in plan.to_dict()["devices"]}
    assert plan.fits and there["GPU:1"]["peak_bytes"] >= 4000
    asked = ["plan", "-", "--fetch", "y:0", "--feed-shape", "x:0=1000", "--devices", str(description), "--soft-placement=false", "--json"]
    graph = tmp_path / "graph.pbtxt"
    graph.write_bytes(GRAPH)
    asked[1] = str(graph)
    program = json.loads(subprocess.run([plimsoll.binary(), *asked], capture_output=True, check=True).stdout)
    assert [device["peak_bytes"] for device in program["devices"]] == [device["peak_bytes"] for device in plan.to_dict()["devices"]]
    limited = plimsoll.plan(GRAPH, "y:0", feed, hard, {"GPU:1": "2KiB"}, devices=os.fspath(description))
    assert not limited.fits and limited.shortfall_bytes > 0
    with pytest.raises(errors.InvalidArgumentError, match="described machine"):
        plimsoll.plan(GRAPH, "y:0", feed, sim_gpus="1x1GiB", devices=description)
    with pytest.raises(errors.NotFoundError, match="nowhere"):
        plimsoll.plan(GRAPH, "y:0", feed, devices="/nowhere.json")
    description.write_text("{")
    with pytest.raises(errors.OpError, match=str(description)):
        plimsoll.plan(GRAPH, "y:0", feed, devices=description)
