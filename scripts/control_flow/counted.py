"""Operations whose results have as many elements as those of their inputs say, and loops whose sizes change."""
import numpy as np
import tensorflow as tf

from .common import *

SIX = np.array([1.5, -2.0, 0.25, 3.0, 0.5, -1.0], np.float32)
SIGNS = [SIX, -SIX, np.abs(SIX), -np.abs(SIX)]


@case(each(["w:0", "y:0", "n:0"], *[{"x:0": x} for x in SIGNS]))
def late_where():
    """Where of what is computed, and a mask; the indices are fetched, too"""
    v2()
    x = floats(shape=[6])
    mask = tf.sin(x) > 0.1
    tf.identity(tf.where(mask), name="w")
    kept = tf.boolean_mask(tf.stack([x, x * x], axis=1), mask)
    tf.add(tf.exp(kept), 1.0, name="y")
    tf.reduce_sum(kept, axis=0, name="n")
    return False


@case(each(["w:0"], *[{"x:0": x} for x in SIGNS]))
def late_where_fed():
    """Where of a feed: nothing comes before it"""
    v2()
    tf.where(floats(shape=[6]), name="w")
    return False


@case(each(["a:0", "b:0", "c:0", "d:0"], {"i:0": np.array([3, 1, 3, 2, 1, 3], np.int32)}, {"i:0": np.array([5, 5, 5, 5, 5, 5], np.int32)}))
def late_unique():
    """Unique with counts, then the difference of two lists: two stages behind each other"""
    v2()
    i = tf1.placeholder(tf.int32, [6], name="i")
    y, index, count = tf.unique_with_counts(i + 1)
    tf.multiply(y, 2, name="a")
    tf.gather(tf.cast(count, tf.float32), index, name="b")
    out, at = tf.raw_ops.ListDiff(x=y * y, y=tf.constant([16, 9], tf.int32))
    tf.identity(out, name="c")
    tf.add(at, 1, name="d")
    return False


@case(each(["y:0", "z:0"], {"i:0": np.array([0, 2, 1, 0, 2, 2], np.int32), "x:0": SIX}, {"i:0": np.array([1, 1, 1, 1, 1, 1], np.int32), "x:0": SIX})
      + [({"i:0": np.array([0, 2, 3, 0, 2, 2], np.int32), "x:0": SIX}, [], ["y"], "INVALID_ARGUMENT")])
def late_partition():
    """rows are dealt out, computed apart and put together again; one number is out of range"""
    v2()
    i, x = tf1.placeholder(tf.int32, [6], name="i"), floats(shape=[6])
    rows = tf.stack([x, -x], axis=1)
    parts = tf.dynamic_partition(rows * 2.0, i, 3)
    at = tf.dynamic_partition(tf.range(6), i, 3)
    done = [part + float(number) for number, part in enumerate(parts)]
    tf.dynamic_stitch(at, done, name="y")
    tf.concat(done, 0, name="z")
    return False


@case(each(["y:0", "s:0"], {"x:0": SIX, "k:0": np.int32(2)}, {"x:0": -SIX, "k:0": np.int32(6)}))
def late_suppression():
    """boxes that overlap, then a batch of the rest"""
    v2()
    x, k = floats(shape=[6]), tf1.placeholder(tf.int32, [], name="k")
    boxes = tf.stack([x, x * 0.5, x + 2.0, x * 0.5 + 2.0], axis=1)
    scores = tf.sigmoid(x)
    selected, kept = tf.image.non_max_suppression_with_scores(boxes, scores, k, 0.3, 0.1, 0.0)
    tf.gather(boxes, selected, name="y")
    tf.multiply(kept, 2.0, name="s")
    return False


@case(each(["y:0", "n:0"], *[{"x:0": x} for x in SIGNS]))
def late_where_in_condition():
    """a mask on one side of a condition, and another in what follows"""
    v2()
    x = floats(shape=[6])
    p = tf.reduce_sum(x) > 0.0
    y = tf1.cond(p, lambda: tf.boolean_mask(x, x > 0.4), lambda: x[:3] * 2.0)
    tf.identity(y, name="y")
    tf.reduce_sum(tf.boolean_mask(y, y > 0.6), name="n")
    return False


@case(each(["y:0"], {"x:0": SIX}, {"x:0": -SIX}) + read("v:0"))
def late_where_effects():
    """assignments before and after a mask, each once"""
    v1()
    x = floats(shape=[6])
    v = variable("vv", 0.0)
    with tf1.control_dependencies([v.assign_add(1.0)]):
        kept = tf.boolean_mask(x * v.read_value(), x > 0.4)
    with tf1.control_dependencies([v.assign_add(tf.reduce_sum(kept))]):
        tf.concat([kept, [v.read_value()]], 0, name="y")
    tf.identity(v.read_value(), "v")
    return init()


