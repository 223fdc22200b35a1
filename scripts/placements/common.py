"""The table of placement cases, and what several of them build."""
import contextlib

import tensorflow as tf

tf1 = tf.compat.v1
CASES = {}


def case(cpus=4, soft=True, fails=False, pruned=False):
    """Adds a case: a function that builds a graph and returns what is run, a list of (what runs before, what is fetched or run).

    cpus: how many CPU devices there are. soft: allow_soft_placement. fails: the session refuses the graph. pruned:
    place_pruned_graph.
    """

    def add(build):
        assert build.__name__ not in CASES, build.__name__
        subject = build.__module__.rpartition(".")[2]
        CASES[build.__name__] = (subject, build, dict(cpus=cpus, soft=soft, fails=fails, pruned=pruned))
        return build

    return add


def add_case(name, build, **options):
    """As case, for a function that is made."""
    def named():
        return build()

    named.__name__ = named.__qualname__ = name
    named.__module__ = build.__module__
    case(**options)(named)
    return build


@contextlib.contextmanager
def on(device):
    """On a device, as the string says, which Python neither merges nor corrects."""
    with tf1.device(device):
        yield


def set_device(tensor, device):
    """Gives an operation a device string that Python would refuse or merge."""
    (tensor if isinstance(tensor, tf.Operation) else tensor.op)._set_device_from_string(device)
    return tensor


def set_class(tensor, *labels):
    """Gives an operation colocation labels as they are."""
    op = tensor if isinstance(tensor, tf.Operation) else tensor.op
    value = tf1.AttrValue(list=tf1.AttrValue.ListValue(s=[label.encode() for label in labels]))
    op._set_attr("_class", value)
    return tensor


def variable(name, shape=(2, 2), resource=False, dtype=tf.float32, **options):
    return tf1.get_variable(name, shape, dtype, tf1.zeros_initializer(), use_resource=resource, **options)
