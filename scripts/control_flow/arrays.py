"""What TensorArrays refuse: an element that is written twice, read twice, or read without being written."""
import numpy as np
import tensorflow as tf

from .common import *

raw = tf.raw_ops
TABLE = {}


def refused(group, *feeds, ok=()):
    """A tensor that is fetched with each of the feeds, which fails; with those of `ok` it does not."""
    def add(build):
        TABLE.setdefault(group, []).append((build.__name__, build, feeds, ok))
        return build
    return add


def allowed(group, *feeds):
    return refused(group, ok=feeds or ({},))


def array(size=3, shape=(2,), **options):
    return tf1.TensorArray(tf.float32, size, element_shape=shape, **options)


def item(value=1.0):
    return tf.constant([value, value + 1.0])


def fed(**values):
    return {f"{name}:0": np.array(value, np.int32) for name, value in values.items()}


def i():
    return tf1.get_default_graph().get_tensor_by_name("i:0")


def j():
    return tf1.get_default_graph().get_tensor_by_name("j:0")


# Indices that the graph says.


@refused("known", {})
def second_write():
    return array().write(0, item()).write(0, item(3.0)).write(1, item()).read(0)


@refused("known", {})
def second_read():
    made = array().write(0, item()).write(1, item())
    return made.read(1) + made.read(1)


@allowed("known")
def second_read_of_what_is_kept():
    made = array(clear_after_read=False).write(0, item()).write(1, item())
    return made.read(1) * made.read(1)


@refused("known", {})
def write_behind_the_end():
    return array().write(3, item()).read(0)


@refused("known", {})
def write_before_the_start():
    return array(dynamic_size=True).write(-1, item()).read(0)


@allowed("known")
def write_behind_the_end_of_what_grows():
    return array(dynamic_size=True).write(4, item()).read(4)


@refused("known", {})
def read_behind_the_end():
    return array().write(1, item()).read(3)


@allowed("known")
def read_of_what_was_not_written():
    return array().write(1, item()).read(0)


@refused("known", {})
def read_of_what_was_not_written_of_no_shape():
    return array(shape=None, infer_shape=False).write(1, item()).read(0)


@allowed("known")
def read_of_what_was_not_written_of_one_shape():
    return array(shape=None).write(1, item()).read(0)


@refused("known", {})
def gather_twice():
    made = array().unstack(tf.reshape(tf.range(6.0), [3, 2]))
    return made.gather([0, 1]) + made.gather([1, 2])


@refused("known", {})
def gather_one_twice():
    return array().unstack(tf.reshape(tf.range(6.0), [3, 2])).gather([0, 0])


@refused("known", {})
def stack_behind_a_read():
    made = array().unstack(tf.reshape(tf.range(6.0), [3, 2]))
    return made.stack() + made.read(1)


@refused("known", {})
def scatter_one_twice():
    return array().scatter([0, 0, 1], tf.reshape(tf.range(6.0), [3, 2])).read(1)


@refused("known", {})
def scatter_behind_a_write():
    return array().write(1, item()).scatter([0, 1], tf.reshape(tf.range(4.0), [2, 2])).read(2)


@refused("known", {})
def split_behind_a_write():
    return array().write(1, item()).split(tf.range(6.0), [2, 2, 2]).read(2)


@refused("known", {})
def concat_twice():
    made = array().split(tf.range(6.0), [2, 2, 2])
    return made.concat() * made.concat()


def gradient_of(made, source="g"):
    return raw.TensorArrayGradV3(handle=made.handle, flow_in=made.flow, source=source)


@allowed("known")
def gradient_written_twice():
    made = array(clear_after_read=False).write(0, item()).write(1, item())
    handle, flow = gradient_of(made, "g1")
    flow = raw.TensorArrayWriteV3(handle=handle, index=0, value=item(), flow_in=flow)
    flow = raw.TensorArrayWriteV3(handle=handle, index=0, value=item(5.0), flow_in=flow)
    return raw.TensorArrayReadV3(handle=handle, index=0, flow_in=flow, dtype=tf.float32)


