"""Queues, readers of files, tables and iterators: what is held by a handle."""
import tensorflow as tf

from .common import case, on, tf1, variable


@case(soft=False)
def queue_elsewhere():
    """A handle by reference: what enqueues and dequeues goes where the queue is."""
    with on("/cpu:1"):
        queue = tf1.FIFOQueue(4, tf.float32, [[]], name="queue")
    with on("/cpu:2"):
        fill = queue.enqueue(tf.constant(1.0))
        many = queue.enqueue_many(tf.constant([1.0, 2.0]))
    with on("/cpu:3"):
        value = queue.dequeue()
        y = value * 2.0
        size = queue.size()
    close = queue.close()
    return [([], [fill]), ([many], [y, size]), ([], [close])]


@case(soft=True)
def queue_of_a_gpu():
    """As the CIFAR-10 tutorial: the queue on cpu:0, dequeued under /gpu:i."""
    with on("/cpu:0"):
        queue = tf1.FIFOQueue(8, [tf.float32, tf.int32], name="queue")
        fill = queue.enqueue([1.0, 2])
    outs = []
    for i in range(2):
        with on(f"/gpu:{i}"):
            a, b = queue.dequeue()
            outs.append(a + tf.cast(b, tf.float32))
    return [([fill, fill], outs)]


@case(soft=False)
def queues_of_all_kinds():
    kinds = [
        lambda: tf1.FIFOQueue(4, tf.float32, [[]]), lambda: tf1.RandomShuffleQueue(4, 0, tf.float32, [[]]),
        lambda: tf1.PaddingFIFOQueue(4, [tf.float32], [[None]]), lambda: tf1.PriorityQueue(4, [tf.float32], [[]]),
    ]
    runs = []
    for i, kind in enumerate(kinds):
        with on(f"/cpu:{i}"):
            queue = kind()
        with on(f"/cpu:{(i + 1) % 4}"):
            item = [tf.constant(3, tf.int64), 1.0] if i == 3 else [tf.constant([1.0]) if i == 2 else 1.0]
            fill = queue.enqueue(item)
        with on(f"/cpu:{(i + 2) % 4}"):
            runs.append(([fill], [queue.dequeue()]))
    return runs


@case(soft=False)
def queue_runners():
    with on("/cpu:1"):
        source = tf1.train.input_producer(tf.constant([1.0, 2.0, 3.0]), shuffle=True, seed=1, name="source")
    with on("/cpu:2"):
        value = source.dequeue()
    with on("/cpu:3"):
        images, labels = tf1.train.batch([value, tf.cast(value, tf.int32)], 2, name="batch")
        shuffled = tf1.train.shuffle_batch([value], 2, 20, 4, name="shuffled")
    y = images * 2.0
    runners = tf1.get_collection(tf1.GraphKeys.QUEUE_RUNNERS)
    first = [runner.enqueue_ops[0] for runner in runners]
    return [([tf1.local_variables_initializer(), tf1.global_variables_initializer()], [first[0]]),
            ([first[1], first[1]], [y]), ([], [labels.op.name and tf.identity(1.0)]), ([first[0]], [shuffled.op.inputs[0].op.name and first[0]])]


@case(soft=False)
def readers():
    """Files by name, records, decoding."""
    with on("/cpu:1"):
        names = tf1.train.string_input_producer(["a", "b"], shuffle=False)
        reader = tf1.FixedLengthRecordReader(4)
    with on("/cpu:2"):
        key, value = reader.read(names)
    bytes_ = tf1.decode_raw(value, tf.uint8)
    with on("/cpu:3"):
        tf1.train.batch([tf.reshape(bytes_, [4]), key], 2)
    return [([tf1.local_variables_initializer()], [tf.identity(1.0)])]


@case(soft=False)
def staging_and_stacks():
    """Stage and Unstage have no handle; stacks have one."""
    with on("/cpu:2"):
        area = tf.raw_ops.Stage(values=[tf.constant(1.0)], shared_name="area")
    with on("/cpu:2"):
        taken = tf.raw_ops.Unstage(dtypes=[tf.float32], shared_name="area")
    with on("/cpu:1"):
        stack = tf.raw_ops.StackV2(max_size=-1, elem_type=tf.float32)
    with on("/cpu:3"):
        push = tf.raw_ops.StackPushV2(handle=stack, elem=2.0)
        with tf1.control_dependencies([push]):
            pop = tf.raw_ops.StackPopV2(handle=stack, elem_type=tf.float32)
    return [([area], [taken]), ([], [pop])]


@case(soft=False)
def tables():
    with on("/cpu:1"):
        table = tf1.lookup.StaticHashTable(tf1.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)
    with on("/cpu:2"):
        found = table.lookup(tf.constant(["b", "c"]))
        size = table.size()
    doubled = found * 2
    return [([tf1.tables_initializer()], [doubled, size])]


@case(soft=False)
def iterators():
    """A dataset's iterator: variants tie datasets, resources tie what uses the iterator."""
    with on("/cpu:1"):
        data = tf1.data.Dataset.range(4).map(lambda x: x * 2).batch(2)
        iterator = tf1.data.make_initializable_iterator(data)
    with on("/cpu:2"):
        value = iterator.get_next()
    with on("/cpu:3"):
        y = value + 1
    return [([iterator.initializer], [y])]


@case(soft=False)
def accumulators_and_barriers():
    """What SyncReplicasOptimizer is made of."""
    with on("/cpu:1"):
        accumulator = tf1.ConditionalAccumulator(tf.float32, shape=[2])
    with on("/cpu:2"):
        give = accumulator.apply_grad([1.0, 2.0])
    with on("/cpu:3"):
        taken = accumulator.take_grad(1)
    return [([give], [taken])]


@case(soft=True)
def queue_and_variable():
    """Two kinds of groups next to each other, and a name scope that asks for what is not there."""
    with on("/cpu:3"):
        v = variable("v")
        queue = tf1.FIFOQueue(2, tf.float32, [[2, 2]])
    with on("/gpu:1"):
        fill = queue.enqueue(v)
        change = tf1.assign_sub(v, queue.dequeue())
    with on("/cpu:9"):
        y = tf.reduce_sum(v)
    return [([v.initializer, fill], [change, y])]
