//! SparseFillEmptyRows: a sparse tensor with an element in each row that had none. Its gradient.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{HostTensor, Node, NodeId, Output, Shape};

use super::{bytes, indices, rule};
use crate::gradient::Grad;
use crate::infer::InferCx;
use crate::registry::Gradient;
use crate::{GraphBuilder, OpRules};

/// The rules of this family.
pub const RULES: &[OpRules] = &[
    OpRules { gradient: Gradient::Rule(gradient), ..rule("SparseFillEmptyRows", infer, compute) },
    OpRules { gradient: Gradient::Unknown, ..rule("SparseFillEmptyRowsGrad", infer_grad, compute_grad) },
];

/// The integers of an index that a result may have.
const MOST: u64 = 1 << 24;

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let dims = cx.with_rank(0, 2)?.map(<[Option<u64>]>::to_vec);
    cx.with_rank(1, 1)?;
    let shape = cx.with_rank(2, 1)?.and_then(|dims| dims[0]);
    cx.with_rank(3, 0)?;
    let count = dims.as_ref().and_then(|dims| dims[0]).or_else(|| cx.dims(1).and_then(|dims| dims[0]));
    let rank = dims.as_ref().and_then(|dims| dims[1]).or(shape);
    let rows = cx.ints(2).and_then(|shape| shape.first().copied()).and_then(|rows| u64::try_from(rows).ok());
    cx.set_dims(0, vec![None, rank]);
    cx.set_dims(1, vec![None]);
    cx.set_dims(2, vec![rows]);
    cx.set_dims(3, vec![count]);
    // Every row lacks an element at most.
    if let (Some(count), Some(rank), Some(rows)) = (count, rank, rows)
        && let Some(most) = count.checked_add(rows)
    {
        cx.outputs[0].most = Some(Shape::from([most, rank]));
        cx.outputs[1].most = Some(Shape::from([most]));
    }
    Ok(())
}

fn compute(_node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let [places, values, shape, default] = inputs else { return Err(Error::internal("SparseFillEmptyRows has four inputs")) };
    let wrong = |what: &str, tensor: &HostTensor| Err(Error::invalid_argument(format!("{what}, saw: {}", tensor.shape())));
    if shape.shape().rank() != 1 {
        return wrong("dense_shape must be a vector", shape);
    }
    let [count, rank] = places.shape().dims()[..] else { return wrong("indices must be a matrix", places) };
    if values.shape().rank() != 1 {
        return wrong("values must be a vector", values);
    }
    if values.shape().dims() != [count] {
        let of = values.shape();
        return Err(Error::invalid_argument(format!("The length of `values` {of} must match the first dimension of `indices` ({count}).")));
    }
    if shape.shape().dims() != [rank] {
        let of = shape.shape();
        return Err(Error::invalid_argument(format!(
            "The length of `dense_shape` {of} must match the second dimension of `indices` ({rank})."
        )));
    }
    if default.shape().rank() != 0 {
        return wrong("default_value must be a scalar", default);
    }
    let Some(&rows) = shape.to_vec::<i64>()?.first() else {
        return Err(Error::invalid_argument("Dense shape cannot be empty."));
    };
    let none = || Error::invalid_argument(format!("Received SparseTensor with dense_shape[0] = {rows} but indices.shape[0] = {count}"));
    let rows = usize::try_from(rows).map_err(|_| none())?;
    if rows == 0 && count > 0 {
        return Err(none());
    }
    // A shape may say any number of rows, each of which has room in the result.
    let most = (rows as u64).checked_add(count).and_then(|rows| rows.checked_mul(rank.max(1)));
    if most.is_none_or(|most| most > MOST) {
        return Err(Error::unimplemented(format!("not yet: {rows} rows of {rank} indices to fill, which are more than {MOST} integers")));
    }
    let (count, rank) = (count as usize, rank as usize);
    let places = places.to_vec::<i64>()?;
    let mut of_rows = vec![0usize; rows];
    let mut in_row = Vec::with_capacity(count);
    for (at, place) in places.chunks_exact(rank).enumerate() {
        let row = usize::try_from(place[0]).ok().filter(|row| *row < rows);
        let row = row.ok_or_else(|| Error::invalid_argument(format!("indices({at}, 0) is invalid: {} is not in [0, {rows})", place[0])))?;
        in_row.push((row, of_rows[row]));
        of_rows[row] += 1;
    }
    let is_empty: Vec<bool> = of_rows.iter().map(|elements| *elements == 0).collect();
    let mut starts = Vec::with_capacity(rows);
    let mut total = 0usize;
    for elements in &of_rows {
        starts.push(total);
        total += elements.max(&1);
    }
    let size = values.data_type().size().unwrap_or(1);
    let (elements, filler) = (bytes(values)?, bytes(default)?);
    let mut filled_places = vec![0i64; total * rank];
    let mut filled = filler.repeat(total);
    for (row, _) in is_empty.iter().enumerate().filter(|(_, is_empty)| **is_empty) {
        filled_places[starts[row] * rank] = row as i64;
    }
    let mut moved = Vec::with_capacity(count);
    for (at, (row, nth)) in in_row.into_iter().enumerate() {
        let to = starts[row] + nth;
        filled_places[to * rank..(to + 1) * rank].copy_from_slice(&places[at * rank..(at + 1) * rank]);
        filled[to * size..(to + 1) * size].copy_from_slice(&elements[at * size..(at + 1) * size]);
        moved.push(to);
    }
    Ok(vec![
        HostTensor::from_slice([total as u64, rank as u64], &filled_places)?,
        HostTensor::from_bytes(values.data_type(), Shape::from([total as u64]), &filled)?,
        HostTensor::from_bools([rows as u64], &is_empty)?,
        indices(&moved, DataType::Int64)?,
    ])
}

