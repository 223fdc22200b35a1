//! The operations that models are made of, as functions. Each begins a node with TensorFlow's default name; `build` makes it.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, Element, HostTensor, NodeId, Output, PartialShape, Shape};

use super::{GraphBuilder, OpBuilder};
use crate::array::fill::element;

impl GraphBuilder {
    /// A constant.
    pub fn constant(&mut self, value: HostTensor) -> OpBuilder<'_> {
        self.op("Const").attr("dtype", AttrValue::data_type(value.data_type())).attr("value", AttrValue::Tensor(value))
    }

    /// A constant of one element.
    ///
    /// # Errors
    /// As [`OpBuilder::build`].
    pub fn scalar<T: Element>(&mut self, value: T) -> Result<Output> {
        self.constant(HostTensor::scalar(value)).build()
    }

    /// A tensor that is fed.
    pub fn placeholder(&mut self, name: &str, data_type: DataType, shape: impl Into<PartialShape>) -> OpBuilder<'_> {
        self.op("Placeholder").name(name).attr("dtype", AttrValue::data_type(data_type)).attr("shape", AttrValue::Shape(shape.into()))
    }

    fn unary(&mut self, op: &str, x: Output) -> OpBuilder<'_> {
        self.op(op).input(x)
    }

    fn binary(&mut self, op: &str, name: &str, x: Output, y: Output) -> OpBuilder<'_> {
        self.op(op).name(name).inputs([x, y])
    }

    /// `x + y`, broadcasting.
    pub fn add(&mut self, x: Output, y: Output) -> OpBuilder<'_> {
        self.binary("AddV2", "add", x, y)
    }

    /// `x - y`, broadcasting.
    pub fn sub(&mut self, x: Output, y: Output) -> OpBuilder<'_> {
        self.binary("Sub", "sub", x, y)
    }

    /// `x * y`, broadcasting.
    pub fn mul(&mut self, x: Output, y: Output) -> OpBuilder<'_> {
        self.binary("Mul", "mul", x, y)
    }

    /// `x / y` of floats, broadcasting.
    pub fn div(&mut self, x: Output, y: Output) -> OpBuilder<'_> {
        self.binary("RealDiv", "truediv", x, y)
    }

    /// The product of two matrices; attributes `transpose_a` and `transpose_b` transpose them first.
    pub fn matmul(&mut self, a: Output, b: Output) -> OpBuilder<'_> {
        self.binary("MatMul", "MatMul", a, b)
    }

    /// A vector added to the last axis (to the channels, with attribute `data_format`).
    pub fn bias_add(&mut self, value: Output, bias: Output) -> OpBuilder<'_> {
        self.binary("BiasAdd", "BiasAdd", value, bias)
    }

    /// `max(x, 0)`.
    pub fn relu(&mut self, x: Output) -> OpBuilder<'_> {
        self.unary("Relu", x)
    }

    /// Softmax over the last axis.
    pub fn softmax(&mut self, logits: Output) -> OpBuilder<'_> {
        self.unary("Softmax", logits)
    }

    /// Half the sum of all squares.
    pub fn l2_loss(&mut self, x: Output) -> OpBuilder<'_> {
        self.unary("L2Loss", x)
    }

    /// Local response normalisation over the channels of NHWC pictures; attributes `depth_radius`, `bias`, `alpha`, `beta`.
    pub fn lrn(&mut self, x: Output) -> OpBuilder<'_> {
        self.unary("LRN", x)
    }

    /// The tensor itself.
    pub fn identity(&mut self, x: Output) -> OpBuilder<'_> {
        self.unary("Identity", x)
    }

    /// The tensor itself; no gradient goes through.
    pub fn stop_gradient(&mut self, x: Output) -> OpBuilder<'_> {
        self.unary("StopGradient", x)
    }

    /// The elements in another type.
    pub fn cast(&mut self, x: Output, to: DataType) -> OpBuilder<'_> {
        self.unary("Cast", x).attr("DstT", AttrValue::data_type(to))
    }

    /// `x == y`, broadcasting.
    pub fn equal(&mut self, x: Output, y: Output) -> OpBuilder<'_> {
        self.binary("Equal", "Equal", x, y)
    }

    /// The shape, an int32 vector.
    pub fn shape(&mut self, x: Output) -> OpBuilder<'_> {
        self.unary("Shape", x)
    }

    /// The elements in another shape, where one dimension may be -1.
    pub fn reshape(&mut self, x: Output, shape: &[i64]) -> OpBuilder<'_> {
        let shape = int_vector(shape);
        self.unary("Reshape", x).constant_input("shape", shape)
    }

    /// The sum over axes, over all without.
    pub fn reduce_sum(&mut self, x: Output, axes: Option<&[i32]>) -> OpBuilder<'_> {
        self.reduce("Sum", x, axes)
    }

    /// The mean over axes, over all without.
    pub fn reduce_mean(&mut self, x: Output, axes: Option<&[i32]>) -> OpBuilder<'_> {
        self.reduce("Mean", x, axes)
    }

    fn reduce(&mut self, op: &str, x: Output, axes: Option<&[i32]>) -> OpBuilder<'_> {
        let rank = self.fact(x).shape.0.as_ref().map(|dims| dims.len() as i64);
        let axes: Vec<i64> = match (axes, rank) {
            (Some(axes), _) => axes.iter().map(|axis| i64::from(*axis)).collect(),
            (None, Some(rank)) => (0..rank).collect(),
            (None, None) => {
                let error = Error::invalid_argument("the input has no known rank: say the axes to reduce");
                return self.unary(op, x).fail(error);
            }
        };
        self.unary(op, x).constant_input("reduction_indices", int_vector(&axes))
    }

    /// The index of the greatest element along an axis, as int64.
    pub fn arg_max(&mut self, x: Output, axis: i32) -> OpBuilder<'_> {
        self.unary("ArgMax", x).constant_input("dimension", HostTensor::scalar(axis))
    }

    /// The sum of tensors of one shape.
    pub fn add_n(&mut self, tensors: impl IntoIterator<Item = Output>) -> OpBuilder<'_> {
        self.op("AddN").inputs(tensors)
    }

    /// Tensors one after the other along an axis.
    pub fn concat(&mut self, tensors: impl IntoIterator<Item = Output>, axis: i32) -> OpBuilder<'_> {
        self.op("ConcatV2").name("concat").inputs(tensors).constant_input("axis", HostTensor::scalar(axis))
    }

    /// Tensors of one shape along a new axis.
    pub fn pack(&mut self, tensors: impl IntoIterator<Item = Output>, axis: i32) -> OpBuilder<'_> {
        self.op("Pack").name("stack").inputs(tensors).attr("axis", AttrValue::Int(axis.into()))
    }

    /// A new axis of length 1.
    pub fn expand_dims(&mut self, x: Output, axis: i32) -> OpBuilder<'_> {
        self.unary("ExpandDims", x).constant_input("dim", HostTensor::scalar(axis))
    }

    /// A tensor of that shape (an integer vector), all elements `value`.
    pub fn fill(&mut self, dims: Output, value: Output) -> OpBuilder<'_> {
        self.op("Fill").inputs([dims, value])
    }

    /// A convolution of NHWC pictures with HWIO filters; strides in height and width; padding `SAME` or `VALID`.
    pub fn conv2d(&mut self, input: Output, filter: Output, strides: [i64; 2], padding: &str) -> OpBuilder<'_> {
        let strides = AttrValue::ints([1, strides[0], strides[1], 1]);
        self.op("Conv2D").inputs([input, filter]).attr("strides", strides).attr("padding", AttrValue::text(padding))
    }

    /// The greatest elements of windows of NHWC pictures.
    pub fn max_pool(&mut self, input: Output, window: [i64; 2], strides: [i64; 2], padding: &str) -> OpBuilder<'_> {
        self.pool("MaxPool", input, window, strides, padding)
    }

    /// The mean elements of windows of NHWC pictures.
    pub fn avg_pool(&mut self, input: Output, window: [i64; 2], strides: [i64; 2], padding: &str) -> OpBuilder<'_> {
        self.pool("AvgPool", input, window, strides, padding)
    }

    fn pool(&mut self, op: &str, input: Output, window: [i64; 2], strides: [i64; 2], padding: &str) -> OpBuilder<'_> {
        let node = self.op(op).input(input).attr("ksize", AttrValue::ints([1, window[0], window[1], 1]));
        node.attr("strides", AttrValue::ints([1, strides[0], strides[1], 1])).attr("padding", AttrValue::text(padding))
    }

    /// The loss of each row of logits against a row of probabilities; output 1 is the gradient.
    pub fn softmax_cross_entropy(&mut self, logits: Output, labels: Output) -> OpBuilder<'_> {
        self.binary("SoftmaxCrossEntropyWithLogits", "softmax_cross_entropy_with_logits", logits, labels)
    }

    /// The loss of each row of logits against the number of the right class; output 1 is the gradient.
    pub fn sparse_softmax_cross_entropy(&mut self, logits: Output, labels: Output) -> OpBuilder<'_> {
        let name = "SparseSoftmaxCrossEntropyWithLogits";
        self.binary(name, name, logits, labels)
    }

    /// A node that has run when all of these have. As in TensorFlow there is one for each device among them, and one more
    /// where there are several.
    ///
    /// # Errors
    /// As [`OpBuilder::build_node`].
    pub fn group(&mut self, nodes: &[NodeId], name: &str) -> Result<NodeId> {
        nodes.iter().try_for_each(|node| self.check_node(*node))?;
        let mut devices: Vec<String> = nodes.iter().map(|node| self.node(*node).device.clone()).collect();
        devices.sort();
        devices.dedup();
        if let [] | [_] = devices[..] {
            let device = devices.first().cloned().unwrap_or_default();
            return self.op("NoOp").name(name).device(&device).controls(nodes.iter().copied()).build_node();
        }
        self.name_scope(name, |b| {
            let mut groups = Vec::with_capacity(devices.len());
            for device in &devices {
                let there: Vec<NodeId> = nodes.iter().copied().filter(|node| b.node(*node).device == *device).collect();
                groups.push(b.op("NoOp").device(device).controls(there).build_node()?);
            }
            let name = format!("{}/", b.current_name_scope());
            b.no_device(|b| b.op("NoOp").name(&name).controls(groups).build_node())
        })
    }
}

/// A vector of int32, or of int64 where an element does not fit.
pub(super) fn int_vector(values: &[i64]) -> HostTensor {
    let shape = [values.len() as u64];
    let narrow: std::result::Result<Vec<i32>, _> = values.iter().map(|value| i32::try_from(*value)).collect();
    let vector = match narrow {
        Ok(narrow) => HostTensor::from_slice(shape, &narrow),
        Err(_) => HostTensor::from_slice(shape, values),
    };
    vector.expect("the shape has as many elements as there are values")
}

/// A tensor of that type and shape whose elements are all `value`.
///
/// # Errors
/// UNIMPLEMENTED for types that are no numbers here, INVALID_ARGUMENT for shapes without end.
pub(super) fn splat(data_type: DataType, shape: &Shape, value: f64) -> Result<HostTensor> {
    let bytes = match element(data_type, value) {
        Some(bytes) => bytes,
        None if value == 0.0 => Vec::new(),
        None => return Err(Error::unimplemented(format!("constants of type {data_type} other than 0"))),
    };
    HostTensor::from_leading(data_type, shape.clone(), &bytes)
}
