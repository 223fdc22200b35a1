"""Programs of loops, lists, conditions, functions and variables, made at random. A number makes the same program each time.

All tensors are small, and what is computed stays small: floats go through tanh and the like, integers through a remainder. What
reads or changes a variable is in one order, which control edges say outside of functions; so each program has one result.
"""
import contextlib

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function as framework_function
from tensorflow.python.ops import gen_list_ops as lists

from .common import *

TYPES = [tf.float32, tf.float32, tf.float32, tf.int32, tf.int64, tf.bool, tf.float64]
SHAPES = [[], [2], [3], [2, 3], [3, 2], [1, 3]]
# Programs from this number on have one statement.
SHORT = 100000
DEVICES = ["/cpu:0", "/cpu:1", "/gpu:0"]


class Program:
    """A graph; `fetches` are the tensors to fetch, `last` runs all that changes variables."""

    def __init__(self, number):
        self.number, self.random = number, np.random.default_rng(number)
        self.frames = self.chance(0.4)
        self.cpus = 2 if self.chance(0.3) else 1
        self.apart = self.cpus == 2 and self.chance(0.5)
        self.statements = int(self.random.integers(2, 6)) if number < SHORT else 1
        self.effects = []
        self.differentiates = False

    def chance(self, share):
        return self.random.random() < share

    def one_of(self, things):
        return things[int(self.random.integers(0, len(things)))]

    def build(self):
        v1() if self.frames else v2()
        self.inputs = [floats(), floats("u", [3]), tf1.placeholder(tf.int32, [], "n"), tf1.placeholder(tf.int64, [2], "k"), predicate()]
        if self.chance(0.2):
            self.inputs.append(tf1.placeholder(tf.float64, [2], "d"))
        self.variables = []
        if self.chance(0.4):
            with tf1.device("/cpu:0"):
                self.variables = [variable("v", np.float32([0.5, -1.0, 0.25])), variable("c", np.int32(3))][:int(self.random.integers(1, 3))]
                # Its own initialiser changes nothing while the program runs.
                init()
        values = list(self.inputs)
        made = self.block(values, 0, self.statements)
        outputs = [tensor for tensor in made if tensor.shape.is_fully_defined()][-6:]
        if self.chance(0.5):
            made += self.gradient(outputs)
        self.fetches = [tf.identity(tensor, f"out{index}").name for index, tensor in enumerate([*outputs, *made[len(outputs):]][-8:])]
        self.fetches = sorted(set(self.fetches))
        with tf1.control_dependencies(self.effects):
            tf.no_op(name="end")
        for at, each in enumerate(self.variables):
            with tf1.device("/cpu:0"):
                tf.identity(each.read_value(), name=f"now{at}")
        return bool(self.variables)

    def gradient(self, outputs):
        of = [tensor for tensor in outputs if tensor.dtype == tf.float32]
        if not of:
            return []
        total = tf.add_n([tf.reduce_sum(tensor * 0.5) for tensor in of])
        found = tf1.gradients(total, [self.inputs[0], self.inputs[1]])
        found = [tf.convert_to_tensor(tensor) for tensor in found if tensor is not None]
        self.differentiates = bool(found)
        # TensorFlow may not know their shape.
        return [tf.identity(tensor) for tensor in found]

    # Tensors of a type and shape.

    def constant(self, dtype, shape):
        if dtype == tf.bool:
            return tf.constant(self.random.integers(0, 2, shape).astype(bool))
        if dtype.is_integer:
            return tf.constant(self.random.integers(-3, 6, shape), dtype)
        return tf.constant(np.round(self.random.normal(size=shape), 1), dtype)

    def any(self, values):
        return values[-1 - min(int(self.random.exponential(4)), len(values) - 1)]

    def cast(self, tensor, dtype):
        if tensor.dtype == dtype:
            return tensor
        if dtype == tf.bool:
            return tensor > tf.cast(0.37 if tensor.dtype.is_floating else 1, tensor.dtype)
        if dtype.is_integer and tensor.dtype.is_floating:
            tensor = tensor > tf.cast(0.37, tensor.dtype)
        return tf.cast(tensor, dtype)

    def value(self, values, dtype, shape):
        """A tensor of that type and shape."""
        if self.chance(0.12):
            return self.constant(dtype, shape)
        fitting = [tensor for tensor in values if tensor.dtype == dtype and tensor.shape.is_fully_defined() and tensor.shape == shape]
        if fitting and self.chance(0.75):
            return self.any(fitting)
        tensor = self.cast(self.any(values), dtype)
        if tensor.shape.is_fully_defined() and tensor.shape == shape:
            return tensor
        flat = tf.reduce_any(tensor) if dtype == tf.bool else tf.reduce_max(tf.concat([tf.reshape(tensor, [-1]), tf.constant([0], dtype)], 0))
        return tf.broadcast_to(flat, shape) if shape else flat

    def index(self, values, size):
        """A position below `size`."""
        if self.chance(0.4):
            return tf.constant(int(self.random.integers(0, size)))
        return tf.math.floormod(self.value(values, tf.int32, []), size)

    def count(self, values):
        """How often something is done."""
        kind = self.random.integers(0, 4)
        if kind == 0:
            return tf.constant(int(self.random.integers(0, 5)))
        if kind == 1:
            return self.inputs[2] if self.inputs[2].graph is tf1.get_default_graph() or not self.frames else tf.constant(2)
        return tf.math.floormod(self.value(values, tf.int32, []), 5)

    def test(self, values):
        return self.value(values, tf.bool, [])

    # Statements.

    def block(self, values, depth, count):
        """Statements on `values`, and what they make."""
        made = []
        for _ in range(count):
            device = self.one_of(DEVICES) if self.apart and self.chance(0.4) else None
            with tf1.device(device) if device else contextlib.nullcontext():
                made += self.statement(values + made, depth)
        return made

    def statement(self, values, depth):
        kinds = [self.arithmetic] * 3
        if depth < 3:
            kinds += [self.condition, self.loop, self.loop, self.array, self.rows, self.called]
            if not self.frames:
                kinds += [self.list, self.list, self.tape]
        if self.variables:
            kinds += [self.state] * 2
        return self.one_of(kinds)(values, depth)

    def arithmetic(self, values, depth):
        dtype, shape = self.one_of(TYPES), self.one_of(SHAPES)
        a, b = self.value(values, dtype, shape), self.value(values, dtype, shape)
        if dtype == tf.bool:
            return [self.one_of([tf.logical_and, tf.logical_or, tf.math.logical_xor])(a, b)]
        if dtype.is_integer:
            return [tf.math.floormod(self.one_of([tf.add, tf.multiply, tf.subtract, tf.maximum])(a, b), tf.constant(7, dtype))]
        kinds = [lambda: tf.tanh(a + b), lambda: a * 0.5 - b, lambda: tf.sin(a) * b, lambda: tf.maximum(a, b), lambda: tf.where(a > b, a, b * 0.5), lambda: tf.sigmoid(a)]
        if shape == [2, 3]:
            kinds += [lambda: tf.tanh(tf.matmul(a, self.value(values, dtype, [3, 2]))), lambda: tf.transpose(a) * 0.5, lambda: tf.reduce_mean(a, axis=0), lambda: a[:, 1]]
        return [self.one_of(kinds)()]

    def condition(self, values, depth):
        wanted = [(self.one_of(TYPES), self.one_of(SHAPES)) for _ in range(self.random.integers(1, 3))]
        test = self.test(values)

        def side():
            before, self.effects = self.effects, []
            own = values + self.block(values, depth + 1, int(self.random.integers(0, 3)))
            with tf1.control_dependencies(self.effects):
                results = [tf.identity(self.value(own, *each)) for each in wanted]
            self.effects = before
            return results
        with self.behind():
            made = tf1.cond(test, side, side)
        made = list(made) if isinstance(made, (list, tuple)) else [made]
        self.done(made[0])
        return made

    def loop(self, values, depth):
        carried = [(self.one_of(TYPES), self.one_of(SHAPES)) for _ in range(self.random.integers(1, 4))]
        limit, first = self.count(values), [self.value(values, *each) for each in carried]
        bounded = {"maximum_iterations": int(self.random.integers(2, 7))} if self.chance(0.4) else {}
        until = self.chance(0.2)

        def cond(i, *state):
            more = i < limit
            return tf.logical_and(more, self.test([*state, *values])) if until else more

        def body(i, *state):
            before, self.effects = self.effects, []
            own = [*values, i, *state]
            own += self.block(own, depth + 1, int(self.random.integers(1, 4)))
            with tf1.control_dependencies(self.effects):
                results = [i + 1, *(self.again(own, state, each) for each in carried)]
                results = [tf.identity(each) for each in results] if self.effects else results
            self.effects = before
            return results
        with self.behind():
            i, *made = tf1.while_loop(cond, body, [tf.constant(0), *first], parallel_iterations=self.one_of([1, 10, 10]), **bounded)
        self.done(i)
        self.lower([i, *made])
        return [i, *made]

    def again(self, own, state, each):
        """What a body hands on: now and then what it was given."""
        if self.chance(0.1):
            fitting = [tensor for tensor in state if tensor.dtype == each[0] and tensor.shape == each[1]]
            if fitting:
                return self.one_of(fitting)
        made = self.value(own, *each)
        if each[0].is_floating:
            return tf.tanh(made) if self.chance(0.5) else made * 0.5
        return tf.math.floormod(made + 1, 7) if each[0].is_integer else made

    def lower(self, made):
        """Some loops stay functions, as where TensorFlow runs them so."""
        op = made[0].op
        while op.type == "Identity":
            op = op.inputs[0].op
        if op.type in ("While", "StatelessWhile") and not self.apart and not self.variables and self.chance(0.2):
            op._set_attr("_lower_using_switch_merge", tf1.AttrValue(b=False))

    def called(self, values, depth):
        """A function, which may be called twice."""
        given = [self.value(values, self.one_of(TYPES), self.one_of(SHAPES)) for _ in range(self.random.integers(1, 4))]
        depth = max(depth, 1)

        def inner(*arguments):
            frames, self.frames = self.frames, self.frames and not isinstance(tf1.get_default_graph(), tf.__internal__.FuncGraph)
            before, self.effects = self.effects, []
            variables, self.variables = self.variables, self.variables if not self.frames else []
            own = list(arguments)
            own += self.block(own, depth + 1, int(self.random.integers(1, 4)))
            self.frames, self.effects, self.variables = frames, before, variables
            return [tf.identity(each) for each in own[-2:]]
        inputs, self.inputs = self.inputs, given[:2] + [tf.constant(2)]
        if self.frames and self.chance(0.5):
            made = framework_function.Defun(*[each.dtype for each in given], func_name=f"f{self.random.integers(1 << 30)}")(
                lambda *arguments: [set_shapes(arguments, given), inner(*arguments)][1])(*given)
            made = list(made) if isinstance(made, (list, tuple)) else [made]
        else:
            with self.behind():
                called = tf.function(inner, autograph=False)
                made = list(called(*given))
                if self.chance(0.2):
                    self.done(made[0])
                    with self.behind():
                        made += list(called(*given))
            self.done(made[-1])
        self.inputs = inputs
        return made

    def tape(self, values, depth):
        """The gradient inside a function."""
        x = self.value(values, tf.float32, self.one_of([[3], [2, 3]]))
        others = [self.value(values, tf.int32, [])]
        inputs, variables = self.inputs, self.variables

        def inner(x, n):
            self.variables = []
            with tf.GradientTape() as tape:
                tape.watch(x)
                made = self.block([n, x], depth + 1, 2)
                total = tf.add_n([tf.reduce_sum(self.value([*made, x], tf.float32, x.shape.as_list()) * 0.5), tf.reduce_sum(x * x)])
            return [total, tape.gradient(total, x)]
        self.inputs = [x, x, others[0]]
        made = tf.function(inner, autograph=False)(x, *others)
        self.inputs, self.variables = inputs, variables
        return list(made)

    def rows(self, values, depth):
        """map_fn, scan, foldl and foldr over the rows of a tensor."""
        kind = self.random.integers(0, 4)
        over = self.value(values, self.one_of([tf.float32, tf.float32, tf.int32]), self.one_of([[2], [3], [2, 3], [3, 2]]))
        shape, variables, self.variables = over.shape.as_list()[1:], self.variables, []

        def step(*state):
            before, self.effects = self.effects, []
            own = [*values, *state]
            own += self.block(own, depth + 2, 1)
            self.effects = before
            return self.again(own, [], (over.dtype, shape)) + state[-1]
        make = [lambda: tf1.map_fn(step, over), lambda: tf1.scan(step, over), lambda: tf1.foldl(step, over), lambda: tf1.foldr(step, over)][kind]
        made = make()
        self.variables = variables
        return [tf.reshape(made, over.shape if kind < 2 else shape)] if self.chance(0.5) else [made]

    def array(self, values, depth):
        """A TensorArray: filled by a loop, unstack, scatter or split; read by stack, gather, read, concat or a loop."""
        dtype, shape = self.one_of([tf.float32, tf.float32, tf.int32, tf.float64]), self.one_of([[], [2], [2, 3]])
        size = int(self.random.integers(1, 4))
        said = {"element_shape": shape} if self.chance(0.6) else {}
        dynamic = self.chance(0.15)
        make = lambda: tf.TensorArray(dtype, 0 if dynamic else size, dynamic_size=dynamic, clear_after_read=False, **said)
        fill = self.random.integers(0, 4 if shape else 3)
        every = lambda: self.value(values, dtype, [size, *shape])
        if fill == 0:
            def body(i, array):
                own = [*values, i]
                variables, self.variables = self.variables, []
                own += self.block(own, depth + 2, 1)
                self.variables = variables
                return i + 1, array.write(i, self.again(own, [], (dtype, shape)))
            _, array = tf1.while_loop(lambda i, _: i < size, body, [tf.constant(0), make()])
        elif fill == 1:
            array = make().unstack(every())
        elif fill == 2:
            array = make().scatter(list(self.random.permutation(size)), every())
        else:
            array = make().split(self.value(values, dtype, [size * shape[0], *shape[1:]]), [shape[0]] * size)
        # An element of TensorFlow 1's arrays may be written once.
        if self.chance(0.02 if self.frames else 0.2):
            array = array.write(size - 1, self.value(values, dtype, shape))
        read = self.random.integers(0, 5 if shape else 4)
        if read == 0:
            made = array.stack()
        elif read == 1:
            made = array.gather([int(self.random.integers(0, size)) for _ in range(2)])
        elif read == 2:
            made = array.read(self.index(values, size))
        elif read == 3:
            first = self.value(values, dtype, shape)
            _, made = tf1.while_loop(lambda i, _: i < size, lambda i, y: (i + 1, tf.reshape(y // 2 if dtype.is_integer else y * 0.5, shape) + tf.reshape(array.read(i), shape)), [tf.constant(0), first])
        else:
            made = array.concat()
        return [made, array.size()] if self.chance(0.2) else [made]

    def list(self, values, depth):
        """A TensorList of raw operations."""
        dtype, shape = self.one_of([tf.float32, tf.float32, tf.int32, tf.int64, tf.bool]), self.one_of([[], [2], [2, 3]])
        said = tf.constant(shape if self.chance(0.7) else -1, tf.int32) if shape else tf.constant([], tf.int32) if self.chance(0.7) else tf.constant(-1)
        wanted = lambda: tf.constant(shape, tf.int32)
        size = int(self.random.integers(1, 4))
        item = lambda: self.value(values, dtype, shape)
        every = lambda size=size: self.value(values, dtype, [size, *shape])
        where = self.chance(0.4)
        kind = self.random.integers(0, 5)
        stated = said if kind in (1, 2) else tf.constant(shape, tf.int32)
        if kind == 0:
            held = lists.tensor_list_from_tensor(every(), wanted())
        elif kind == 1:
            held = lists.empty_tensor_list(said, -1 if self.chance(0.5) else 8, dtype)
            if where:
                def body(i, held):
                    return i + 1, lists.tensor_list_push_back(held, self.again([*values, i], [], (dtype, shape)))
                _, held = tf1.while_loop(lambda i, _: i < size, body, [tf.constant(0), held], **({"maximum_iterations": size} if self.chance(0.7) else {}))
            else:
                for _ in range(size):
                    held = lists.tensor_list_push_back(held, item())
        elif kind == 2:
            held = lists.tensor_list_reserve(said, size, dtype)
            for at in range(size):
                held = lists.tensor_list_set_item(held, at, item())
        elif kind == 3:
            held = lists.tensor_list_scatter_v2(every(), list(self.random.permutation(size)), wanted(), -1)
        elif shape:
            shape, stated = [2, *shape[1:]], tf.constant([-1, *shape[1:]], tf.int32)
            held = lists.tensor_list_split(self.value(values, dtype, [size * 2, *shape[1:]]), stated, [2] * size)
        else:
            held = lists.tensor_list_from_tensor(every(), wanted())
        for _ in range(self.random.integers(0, 3)):
            change = self.random.integers(0, 6)
            if change == 0:
                held, size = lists.tensor_list_push_back(held, self.value(values, dtype, shape)), size + 1
            elif change == 1 and size > 1:
                (held, gone), size = lists.tensor_list_pop_back(held, wanted(), dtype), size - 1
                values = [*values, gone]
            elif change == 2:
                held = lists.tensor_list_set_item(held, self.index(values, size), self.value(values, dtype, shape))
            elif change == 3:
                older, test = held, self.test(values)
                held = tf1.cond(test, lambda: lists.tensor_list_set_item(older, 0, self.value(values, dtype, shape)), lambda: older)
            elif change == 4:
                held, size = lists.tensor_list_resize(held, size + 1), size + 1
                held = lists.tensor_list_set_item(held, size - 1, self.value(values, dtype, shape))
            else:
                # The shapes that both state have to be the same.
                other = lists.tensor_list_reserve(stated, 2, dtype)
                other = lists.tensor_list_set_item(other, self.index(values, 2), self.value(values, dtype, shape))
                held, size = lists.tensor_list_concat_lists(held, other, dtype), size + 2
        read = self.random.integers(0, 5 if shape else 4)
        if read == 0:
            return [lists.tensor_list_stack(held, wanted(), dtype)]
        if read == 1:
            return [lists.tensor_list_gather(held, [int(self.random.integers(0, size)) for _ in range(3)], wanted(), dtype)]
        if read == 2:
            return [lists.tensor_list_get_item(held, self.index(values, size), wanted(), dtype), lists.tensor_list_length(held)]
        if read == 3:
            return list(lists.tensor_list_pop_back(held, wanted(), dtype))[1:]
        return list(lists.tensor_list_concat_v2(held, [-1, *shape[1:]], tf.constant([], tf.int64), dtype))[:1]

    # What is in order.

    def behind(self):
        """Behind everything that has changed a variable so far. Only tf.function keeps that order itself."""
        return tf1.control_dependencies(list(self.effects))

    def done(self, tensor):
        if self.variables:
            # An operation of its own: of one that is an input, too, TensorFlow's Python leaves the control edge out.
            self.effects = [tf.group(tensor)]

    def state(self, values, depth):
        """Reads or changes a variable."""
        chosen = self.one_of(self.variables)
        is_float = chosen.dtype.base_dtype == tf.float32
        shape = chosen.shape.as_list()
        with self.behind():
            if self.chance(0.4):
                made = tf.identity(chosen.read_value())
                self.done(made)
                return [made]
            given = self.value(values, chosen.dtype.base_dtype, shape)
            given = tf.tanh(given) if is_float else tf.math.floormod(given, 5)
            with self.behind():
                change = self.one_of([chosen.assign, chosen.assign_add, chosen.assign_sub])(given, read_value=False)
        self.done(change)
        with self.behind():
            made = tf.identity(chosen.read_value())
        self.done(made)
        return [made]


def set_shapes(arguments, given):
    for argument, tensor in zip(arguments, given):
        argument.set_shape(tensor.shape)


def feeds(number, inputs):
    """Three steps' feeds for these placeholders."""
    random = np.random.default_rng(number + 100000)
    for _ in range(3):
        feed = {"x:0": np.round(random.normal(size=(2, 3)), 1).astype(np.float32), "u:0": np.round(random.normal(size=3), 1).astype(np.float32),
                "n:0": np.int32(random.integers(0, 5)), "k:0": random.integers(-2, 6, 2), "p:0": np.bool_(random.integers(0, 2)), "d:0": np.round(random.normal(size=2), 1)}
        yield {name: value for name, value in feed.items() if name in {tensor.name for tensor in inputs}}
