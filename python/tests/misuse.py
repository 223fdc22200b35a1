"""Random misuse of sessions, devices and graphs: `python misuse.py SEED STEPS`. Every step ends with a value or with an exception of Python's
or of `plimsoll.errors`; the process ends by itself. `test_misuse.py` runs it."""

import os
import random
import sys
import threading

os.environ.update(PLIMSOLL_SIM_GPUS="2x8MiB", PLIMSOLL_NVML="")

import numpy as np

import plimsoll
import plimsoll.compat.v1 as tf
from plimsoll import config, errors, saved_model

ALLOWED = (
    TypeError,
    ValueError,
    RuntimeError,
    KeyError,
    IndexError,
    AttributeError,
    MemoryError,
    OverflowError,
    OSError,
    BufferError,
    errors.OpError,
    plimsoll.Error,
)
GRAPH = b"""
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "n" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } }
node { name: "s" op: "Placeholder" attr { key: "dtype" value { type: DT_STRING } } }
node { name: "sum" op: "AddV2" input: "x" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "reshaped" op: "Reshape" input: "x" input: "n" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "product" op: "MatMul" input: "x" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "filled" op: "Fill" input: "n" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "v" op: "VarHandleOp" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { dim { size: 2 } } } } attr { key: "shared_name" value { s: "v" } } }
node { name: "set" op: "AssignVariableOp" input: "v" input: "x" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "read" op: "ReadVariableOp" input: "v" attr { key: "dtype" value { type: DT_FLOAT } } }
"""


class Odd:
    """An object whose protocols fail."""

    name = 3

    def __array__(self, *args, **kwargs):
        raise ValueError("no array")

    def __dlpack__(self, **kwargs):
        raise BufferError("no tensor")

    def __hash__(self):
        return 1

    def SerializeToString(self):  # noqa: N802
        return 7


def values(r):
    """Something that may be a feed, a name, a shape or a number."""
    return r.choice(
        [
            lambda: None,
            lambda: r.choice([0, 1, -1, 3, 2**31, -(2**63), 2**63, 2**200]),
            lambda: r.choice([0.0, -1.5, float("nan"), float("inf"), 1e308]),
            lambda: r.choice(["", "x", "x:0", "sum:0", "product:0", "x:1", "x:-1", ":", "^x", "\0", "read", "é:0", "x:99999999999999999999"]),
            lambda: r.choice([b"", b"x", b"\xff\xfe", GRAPH]),
            lambda: r.choice([True, False]),
            lambda: [values(r) for _ in range(r.randrange(3))],
            lambda: {r.choice("abx"): values(r) for _ in range(r.randrange(3))},
            lambda: np.zeros([r.randrange(4) for _ in range(r.randrange(4))], r.choice(["f4", "f8", "i4", "i8", "?", "O", "S3", "U2", ">f4", "c8"])),
            lambda: np.ones([2, 2], "f4")[:, ::-1],
            lambda: np.broadcast_to(np.float32(1), (1 << r.randrange(36), 3)) if r.random() < 0.1 else np.float32(2),
            lambda: np.array([[1, 2], [3, 4]], "f4").T,
            lambda: np.zeros(3, [("a", "f4")]),
            lambda: np.datetime64("2020-01-01"),
            lambda: np.int32([2**30, 2**30]),
            lambda: memoryview(b"abcd"),
            lambda: Odd(),
            lambda: object,
            lambda: (values(r), values(r)),
            lambda: print,
        ]
    )()


def feeds(r):
    return {r.choice(["x", "x:0", "n:0", "s:0", "sum:0", values(r)]): values(r) for _ in range(r.randrange(3))}


def keyed(make):
    """A dict of what may not be hashed."""
    try:
        return make()
    except TypeError:
        return {"x:0": 1.0}


