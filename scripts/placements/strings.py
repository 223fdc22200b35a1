"""Device strings: partial, softened, wrong; and what is refused."""
import tensorflow as tf

from .common import add_case, case, on, set_class, set_device, tf1, variable

SPELLINGS = {
    "name": "/job:localhost/replica:0/task:0/device:CPU:1", "legacy": "/cpu:1", "upper": "/CPU:1", "typed": "/device:CPU:1",
    "typed_lower": "/device:cpu:1", "task": "/task:0/cpu:1", "job": "/job:localhost", "job_type": "/job:localhost/device:CPU:*",
    "any": "/device:CPU:*", "type_alone": "/device:CPU", "wild": "/job:*/replica:*/task:*/device:CPU:2", "order": "/device:CPU:2/job:localhost",
    "local": "/job:localhost/cpu:3", "replica": "/replica:0/task:0", "without_slash": "CPU:1", "twice": "/cpu:1/cpu:2", "star": "/device:*:*",
    "star_index": "/device:*:2", "leading_zero": "/cpu:01", "empty_job": "/job:/cpu:1",
}
SOFTENED = {
    "index": "/cpu:7", "gpu": "/gpu:0", "gpu_index": "/device:GPU:11", "other": "/device:TPU:0", "unknown": "/device:FANCY:3",
    "job": "/job:worker/cpu:0", "task": "/job:localhost/task:1/cpu:0", "replica": "/replica:2", "job_gpu": "/job:localhost/gpu:0",
    "gpu_any": "/device:GPU:*", "xla": "/device:XLA_CPU:0", "type_of_worker": "/job:worker/device:GPU:0",
}
WRONG = {
    "malformed": "/nonsense", "words": "not a device", "index": "/cpu:x", "negative": "/cpu:-1", "type": "/device:", "slash": "/",
    "task": "/task:x", "big": "/cpu:99999999999999999999", "double_slash": "//cpu:0", "space": "/cpu:0 ", "number": "/device:0",
}


def spelled(device, resource=False):
    def build():
        x = set_device(tf1.placeholder_with_default(1.0, [], "x"), device)
        y = set_device(tf.negative(x, name="y"), device)
        v = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="v", name="v")
        set_device(v, device)
        tf.raw_ops.ReadVariableOp(resource=v, dtype=tf.float32, name="read")
        return [([], [y])]

    return build


for name, device in SPELLINGS.items():
    add_case(f"spelling_{name}", spelled(device), cpus=4, soft=False, fails=None)
for name, device in SOFTENED.items():
    add_case(f"softened_{name}", spelled(device), cpus=4, soft=True, fails=None)
    add_case(f"hard_{name}", spelled(device), cpus=4, soft=False, fails=None)
for name, device in WRONG.items():
    add_case(f"wrong_{name}", spelled(device), cpus=2, soft=True, fails=None)


@case(soft=True)
def softened_near_others():
    """A softened node goes to the first device, not to where its neighbours are; its group goes with it."""
    with on("/cpu:2"):
        x = tf1.placeholder_with_default(1.0, [], "x")
    a = set_device(tf.negative(x, name="a"), "/gpu:3")
    b = set_class(set_device(tf.negative(a, name="b"), "/cpu:2"), "loc:@c")
    c = set_device(tf.negative(b, name="c"), "/gpu:1")
    d = set_class(tf.negative(c, name="d"), "loc:@a")
    shape = tf.raw_ops.Shape(input=x)
    set_device(shape, "/gpu:1")
    identity = tf.identity(a, name="identity")
    e = set_device(tf.negative(identity, name="e"), "/gpu:3")
    return [([], [a, b, c, d, e, shape])]


@case(soft=True)
def softened_variables():
    """A resource device that is not there is given up last."""
    v = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="v", name="v")
    set_device(v, "/cpu:9")
    assign = tf.raw_ops.AssignVariableOp(resource=v, value=[1.0, 2.0], name="assign")
    set_device(assign, "/cpu:2")
    read = set_device(tf.raw_ops.ReadVariableOp(resource=v, dtype=tf.float32, name="read"), "/cpu:3")
    r = tf.raw_ops.VariableV2(shape=[2], dtype=tf.float32, name="r")
    set_device(r, "/gpu:9")
    ref = set_device(tf1.assign(r, [1.0, 2.0], name="ref"), "/cpu:1")
    return [([assign, ref], [read])]


