//! The words that gradient rules are written in: operations of a graph under construction, with their constants.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, Attrs, HostTensor, NodeId, Output, PartialShape, Shape};

use crate::GraphBuilder;
use crate::array::fill::element;
use crate::infer::{int_tensor, int_vector};

/// A node whose gradient is being written, and the graph it is written into.
pub(crate) struct Grad<'a> {
    builder: &'a mut GraphBuilder,
    node: NodeId,
}

/// Writes the gradients of a node with one output: none come from none.
pub(crate) fn from_one(
    builder: &mut GraphBuilder,
    node: NodeId,
    gradients: &[Option<Output>],
    rule: impl FnOnce(&mut Grad<'_>, Output) -> Result<Vec<Option<Output>>>,
) -> Result<Vec<Option<Output>>> {
    let mut grad = Grad::new(builder, node);
    match gradients.first().copied().flatten() {
        Some(gradient) => rule(&mut grad, gradient),
        None => Ok(vec![None; grad.input_count()]),
    }
}

impl<'a> Grad<'a> {
    pub(crate) fn new(builder: &'a mut GraphBuilder, node: NodeId) -> Grad<'a> {
        Grad { builder, node }
    }

    /// Input `index` of the node.
    pub(crate) fn input(&self, index: usize) -> Output {
        self.builder.node(self.node).inputs[index]
    }

    /// Output `index` of the node.
    pub(crate) fn output(&self, index: u32) -> Output {
        Output { node: self.node, index }
    }

    /// How many inputs the node has.
    pub(crate) fn input_count(&self) -> usize {
        self.builder.node(self.node).inputs.len()
    }

    /// The node's operation.
    pub(crate) fn op_name(&self) -> &str {
        &self.builder.node(self.node).op
    }

    /// The node's attributes.
    pub(crate) fn attrs(&self) -> &Attrs {
        &self.builder.node(self.node).attrs
    }

    /// The shape of a tensor, as far as it is known.
    pub(crate) fn shape_of(&self, tensor: Output) -> PartialShape {
        self.builder.fact(tensor).shape.clone()
    }

    /// A tensor's rank, where it is known.
    pub(crate) fn rank_of(&self, tensor: Output) -> Option<usize> {
        self.builder.fact(tensor).shape.0.as_ref().map(Vec::len)
    }

    /// The shape of the variable that a handle stands for.
    pub(crate) fn handle_shape(&self, handle: Output) -> PartialShape {
        self.builder.fact(handle).handle.as_ref().map_or_else(PartialShape::unknown, |(_, shape)| shape.clone())
    }

    /// A tensor's type.
    pub(crate) fn data_type(&self, tensor: Output) -> DataType {
        self.builder.fact(tensor).data_type
    }

    /// The integers that a tensor holds, where they are known.
    pub(crate) fn ints_of(&self, tensor: Output) -> Option<Vec<i64>> {
        self.builder.fact(tensor).value.as_ref()?.to_i64s()
    }

    /// Output 0 of a new node.
    pub(crate) fn op(&mut self, op: &str, inputs: &[Output]) -> Result<Output> {
        self.op_with(op, inputs, &[])
    }

    /// Output 0 of a new node with attributes. Those of types and numbers follow from the inputs.
    pub(crate) fn op_with(&mut self, op: &str, inputs: &[Output], attrs: &[(&str, AttrValue)]) -> Result<Output> {
        let mut node = self.builder.op(op).inputs(inputs.iter().copied());
        for (name, value) in attrs {
            node = node.attr(name, value.clone());
        }
        node.build()
    }

    /// A constant.
    pub(crate) fn constant(&mut self, value: HostTensor) -> Result<Output> {
        let data_type = AttrValue::data_type(value.data_type());
        self.op_with("Const", &[], &[("dtype", data_type), ("value", AttrValue::Tensor(value))])
    }

    /// A constant vector of int32.
    pub(crate) fn ints(&mut self, values: &[i64]) -> Result<Output> {
        self.constant(int_vector(values, DataType::Int32)?)
    }

    /// A constant int32.
    pub(crate) fn int(&mut self, value: i64) -> Result<Output> {
        self.constant(int_tensor(&[value], Shape::scalar(), DataType::Int32)?)
    }

    /// A constant number of a tensor's type.
    pub(crate) fn number(&mut self, like: Output, value: f64) -> Result<Output> {
        let data_type = self.data_type(like);
        let bytes = element(data_type, value).filter(|_| data_type != DataType::Bool);
        let bytes = bytes.ok_or_else(|| Error::unimplemented(format!("gradients of {data_type}")))?;
        self.constant(HostTensor::from_bytes(data_type, Shape::scalar(), &bytes)?)
    }

    /// A constant vector of a tensor's type.
    pub(crate) fn numbers(&mut self, like: Output, values: &[f64]) -> Result<Output> {
        let data_type = self.data_type(like);
        let bytes: Option<Vec<Vec<u8>>> = values.iter().map(|value| element(data_type, *value)).collect();
        let bytes = bytes.ok_or_else(|| Error::unimplemented(format!("gradients of {data_type}")))?;
        self.constant(HostTensor::from_bytes(data_type, Shape::from([values.len() as u64]), &bytes.concat())?)
    }

    /// The complex conjugate; itself where it is real.
    pub(crate) fn conj(&mut self, x: Output) -> Result<Output> {
        if self.data_type(x).is_complex() { self.op("Conj", &[x]) } else { Ok(x) }
    }

    /// A part of a complex tensor: `Real` or `Imag`.
    pub(crate) fn part(&mut self, op: &str, x: Output) -> Result<Output> {
        let data_type = self.data_type(x);
        let part = data_type.part().ok_or_else(|| Error::invalid_argument(format!("{op} of {data_type}")))?;
        self.op_with(op, &[x], &[("Tout", AttrValue::data_type(part))])
    }

    /// The complex tensor of these parts.
    pub(crate) fn complex(&mut self, re: Output, im: Output) -> Result<Output> {
        let data_type = self.data_type(re);
        let pair = data_type.pair().ok_or_else(|| Error::invalid_argument(format!("complex numbers of {data_type}")))?;
        self.op_with("Complex", &[re, im], &[("Tout", AttrValue::data_type(pair))])
    }

    pub(crate) fn neg(&mut self, x: Output) -> Result<Output> {
        self.op("Neg", &[x])
    }

    pub(crate) fn mul(&mut self, x: Output, y: Output) -> Result<Output> {
        self.op("Mul", &[x, y])
    }

    pub(crate) fn sub(&mut self, x: Output, y: Output) -> Result<Output> {
        self.op("Sub", &[x, y])
    }

    /// `x` times a number.
    pub(crate) fn scale(&mut self, x: Output, factor: f64) -> Result<Output> {
        let factor = self.number(x, factor)?;
        self.mul(x, factor)
    }

    /// Zeros of a tensor's type and shape.
    pub(crate) fn zeros_like(&mut self, x: Output) -> Result<Output> {
        self.op("ZerosLike", &[x])
    }

    /// A tensor's shape as int32: a constant where it is known.
    pub(crate) fn shape(&mut self, x: Output) -> Result<Output> {
        self.shape_as(x, DataType::Int32)
    }

    /// A tensor's shape as int32 or int64: a constant where it is known.
    pub(crate) fn shape_as(&mut self, x: Output, data_type: DataType) -> Result<Output> {
        match self.shape_of(x).complete() {
            Some(shape) => self.constant(crate::variable::shape_tensor(&shape, data_type)?),
            None => self.op_with("Shape", &[x], &[("out_type", AttrValue::data_type(data_type))]),
        }
    }

    /// `x` in the shape that `shape` states.
    pub(crate) fn reshape(&mut self, x: Output, shape: Output) -> Result<Output> {
        self.op("Reshape", &[x, shape])
    }

    /// The sum over `axes`.
    pub(crate) fn sum(&mut self, x: Output, axes: Output, keep_dims: bool) -> Result<Output> {
        self.op_with("Sum", &[x, axes], &[("keep_dims", AttrValue::Bool(keep_dims))])
    }

    /// The sum of all elements.
    pub(crate) fn sum_all(&mut self, x: Output) -> Result<Output> {
        let axes = match self.rank_of(x) {
            Some(rank) => self.ints(&(0..rank as i64).collect::<Vec<_>>())?,
            None => {
                let (zero, rank, one) = (self.int(0)?, self.op("Rank", &[x])?, self.int(1)?);
                self.op("Range", &[zero, rank, one])?
            }
        };
        self.sum(x, axes, false)
    }

    /// The gradients of the node's outputs, with zeros where nothing depends on one.
    pub(crate) fn zeros_for_none(&mut self, gradients: &[Option<Output>]) -> Result<Vec<Output>> {
        let mut filled = Vec::with_capacity(gradients.len());
        for (index, gradient) in gradients.iter().enumerate() {
            filled.push(match gradient {
                Some(gradient) => *gradient,
                None => self.zeros_like(self.output(index as u32))?,
            });
        }
        Ok(filled)
    }

    /// `a` where `condition` holds, else `b`; the three broadcast.
    pub(crate) fn select(&mut self, condition: Output, a: Output, b: Output) -> Result<Output> {
        self.op("SelectV2", &[condition, a, b])
    }

    /// Sums the gradients of two operands of a broadcasting operation down to the operands' shapes
    /// (`_ReduceGradientArgs` of TensorFlow's `math_grad.py`).
    pub(crate) fn unbroadcast(&mut self, operands: [Output; 2], gradients: [Option<Output>; 2]) -> Result<Vec<Option<Output>>> {
        let axes = broadcast_axes(&self.shape_of(operands[0]), &self.shape_of(operands[1]));
        let ranks = operands.map(|operand| self.rank_of(operand));
        let mut reduced = Vec::with_capacity(2);
        let dynamic = match &axes {
            Some(_) => None,
            None => {
                let (shape_x, shape_y) = (self.shape(operands[0])?, self.shape(operands[1])?);
                Some(self.op("BroadcastGradientArgs", &[shape_x, shape_y])?.node)
            }
        };
        for side in 0..2 {
            let Some(gradient) = gradients[side] else {
                reduced.push(None);
                continue;
            };
            let over = match (&axes, dynamic) {
                (Some(axes), _) if axes[side].is_empty() && ranks[side] >= ranks[1 - side] => {
                    reduced.push(Some(gradient));
                    continue;
                }
                (Some(axes), _) => self.ints(&axes[side])?,
                (None, Some(node)) => Output { node, index: side as u32 },
                (None, None) => return Err(Error::internal("neither known nor computed axes")),
            };
            let sum = self.sum(gradient, over, true)?;
            let shape = self.shape(operands[side])?;
            reduced.push(Some(self.reshape(sum, shape)?));
        }
        Ok(reduced)
    }
}

/// Along which axes each of two operands was repeated; none where that depends on dimensions that are not known
/// (`_InferGradientReductionAxes`).
fn broadcast_axes(x: &PartialShape, y: &PartialShape) -> Option<[Vec<i64>; 2]> {
    let (x, y) = (x.0.as_ref()?, y.0.as_ref()?);
    let rank = x.len().max(y.len());
    let dim = |dims: &[Option<u64>], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(Some(1), |axis| dims[axis]);
    let mut axes = [Vec::new(), Vec::new()];
    for axis in 0..rank {
        match (dim(x, axis), dim(y, axis)) {
            (Some(1), Some(1)) => {}
            (Some(1), _) => axes[0].push(axis as i64),
            (_, Some(1)) => axes[1].push(axis as i64),
            (None, _) | (_, None) => return None,
            _ => {}
        }
    }
    Some(axes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_known_wherever_a_one_meets_anything() {
        let shape = |dims: &[Option<u64>]| PartialShape(Some(dims.to_vec()));
        let axes = |x: &[Option<u64>], y: &[Option<u64>]| broadcast_axes(&shape(x), &shape(y));
        assert_eq!(axes(&[None, Some(3)], &[Some(3)]), Some([vec![], vec![0]]));
        assert_eq!(axes(&[Some(2), Some(3)], &[Some(2), Some(1)]), Some([vec![], vec![1]]));
        assert_eq!(axes(&[Some(1)], &[None]), Some([vec![0], vec![]]));
        assert_eq!(axes(&[Some(1)], &[Some(1)]), Some([vec![], vec![]]));
        assert_eq!(axes(&[None], &[None]), None);
        assert_eq!(axes(&[Some(2)], &[None]), None);
        assert_eq!(broadcast_axes(&PartialShape::unknown(), &shape(&[])), None);
    }
}
