"""Cases of operations: what TensorFlow's CPU kernels give, their gradients, and their words where they refuse.

A line is one of

    op NAME | ATTRS | INPUTS | OUTPUTS                 one node
    grad NAME | ATTRS | INPUTS | DYS | GRADIENTS       tf.gradients of its float outputs with these dys
    apply NAME | ATTRS | INPUTS | VARIABLES            a resource update; inputs that are variables begin with `var `
    random NAME | ATTRS | INPUTS | OUTPUTS             the first execution of a stateful random operation
    error NAME | ATTRS | INPUTS | MESSAGE              what its kernel says
    refused NAME | ATTRS | INPUTS | MESSAGE            as error, where other words will do

Tensors are separated by `;` and read  type[dims]=numbers ; a `!` in front marks an operand that a plan has to know.
Attributes are separated by `,` and read  name:kind=value , where a text has `&` for each comma. `-` stands for no gradient.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.python.framework import op_def_registry

v1 = tf.compat.v1
v1.disable_eager_execution()

# Operands that shapes follow from, by the names that operations give them.
KNOWN = {
    "shape", "axis", "dims", "begin", "end", "strides", "size", "perm", "multiples", "paddings", "split_dim", "size_splits",
    "depth", "num_segments", "dimension", "reduction_indices", "dim", "concat_dim", "s0", "s1", "start", "limit", "delta",
    "alg", "input_sizes", "filter_sizes", "orig_input_shape",
    "block_shape", "crops", "crop_size", "fft_length",
    "num_lower", "num_upper", "num_rows", "num_cols",
}
# Those of some operations.
KNOWN_OF = {
    "CropAndResizeGradImage": {"image_size"},
    "ScaleAndTranslate": {"scale", "translation"},
    "ScaleAndTranslateGrad": {"scale", "translation"},
    "ImageProjectiveTransformV2": {"output_shape"},
    "ImageProjectiveTransformV3": {"output_shape"},
}
KNOWN_OF |= {f"Matrix{form}{version}": {"k"} for form in ["Diag", "DiagPart", "SetDiag"] for version in ["V2", "V3"]}
# Names of operands that are fed nevertheless, for the cases at hand.
FED = set()
RANDOM = np.random.RandomState(7)

CONFIG = config_pb2.ConfigProto(intra_op_parallelism_threads=1)
CONFIG.graph_options.rewrite_options.disable_meta_optimizer = True
CONFIG.graph_options.rewrite_options.constant_folding = rewriter_config_pb2.RewriterConfig.OFF
CONFIG.graph_options.optimizer_options.opt_level = config_pb2.OptimizerOptions.L0


def f(*shape, low=-2.0, high=2.0):
    """Float32 numbers with few digits."""
    return np.round(RANDOM.uniform(low, high, shape), 3).astype(np.float32)


def c(*shape, low=-2.0, high=2.0, dtype=np.complex64):
    """Complex numbers with few digits."""
    return (f(*shape, low=low, high=high) + 1j * f(*shape, low=low, high=high)).astype(dtype)


def like(value):
    """Other numbers of a tensor's type and shape."""
    numbers = c if value.dtype.kind == "c" else f
    return numbers(*value.shape).astype(value.dtype)


def is_smooth(tensor_):
    return tensor_.dtype.is_floating or tensor_.dtype.is_complex


def i(*values, dtype=np.int32):
    return np.array(values, dtype=dtype)


def n(value, dtype=np.int32):
    return np.array(value, dtype=dtype)


def ints(*shape, low=-9, high=10, dtype=np.int32):
    return RANDOM.randint(low, high, shape).astype(dtype)


def bools(*shape):
    return RANDOM.randint(0, 2, shape).astype(bool)


def number(value):
    if value.dtype == np.bool_:
        return "1" if value else "0"
    if value.dtype.kind in "iu":
        return str(int(value))
    return str(value)


TYPES = {"float16": "half", "float32": "float", "float64": "double"}


def tensor(value, mark="", quantized=None):
    value = np.asarray(value)
    if value.dtype.names:  # Quantized numbers have the elements of integers.
        (quantized,) = value.dtype.names
        value = value[quantized]
    dtype = quantized or TYPES.get(value.dtype.name, value.dtype.name)
    dims = ",".join(str(dim) for dim in value.shape)
    flat = value.reshape(-1)
    if value.dtype.kind == "c":  # The parts, one after the other.
        return f"{mark}{dtype}[{dims}]={','.join(number(part) for e in flat for part in (e.real, e.imag))}"
    if flat.size > 3 and all(number(e) == number(flat[0]) for e in flat):
        return f"{mark}{dtype}[{dims}]={number(flat[0])}..."
    return f"{mark}{dtype}[{dims}]={','.join(number(e) for e in flat)}"