@allowed("known")
def gradient_not_written():
    made = array(clear_after_read=False).write(0, item()).write(1, item())
    handle, flow = gradient_of(made, "g2")
    return raw.TensorArrayReadV3(handle=handle, index=1, flow_in=flow, dtype=tf.float32)


@refused("known", {})
def gradient_read_twice():
    made = array().write(0, item()).write(1, item())
    handle, flow = gradient_of(made, "g3")
    flow = raw.TensorArrayWriteV3(handle=handle, index=0, value=item(), flow_in=flow)
    read = lambda: raw.TensorArrayReadV3(handle=handle, index=0, flow_in=flow, dtype=tf.float32)
    return read() + read()


@refused("known", {})
def gradient_of_what_is_kept_read_twice():
    made = array(clear_after_read=False).write(0, item()).write(1, item())
    handle, flow = gradient_of(made, "g4")
    flow = raw.TensorArrayWriteV3(handle=handle, index=0, value=item(), flow_in=flow)
    read = lambda: raw.TensorArrayReadV3(handle=handle, index=0, flow_in=flow, dtype=tf.float32)
    return read() + read()


@allowed("known")
def gradient_of_what_is_read_twice():
    x = tf.constant([1.0, 2.0])
    made = array(clear_after_read=True).write(0, x)
    return tf1.gradients(made.read(0) + made.read(0), [x])[0]


@allowed("known")
def gradient_of_what_is_kept():
    x = tf.constant([1.0, 2.0])
    made = array(clear_after_read=False).write(0, x)
    return tf1.gradients(made.read(0) + 3.0 * made.read(0), [x])[0]


# Indices that are fed.


@refused("fed", fed(i=0, j=0), fed(i=3, j=0), fed(i=-1, j=0), ok=[fed(i=0, j=1), fed(i=2, j=1)])
def write_at():
    return array().write(i(), item()).write(j(), item(3.0)).stack()


@refused("fed", fed(i=0), fed(i=-1), ok=[fed(i=1), fed(i=2)])
def write_at_one():
    return array().write(0, item()).write(i(), item(3.0)).stack()


@refused("fed", fed(i=0, j=0), fed(i=3, j=1), ok=[fed(i=0, j=1)])
def read_at():
    made = array().unstack(tf.reshape(tf.range(6.0), [3, 2]))
    return made.read(i()) + made.read(j())


@allowed("fed", fed(i=0, j=0), fed(i=0, j=1))
def read_at_of_what_is_kept():
    made = array(clear_after_read=False).unstack(tf.reshape(tf.range(6.0), [3, 2]))
    return made.read(i()) * made.read(j())


@refused("fed", fed(i=0), ok=[fed(i=1)])
def read_at_of_no_shape():
    return array(shape=None, infer_shape=False).write(1, item()).read(i())


@refused("fed", fed(i=1, j=1), ok=[fed(i=1, j=2)])
def gather_at():
    return array().unstack(tf.reshape(tf.range(6.0), [3, 2])).gather(tf.stack([i(), j()]))


@refused("fed", fed(i=1, j=1), ok=[fed(i=1, j=2)])
def scatter_at():
    return array().scatter(tf.stack([i(), j()]), tf.reshape(tf.range(4.0), [2, 2])).stack()


@refused("fed", fed(i=0, j=0), ok=[fed(i=0, j=1), fed(i=1, j=1), fed(i=1, j=0)])
def write_in_a_condition():
    made = array()
    flow = tf1.cond(tf.equal(i(), 0), lambda: made.write(0, item()).flow, lambda: made.write(1, item()).flow)
    made = tf1.TensorArray(tf.float32, handle=made.handle, flow=flow)
    flow = tf1.cond(tf.equal(j(), 0), lambda: made.write(0, item()).flow, lambda: made.write(2, item()).flow)
    return tf1.TensorArray(tf.float32, handle=made.handle, flow=flow).stack()


# Loops.


def loop(times, body, *values):
    return tf1.while_loop(lambda at, *_: at < times, lambda at, *values: (at + 1, *body(at, *values)), [tf.constant(0), *values])[1:]


