//! Parts of the rows of a request, in the order in which the kernels here combine what they sum over rows: what is added to a sum part by
//! part gets the bits of the whole.

use plimsoll_base::DataType;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::{ConvSpec, FilterForm};
use plimsoll_request::expr::{BinaryOp, ExprBuilder};
use plimsoll_request::pool::PoolSpec;
use plimsoll_request::reduce::{ReduceOp, Reduction};
use plimsoll_request::{Fold, KernelRequest, Part, Rows, Sums};

use crate::conv;
use crate::conv::winograd::{ByFilter, by_filter};
use crate::simd::Isa;

/// Parts of a request, see [`plimsoll_device::Library::part`]. By fewer multiplications, a gradient by a filter is summed at points.
pub(crate) fn part(isa: Isa, request: &KernelRequest, is_fewer: bool, rows: Rows) -> Option<Part> {
    match request {
        _ if rows.parts < 2 => None,
        KernelRequest::ConvBackpropFilter { spec, unpooled } => filter(isa, spec, unpooled.as_ref(), is_fewer, rows),
        KernelRequest::Reduction(Reduction::Reduce { op, data_type: data_type @ DataType::Float, shape, axes, divided }) => {
            let tensor = Tensor { op: *op, data_type: *data_type, shape, axes };
            if axes.contains(&0) { tensor.over_rows(rows).filter(|_| *divided) } else { tensor.of_rows(rows) }
        }
        _ => {
            let part = request.part(rows)?;
            // One row is summed in another order than several.
            let is_row = |request: &KernelRequest| matches!(request, KernelRequest::Anchor { anchor: Anchor::Product(_, spec), .. } if spec.m == 1 && spec.batch == 1);
            (!is_row(&part.request)).then_some(part)
        }
    }
}

/// The rows of a request: a number that divides every size along which its parts are cut. None where it has no parts.
pub(crate) fn rows(request: &KernelRequest) -> Option<u64> {
    match request {
        KernelRequest::ConvBackpropFilter { spec, .. } => Some(spec.batch),
        KernelRequest::Reduction(Reduction::Reduce { data_type: DataType::Float, shape, .. }) => shape.first().copied(),
        _ => request.rows(),
    }
}

/// The gradient by a filter: images are added one after the other to as many sums as the kernel has for all of them. At the points these are
/// groups of images.
fn filter(isa: Isa, spec: &ConvSpec, unpooled: Option<&PoolSpec>, is_fewer: bool, rows: Rows) -> Option<Part> {
    let (form, all, images) = match is_fewer {
        true => {
            let ByFilter { sums, points, images, .. } = by_filter(isa, spec, unpooled).ok()??;
            (FilterForm::Points { along: points, images }, sums, images)
        }
        false => (FilterForm::Taps, conv::filter_parts(isa, spec, unpooled).filter(|_| spec.data_type == DataType::Float)?, 1),
    };
    let parts = rows.parts;
    // Each part of the images is of whole sums, or of one.
    let (calls, sums, count) = match all.checked_rem(parts)? {
        0 if spec.batch.is_multiple_of(all) => (1, all / parts, parts),
        0 => (all / parts, 1, all),
        _ if parts.is_multiple_of(all) => (1, 1, all),
        _ => return None,
    };
    // Sums begin where parts do.
    let pieces = rows.times(calls)?;
    if rows.all != spec.batch && !rows.all.is_multiple_of(all.min(pieces.parts)) {
        return None;
    }
    // Pieces are of whole groups.
    if images > 1 && !(pieces.is_even() && spec.batch.is_multiple_of(images * pieces.parts)) {
        return None;
    }
    let onto = count < pieces.parts;
    let of = |rows: u64| {
        let batch = pieces.of(spec.batch, rows)?;
        let unpooled = unpooled.map(|pool| PoolSpec { batch, ..*pool });
        Some(KernelRequest::ConvBackpropFilterSums { spec: ConvSpec { batch, ..*spec }, unpooled, sums, onto, form })
    };
    let (one, end) = match form {
        FilterForm::Points { along: points, .. } => {
            (spec.at_points(points)?, Some(KernelRequest::ConvBackpropFilterEnd { spec: *spec, points, sums: all }))
        }
        FilterForm::Taps => {
            let filter: u64 = spec.filter().iter().product();
            let (op, data_type) = (ReduceOp::Sum, DataType::Float);
            let sum = Reduction::Reduce { op, data_type, shape: vec![all, filter], axes: vec![0], divided: false };
            (filter, (all > 1).then_some(KernelRequest::Reduction(sum)))
        }
    };
    let elements = all.checked_mul(one)?;
    let zeros = |elements: u64| if onto { zeros(elements).map(Some) } else { Some(None) };
    let begin = zeros(elements)?;
    // At points the end adds sums in their order.
    let fold = match form {
        FilterForm::Points { along: points, .. } if all > 2 && (calls, sums) == (1, 1) => {
            let end = KernelRequest::ConvBackpropFilterEnd { spec: *spec, points, sums: 1 };
            Some(Fold { begin: zeros(one)?, add: addition(one)?, end })
        }
        _ => None,
    };
    let cut = if unpooled.is_some() { vec![true, true, true, false] } else { vec![true, true, false] };
    let sums = Some(Sums { count, bytes: elements.checked_mul(4)?, begin, end, fold });
    let larger = if pieces.is_even() { None } else { Some(of(pieces.most())?) };
    Some(Part { request: of(pieces.least())?, larger, calls, cut, sums })
}

