"""Variables on other devices than what reads and writes them, colocation, heuristics."""
import tensorflow as tf

from .common import case, on, set_class, set_device, tf1, variable


@case(soft=False)
def ref_assign_elsewhere():
    """Assign asks for another device than its variable: the variable's wins; identities that read stay where they are asked."""
    with on("/cpu:1"):
        v = variable("v")
    with on("/cpu:2"):
        assign = tf1.assign(v, tf.ones([2, 2]), name="assign")
        add = tf1.assign_add(v, tf.ones([2, 2]), name="add")
        read = tf.identity(v, name="read_here")
    with on("/cpu:3"):
        y = tf.identity(read, name="read_there") * 2.0
    return [([v.initializer], [assign]), ([], [add, y])]


@case(soft=False)
def resource_assign_elsewhere():
    """ReadVariableOp and AssignVariableOp go where the handle is."""
    with on("/cpu:1"):
        v = variable("v", resource=True)
    with on("/cpu:2"):
        assign, read = v.assign(tf.ones([2, 2])), v.read_value()
        there = read * 2.0
    with on("/cpu:3"):
        again = tf1.assign_add(v, there)
        handle = tf.identity(v.handle, name="handle_elsewhere")
        through = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
    return [([v.initializer], [assign]), ([], [again, through])]


@case(soft=False)
def nothing_asked():
    with tf1.variable_scope("net"):
        v, w = variable("v"), variable("w", resource=True)
    y = tf.matmul(v, w) + 1.0
    tf.shape(y)
    return [([tf1.global_variables_initializer()], [y])]


@case(soft=False)
def constants_follow_their_consumers():
    """Generators go where all that use them are, where that is one device."""
    one, both, unused = tf.constant(1.0, name="one"), tf.constant(2.0, name="both"), tf.constant(3.0, name="unused")
    asked = set_device(tf.constant(4.0, name="asked"), "/cpu:1")
    noise = tf.random.uniform([2], name="noise")
    placeholder = tf1.placeholder_with_default(noise, [2], "with_default")
    with on("/cpu:2"):
        a = tf.add(one, both, name="a")
        b = tf.add(asked, placeholder, name="b")
    with on("/cpu:3"):
        c = tf.add(both, a, name="c")
        with tf1.control_dependencies([unused]):
            d = tf.no_op("d")
    return [([], [a, b, c, d])]


@case(soft=False)
def generators_with_control_edges():
    """A control edge counts as a consumer, and as no input."""
    with on("/cpu:1"):
        first = tf.no_op("first")
    with tf1.control_dependencies([first]):
        held = tf.constant(1.0, name="held")
        split = tf.constant(2.0, name="split")
    with on("/cpu:2"):
        y = tf.add(held, split, name="y")
    with on("/cpu:3"), tf1.control_dependencies([split]):
        z = tf.no_op("z")
    alone = tf.constant(5.0, name="alone")
    zero = tf.zeros([3], name="zero")
    with on("/cpu:2"), tf1.control_dependencies([alone, zero]):
        w = tf.no_op("w")
    return [([], [y, z, w])]


@case(soft=False)
def metadata_follows_its_input():
    """Shape, Size and Rank go where their input is; StridedSlice and ShapeN do not."""
    with on("/cpu:3"):
        x = tf1.placeholder_with_default(tf.ones([2, 3]), [None, 3], "x")
        noisy = tf.random.normal([2, 3]) + x
    shape, size, rank = tf.raw_ops.Shape(input=noisy), tf.raw_ops.Size(input=noisy), tf.raw_ops.Rank(input=noisy)
    shapes = tf.raw_ops.ShapeN(input=[noisy, noisy])
    rows = shape[0]
    with on("/cpu:1"):
        asked = tf.raw_ops.Shape(input=noisy, name="asked")
        fill = tf.fill(asked, 1.0)
    return [([], [shape, size, rank, shapes, rows, fill])]


