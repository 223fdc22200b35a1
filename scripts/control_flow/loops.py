"""While and TensorFlow 1's frames, and lists of tensors."""
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_control_flow_ops, gen_list_ops as lists

from .common import *

N = [np.int32(n) for n in (0, 1, 7)]


def counts(*names):
    """A step for each of some numbers of iterations."""
    return [({"n:0": n, "x:0": X}, list(names), []) for n in N]


def number():
    return tf1.placeholder(tf.int32, [], "n")


def both_forms(build):
    """The same loop as While and as a frame."""
    def add(form, name):
        def one():
            form()
            return build()
        one.__name__, one.__doc__ = f"{name}_{build.__name__}", build.__doc__
        return one
    return [(add(v2, "while")), (add(v1, "frame"))]


def looped(steps, **options):
    def add(build):
        for one in both_forms(build):
            CASES[one.__name__] = (one, steps, options)
        return build
    return add


@looped(counts("i:0", "y:0", "z:0"))
def swap():
    """two values that change places, a constant that stays, and none, one and seven iterations"""
    n, x = number(), floats()
    i, y, z, _ = tf1.while_loop(lambda i, *_: i < n, lambda i, y, z, c: (i + 1, z, y * c + 1.0, c), [0, x, -x, tf.constant(0.5)])
    for name, tensor in zip("iyz", [i, y, z]):
        tf.identity(tensor, name)
    return False


@looped(counts("s:0", "i:0"))
def nested():
    """a loop in a loop: the inner one runs as often as the outer one has"""
    n, x = number(), floats()

    def outer(i, s):
        _, s = tf1.while_loop(lambda j, _: j < i, lambda j, s: (j + 1, s * 0.5 + tf.cast(j, tf.float32) * x), [0, s])
        return i + 1, s + x
    i, s = tf1.while_loop(lambda i, _: i < n, outer, [0, tf.zeros_like(x)])
    tf.identity(i, "i")
    tf.identity(s, "s")
    return False


@looped([({"n:0": n, "x:0": X, "p:0": np.bool_(p)}, ["y:0", "c:0"], []) for n in N for p in (False, True)])
def conditions():
    """a condition in a loop, and a loop in a condition"""
    n, x, p = number(), floats(), predicate()

    def body(i, y):
        return i + 1, tf1.cond(tf.equal(i % 3, 1), lambda: y * 2.0 + x, lambda: y - 1.0)
    _, y = tf1.while_loop(lambda i, _: i < n, body, [0, x])
    tf.identity(y, "y")
    c = tf1.cond(p, lambda: tf1.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, y + x), [0, x])[1], lambda: -x)
    tf.identity(c, "c")
    return False


@looped([({"x:0": X * scale}, ["i:0", "y:0"], []) for scale in np.float32([0.01, 1, 100])])
def until():
    """as often as what the loop computes says"""
    x = floats()
    i, y = tf1.while_loop(lambda i, y: tf.reduce_sum(tf.abs(y)) < 50.0, lambda i, y: (i + 1, y * 1.5 + 0.125), [tf.constant(0, tf.int64), x])
    tf.identity(i, "i")
    tf.identity(y, "y")
    return False


@looped(counts("y:0") + read("w_now:0"))
def variables():
    """the body reads one variable and changes another, by as many steps"""
    n, x = number(), floats()
    v, w = variable("v", np.float32([[2.0], [0.5], [-1.0]])), variable("w", np.float32([1.0, 2.0]))
    init()

    def body(i, y):
        with tf.control_dependencies([w.assign_add(tf.reshape(tf.matmul(y, v), [2]))]):
            return i + 1, y * 0.5 + tf.reshape(w.read_value(), [2, 1])
    _, y = tf1.while_loop(lambda i, _: i < n, body, [0, x])
    tf.identity(y, "y")
    tf.identity(w.read_value(), "w_now")
    return True


@case(counts("g:0", "y:0", "h:0"))
def while_gradient():
    """the gradient of a loop: what the body computes is kept, and read in the opposite order"""
    v2()
    n, x = number(), floats()
    w = tf.constant([[0.5, 1.0, 0.25], [-1.0, 0.75, 0.5], [0.25, 0.125, -0.5]])
    _, y = tf1.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, w)) + x), [0, x], maximum_iterations=8)
    tf.identity(y, "y")
    g, h = tf1.gradients(tf.reduce_sum(y * y), [x, w])
    tf.identity(g, "g")
    tf.identity(h, "h")
    return False