@case(soft=True)
def merged_specifications():
    """Members of a group that say different parts of a device."""
    a = set_device(tf.negative(1.0, name="a"), "/job:localhost")
    b = set_class(set_device(tf.negative(1.0, name="b"), "/cpu:3"), "loc:@a")
    c = set_class(set_device(tf.negative(1.0, name="c"), "/task:0/device:CPU:*"), "loc:@b")
    d = set_class(tf.negative(1.0, name="d"), "loc:@c")
    return [([], [a, b, c, d])]


def refused(soft):
    def add(build):
        name = build.__name__.removeprefix("refused_").removesuffix("_hard")
        return add_case(f"refused_{name}_{'soft' if soft else 'hard'}", build, cpus=3, soft=soft, fails=None)

    return add


@refused(True)
@refused(False)
def colocated_apart():
    a = set_device(tf.negative(1.0, name="a"), "/cpu:1")
    b = set_class(set_device(tf.negative(2.0, name="b"), "/cpu:2"), "loc:@a")
    return [([], [a, b])]


@refused(True)
@refused(False)
def variables_apart():
    with on("/cpu:1"):
        v = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="v", name="v")
    with on("/cpu:2"):
        w = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="w", name="w")
    tf.raw_ops.Merge(inputs=[v, w], name="picked")
    return [([], [tf.identity(1.0)])]


@refused(True)
@refused(False)
def group_of_what_is_not_there():
    a = set_device(tf.negative(1.0, name="a"), "/gpu:1")
    b = set_class(tf.negative(2.0, name="b"), "loc:@a")
    return [([], [b])]


@refused(True)
@refused(False)
def no_kernel():
    """An operation that no device of a build without GPUs has."""
    x = tf1.placeholder_with_default(tf.ones([1, 2, 2, 1]), [1, 2, 2, 1], "x")
    tf.raw_ops.NcclAllReduce(input=x, reduction="sum", num_devices=1, shared_name="all", name="all_reduce")
    return [([], [x])]


@refused(False)
def unfetched_but_wrong():
    """The whole graph is placed: what is not asked for counts too."""
    set_device(tf.negative(1.0, name="elsewhere"), "/gpu:0")
    return [([], [tf.negative(2.0, name="wanted")])]


@case(soft=False, pruned=True)
def pruned_and_wrong():
    """With place_pruned_graph it does not."""
    set_device(tf.negative(1.0, name="elsewhere"), "/gpu:0")
    with on("/cpu:2"):
        x = tf1.placeholder_with_default(2.0, [], "x")
    y = tf.negative(x, name="y")
    kept = tf.constant(3.0, name="kept")
    with on("/cpu:1"):
        other = tf.add(kept, y, name="other")
    with on("/cpu:3"):
        tf.negative(kept, name="unused_consumer")
    return [([], [y]), ([], [other])]


@case(soft=False, pruned=True)
def pruned_variables():
    """What is stateful keeps its device between runs."""
    with on("/cpu:1"):
        v, w = variable("v"), variable("w", resource=True)
    with on("/cpu:2"):
        y = tf.reduce_sum(v) + tf.reduce_sum(w)
    free = tf1.get_variable("free", [], initializer=tf1.zeros_initializer(), use_resource=True)
    z = y + free
    return [([v.initializer, w.initializer, free.initializer], [y]), ([], [z])]


@case(cpus=12, soft=False, pruned=True)
def pruned_constants():
    """What is fetched has a consumer on the host; what keeps state stays where it was first needed."""
    with on("/cpu:2"):
        v = variable("v", resource=True)
    kept, other = tf.constant(3.0, name="kept"), tf.constant(4.0, name="other")
    noise = set_device(tf.random.normal([2, 2], seed=1), "/device:CPU:*")
    with on("/cpu:10"):
        a = tf.add(kept, other, name="a")
    with on("/cpu:3"):
        b = tf.add(tf.identity(v.read_value()), noise, name="b")
    shape = tf.raw_ops.Shape(input=b)
    return [([v.initializer], [a]), ([], [kept]), ([], [kept, a]), ([], [b, shape]), ([], [noise, other])]


@case(soft=True, pruned=True)
def pruned_softly():
    a = set_device(tf.negative(1.0, name="a"), "/gpu:1")
    with on("/cpu:2"):
        b = tf.add(a, 1.0, name="b")
    c = set_class(set_device(tf.negative(b, name="c"), "/cpu:3"), "loc:@b")
    d = tf.identity(c, name="d")
    return [([], [b]), ([], [d]), ([], [c, a])]
