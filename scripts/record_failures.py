#!/usr/bin/env python3
"""Records cases of steps that fail in crates/cli/tests/cases: `fail_*`. What comes after a failure by data or control has not
happened, what was done before it stays.

    python scripts/record_failures.py [CASE...]                   (needs tensorflow-cpu 2.21)
    python scripts/record_failures.py --random COUNT --check PLIMSOLL [OPTION...]

The second form makes COUNT graphs at random in a folder of its own and has `PLIMSOLL verify OPTION...` replay them.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import argparse
import itertools
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_list_ops as lists

import record_cases
from control_flow.common import do, each, init, read, tf1, v1, v2, variable
from record_cases import layers, record

CASES = {}
INVALID = "INVALID_ARGUMENT"
# How many graphs made at random are kept.
RANDOM = 8


def case(steps, **options):
    """A case of that name; the function's text is its note."""
    def add(build):
        CASES[f"fail_{build.__name__}"] = (build, steps, {"devices": 2, **options})
        return build
    return add


def ok(value=True):
    return {"p:0": np.bool_(value)}


BAD = ok(False)


def fails(feed, *targets, code=INVALID):
    """A step that only runs something, and fails."""
    return [(feed, [], list(targets), code)]


def holds(name="p"):
    return tf1.placeholder(tf.bool, [], name=name)


def require(condition, name="check"):
    return tf.raw_ops.Assert(condition=condition, data=["no"], name=name)


def number(name, value=1.0, ref=False):
    with tf1.device("/cpu:0"):
        made = variable(name, value, ref)
        tf.identity(made, name=f"{name}_now")
    return made


def now(*names):
    return read(*(f"{name}_now:0" for name in names))


TRIED = do(ok(), "step") + now("v") + fails(BAD, "step") + now("v") + do(ok(), "step") + now("v")


def behind_a_check(ref):
    def build():
        v = number("v", ref=ref)
        with tf1.device("/cpu:1"):
            check = require(holds())
        with tf.control_dependencies([check]), tf1.device("/cpu:0"):
            tf.group(tf1.assign_add(v, 1.0), name="step")
        return init()
    return build


CASES["fail_assert_elsewhere"] = (behind_a_check(False), TRIED, {"devices": 2, "note": "an assertion on another device than the update behind it"})
CASES["fail_assert_elsewhere_ref"] = (behind_a_check(True), TRIED, {"devices": 2, "note": "the same with a reference"})


@case(TRIED, devices=1)
def assert_here():
    """Assertion and update on one device."""
    v = number("v")
    with tf.control_dependencies([require(holds())]):
        tf.group(tf1.assign_add(v, 1.0), name="step")
    return init()


@case(TRIED)
def through_nodes():
    """From the assertion to the update through nodes that compute nothing, and constants."""
    v = number("v")
    with tf1.device("/cpu:1"), tf.control_dependencies([require(holds())]):
        one = tf.constant(1.0)
        group = tf.group(tf.no_op(), tf.no_op())
        with tf.control_dependencies([group]):
            one = tf.reshape(tf.identity(tf.identity(one)), [1])
    with tf1.device("/cpu:0"):
        tf.group(tf1.assign_add(v, tf.squeeze(one)), name="step")
    return init()


@case(do(ok(), "step") + now("v", "w") + fails(BAD, "step") + now("v", "w") + do(ok(), "step") + now("v", "w"))
def before_and_after():
    """One update before the assertion and one behind it: the first stays."""
    v, w = number("v"), number("w")
    with tf1.device("/cpu:0"):
        first = tf1.assign_add(v, 1.0).op
    with tf1.device("/cpu:1"), tf.control_dependencies([first]):
        check = require(holds())
    with tf1.device("/cpu:0"), tf.control_dependencies([check]):
        tf.group(tf1.assign_add(w, 1.0), name="step")
    return init()


@case(do(ok(), "step") + now("v") + fails(BAD, "step") + now("v") + do({**ok(), "q:0": np.False_}, "step") + now("v")
      + do({**BAD, "q:0": np.False_}, "step") + now("v"))
def in_a_branch():
    """An assertion in the branch that is taken, before an assignment there and one behind the branch."""
    v1()
    v = number("v")
    q = tf1.placeholder_with_default(True, [], name="q")
    p = holds()

    def checked():
        with tf.control_dependencies([require(p)]), tf1.device("/cpu:0"):
            return v.assign_add(1.0) + 0.0
    with tf1.device("/cpu:1"):
        done = tf1.cond(q, checked, lambda: tf.constant(0.5))
    with tf1.device("/cpu:0"):
        tf.group(tf1.assign_add(v, done), name="step")
    return init()