def waves(*shape):
    return (np.sin(np.arange(np.prod(shape)) * 0.37).reshape(shape) * 0.5).astype(np.float32)


@looped([({"x:0": waves(16, 11, 8) * scale}, ["g:0", "h:0"], ["train"]) for scale in np.float32([1, -2])] + read("u_now:0"))
def lstm_gradient():
    """the training of a recurrent layer, eleven steps of 16 x 32 numbers: lists that a later loop reads in reverse, of a variable that changes behind it"""
    x, w = floats(shape=(16, 11, 8)), tf.constant(waves(8, 128))
    u = variable("u", waves(32, 128) * 0.25)
    init()
    inputs = tf.TensorArray(tf.float32, 11).unstack(tf.reshape(tf.matmul(tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, 8]), w), [11, 16, 128]))

    def step(time, h, c):
        i, f, g, o = tf.split(inputs.read(time) + tf.matmul(h, u.read_value()), 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return time + 1, tf.sigmoid(o) * tf.tanh(c), c
    _, h, _ = tf1.while_loop(lambda time, *_: time < 11, step, (0, tf.zeros([16, 32]), tf.zeros([16, 32])), maximum_iterations=11)
    loss = tf.reduce_sum(h * h)
    change, by_x = tf1.gradients(loss, [u, x])
    tf.group(u.assign_sub(change * 0.125), name="train")
    tf.reduce_sum(by_x, 1, name="g")
    tf.reduce_sum(h, 0, name="h")
    tf.identity(u.read_value()[0], "u_now")
    return True


@case(counts("g:0", "y:0"))
def while_condition_gradient():
    """the gradient of a condition in a loop: what a side computes is kept where it ran"""
    v2()
    n, x = number(), floats()

    def body(i, y):
        return i + 1, tf1.cond(tf.equal(i % 3, 1), lambda: tf.tanh(y) * x, lambda: y * y - 1.0)
    _, y = tf1.while_loop(lambda i, _: i < n, body, [0, x * 0.25])
    tf.identity(y, "y")
    tf.identity(tf1.gradients(tf.reduce_sum(y), x)[0], "g")
    return False


@case([({"n:0": n, "x:0": X, "p:0": np.bool_(p)}, ["g:0", "y:0"], []) for n in N for p in (False, True)])
def while_condition_shares():
    """the sides of a condition in a loop keep tensors of other shapes and types for its gradient, in the same places"""
    v2()
    n, x, p = number(), floats(), predicate()

    def then(y):
        parts = tf.concat([tf.reshape(y, [6]), tf.sin(tf.reshape(x, [6]))[:1]], 0)
        return y * tf.reduce_max(parts * parts)

    def other(y):
        wide = tf.cast(tf.reduce_sum(y, 1), tf.float64)
        _, wide = tf1.while_loop(lambda j, _: j < n, lambda j, wide: (j + 1, tf.tanh(wide) * 1.5), [0, wide])
        return y + tf.cast(tf.reduce_max(tf.concat([wide, wide * wide], 0)), tf.float32)

    def body(i, y):
        return i + 1, tf1.cond(p, lambda: then(y), lambda: other(y))
    _, y = tf1.while_loop(lambda i, _: i < n, body, [0, x * 0.25])
    tf.identity(y, "y")
    tf.identity(tf1.gradients(tf.reduce_sum(y), x)[0], "g")
    return False


@looped([({"x:0": X}, ["y:0"], [])])
def known():
    """a number of iterations that the graph says, of integers of all kinds"""
    x = floats()
    _, y, *_ = tf1.while_loop(lambda i, *_: i < 5, lambda i, y, k, b: (i + 1, y + tf.cast(k, tf.float32), k * 2 - 1, tf.logical_not(b)),
                              [0, x, tf.constant(3, tf.int64), tf.constant(True)])
    tf.identity(y, "y")
    return False


@looped([({"x:0": X, "n:0": n}, ["y:0"], []) for n in N])
def passes():
    """values that the body hands on as they are, unused results, and one value that is two"""
    n, x = number(), floats()
    _, y, _, z = tf1.while_loop(lambda i, *_: i < n, lambda i, a, b, c: (i + 1, b, b, tf.identity(c)), [0, x, x * 2.0, x])
    tf.identity(y + z, "y")
    return False


@case([({"x:0": X}, ["s:0", "f:0", "r:0", "m:0"], [])])
def while_over_rows():
    """scan, foldl, foldr and map_fn over the rows of a tensor"""
    v2()
    x = floats(shape=(2, 3))
    rows = tf.transpose(x)
    tf.identity(tf1.scan(lambda a, row: a * 0.5 + row, rows), "s")
    tf.identity(tf1.foldl(lambda a, row: a * 0.5 + row, rows), "f")
    tf.identity(tf1.foldr(lambda a, row: a - row, rows), "r")
    tf.identity(tf1.map_fn(lambda row: tf.reduce_sum(row) * row, rows), "m")
    return False


@looped([({"x:0": X, "k:0": np.int32(k)}, ["y:0", "z:0", "n:0"], []) for k in (0, 2)])
def arrays():
    """TensorArrays: rows that a loop writes and reads, and an older state of a list beside the newest"""
    x, k = floats(), tf1.placeholder(tf.int32, [], "k")
    rows = tf.TensorArray(tf.float32, 3, element_shape=[2], clear_after_read=False).unstack(tf.transpose(x))
    made = tf.TensorArray(tf.float32, 3, element_shape=[2], clear_after_read=False)
    _, made = tf1.while_loop(lambda i, _: i < 3, lambda i, made: (i + 1, made.write(i, rows.read(2 - i) * 2.0 + tf.cast(i, tf.float32))), [0, made])
    tf.identity(made.stack(), "y")
    tf.identity(made.gather([2, 0]) + rows.read(k), "z")
    tf.identity(made.size(), "n")
    return False


@case([({"x:0": X, "k:0": np.int32(k)}, ["y:0", "z:0", "n:0", "w:0"], []) for k in (0, 2)])
def while_lists():
    """lists that are pushed to, popped from, and shared: a state that another one came from stays as it was"""
    v2()
    x, k = floats(), tf1.placeholder(tf.int32, [], "k")
    first = lists.empty_tensor_list([2, 3], 4, tf.float32)
    second = lists.tensor_list_push_back(lists.tensor_list_push_back(first, x), x * 2.0)
    third = lists.tensor_list_push_back(second, x * 3.0)
    rest, last = lists.tensor_list_pop_back(third, [2, 3], tf.float32)
    tf.identity(last + lists.tensor_list_get_item(rest, 0, [2, 3], tf.float32), "y")
    filled = lists.tensor_list_reserve([2, 3], 3, tf.float32)
    one = lists.tensor_list_set_item(filled, k, x)
    two = lists.tensor_list_set_item(one, k, -x)
    tf.identity(lists.tensor_list_stack(one, [2, 3], tf.float32) + lists.tensor_list_stack(two, [2, 3], tf.float32), "z")
    tf.identity(lists.tensor_list_length(third) + lists.tensor_list_length(filled), "n")

    def body(i, list_, w):
        # The state before is read behind the change.
        new = lists.tensor_list_set_item(list_, i, x * tf.cast(i + 1, tf.float32))
        with tf.control_dependencies([tf.identity(lists.tensor_list_get_item(new, i, [2, 3], tf.float32))]):
            old = lists.tensor_list_get_item(list_, i, [2, 3], tf.float32)
        return i + 1, new, w + old
    _, changed, w = tf1.while_loop(lambda i, *_: i < 3, body, [0, two, tf.zeros([2, 3])])
    tf.identity(w + lists.tensor_list_get_item(changed, k, [2, 3], tf.float32), "w")
    return False


@case([({"x:0": X * np.float32(sign), "k:0": np.int32(k), "n:0": np.int32(n)}, ["signs:0", "many:0", "scattered:0", "looped:0", "gradient:0"], [])
       for sign, k, n in ((1, 0, 0), (-1, 1, 3), (0, 2, 4), (-0.0, 0, 2))])
def while_list_sums():
    """sums of a list and of one of which a tensor is set: what was never set adds nothing, so that -0.0 stays"""
    v2()
    x, k, n = floats(), tf1.placeholder(tf.int32, [], "k"), number()
    whole = lists.tensor_list_from_tensor(tf.stack([x, -x, x * 0.0]), [2, 3])
    never = lists.tensor_list_reserve([2, 3], 3, tf.float32)

    def put(list_, index, value):
        return lists.tensor_list_set_item(list_, index, value)

    def total(*of):
        return lists.tensor_list_stack(tf.raw_ops.AddN(inputs=list(of)), [2, 3], tf.float32)

    # The sign of a zero shows in its inverse.
    zeros = tf.zeros_like(whole)
    signs = [total(whole, put(never, k, x)), total(put(never, k, -x), whole), total(put(never, 1, x * -0.0), put(never, 1, -x)),
             total(whole, put(zeros, k, x)), total(put(never, k, x), zeros), total(never, put(never, k, x))]
    tf.identity(1.0 / tf.stack(signs), "signs")
    many = [total(put(never, k, x), whole, put(never, 2 - k, x * 3.0), whole, put(never, k, x * 1e-3)),
            total(whole, whole, put(never, k, x), put(zeros, 1, x)), total(put(never, 0, x), put(never, k, x), whole)]
    twice = put(never, k, x)
    many += [total(whole, twice), total(twice, twice, whole)]
    tf.identity(tf.stack(many), "many")
    scattered = lists.tensor_list_scatter_v2(tf.stack([x, x + 1.0]), [2, 0], [2, 3], 3)
    again = lists.tensor_list_scatter_v2(tf.stack([x, x + 1.0]), tf.stack([k, k]), [2, 3], -1)
    tf.identity(total(whole, scattered), "scattered_known")
    tf.identity(tf.concat([total(scattered, whole), lists.tensor_list_stack(again, [2, 3], tf.float32)[:1]], 0), "scattered")

    def body(i, list_, other):
        added = tf.raw_ops.AddN(inputs=[list_, put(never, i % 3, x), put(never, k, x * 2.0)])
        # The list before is read behind the sum.
        with tf.control_dependencies([tf.identity(lists.tensor_list_get_item(added, k, [2, 3], tf.float32))]):
            return i + 1, added, tf.raw_ops.AddN(inputs=[put(never, k, x), other, list_])
    _, one, other = tf1.while_loop(lambda i, *_: i < n, body, [0, whole, zeros])
    tf.identity(tf.stack([lists.tensor_list_stack(one, [2, 3], tf.float32), lists.tensor_list_stack(other, [2, 3], tf.float32)]), "looped")

    # Two reads of an array in each iteration: two such sums in the loop of the gradient.
    rows = tf.TensorArray(tf.float32, 4, element_shape=[2, 3], clear_after_read=False).unstack(tf.stack([x, x + 1.0, x - 1.0, x * 2.0]))
    _, y = tf1.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, tf.tanh(y * rows.read(i)) + rows.read(3 - i)), [0, x], maximum_iterations=4)
    tf.identity(tf1.gradients(tf.reduce_sum(y * y), x)[0], "gradient")
    return False


