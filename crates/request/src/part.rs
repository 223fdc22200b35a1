//! Requests of a part of the rows. Many computations do the same for each row of their first axis: an expression, a convolution for each
//! image, a product for each row of its first matrix. A part of the rows is a smaller request of the same kind.

use crate::KernelRequest;
use crate::anchor::{Anchor, Epilogue};
use crate::conv::ConvSpec;
use crate::lrn::LrnSpec;
use crate::movement::{Movement, Pick};
use crate::nn::Nn;
use crate::pool::{PoolSpec, Pooling, Positions};
use crate::product::{Places, ProductSpec};

/// The request of one of several equal parts of the rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The same for each part.
    pub request: KernelRequest,
    /// For each argument of the whole request, inputs before outputs: whether part number `p` has part number `p` of its bytes. Other inputs
    /// it has whole. A result that is not cut is a sum over the rows.
    pub cut: Vec<bool>,
    /// Of a request whose one result is a sum over the rows: what its parts write in the place of it.
    pub sums: Option<Sums>,
}

/// Partial sums over the rows. Parts come in order: part number `p` of `parts` has number `p * count / parts` of them as its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Sums {
    /// How many there are; it divides the number of parts.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Writes what all of them begin with, where several parts add to each. Argument: all of them. None where each is of one part.
    pub begin: Option<KernelRequest>,
    /// The result from all of them. Arguments: the sums, the result. None where the only one is the result.
    pub end: Option<KernelRequest>,
}

impl KernelRequest {
    /// The request of one of `parts` equal parts. None where rows cannot be divided so, or where results depend on several of them. All
    /// results are cut: how sums are made up of parts, a library knows.
    pub fn part(&self, parts: u64) -> Option<Part> {
        if parts < 2 {
            return None;
        }
        let divided = |size: u64| (size > 0 && size.is_multiple_of(parts)).then(|| size / parts);
        let images = |spec: &ConvSpec| Some(ConvSpec { batch: divided(spec.batch)?, ..*spec });
        let pooled = |spec: &PoolSpec| Some(PoolSpec { batch: divided(spec.batch)?, ..*spec });
        let all = |request: KernelRequest, arguments: usize| Part::of_rows(request, vec![true; arguments]);
        Some(match self {
            KernelRequest::Expr { expr, shape, operands } => {
                let axis = shape.iter().position(|size| *size != 1)?;
                let (operands, mut cut) = operands_of(operands, shape, axis, parts)?;
                cut.extend(vec![true; expr.outputs().len()]);
                Part::of_rows(KernelRequest::Expr { expr: expr.clone(), shape: along(shape, axis, parts)?, operands }, cut)
            }
            KernelRequest::Anchor { anchor, epilogue, pooling } => {
                let (part, mut cut) = match anchor {
                    Anchor::Product(data_type, spec) => {
                        let (spec, cut) = product(spec, parts)?;
                        (Anchor::Product(*data_type, spec), cut.to_vec())
                    }
                    Anchor::Conv(spec) => (Anchor::Conv(images(spec)?), vec![true, false]),
                    Anchor::DepthwiseConv(spec) => (Anchor::DepthwiseConv(images(spec)?), vec![true, false]),
                    Anchor::ConvBackpropInput(spec) => (Anchor::ConvBackpropInput(images(spec)?), vec![false, true]),
                };
                let mut results = 1;
                let epilogue = match epilogue {
                    Some(Epilogue { expr, operands }) => {
                        let (operands, others) = operands_of(operands, &anchor.shape()?, 0, parts)?;
                        cut.extend(others);
                        results = expr.outputs().len();
                        Some(Epilogue { expr: expr.clone(), operands })
                    }
                    None => None,
                };
                let pooling = match pooling {
                    Some(pooling) => {
                        results = results_of(pooling);
                        Some(Pooling { spec: pooled(&pooling.spec)?, ..*pooling })
                    }
                    None => None,
                };
                cut.extend(vec![true; results]);
                Part::of_rows(KernelRequest::Anchor { anchor: part, epilogue, pooling }, cut)
            }
            KernelRequest::DepthwiseConvBackpropInput(spec) => {
                Part::of_rows(KernelRequest::DepthwiseConvBackpropInput(images(spec)?), vec![false, true, true])
            }
            KernelRequest::MaxPool(pooling) => {
                let part = Pooling { spec: pooled(&pooling.spec)?, ..*pooling };
                all(KernelRequest::MaxPool(part), 1 + results_of(pooling))
            }
            KernelRequest::MaxPoolGrad(spec) => all(KernelRequest::MaxPoolGrad(pooled(spec)?), 3),
            KernelRequest::MaxPoolGradOfInput { spec, maxima } => {
                all(KernelRequest::MaxPoolGradOfInput { spec: pooled(spec)?, maxima: *maxima }, 4)
            }
            KernelRequest::MaxPoolGradGrad(spec) => all(KernelRequest::MaxPoolGradGrad(pooled(spec)?), 4),
            KernelRequest::AvgPool(spec) => all(KernelRequest::AvgPool(pooled(spec)?), 2),
            KernelRequest::AvgPoolGrad(spec) => all(KernelRequest::AvgPoolGrad(pooled(spec)?), 2),
            KernelRequest::Lrn(spec) => all(KernelRequest::Lrn(LrnSpec { rows: divided(spec.rows)?, ..*spec }), 2),
            KernelRequest::LrnGrad(spec) => all(KernelRequest::LrnGrad(LrnSpec { rows: divided(spec.rows)?, ..*spec }), 4),
            KernelRequest::Nn(Nn::Softmax { log, data_type, rows, classes }) => {
                let (log, data_type, rows, classes) = (*log, *data_type, divided(*rows)?, *classes);
                all(KernelRequest::Nn(Nn::Softmax { log, data_type, rows, classes }), 2)
            }
            KernelRequest::Nn(Nn::CrossEntropy { data_type, label_type, batch, classes }) => {
                let (data_type, label_type, batch, classes) = (*data_type, *label_type, divided(*batch)?, *classes);
                all(KernelRequest::Nn(Nn::CrossEntropy { data_type, label_type, batch, classes }), 4)
            }
            KernelRequest::Movement { element, movement } => {
                let (movement, cut) = moved(movement, parts)?;
                Part::of_rows(KernelRequest::Movement { element: *element, movement }, cut)
            }
            _ => return None,
        })
    }
}