class Floats(tuple):
    """An attribute that is a list of floats."""


def attr_text(name, value):
    if isinstance(value, Floats):
        return f"{name}:floats={'/'.join(str(e) for e in value)}"
    if isinstance(value, bool):
        return f"{name}:bool={'true' if value else 'false'}"
    if isinstance(value, int):
        return f"{name}:int={value}"
    if isinstance(value, float):
        return f"{name}:float={value}"
    if isinstance(value, tf.DType):
        return f"{name}:type={TYPES.get(value.name, value.name)}"
    if isinstance(value, tf.TensorShape):
        return f"{name}:shape={'/'.join(str(dim) for dim in value.as_list())}"
    if isinstance(value, str):
        return f"{name}:text={value.replace(',', '&')}"
    if value and all(isinstance(e, str) for e in value):
        return f"{name}:texts={'/'.join(value)}"
    return f"{name}:ints={'/'.join(str(int(e)) for e in value)}"


def attr_proto(value):
    proto = attr_value_pb2.AttrValue()
    if isinstance(value, Floats):
        proto.list.f.extend(value)
    elif isinstance(value, bool):
        proto.b = value
    elif isinstance(value, int):
        proto.i = value
    elif isinstance(value, float):
        proto.f = value
    elif isinstance(value, tf.DType):
        proto.type = value.as_datatype_enum
    elif isinstance(value, tf.TensorShape):
        proto.shape.CopyFrom(value.as_proto())
    elif isinstance(value, str):
        proto.s = value.encode()
    elif value and all(isinstance(e, str) for e in value):
        proto.list.s.extend(e.encode() for e in value)
    else:
        proto.list.i.extend(int(e) for e in value)
        proto.list.SetInParent()
    return proto


class Case:
    """One node of an operation on placeholders."""

    def __init__(self, op, inputs, attrs, resource_variables=0):
        self.op, self.attrs, self.def_ = op, attrs, op_def_registry.get(op)
        self.flat, self.marks, node = [], [], node_def_pb2.NodeDef(name="node", op=op)
        for position, (arg, value) in enumerate(zip(self.def_.input_arg, inputs, strict=True)):
            values = value if isinstance(value, list) else [value]
            values = [np.asarray(v) for v in values]
            if arg.number_attr:
                node.attr[arg.number_attr].i = len(values)
            if arg.type_attr and values:
                node.attr[arg.type_attr].type = tf.as_dtype(values[0].dtype).as_datatype_enum
            known = arg.name in KNOWN - FED or arg.name in KNOWN_OF.get(op, ()) or (op in ("InvertPermutation", "ConcatOffset")) or (op == "Fill" and arg.name == "dims")
            self.flat += values
            self.marks += ["var " if position < resource_variables else "!" if known else ""] * len(values)
        for name, value in attrs.items():
            node.attr[name].CopyFrom(attr_proto(value))
        if resource_variables:
            node.attr["T" if "T" in [a.name for a in self.def_.attr] else "dtype"].type = tf.as_dtype(self.flat[0].dtype).as_datatype_enum
        self.node = node

    def head(self):
        attrs = ",".join(attr_text(name, value) for name, value in self.attrs.items())
        return f"{self.op} | {attrs} | {';'.join(tensor(v, m) for v, m in zip(self.flat, self.marks))}"

    def build(self, hidden=False):
        """The node, and what it is fed by. What a plan has to know is constant, unless shapes are hidden from the shape rule."""
        inputs = []
        for value, mark in zip(self.flat, self.marks):
            known = mark == "!" and not hidden
            inputs.append(tf.constant(value) if known else v1.placeholder(value.dtype, None if hidden else value.shape))
        def_ = v1.GraphDef()
        def_.versions.producer = tf.compat.v1.GRAPH_DEF_VERSION if hasattr(v1, "GRAPH_DEF_VERSION") else tf.version.GRAPH_DEF_VERSION
        node = def_.node.add()
        node.CopyFrom(self.node)
        for position, tensor_ in enumerate(inputs):
            feed = def_.node.add(name=f"feed{position}", op="Placeholder")
            feed.attr["dtype"].type = tensor_.dtype.as_datatype_enum
            node.input.append(f"feed{position}")
        mapping = {f"feed{position}:0": tensor_ for position, tensor_ in enumerate(inputs)}
        (operation,) = v1.import_graph_def(def_, input_map=mapping, return_elements=["node"], name="case")
        return inputs, operation