@case(each(["y:0", "i:0"], {"x:0": SIX[:2], "n:0": np.int32(0)}, {"x:0": SIX[:2], "n:0": np.int32(1)}, {"x:0": SIX[:2], "n:0": np.int32(5)}))
def while_grows():
    """each iteration appends to a tensor what it computes from all of it"""
    v2()
    x, n = floats(shape=[2]), tf1.placeholder(tf.int32, [], name="n")

    def body(i, all):
        return i + 1, tf.concat([all, [tf.reduce_sum(all) * 0.5 + tf.cast(i, tf.float32)]], 0)
    i, y = tf.while_loop(lambda i, _: i < n, body, [0, x], shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])])
    tf.identity(i, name="i")
    tf.multiply(y, 2.0, name="y")
    return False


@case(each(["y:0"], {"x:0": SIX}, {"x:0": -SIX}))
def while_shrinks():
    """each iteration keeps what is larger than the mean, until nothing changes"""
    v2()
    x = floats(shape=[6])

    def body(now, _):
        return tf.boolean_mask(now, now >= tf.reduce_mean(now)), tf.size(now)
    shapes = [tf.TensorShape([None]), tf.TensorShape([])]
    y, _ = tf.while_loop(lambda now, before: tf.size(now) < before, body, [x, 1000], shape_invariants=shapes)
    tf.negative(y, name="y")
    return False


@case(each(["y:0"], {"x:0": np.int32([3, 4])}, {"x:0": np.int32([7, 0])}, {"x:0": np.int32([1])}))
def while_decodes():
    """a decoder: a table of logits, the next token is the largest; it ends at token 0"""
    v2()
    x = tf1.placeholder(tf.int32, [None], name="x")
    table = tf.constant(np.random.RandomState(3).uniform(-1, 1, (8, 4)).astype(np.float32))
    out = tf.constant(np.random.RandomState(4).uniform(-1, 1, (4, 8)).astype(np.float32))

    def body(tokens):
        state = tf.gather(table, tokens)
        length = tf.shape(tokens)[0]
        scores = tf.matmul(state, state, transpose_b=True) + (1.0 - tf.linalg.band_part(tf.ones([length, length]), -1, 0)) * -1e9
        logits = tf.matmul(tf.matmul(tf.nn.softmax(scores), state), out)[-1]
        return [tf.concat([tokens, [tf.argmax(logits, output_type=tf.int32)]], 0)]
    y, = tf.while_loop(lambda tokens: tf.logical_and(tokens[-1] != 0, tf.size(tokens) < 9), body, [x], shape_invariants=[tf.TensorShape([None])])
    tf.identity(y, name="y")
    return False


@case(each(["y:0", "v:0"], {"n:0": np.int32(1)}, {"n:0": np.int32(4)}))
def while_grows_in_function():
    """a function with a loop that grows a tensor and changes a variable, called in a loop that stays"""
    v2()
    n = tf1.placeholder(tf.int32, [], name="n")
    v = variable("vv", 1.0)

    @tf.function
    def grown(count):
        rows = tf.zeros([1, 2])
        for i in tf.range(count):
            tf.autograph.experimental.set_loop_options(shape_invariants=[(rows, tf.TensorShape([None, 2]))])
            v.assign_add(tf.cast(i, tf.float32))
            rows = tf.concat([rows, tf.fill([i + 1, 2], v.read_value())], 0)
        return tf.reduce_sum(rows)
    total = tf.while_loop(lambda i, _: i < n, lambda i, total: (i + 1, total + grown(i + 1 + tf.cast(total * 0.0, tf.int32))), [0, 0.0])[1]
    tf.identity(total, name="y")
    with tf.control_dependencies([total]):
        tf.identity(v.read_value(), name="v")
    return init()


@case(each(["y:0"], {"x:0": np.float32(0.25)}, {"x:0": np.float32(-0.25)}))
def while_slices():
    """slices by the number of the iteration"""
    v2()
    x = floats(shape=[])
    rows = tf.fill([5, 5], x) + tf.reshape(tf.range(25.0), [5, 5])
    y = tf.while_loop(lambda i, _: i < 5, lambda i, y: (i + 1, y + tf.reduce_sum(rows[:i, i:])), [0, 0.0])[1]
    tf.identity(y, name="y")
    return False


@case(each(["y:0"], {"p:0": np.bool_(True), "x:0": SIX}, {"p:0": np.bool_(False), "x:0": SIX}))
def while_grows_in_condition():
    """a loop that grows a tensor on one side of a condition"""
    v2()
    p, x = predicate(), floats(shape=[6])

    def grow():
        return tf.while_loop(lambda y: tf.size(y) < 20, lambda y: [tf.concat([y, y * 0.5], 0)], [x], shape_invariants=[tf.TensorShape([None])])[0]
    tf.reduce_sum(tf1.cond(p, grow, lambda: x[:2]), name="y")
    return False


@case(each(["y:0"], {"n:0": np.int32(3)}, {"n:0": np.int32(0)}))
def frame_grows():
    """TensorFlow 1's loop that appends to a tensor"""
    v1()
    n = tf1.placeholder(tf.int32, [], name="n")
    shapes = [tf.TensorShape([]), tf.TensorShape([None])]
    y = tf1.while_loop(lambda i, _: i < n, lambda i, y: [i + 1, tf.concat([y, [tf.cast(i, tf.float32)]], 0)], [0, tf.constant([7.0])], shapes)[1]
    tf.identity(y, name="y")
    return False