@allowed("loops", fed(i=3))
def write_each():
    return loop(i(), lambda at, made: [made.write(at, item())], array(3))[0].stack()


@refused("loops", fed(i=2), fed(i=3), ok=[fed(i=0), fed(i=1)])
def write_the_same():
    return loop(i(), lambda at, made: [made.write(1, item())], array(3))[0].stack()


@refused("loops", fed(i=3, j=0), fed(i=2, j=1), ok=[fed(i=2, j=2), fed(i=1, j=1)])
def write_behind_a_write():
    return loop(i(), lambda at, made: [made.write(at, item())], array(3).write(j(), item(2.0)))[0].stack()


@refused("loops", fed(i=4), ok=[fed(i=2), fed(i=3)])
def write_the_half():
    return loop(i(), lambda at, made: [made.write(at % 3, item())], array(3))[0].stack()


@refused("loops", fed(i=2), ok=[fed(i=1)])
def write_two():
    return loop(i(), lambda at, made: [made.write(at, item()).write(at + 1, item())], array(3))[0].stack()


@refused("loops", fed(i=2, j=3), ok=[fed(i=1, j=3)])
def write_in_an_inner_loop():
    def outer(at, made):
        return loop(j(), lambda inner, made: [made.write(inner, item())], made)
    return loop(i(), outer, array(3))[0].stack()


@allowed("loops", fed(i=2, j=3))
def write_an_array_of_the_iteration():
    def outer(at, total):
        made = loop(j(), lambda inner, made: [made.write(inner, item())], array(3))[0]
        return [total + tf.reduce_sum(made.stack())]
    return loop(i(), outer, tf.constant(0.0))[0]


@refused("loops", fed(i=2), ok=[fed(i=1)])
def read_the_same():
    made = array().unstack(tf.reshape(tf.range(6.0), [3, 2]))
    return loop(i(), lambda at, total: [total + made.read(0)], tf.zeros([2]))[0]


@refused("loops", fed(i=4), ok=[fed(i=3)])
def read_each():
    made = array().unstack(tf.reshape(tf.range(6.0), [3, 2]))
    return loop(i(), lambda at, total: [total + made.read(at)], tf.zeros([2]))[0]


@refused("loops", fed(i=3, j=1), ok=[fed(i=1, j=1), fed(i=2, j=2)])
def read_behind_a_loop():
    made = array().unstack(tf.reshape(tf.range(6.0), [3, 2]))
    total = loop(i(), lambda at, total: [total + made.read(at)], tf.zeros([2]))[0]
    return total + made.read(j())


@refused("loops", fed(i=2), ok=[fed(i=1)])
def read_in_two_loops():
    made = array().unstack(tf.reshape(tf.range(6.0), [3, 2]))
    one = loop(1, lambda at, total: [total + made.read(at + 1)], tf.zeros([2]))[0]
    return one + loop(i(), lambda at, total: [total + made.read(at)], one)[0]


@refused("loops", fed(i=3), ok=[fed(i=2)])
def read_what_was_not_written():
    made = array(shape=None, infer_shape=False).write(0, item()).write(1, item())
    def body(at, total):
        read = made.read(at)
        read.set_shape([2])
        return [total + read]
    return loop(i(), body, tf.zeros([2]))[0]


def cases():
    """Name, build function and steps of a case for each group."""
    for group, entries in TABLE.items():
        def build():
            v1()
            tf1.placeholder(tf.int32, [], name="i")
            tf1.placeholder(tf.int32, [], name="j")
            for name, make, _, _ in entries:
                with tf1.name_scope(name):
                    made = make()
                tf.identity(made, name=f"out_{name}")
            return False
        steps = []
        for name, _, bad, good in entries:
            steps += [(feed, [f"out_{name}:0"], []) for feed in good]
            steps += [(feed, [], [f"out_{name}"], "INVALID_ARGUMENT") for feed in bad]
        yield f"fail_arrays_{group}", build, steps