@case(soft=False)
def identities_between():
    """An identity without a device between two nodes that ask for the same follows; between others it does not."""
    with on("/cpu:2"):
        a = tf1.placeholder_with_default(1.0, [], "a")
    same, differs, many, last = (tf.identity(a, name=name) for name in ("same", "differs", "many", "last"))
    with on("/cpu:2"):
        b = tf.add(same, 1.0, name="b")
    with on("/cpu:3"):
        c = tf.add(differs, 1.0, name="c")
        d = tf.add(many, 1.0, name="d")
    with on("/cpu:2"):
        e = tf.add(many, 1.0, name="e")
    f = tf1.placeholder_with_default(1.0, [], "f")
    g = tf.negative(tf.identity(f, name="between_default"), name="g")
    with tf1.control_dependencies([b.op]):
        controlled = tf.identity(a, name="controlled")
    with on("/cpu:2"):
        h = tf.add(controlled, 1.0, name="h")
    with on("/device:CPU:2"):
        i = tf.add(tf.identity(a, name="other_spelling"), 1.0, name="i")
    snapshot = tf.raw_ops.Snapshot(input=a)
    with on("/cpu:2"):
        j = tf.negative(snapshot)
    return [([], [b, c, d, e, g, h, i, j, last])]


@case(soft=False)
def identity_in_the_way():
    """As above, where the device asked for is written without a number."""
    with on("/device:CPU:*"):
        a = tf1.placeholder_with_default(1.0, [], "a")
    b = tf.identity(a, name="b")
    with on("/device:CPU:*"):
        c = tf.negative(b, name="c")
    with on("/cpu:3"):
        d = tf.negative(c, name="d")
        e = tf.raw_ops.Identity(input=d, name="e")
    return [([], [e])]


@case(soft=False)
def colocation_with_a_constant():
    with on("/cpu:2"):
        anchor = tf.constant(1.0, name="anchor")
    with tf1.colocate_with(anchor):
        x = tf.constant(2.0, name="x")
        y = tf.add(x, 3.0, name="y")
    set_device(y, "")
    set_device(x, "")
    z = set_class(tf.negative(y, name="z"), "loc:@y")
    set_class(tf.negative(z, name="far"), "loc:@z", "loc:@anchor")
    return [([], [z])]


@case(soft=False)
def colocation_with_what_is_not_there():
    """A label that is no node's is a group of its own."""
    a = set_class(set_device(tf.negative(1.0, name="a"), "/cpu:3"), "loc:@nowhere")
    b = set_class(tf.negative(2.0, name="b"), "loc:@nowhere")
    c = set_class(tf.negative(3.0, name="c"), "elsewhere")
    d = set_class(set_device(tf.negative(4.0, name="d"), "/cpu:2"), "@b", "loc:c")
    return [([], [a, b, c, d])]


@case(soft=True)
def colocation_given_up():
    """Two members that ask for different devices: with soft placement the request to be together is ignored."""
    a = set_device(tf.negative(1.0, name="a"), "/cpu:1")
    b = set_class(set_device(tf.negative(2.0, name="b"), "/cpu:2"), "loc:@a")
    c = set_class(tf.negative(3.0, name="c"), "loc:@b")
    d = set_class(tf.negative(4.0, name="d"), "loc:@a")
    return [([], [a, b, c, d])]


@case(soft=True)
def colocation_with_a_variable_elsewhere():
    with on("/cpu:1"):
        v = variable("v")
    with on("/cpu:2"):
        w = variable("w")
    both = set_class(tf.negative(1.0, name="both"), "loc:@v", "loc:@w")
    asked = set_class(set_device(tf.negative(1.0, name="asked"), "/cpu:3"), "loc:@v")
    return [([v.initializer, w.initializer], [both, asked])]


@case(soft=False)
def variables_share_a_group():
    """A ref that goes through RefIdentity and RefSwitch ties all of them."""
    with on("/cpu:2"):
        v = variable("v")
    with on("/cpu:3"):
        ref = tf.raw_ops.RefIdentity(input=v._ref(), name="ref")
        update = tf1.assign(ref, tf.ones([2, 2]), name="update")
        off, taken = tf.raw_ops.RefSwitch(data=ref, pred=tf.constant(True), name="switch")
        merged, _ = tf.raw_ops.RefMerge(inputs=[off, taken])
        out = tf.identity(merged, name="out")
    return [([v.initializer], [update]), ([], [out])]