@case(do(ok(), "step") + now("v") + fails(BAD, "step") + now("v") + do({**BAD, "q:0": np.False_}, "step") + now("v"))
def in_a_function():
    """The same with If."""
    v2()
    v = number("v")
    q = tf1.placeholder_with_default(True, [], name="q")
    p = holds()

    def checked():
        with tf.control_dependencies([require(p)]):
            return tf.constant(2.0)
    done = tf1.cond(q, checked, lambda: tf.constant(0.5))
    with tf1.device("/cpu:0"):
        tf.group(tf1.assign_add(v, done), name="step")
    return init()


def indices(*values):
    return {"i:0": np.array(values, np.int32)}


@case(do(indices(0, 2), "step") + now("v") + fails(indices(0, 3), "step") + now("v") + fails(indices(-1, 3), "step") + now("v"))
def gather():
    """An index that is outside, before an update by control alone."""
    v = number("v")
    i = tf1.placeholder(tf.int32, [2], name="i")
    with tf1.device("/cpu:1"):
        rows = tf.gather(tf.constant([1.0, 2.0, 3.0]), i)
    with tf1.device("/cpu:0"), tf.control_dependencies([rows]):
        tf.group(tf1.assign_add(v, 1.0), name="step")
    return init()


@case(do(indices(2, 3), "step") + now("v", "n") + fails(indices(2, 0), "step") + now("v", "n") + fails(indices(0, 5), "set") + now("n")
      + do(indices(7, 5), "set") + now("n"))
def division():
    """A division of integers by 0: what would be assigned, and before an update."""
    v = number("v")
    with tf1.device("/cpu:0"):
        n = tf1.get_variable("n", initializer=tf.constant([100, 200]), use_resource=True)
        tf.identity(n, name="n_now")
        i = tf1.placeholder(tf.int32, [2], name="i")
        quotient = tf.constant([60, 70]) // i
        tf.group(tf1.assign(n, quotient), name="set")
        with tf.control_dependencies([quotient]):
            tf.group(tf1.assign_add(v, 1.0), tf1.assign_add(n, quotient), name="step")
    return init()


@case(do(indices(0, 2), "step") + now("t", "v") + fails(indices(3, 4), "step") + now("t", "v") + fails(indices(-1, 1), "step") + now("t", "v"))
def scatter():
    """A row that is outside comes first: no row changes, nor anything behind it."""
    v = number("v")
    i = tf1.placeholder(tf.int32, [2], name="i")
    with tf1.device("/cpu:0"):
        t = tf1.get_variable("t", initializer=tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), use_resource=True)
        tf.identity(t, name="t_now")
        change = tf.raw_ops.ResourceScatterAdd(resource=t.handle, indices=i, updates=tf.constant([[1.0, 1.0], [2.0, 2.0]]))
        with tf.control_dependencies([change]):
            tf.group(tf1.assign_add(v, 1.0), name="step")
    return init()


@case(do(indices(0, 2), "step") + now("v") + fails(indices(0, 3), "step") + now("v") + fails(indices(3, 1), "step") + now("v")
      + fails(indices(-1, 1), "step") + now("v") + do(indices(1, 1), "step") + now("v"))
def list_sum():
    """A sum of a list and of new lists of which a tensor is set, at an index that is outside, before an update."""
    v = number("v")
    i = tf1.placeholder(tf.int32, [2], name="i")
    with tf1.device("/cpu:0"):
        whole = lists.tensor_list_from_tensor(tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), [2])
        put = [lists.tensor_list_set_item(lists.tensor_list_reserve([2], 3, tf.float32), i[k], tf.constant([0.5, -2.0])) for k in (0, 1)]
        total = lists.tensor_list_stack(tf.raw_ops.AddN(inputs=[put[0], whole, put[1]]), [2], tf.float32)
        tf.group(tf1.assign_add(v, tf.reduce_sum(total[0])), name="step")
    return init()