def is_without_vectors(op, attrs):
    return op in ("Svd", "SelfAdjointEigV2", "Eig") and not attrs.get("compute_uv", attrs.get("compute_v", True))


def run(op, inputs, gradient=False, kind="op", **attrs):
    """Records the values of a node, and its gradients where asked."""
    case = Case(op, inputs, attrs)
    with tf.Graph().as_default(), v1.Session(config=CONFIG) as session:
        placeholders, operation = case.build()
        # Copies: some kernels write into what they are fed.
        feed = {x: value.copy() for x, value in zip(placeholders, case.flat) if x.op.type == "Placeholder"}
        values = session.run(list(operation.outputs), feed)
        if op.startswith("FusedBatchNorm") and "Grad" not in op and (case.flat[0].size == 0 or not attrs.get("is_training", True)):
            values[3:5] = [np.zeros_like(value) for value in values[3:5]]  # The kernel leaves them unwritten.
        if is_without_vectors(op, attrs):
            values[1:] = [np.zeros([0], value.dtype) for value in values[1:]]  # The kernel leaves them unwritten, and of no shape.
        quantized = [y.dtype.name if y.dtype.is_quantized else None for y in operation.outputs]
        print(f"{kind} {case.head()} | {';'.join(tensor(v, quantized=name) for v, name in zip(values, quantized))}")
        if not gradient:
            return
        ys = [y for y in operation.outputs if is_smooth(y)]
        dys = [like(values[list(operation.outputs).index(y)]) for y in ys]
        if op.endswith("WithLogits") or op.startswith("FusedBatchNorm") or is_without_vectors(op, attrs):
            ys, dys = ys[:1], dys[:1]
        xs = [x for x in placeholders if is_smooth(x)]
        gradients = v1.gradients(ys, xs, [tf.constant(dy) for dy in dys])
        dense = [None if g is None else tf.convert_to_tensor(g) for g in gradients]
        found = session.run([g for g in dense if g is not None], feed) if any(g is not None for g in dense) else []
        found = iter(found)
        texts = ["-" if g is None else tensor(next(found)) for g in dense]
        print(f"grad {case.head()} | {';'.join(tensor(dy) for dy in dys)} | {';'.join(texts)}")


def both(op, inputs, **attrs):
    run(op, inputs, gradient=True, **attrs)


def refuse(op, inputs, kind="error", **attrs):
    """Records what the kernel says (shapes are hidden from the shape function)."""
    case = Case(op, inputs, attrs)
    with tf.Graph().as_default(), v1.Session(config=CONFIG) as session:
        placeholders, operation = case.build(hidden=True)
        try:
            session.run(list(operation.outputs), dict(zip(placeholders, case.flat)))
        except tf.errors.OpError as error:
            message = error.message.split("Node: 'case/node'\n")[-1].split("[[{{node")[0].strip()
            message = message if kind == "error" else message.splitlines()[0]
            assert "\n" not in message and " |" not in message and message, error.message
            print(f"{kind} {case.head()} | {message}")
            return
        raise AssertionError(f"{case.head()} is accepted")


def apply(op, variables, inputs, **attrs):
    """Records what a resource update makes of its variables."""
    case = Case(op, variables + inputs, attrs, len(variables))
    with tf.Graph().as_default(), v1.Session(config=CONFIG) as session:
        handles = [v1.get_variable(f"v{p}", initializer=tf.constant(v), use_resource=True) for p, v in enumerate(variables)]
        def_ = v1.GraphDef()
        def_.versions.producer = tf.version.GRAPH_DEF_VERSION
        node = def_.node.add()
        node.CopyFrom(case.node)
        mapping = {}
        for position, value in enumerate(variables + inputs):
            source = handles[position].handle if position < len(variables) else tf.constant(value)
            feed = def_.node.add(name=f"feed{position}", op="Placeholder")
            feed.attr["dtype"].type = source.dtype.as_datatype_enum
            node.input.append(f"feed{position}")
            mapping[f"feed{position}:0"] = source
        (operation,) = v1.import_graph_def(def_, input_map=mapping, return_elements=["node"], name="case")
        session.run(v1.global_variables_initializer())
        session.run(operation)
        print(f"apply {case.head()} | {';'.join(tensor(v) for v in session.run(handles))}")


def value_of(op, x, **attrs):
    """What an operation gives for a tensor."""
    with tf.Graph().as_default(), v1.Session(config=CONFIG) as session:
        return session.run(getattr(tf.raw_ops, op)(input=x, **attrs))
