//! Parts of the rows of a request, in the order in which the kernels here combine what they sum over rows: what is added to a sum part by
//! part gets the bits of the whole.

use plimsoll_base::DataType;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::expr::ExprBuilder;
use plimsoll_request::pool::PoolSpec;
use plimsoll_request::reduce::{ReduceOp, Reduction};
use plimsoll_request::{KernelRequest, Part, Sums};

use crate::conv;
use crate::simd::Isa;

/// One of `parts` equal parts of a request, see [`plimsoll_device::Library::part`].
pub(crate) fn part(isa: Isa, request: &KernelRequest, parts: u64) -> Option<Part> {
    match request {
        _ if parts < 2 => None,
        KernelRequest::ConvBackpropFilter { spec, unpooled } => filter(isa, spec, unpooled.as_ref(), parts),
        KernelRequest::Reduction(Reduction::Reduce { op, data_type: data_type @ DataType::Float, shape, axes, divided }) => {
            let tensor = Tensor { op: *op, data_type: *data_type, shape, axes };
            if axes.contains(&0) { tensor.over_rows(parts).filter(|_| *divided) } else { tensor.of_rows(parts) }
        }
        _ => {
            let part = request.part(parts)?;
            // One row is summed in another order than several.
            let is_row =
                matches!(part.request, KernelRequest::Anchor { anchor: Anchor::Product(_, spec), .. } if spec.m == 1 && spec.batch == 1);
            (!is_row).then_some(part)
        }
    }
}

/// The gradient by a filter: images are added one after the other to as many sums as the kernel has for all of them.
fn filter(isa: Isa, spec: &ConvSpec, unpooled: Option<&PoolSpec>, parts: u64) -> Option<Part> {
    let images = Some(spec.batch / parts).filter(|images| *images > 0 && spec.batch.is_multiple_of(parts))?;
    let all = conv::filter_parts(isa, spec, unpooled)?;
    // Each part of the images is of whole sums, or of one.
    let count = if all.is_multiple_of(parts) { parts } else { all };
    if spec.data_type != DataType::Float || !spec.batch.is_multiple_of(all) || !parts.is_multiple_of(count) {
        return None;
    }
    let (sums, onto) = (all / count, count < parts);
    let of_part = ConvSpec { batch: images, ..*spec };
    let unpooled_part = unpooled.map(|pool| PoolSpec { batch: images, ..*pool });
    let request = KernelRequest::ConvBackpropFilterSums { spec: of_part, unpooled: unpooled_part, sums, onto };
    let filter: u64 = spec.filter().iter().product();
    let elements = all.checked_mul(filter)?;
    let sum = Reduction::Reduce { op: ReduceOp::Sum, data_type: DataType::Float, shape: vec![all, filter], axes: vec![0], divided: false };
    let begin = if onto { Some(zeros(elements)?) } else { None };
    let end = (all > 1).then_some(KernelRequest::Reduction(sum));
    let cut = if unpooled.is_some() { vec![true, true, true, false] } else { vec![true, true, false] };
    Some(Part { request, cut, sums: Some(Sums { count, bytes: elements.checked_mul(4)?, begin, end }) })
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
    fn of_rows(&self, parts: u64) -> Option<Part> {
        let all = *self.shape.first()?;
        let mut shape = self.shape.to_vec();
        shape[0] = Some(all / parts).filter(|rows| *rows > 0 && all.is_multiple_of(parts))?;
        Some(Part { request: self.some(shape, self.axes.to_vec(), all), cut: vec![true, true], sums: None })
    }

    /// Rows are reduced, where that is done in two steps: of some rows first.
    fn over_rows(&self, parts: u64) -> Option<Part> {
        let (mut shape, axes, results) = crate::reduce::divided(self.op, self.data_type, self.shape, self.axes)?;
        let all = shape[0];
        if !all.is_multiple_of(parts) {
            return None;
        }
        shape[0] /= parts;
        let (op, data_type) = (self.op, self.data_type);
        let end = Reduction::Reduce { op, data_type, shape: vec![all, results], axes: vec![0], divided: false };
        let bytes = data_type.bytes_of(all.checked_mul(results)?)?;
        let sums = Sums { count: parts, bytes, begin: None, end: Some(KernelRequest::Reduction(end)) };
        Some(Part { request: self.some(shape, axes, all), cut: vec![true, false], sums: Some(sums) })
    }

    fn some(&self, shape: Vec<u64>, axes: Vec<usize>, all: u64) -> KernelRequest {
        KernelRequest::Reduction(Reduction::ReduceSome { op: self.op, data_type: self.data_type, shape, axes, all })
    }
}

/// So many floats of 0.
fn zeros(elements: u64) -> Option<KernelRequest> {
    let mut b = ExprBuilder::new();
    let zero = b.number(DataType::Float, 0.0).ok()?;
    Some(KernelRequest::Expr { expr: b.finish(vec![zero]), shape: vec![elements], operands: Vec::new() })
}