@case(each(["y:0", "n:0"], {"x:0": X}, {"x:0": -X}))
def while_two_devices():
    """a loop whose body is on two devices: the sizes stay the same"""
    v2()
    x = floats()

    def body(i, y):
        with tf.device("/cpu:1"):
            half = tf.sin(y) * 0.5
        with tf.device("/cpu:0"):
            return i + 1, half + x
    n, y = tf.while_loop(lambda i, y: tf.logical_and(i < 6, tf.reduce_sum(y) < 4.0), body, [0, x])
    tf.identity(n, name="n")
    tf.multiply(y, 2.0, name="y")
    return False


@case(each(["y:0"], {"x:0": X}, {"x:0": -X}) + read("v:0", "w:0"))
def frame_two_devices():
    """TensorFlow 1's loop with a variable on each of two devices"""
    v1()
    x = floats()
    with tf.device("/cpu:0"):
        v = variable("vv", 1.0)
    with tf.device("/cpu:1"):
        w = variable("ww", 2.0)

    def body(i, y):
        with tf.device("/cpu:1"):
            with tf1.control_dependencies([w.assign_add(tf.reduce_max(y))]):
                part = y * w.read_value()
        with tf.device("/cpu:0"):
            with tf1.control_dependencies([v.assign(v * 0.5 + tf.reduce_sum(part) * 0.001)]):
                return [i + 1, part * 0.1 + v.read_value()]
    y = tf1.while_loop(lambda i, _: i < 3, body, [0, x], parallel_iterations=1)[1]
    with tf1.control_dependencies([y]):
        tf.identity(y, name="y")
    tf.identity(v.read_value(), "v")
    tf.identity(w.read_value(), "w")
    return init()


@case(each(["y:0"], {"x:0": X[:1]}))
def while_two_devices_nested():
    """a loop on one device in a loop on two"""
    v2()
    x = floats(shape=(1, 3))

    def inner(y):
        return tf.while_loop(lambda j, _: j < 3, lambda j, y: (j + 1, tf.tanh(y) + 0.1), [0, y])[1]

    def body(i, y):
        with tf.device("/cpu:1"):
            y = inner(y) * 2.0
        with tf.device("/cpu:0"):
            return i + 1, y - 1.0
    tf.identity(tf.while_loop(lambda i, _: i < 4, body, [0, x])[1], name="y")
    return False


@case(each(["y:0", "n:0"], {"x:0": np.float32(0.5)}, {"x:0": np.float32(3.0)}, {"x:0": np.float32(200.0)}))
def while_list_grows():
    """a TensorArray of dynamic size, until a value is large enough: nothing bounds it"""
    v2()
    x = floats(shape=[])
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[2])
    _, array, i = tf.while_loop(lambda x, array, i: x < 100.0, lambda x, array, i: (x * 2.0, array.write(i, tf.stack([x, -x])), i + 1), [x, array, 0])
    tf.identity(array.stack(), name="y")
    tf.identity(array.size(), name="n")
    return False


@case(each(["y:0", "g:0"], {"x:0": np.float32(0.5)}, {"x:0": np.float32(30.0)}))
def while_gradient_grows():
    """the gradient of a loop whose iterations are not counted beforehand"""
    v2()
    x = floats(shape=[])
    y = tf.while_loop(lambda y: y < 100.0, lambda y: [tf.square(y) * 0.5 + y], [x])[0]
    tf.identity(y, name="y")
    tf.identity(tf.gradients(y, x)[0], name="g")
    return False


@case(each(["y:0"], {"x:0": SIX}, {"x:0": -SIX}))
def while_shrinks_and_grows():
    """a tensor that shrinks and another that grows"""
    v2()
    x = floats(shape=[6])

    def body(now, total):
        kept = tf.boolean_mask(now, now > tf.reduce_min(now))
        return kept, tf.concat([total, [tf.reduce_sum(kept)]], 0)
    shapes = [tf.TensorShape([None]), tf.TensorShape([None])]
    _, sums = tf.while_loop(lambda now, _: tf.size(now) > 1, body, [x, tf.zeros([0])], shape_invariants=shapes)
    tf.cumsum(sums, reverse=True, name="y")
    return False


@case(each(["d:0", "s:0", "y:0"], *[{"x:0": x} for x in SIGNS]))
def late_ragged():
    """rows of different lengths: made by a mask, computed with, filled up"""
    v2()
    x = floats(shape=[6])
    rows = tf.ragged.boolean_mask(tf.reshape(x, [2, 3]), tf.reshape(x, [2, 3]) > 0.3)
    tf.identity((rows * 2.0).to_tensor(default_value=-1.0), name="d")
    tf.identity(tf.reduce_sum(rows, axis=1), name="s")
    tf.identity(tf.gather(rows, [1, 0, 1]).flat_values, name="y")
    return False