fn infer_grad(cx: &mut InferCx<'_>) -> Result<()> {
    let count = cx.with_rank(0, 1)?.and_then(|dims| dims[0]);
    cx.with_rank(1, 1)?;
    cx.set_dims(0, vec![count]);
    cx.set_dims(1, Vec::new());
    Ok(())
}

fn compute_grad(_node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let [moved, gradients] = inputs else { return Err(Error::internal("SparseFillEmptyRowsGrad has two inputs")) };
    for (tensor, name) in [(moved, "reverse_index_map"), (gradients, "grad_values")] {
        if tensor.shape().rank() != 1 {
            return Err(Error::invalid_argument(format!("{name} must be a vector, saw: {}", tensor.shape())));
        }
    }
    let data_type = gradients.data_type();
    match data_type {
        DataType::Float => of_moved(moved, gradients, 0f32),
        DataType::Double => of_moved(moved, gradients, 0f64),
        DataType::Int32 => of_moved(moved, gradients, 0i32),
        DataType::Int64 => of_moved(moved, gradients, 0i64),
        other => Err(Error::unimplemented(format!("not yet: SparseFillEmptyRowsGrad of {other}"))),
    }
}

/// The gradients of the elements that were moved, and the sum of all others.
fn of_moved<T: Sum>(moved: &HostTensor, gradients: &HostTensor, zero: T) -> Result<Vec<HostTensor>> {
    let gradients = gradients.to_vec::<T>()?;
    let mut is_moved = vec![false; gradients.len()];
    let mut of_values = Vec::new();
    for to in moved.to_vec::<i64>()? {
        let at = usize::try_from(to).ok().filter(|at| *at < gradients.len());
        let at = at.ok_or_else(|| {
            Error::invalid_argument(format!("Elements in reverse index must be in [0, {}) but got {to}", gradients.len()))
        })?;
        is_moved[at] = true;
        of_values.push(gradients[at]);
    }
    let others = gradients.iter().zip(&is_moved).filter(|(_, is_moved)| !**is_moved).map(|(gradient, _)| *gradient);
    let of_default = others.fold(zero, Sum::plus);
    Ok(vec![HostTensor::from_slice([of_values.len() as u64], &of_values)?, HostTensor::scalar(of_default)])
}

/// Numbers that are added; integers wrap.
trait Sum: plimsoll_graph::Element {
    fn plus(self, other: Self) -> Self;
}

macro_rules! sums {
    ($($float:ty),*; $($int:ty),*) => {
        $(impl Sum for $float { fn plus(self, other: Self) -> Self { self + other } })*
        $(impl Sum for $int { fn plus(self, other: Self) -> Self { self.wrapping_add(other) } })*
    };
}
sums!(f32, f64; i32, i64);

/// The gradient of the values goes back to where they were; that of fillers to the default.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let Some(gradient) = gradients.get(1).copied().flatten() else { return Ok(vec![None; 4]) };
    let mut g = Grad::new(builder, node);
    let moved = Output { node, index: 3 };
    let of_values = g.op("SparseFillEmptyRowsGrad", &[moved, gradient])?;
    Ok(vec![None, Some(of_values), None, Some(Output { index: 1, ..of_values })])
}