@case(soft=False)
def optimizer_slots():
    with on("/cpu:3"):
        v = variable("v", resource=True)
    with on("/cpu:1"):
        r = variable("r")
    with on("/cpu:2"):
        loss = tf.reduce_sum(tf.square(v) + tf.square(r))
        train = tf1.train.AdamOptimizer(0.1).minimize(loss)
    return [([tf1.global_variables_initializer()], [train])]


@case(soft=False)
def gradients_colocated():
    with on("/cpu:1"):
        v = variable("v")
        h = tf.tanh(tf.matmul(v, v))
    with on("/cpu:2"):
        loss = tf.reduce_sum(h)
    with on("/cpu:3"):
        plain = tf1.gradients(loss, v)
        colocated = tf1.gradients(loss, v, colocate_gradients_with_ops=True)
    unasked = tf1.gradients(loss, v)
    return [([v.initializer], [plain, colocated, unasked])]


@case(cpus=12, soft=False)
def twelve_devices():
    """CPU:10 is before CPU:2, and CPU:0 before both."""
    def by(op):
        return f"/cpu:{11 if op.type == 'Const' else 10}"

    with on("/device:CPU:*"):
        a = tf1.placeholder_with_default(1.0, [], "a")
    with on(by):
        b = tf.add(a, 1.0, name="b")
    with on("/cpu:2"):
        v = variable("v", resource=True)
    with on("/cpu:10"):
        c = tf.reduce_sum(v.read_value()) + b
    d = tf.negative(c, name="d")
    return [([v.initializer], [d])]


@case(soft=False)
def partitioned_and_replicated():
    """replica_device_setter and a partitioner."""
    with on("/cpu:2"):
        parts = tf1.get_variable("parts", [6, 2], initializer=tf1.zeros_initializer(), partitioner=tf1.fixed_size_partitioner(3))
        y = tf.reduce_sum(tf.convert_to_tensor(parts))
    with on(lambda op: "/cpu:1" if op.type in ("VariableV2", "VarHandleOp") else "/cpu:3"):
        w = variable("w")
        z = tf.reduce_sum(tf.matmul(w, w)) + y
        looked_up = tf.nn.embedding_lookup(parts, tf.constant([0, 3]))
    return [([tf1.global_variables_initializer()], [z, looked_up])]


@case(soft=False)
def sparse_updates():
    """Gathers and scatters where the variable is."""
    with on("/cpu:1"):
        v, r = variable("v", (4, 2)), variable("r", (4, 2), resource=True)
    with on("/cpu:2"):
        rows = tf.gather(v, [0, 2]) + tf.gather(r, [1, 3])
        scattered = tf1.scatter_add(v, [0, 1], tf.ones([2, 2]))
        loss = tf.reduce_sum(tf.nn.embedding_lookup(v, [0, 1]) + tf.nn.embedding_lookup(r, [0, 1]))
    train = tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    return [([tf1.global_variables_initializer()], [rows, scattered, train])]


@case(soft=False)
def moving_averages_and_saver():
    with on("/cpu:1"):
        v = variable("v", resource=True)
        w = variable("w")
    with on("/cpu:2"):
        average = tf1.train.ExponentialMovingAverage(0.9)
        apply = average.apply([v, w])
    with on("/cpu:3"):
        tf1.train.Saver()
    return [([tf1.global_variables_initializer()], [apply])]


@case(soft=False)
def temporary_and_is_initialized():
    with on("/cpu:2"):
        v, r = variable("v"), variable("r", resource=True)
    with on("/cpu:1"):
        known = tf1.is_variable_initialized(v)
        there = tf1.is_variable_initialized(r)
        missing = tf1.report_uninitialized_variables()
    return [([], [known, there, missing])]


@case(soft=False)
def strings_and_variants():
    """Lists of tensors, tensors of strings."""
    with on("/cpu:2"):
        words = tf.constant(["a", "b"])
        joined = tf.strings.join([words, words])
        items = tf.raw_ops.TensorListReserve(element_shape=[2], num_elements=3, element_dtype=tf.float32)
    with on("/cpu:1"):
        items = tf.raw_ops.TensorListSetItem(input_handle=items, index=0, item=[1.0, 2.0])
        kept = tf.identity(items)
    stacked = tf.raw_ops.TensorListStack(input_handle=kept, element_shape=[2], element_dtype=tf.float32)
    length = tf.strings.length(joined)
    return [([], [stacked, length])]