@case(do({"n:0": np.int32(2)}, "step") + now("v") + fails({"n:0": np.int32(5)}, "step") + now("v") + do({"n:0": np.int32(3)}, "step") + now("v"))
def in_a_loop():
    """A division by 0 in the fourth iteration: what the iterations before it added stays, and nothing behind the loop happens."""
    v2()
    v = number("v")
    n = tf1.placeholder(tf.int32, [], name="n")

    def body(i, s):
        with tf.control_dependencies([6 // (3 - i)]), tf1.device("/cpu:0"):
            return i + 1, s + v.assign_add(1.0)
    with tf1.device("/cpu:0"):
        _, s = tf1.while_loop(lambda i, _: i < n, body, [0, 0.0], parallel_iterations=1)
        tf.group(tf1.assign_add(v, 100.0 * s), name="step")
    return init()


@case(do(ok(), "step") + now("v") + fails(BAD, "step") + do(ok(), "step") + now("v") + fails(BAD, "step") + do(ok(), "step") + now("v"))
def random_state():
    """A generator behind an assertion that fails draws nothing."""
    tf1.set_random_seed(7)
    with tf1.device("/cpu:0"):
        v = tf1.get_variable("v", initializer=tf.zeros([4]), use_resource=True)
        tf.identity(v, name="v_now")
    with tf1.device("/cpu:1"), tf.control_dependencies([require(holds())]):
        drawn = tf1.random_uniform([4], seed=3)
    with tf1.device("/cpu:0"):
        tf.group(tf1.assign(v, drawn), name="step")
    return init()


@case(do({**ok(), "q:0": np.True_}, "step") + now("v", "w") + fails({**BAD, "q:0": np.True_}, "step") + now("v", "w")
      + fails({**ok(), "q:0": np.False_}, "step") + now("w"))
def two_checks():
    """Two assertions without an order; one update is behind one of them, one behind both."""
    v, w = number("v"), number("w")
    with tf1.device("/cpu:1"):
        one, two = require(holds(), "one"), require(holds("q"), "two")
    with tf1.device("/cpu:0"):
        with tf.control_dependencies([one]):
            first = tf1.assign_add(v, 1.0)
        with tf.control_dependencies([first, two]):
            tf.group(tf1.assign_add(w, 1.0), name="step")
    return init()


def examples(seed, bad=False):
    random = np.random.default_rng(seed)
    x = random.normal(size=[8, 6]).astype(np.float32)
    if bad:
        x[3, 2] = np.nan
    return {"x:0": x, "y:0": random.integers(0, 3, 8).astype(np.int32)}


def labels(seed):
    feed = examples(seed)
    feed["y:0"][2] = 3
    return feed


WEIGHTS = read("w1_now:0", "w2_now:0", "steps_now:0")


def training(checked, optimizer, use_resource):
    def build():
        tf1.set_random_seed(5)
        x, y = tf1.placeholder(tf.float32, [None, 6], name="x"), tf1.placeholder(tf.int32, [None], name="y")
        def setter(op):
            is_variable = op.type in ("VariableV2", "VarHandleOp", "Assign", "AssignVariableOp", "ReadVariableOp") or "Apply" in op.type
            return "/cpu:0" if is_variable else "/cpu:1"
        with tf1.device("/cpu:0"):
            steps = tf1.train.get_or_create_global_step()
        with tf1.device(setter):
            logits = layers(x, use_resource)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
            optimizer = optimizer_of(optimizer_name)
            gradients = optimizer.compute_gradients(loss)
            if checked:
                checks = [tf.debugging.check_numerics(gradient, "gradient") for gradient, _ in gradients]
                with tf.control_dependencies(checks):
                    gradients = [(tf.identity(gradient), weight) for gradient, weight in gradients]
            optimizer.apply_gradients(gradients, global_step=steps, name="train")
        with tf1.device("/cpu:0"):
            weights = {weight.op.name.split("/")[-1]: weight for weight in tf1.trainable_variables()}
            for name in ("w1", "w2"):
                tf.identity(weights[name], name=f"{name}_now")
            tf.identity(steps, name="steps_now")
            return init()
    optimizer_name = optimizer
    return build


def optimizer_of(name):
    return {"sgd": lambda: tf1.train.GradientDescentOptimizer(0.5), "adam": lambda: tf1.train.AdamOptimizer(0.01)}[name]()


TRAINED = do(examples(1), "train") + WEIGHTS + fails(examples(2, True), "train") + WEIGHTS + do(examples(3), "train") + WEIGHTS
MISLABELLED = do(examples(1), "train") + WEIGHTS + fails(labels(2), "train") + WEIGHTS + do(examples(3), "train") + WEIGHTS
CASES["fail_train_adam"] = (training(True, "adam", True), TRAINED, {"devices": 2, "note": "a step of training whose gradients are no numbers"})
CASES["fail_train_sgd_ref"] = (training(True, "sgd", False), TRAINED, {"devices": 2, "note": "the same with references"})
CASES["fail_train_labels"] = (training(False, "sgd", True), MISLABELLED, {"devices": 2, "note": "a step of training with a label that is outside"})


class Wild:
    """A graph of assertions, updates and nodes in between made at random, and what of it is certain where assertions fail."""
    CHECKS, UPDATES = 3, 4

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def build(self):
        random = self.random
        self.before = []  # By node: the nodes before it, by data or control.
        values, controls = [], []  # (tensor or operation, its number)
        self.checks, self.updates = {}, {}

        def note(made, parents, table):
            self.before.append(set(parents).union(*(self.before[parent] for parent in parents)))
            table.append((made, len(self.before) - 1))
            return len(self.before) - 1

        def pick(table, count):
            picked = [table[int(random.integers(0, len(table)))] for _ in range(count)] if table else []
            return [made for made, _ in picked], [number for _, number in picked]

        predicates = [holds(f"p{index}") for index in range(self.CHECKS)]
        variables = [number(f"v{index}", float(index), ref=bool(index % 2)) for index in range(self.UPDATES)]
        note(tf1.placeholder_with_default(1.0, [], name="x"), [], values)
        kinds = ["check"] * self.CHECKS + ["update"] * self.UPDATES + list(random.choice(["sum", "same", "group", "constant", "cond"], 12))
        random.shuffle(kinds)
        for place, kind in enumerate(kinds):
            waits, parents = pick(controls + values, int(random.integers(0, 3)))
            waits = [getattr(wait, "op", wait) for wait in waits]
            device = f"/cpu:{int(random.integers(0, 2))}"
            with tf1.device(device), tf.control_dependencies(waits):
                if kind == "check":
                    index = len(self.checks)
                    self.checks[index] = note(require(predicates[index], f"check{index}"), parents, controls)
                elif kind == "update":
                    index = len(self.updates)
                    (value,), more = pick(values, 1)
                    with tf1.device("/cpu:0"):
                        change = variables[index].assign_add(value, read_value=False)
                    self.updates[index] = note(getattr(change, "op", change), parents + more, controls)
                elif kind == "sum":
                    (a, b), more = pick(values, 2)
                    note(tf.multiply(a + b, 0.5), parents + more, values)
                elif kind == "same":
                    (a,), more = pick(values, 1)
                    note(tf.reshape(tf.identity(a), []), parents + more, values)
                elif kind == "group":
                    note(tf.no_op(), parents, controls)
                elif kind == "constant":
                    note(tf.constant(float(place)), parents, values)
                elif kind == "cond":
                    (a,), more = pick(values, 1)
                    off, on = tf.raw_ops.Switch(data=a, pred=tf.identity(predicates[0]))
                    note(tf.raw_ops.Merge(inputs=[tf.identity(off), on + 1.0])[0], parents + more, values)
        with tf1.device("/cpu:0"):
            tf.group(*(made for made, _ in controls), *(value.op for value, _ in values), name="step")
            tf.group(*(tf1.assign(variables[index], float(index)) for index in range(self.UPDATES)), name="reset")
        return init()

    def steps(self):
        """For every choice of assertions that fail: all from the start, the step, and what is certain of the variables."""
        steps = []
        for choice in itertools.product([True, False], repeat=self.CHECKS):
            failing = [self.checks[index] for index, holds in enumerate(choice) if not holds]
            first = [check for check in failing if not self.before[check] & set(failing)]
            known = []
            for index, update in self.updates.items():
                never = any(check in self.before[update] for check in failing)
                surely = all(update in self.before[check] for check in first)
                if never or surely:
                    known.append(f"v{index}")
            feed = {f"p{index}:0": np.bool_(holds) for index, holds in enumerate(choice)}
            steps += do({}, "reset") + (fails(feed, "step") if failing else do(feed, "step")) + (now(*known) if known else [])
        return steps


def wild(seed):
    graph = Wild(seed)
    with tf.Graph().as_default():
        graph.build()
    steps = graph.steps()
    again = Wild(seed)
    return again.build, steps, {"devices": 2, "note": f"assertions and updates made at random, {seed}"}


for seed in range(1, RANDOM + 1):
    CASES[f"fail_random_{seed}"] = wild(seed)


def check(count, binary, options):
    """Records graphs made at random elsewhere and has them replayed."""
    with tempfile.TemporaryDirectory() as folder:
        record_cases.CASES = pathlib.Path(folder)
        for seed in range(1000, 1000 + count):
            build, steps, more = wild(seed)
            record(f"fail_random_{seed}", build, steps, as_written=True, stripped=True, **more)
        folders = sorted(map(str, pathlib.Path(folder).iterdir()))
        done = subprocess.run([binary, "verify", *options, *folders], stdout=subprocess.PIPE, text=True)
        print("\n".join(line for line in done.stdout.splitlines() if " OK" not in line))
        print(f"{count} graphs, exit status {done.returncode}")
        return done.returncode


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--random", type=int)
    parser.add_argument("--check")
    args, options = parser.parse_known_args()
    if args.random:
        sys.exit(check(args.random, args.check, options))
    for name, (build, steps, options) in CASES.items():
        if not args.cases or name in args.cases:
            options = {"note": build.__doc__, **options}
            record(name, build, steps, as_written=True, stripped=True, **options)


if __name__ == "__main__":
    main()