impl Part {
    /// Of a request whose results have rows.
    fn of_rows(request: KernelRequest, cut: Vec<bool>) -> Part {
        Part { request, cut, sums: None }
    }
}

/// A shape with one of so many parts of an axis.
fn along(shape: &[u64], axis: usize, parts: u64) -> Option<Vec<u64>> {
    let mut shape = shape.to_vec();
    let size = shape.get_mut(axis).filter(|size| **size > 0 && size.is_multiple_of(parts))?;
    *size /= parts;
    Some(shape)
}

/// Operands that broadcast to a shape which is cut along its first axis of more than one element, and whether they are cut, too.
fn operands_of(operands: &[Vec<u64>], shape: &[u64], axis: usize, parts: u64) -> Option<(Vec<Vec<u64>>, Vec<bool>)> {
    let part = |operand: &Vec<u64>| {
        let own = (axis + operand.len()).checked_sub(shape.len());
        match own.filter(|own| operand[*own] == shape[axis]) {
            Some(own) => Some((along(operand, own, parts)?, true)),
            None => Some((operand.clone(), false)),
        }
    };
    operands.iter().map(part).collect::<Option<Vec<_>>>().map(|operands| operands.into_iter().unzip())
}

fn results_of(pooling: &Pooling) -> usize {
    if pooling.positions == Positions::None { 1 } else { 2 }
}

/// A part of several products, or of the rows of one, and whether A, B and C are cut.
fn product(spec: &ProductSpec, parts: u64) -> Option<(ProductSpec, [bool; 2])> {
    if spec.batch == 1 && spec.places.is_none() {
        let is_by_rows = !spec.transpose_a && spec.m > 0 && spec.m.is_multiple_of(parts);
        return is_by_rows.then_some((ProductSpec { m: spec.m / parts, ..*spec }, [true, false]));
    }
    let places = spec.places();
    let axis = places.sizes.iter().position(|size| *size != 1)?;
    let mut sizes = places.sizes;
    sizes[axis] = Some(sizes[axis]).filter(|size| *size > 0 && size.is_multiple_of(parts))? / parts;
    let part = ProductSpec { batch: spec.batch / parts, places: spec.places.map(|places| Places { sizes, ..places }), ..*spec };
    let (whole, one) = (spec.extents().ok()?, part.extents().ok()?);
    // Each part is a run of bytes of its own, or has all of them.
    let is_cut = |argument: usize, distance: u64| match distance {
        0 => (whole[argument] == one[argument]).then_some(false),
        _ => {
            let is_run =
                sizes[axis].checked_mul(distance) == Some(one[argument]) && one[argument].checked_mul(parts) == Some(whole[argument]);
            is_run.then_some(true)
        }
    };
    let cut = [is_cut(0, places.a.matrix[axis])?, is_cut(1, places.b.matrix[axis])?];
    is_cut(2, places.c.matrix[axis])?.then_some((part, cut))
}

/// Rows that are moved whole, or elements within them.
fn moved(movement: &Movement, parts: u64) -> Option<(Movement, Vec<bool>)> {
    Some(match movement {
        Movement::BroadcastTo { from, to } => {
            let is_cut = from.len() == to.len() && from.first() == to.first();
            let from = if is_cut { along(from, 0, parts)? } else { from.clone() };
            (Movement::BroadcastTo { from, to: along(to, 0, parts)? }, vec![is_cut, true])
        }
        Movement::Concat { shapes, axis } if *axis > 0 => {
            let shapes: Vec<Vec<u64>> = shapes.iter().map(|shape| along(shape, 0, parts)).collect::<Option<_>>()?;
            let cut = vec![true; shapes.len() + 1];
            (Movement::Concat { shapes, axis: *axis }, cut)
        }
        Movement::Pad { shape, paddings, value } if paddings.first() == Some(&(0, 0)) => {
            let cut = if value.is_some() { vec![true, true] } else { vec![true, false, true] };
            (Movement::Pad { shape: along(shape, 0, parts)?, paddings: paddings.clone(), value: value.clone() }, cut)
        }
        Movement::Pick { shape, picks } if picks.first() == Some(&Pick::All) => {
            (Movement::Pick { shape: along(shape, 0, parts)?, picks: picks.clone() }, vec![true; 2])
        }
        Movement::Slice { shape, begin, sizes } if begin.first() == Some(&0) && sizes.first() == shape.first() => {
            let (shape, sizes) = (along(shape, 0, parts)?, along(sizes, 0, parts)?);
            (Movement::Slice { shape, begin: begin.clone(), sizes }, vec![true; 2])
        }
        Movement::Split { shape, axis, sizes } if *axis > 0 => {
            (Movement::Split { shape: along(shape, 0, parts)?, axis: *axis, sizes: sizes.clone() }, vec![true; 1 + sizes.len()])
        }
        Movement::Transpose { shape, perm } if perm.first() == Some(&0) => {
            (Movement::Transpose { shape: along(shape, 0, parts)?, perm: perm.clone() }, vec![true; 2])
        }
        _ => return None,
    })
}