@case(each(["y:0", "s:0"], yes(x=X)))
def frame_beside_a_side():
    """a loop, and a fetched tensor that is alive on one side of a condition alone"""
    v1()
    x = floats()
    _, y = tf1.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(y) + 0.5), [0, x])
    tf.identity(y, "y")
    tf.identity(gen_control_flow_ops.switch(x, predicate())[1], "s")
    return False


@looped([({"n:0": n, "x:0": X}, ["y:0", "g:0"], []) for n in N[:2]])
def grows_once():
    """the gradient by what a growing loop begins with has another size than the one that goes into the loop of the gradient"""
    n, x = number(), floats()
    first = x * 2.0
    shapes = [tf.TensorShape([]), tf.TensorShape([None, 3])]
    _, y = tf1.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, tf.concat([y, y[:1] * 0.5], 0)), [0, first], shape_invariants=shapes)
    tf.identity(y, "y")
    tf.identity(tf1.gradients(tf.reduce_sum(y * y) + tf.reduce_sum(tf.tanh(first)), x)[0], "g")
    return False


@case(counts("y:0", "g:0"))
def frame_condition_open():
    """the gradient of a loop with a condition, of which one side may never have run; the sizes are open"""
    v1()
    n, x = number(), floats(shape=[None, None])

    def body(i, y):
        y = tf1.cond(tf.equal(i % 2, 0), lambda: tf.tanh(y), lambda: y * y)
        return i + 1, tf.ensure_shape(y, [None, None])
    _, y = tf1.while_loop(lambda i, _: i < n, body, [0, x])
    tf.identity(y, "y")
    tf.identity(tf1.gradients(tf.reduce_sum(y * y), x)[0], "g")
    return False


@looped([({"n:0": n}, ["i:0", "y:0"], []) for n in N])
def swap_equal():
    """two values that are the same and change places, which are the same value"""
    n, one = number(), tf.constant([1.0, -0.0, 3.0])
    i, y, z = tf1.while_loop(lambda i, *_: i < n, lambda i, y, z: (i + 1, z, y), [0, one, one])
    tf.identity(i, "i")
    tf.add(y, z * 0.5, name="y")
    return False