def steps(r, state):
    """One step of misuse."""
    session = r.choice(state["sessions"])
    names = ["x:0", "sum:0", "reshaped:0", "product:0", "filled:0", "read:0", "set", "v", "s:0", values(r)]
    fetch = r.choice([r.choice(names), [r.choice(names), r.choice(names)], {"a": r.choice(names)}, (), values(r)])
    return r.choice(
        [
            lambda: session.run(fetch, keyed(lambda: feeds(r))),
            lambda: session.run(fetch, {"x:0": values(r), "n:0": values(r)}),
            lambda: session.run(fetch, values(r)),
            lambda: session.plan(fetch, keyed(lambda: feeds(r))).to_dict(),
            lambda: state["calls"].append(session.make_callable(fetch, r.choice([None, ["x"], ["x", "n"], values(r)]))),
            lambda: r.choice(state["calls"])(*[values(r) for _ in range(r.randrange(3))]),
            lambda: session.read_variable(values(r)),
            lambda: session.write_variable(r.choice(["v", values(r)]), values(r)),
            lambda: session.save(r.choice(["/tmp/nowhere/at/all", "/dev/null/x", values(r)])),
            lambda: session.restore(r.choice(["/tmp/nowhere", "/dev/zero", values(r)])),
            lambda: session.memory_info(r.choice(["CPU:0", "GPU:7", values(r)])),
            lambda: session.close() if r.random() < 0.2 else session.list_devices(),
            lambda: state["sessions"].append(plimsoll.Session(r.choice([GRAPH, GRAPH, values(r)]), r.choice([None, None, values(r)]))),
            lambda: state["sessions"].append(plimsoll.Session(GRAPH, limits=r.choice([None, "1MiB", {"CPU:0": 100}, {"GPU:0": values(r)}, values(r)]))),
            lambda: state["sessions"].append(plimsoll.Session(GRAPH, sim_gpus=r.choice([None, "1x1MiB", values(r)]))),
            lambda: state["sessions"].append(plimsoll.Session(GRAPH, device_count=r.choice([{"CPU": 2}, {"CPU": 2**40}, {"GPU": -1}, values(r)]))),
            lambda: saved_model.load(r.choice(["/", "", "/dev/null", values(r)])),
            lambda: plimsoll.plan(values(r), values(r), values(r)),
            lambda: config.set_visible_devices(values(r), values(r)),
            lambda: config.experimental.set_memory_growth(values(r), values(r)),
            lambda: config.experimental.get_memory_info(values(r)),
            lambda: config.set_logical_device_configuration(r.choice([*config.list_physical_devices(), values(r)]), values(r)),
            lambda: config.threading.set_intra_op_parallelism_threads(values(r)),
            lambda: config.LogicalDeviceConfiguration(values(r), values(r)),
            lambda: tensor(r, state),
            lambda: state["sessions"].append(tf.Session(config=r.choice([None, tf.ConfigProto(allow_soft_placement=True), values(r)]))),
        ]
    )


def tensor(r, state):
    """A node that makes little sense, perhaps."""
    tensors = state["tensors"]
    one, other = r.choice([*tensors, values(r)]), r.choice([*tensors, values(r)])
    made = r.choice(
        [
            lambda: tf.constant(values(r), values(r), values(r)),
            lambda: tf.placeholder(r.choice(["float32", values(r)]), values(r)),
            lambda: tf.Variable(values(r)),
            lambda: tf.get_variable(values(r), values(r)),
            lambda: one + other,
            lambda: tf.matmul(one, other),
            lambda: tf.reshape(one, other),
            lambda: tf.gradients(one, other),
            lambda: tf.concat([one, other], values(r)),
            lambda: tf.nn.conv2d(one, other, values(r), "SAME"),
            lambda: one[other],
            lambda: getattr(tf.raw_ops, r.choice(["Pad", "Slice", "TopKV2", "Fill", "Conv2D", "NoSuch"]))(**{"name": values(r)}),
            lambda: tf.cond(one, lambda: other, lambda: one),
            lambda: tf.while_loop(lambda x: other, lambda x: x + one, [one]),
            lambda: tf.train.AdamOptimizer(values(r)).minimize(one),
            lambda: tf.device(values(r)).__enter__(),
            lambda: tf.layers.dense(one, values(r)),
        ]
    )()
    if isinstance(made, tf.Tensor):
        tensors.append(made)


def main(seed, count):
    r = random.Random(seed)
    state = {"sessions": [plimsoll.Session(GRAPH)], "calls": [], "tensors": [tf.constant(1.0)]}
    ends = {}
    for number in range(count):
        with tf.Graph().as_default() if number % 97 == 0 else tf.get_default_graph().as_default():
            try:
                steps(r, state)()
            except ALLOWED as error:
                ends[type(error).__name__] = ends.get(type(error).__name__, 0) + 1
                assert not isinstance(error, errors.InternalError), f"seed {seed}, step {number}: {error}"
        if len(state["sessions"]) > 12:
            state["sessions"].pop(r.randrange(12))
        if not state["sessions"]:
            state["sessions"].append(plimsoll.Session(GRAPH))
        del state["tensors"][:-20], state["calls"][:-20]
        if number % 500 == 250 and hasattr(os, "fork"):
            child = os.fork()
            if child == 0:
                try:
                    for session in state["sessions"]:
                        try:
                            session.run("sum:0", {"x:0": 1.0})
                        except ALLOWED:
                            pass
                finally:
                    os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, f"seed {seed}, step {number}: a forked child"
    if r.random() < 0.5:  # the interpreter ends while runs go on
        session = plimsoll.Session(GRAPH)
        big = np.ones((600, 600), "f4")
        for _ in range(2):
            threading.Thread(target=lambda: [session.run("product:0", {"x:0": big}) for _ in range(1000)], daemon=True).start()
    print(sorted(ends))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