/// A tensor that is reduced.
struct Tensor<'a> {
    op: ReduceOp,
    data_type: DataType,
    shape: &'a [u64],
    axes: &'a [usize],
}

impl Tensor<'_> {
    /// Rows are kept.
    fn of_rows(&self, rows: Rows) -> Option<Part> {
        let all = *self.shape.first()?;
        let of = |count: u64| {
            let mut shape = self.shape.to_vec();
            shape[0] = rows.of(all, count)?;
            Some(self.some(shape, self.axes.to_vec(), all))
        };
        let larger = if rows.is_even() { None } else { Some(of(rows.most())?) };
        Some(Part { request: of(rows.least())?, larger, calls: 1, cut: vec![true, true], sums: None })
    }

    /// Rows are reduced, where that is done in two steps: of some rows first.
    fn over_rows(&self, rows: Rows) -> Option<Part> {
        let division = crate::reduce::divided(self.op, self.data_type, self.shape, self.axes)?;
        let (all, results) = (division.parts, division.results);
        let several = all / rows.parts;
        if !all.is_multiple_of(rows.parts) {
            return None;
        }
        let (op, data_type) = (self.op, self.data_type);
        let end = Reduction::Reduce { op, data_type, shape: vec![all, results], axes: vec![0], divided: false };
        let bytes = data_type.bytes_of(all.checked_mul(results)?)?;
        let sums = |count: u64| Some(Sums { count, bytes, begin: None, end: Some(KernelRequest::Reduction(end)), fold: None });
        let cut = vec![true, false];
        match division.rows {
            None if rows.is_even() => {
                let request = self.some(division.of_parts(several), division.axes.clone(), all);
                Some(Part { request, larger: None, calls: 1, cut, sums: sums(rows.parts) })
            }
            Some(own) if own == rows.all => {
                let pieces = rows.times(several)?;
                let of = |rows: u64| self.some(division.of_rows(rows), division.axes.clone(), all);
                let larger = (!pieces.is_even()).then(|| of(pieces.most()));
                Some(Part { request: of(pieces.least()), larger, calls: several, cut, sums: sums(all) })
            }
            _ => None,
        }
    }

    fn some(&self, shape: Vec<u64>, axes: Vec<usize>, all: u64) -> KernelRequest {
        KernelRequest::Reduction(Reduction::ReduceSome { op: self.op, data_type: self.data_type, shape, axes, all })
    }
}

/// Adds as many floats to so many.
fn addition(elements: u64) -> Option<KernelRequest> {
    let mut b = ExprBuilder::new();
    let (before, next) = (b.input(DataType::Float).ok()?, b.input(DataType::Float).ok()?);
    let sum = b.binary(BinaryOp::Add, before, next).ok()?;
    Some(KernelRequest::Expr { expr: b.finish(vec![sum]), shape: vec![elements], operands: vec![vec![elements]; 2] })
}

/// So many floats of 0.
fn zeros(elements: u64) -> Option<KernelRequest> {
    let mut b = ExprBuilder::new();
    let zero = b.number(DataType::Float, 0.0).ok()?;
    Some(KernelRequest::Expr { expr: b.finish(vec![zero]), shape: vec![elements], operands: Vec::new() })
}
