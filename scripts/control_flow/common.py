"""What the cases are made of."""
import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
CASES, REFUSALS = {}, {}
X = np.array([[1.5, -2.0, 0.25], [3.0, 0.5, -1.0]], np.float32)


def case(steps, **options):
    """A case of that name; the function's text is its note."""
    def add(build):
        CASES[build.__name__] = (build, steps, options)
        return build
    return add


def refusal(code, part, feeds, fetches=(), targets=(), init=()):
    """A run that fails with that code and that text in its message."""
    def add(build):
        REFUSALS[build.__name__] = (build, dict(code=code, message=part, feeds=feeds, fetches=list(fetches), targets=list(targets), init=list(init)))
        return build
    return add


def yes(**more):
    return {"p:0": np.True_, **{f"{name}:0": value for name, value in more.items()}}


def no(**more):
    return {"p:0": np.False_, **{f"{name}:0": value for name, value in more.items()}}


def each(fetches, *feeds, targets=()):
    """A step for each of the feeds."""
    return [(feed, list(fetches), list(targets)) for feed in feeds]


def read(*names):
    """A step that only reads."""
    return [({}, list(names), [])]


def do(feed, *targets):
    """A step that only runs something."""
    return [(feed, [], list(targets))]


def predicate(name="p"):
    return tf1.placeholder(tf.bool, [], name=name)


def floats(name="x", shape=(2, 3)):
    return tf1.placeholder(tf.float32, shape, name=name)


def v1():
    tf1.disable_control_flow_v2()


def v2():
    tf1.enable_control_flow_v2()


def variable(name, value, ref=False):
    return tf1.get_variable(name, initializer=tf.constant(value), use_resource=not ref)


def init(*variables):
    tf1.variables_initializer(variables or tf1.global_variables(), name="init")
    return True


FIVE = [f"{name}/read:0" for name in "abcde"]
