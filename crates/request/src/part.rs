//! Requests of a part of the rows. Many computations do the same for each row of their first axis: an expression, a convolution for each
//! image, a product for each row of its first matrix. A part of the rows is a smaller request of the same kind.

use std::cell::Cell;

use crate::KernelRequest;
use crate::anchor::{Anchor, Epilogue};
use crate::bands::{BandStage, Bands};
use crate::conv::ConvSpec;
use crate::lrn::LrnSpec;
use crate::movement::{Movement, Pick};
use crate::nn::Nn;
use crate::pool::{PoolSpec, Pooling, Positions};
use crate::product::{Places, ProductSpec};
use crate::row_wise::{RowWise, Span};

/// How rows are divided: into so many parts, of which number `p` begins with row `p * rows / parts`, rounded down. Where a number of parts
/// is a multiple of another one, parts begin where parts of that one begin, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// All of them. Sizes of requests are multiples of it.
    pub all: u64,
    /// How many parts.
    pub parts: u64,
}

impl Rows {
    /// Equal parts, of whatever number of rows.
    pub fn equal(parts: u64) -> Rows {
        Rows { all: parts, parts }
    }

    /// So many times as many parts.
    pub fn times(self, calls: u64) -> Option<Rows> {
        Some(Rows { parts: self.parts.checked_mul(calls)?, ..self })
    }

    /// The first row of a part.
    pub fn first(self, part: u64) -> u64 {
        (u128::from(part) * u128::from(self.all) / u128::from(self.parts.max(1))) as u64
    }

    /// The rows of the smallest part; others have one more at most.
    pub fn least(self) -> u64 {
        self.all.checked_div(self.parts).unwrap_or(0)
    }

    /// The rows of the largest part.
    pub fn most(self) -> u64 {
        if self.is_even() { self.least() } else { self.least() + 1 }
    }

    /// Whether all parts have as many rows.
    pub fn is_even(self) -> bool {
        self.parts > 0 && self.all.is_multiple_of(self.parts)
    }

    /// Of a size, which is so many times as many as there are rows, what so many rows have.
    pub fn of(self, size: u64, rows: u64) -> Option<u64> {
        (size > 0 && rows > 0 && self.all > 0 && size.is_multiple_of(self.all)).then(|| size / self.all * rows)
    }
}

/// The request of one of several parts of the rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Of the parts that have the fewest rows.
    pub request: KernelRequest,
    /// Of those that have one row more, where there are such parts.
    pub larger: Option<KernelRequest>,
    /// How often each part is a call: for as many parts of the part, one behind the other.
    pub calls: u64,
    /// For each argument of the whole request, inputs before outputs: whether part number `p` has part number `p` of its bytes. Other inputs
    /// it has whole. A result that is not cut is a sum over the rows.
    pub cut: Vec<bool>,
    /// Of a request whose one result is a sum over the rows: what its parts write in the place of it.
    pub sums: Option<Sums>,
}

/// Partial sums over the rows. Calls come in order: call number `c` of `calls` has number `c * count / calls` of them as its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Sums {
    /// How many there are; it divides the number of all calls.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Writes what all of them begin with, where several parts add to each. Argument: all of them. None where each is of one part.
    pub begin: Option<KernelRequest>,
    /// The result from all of them. Arguments: the sums, the result. None where the only one is the result.
    pub end: Option<KernelRequest>,
    /// The same with two of them at a time. None where `end` adds them in another order, or where a call has several.
    pub fold: Option<Fold>,
}

/// Partial sums of which each is added to those before as soon as it is there: by the same additions in the same order, so with the same
/// bits.
#[derive(Clone, Debug, PartialEq)]
pub struct Fold {
    /// As [`Sums::begin`], of one.
    pub begin: Option<KernelRequest>,
    /// Adds one to those before it. Arguments: the sum of those before, the next one, their sum.
    pub add: KernelRequest,
    /// As [`Sums::end`], from the sum of all.
    pub end: KernelRequest,
}

impl KernelRequest {
    /// The request of one of several parts. None where rows cannot be divided so, or where results depend on several of them. All
    /// results are cut: how sums are made up of parts, a library knows.
    pub fn part(&self, rows: Rows) -> Option<Part> {
        if rows.parts < 2 {
            return None;
        }
        let of = |count: u64| self.scaled(&|size| rows.of(size, count));
        let (request, cut) = of(rows.least())?;
        let larger = if rows.is_even() { None } else { Some(of(rows.most()).filter(|(_, other)| *other == cut)?.0) };
        Some(Part { request, larger, calls: 1, cut, sums: None })
    }

    /// How many rows there are: a number that divides every size along which parts are cut. None where there are no parts.
    pub fn rows(&self) -> Option<u64> {
        let all = Cell::new(0);
        self.scaled(&|size| {
            all.set(greatest_divisor(all.get(), size));
            (size > 0).then_some(size)
        })?;
        Some(all.get()).filter(|all| *all > 0)
    }

    /// The request with other sizes where it is cut along its rows, and which of its arguments are cut.
    fn scaled(&self, divided: &dyn Fn(u64) -> Option<u64>) -> Option<(KernelRequest, Vec<bool>)> {
        let images = |spec: &ConvSpec| Some(ConvSpec { batch: divided(spec.batch)?, ..*spec });
        let pooled = |spec: &PoolSpec| Some(PoolSpec { batch: divided(spec.batch)?, ..*spec });
        let all = |request: KernelRequest, arguments: usize| part_of(request, vec![true; arguments]);
        Some(match self {
            KernelRequest::Expr { expr, shape, operands } => {
                let axis = shape.iter().position(|size| *size != 1)?;
                let (operands, mut cut) = operands_of(operands, shape, axis, divided)?;
                cut.extend(vec![true; expr.outputs().len()]);
                part_of(KernelRequest::Expr { expr: expr.clone(), shape: along(shape, axis, divided)?, operands }, cut)
            }
            KernelRequest::Anchor { anchor, epilogue, pooling } => {
                let (part, mut cut) = match anchor {
                    Anchor::Product(data_type, spec) => {
                        let (spec, cut) = product(spec, divided)?;
                        (Anchor::Product(*data_type, spec), cut.to_vec())
                    }
                    Anchor::Conv(spec) => (Anchor::Conv(images(spec)?), vec![true, false]),
                    Anchor::DepthwiseConv(spec) => (Anchor::DepthwiseConv(images(spec)?), vec![true, false]),
                    Anchor::ConvBackpropInput(spec) => (Anchor::ConvBackpropInput(images(spec)?), vec![false, true]),
                };
                let mut results = 1;
                let epilogue = match epilogue {
                    Some(Epilogue { expr, operands }) => {
                        let (operands, others) = operands_of(operands, &anchor.shape()?, 0, divided)?;
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
                part_of(KernelRequest::Anchor { anchor: part, epilogue, pooling }, cut)
            }
            KernelRequest::Bands(request) => {
                request.check().ok()?;
                let (mut stages, mut cut) = (Vec::with_capacity(request.stages.len()), vec![true]);
                for BandStage { anchor, epilogue } in &request.stages {
                    let shape = anchor.shape()?;
                    let anchor = match anchor {
                        Anchor::Conv(spec) => Anchor::Conv(images(spec)?),
                        Anchor::DepthwiseConv(spec) => Anchor::DepthwiseConv(images(spec)?),
                        Anchor::Product(..) | Anchor::ConvBackpropInput(_) => return None,
                    };
                    cut.push(false);
                    let epilogue = match epilogue {
                        Some(Epilogue { expr, operands }) => {
                            let (operands, others) = operands_of(operands, &shape, 0, divided)?;
                            cut.extend(others);
                            Some(Epilogue { expr: expr.clone(), operands })
                        }
                        None => None,
                    };
                    stages.push(BandStage { anchor, epilogue });
                }
                cut.push(true);
                part_of(KernelRequest::Bands(Bands { stages }), cut)
            }
            KernelRequest::RowWise(request) => {
                let spans = request.check().ok()?;
                let results = request.results.iter().map(|result| spans[*result]);
                let cut = request.inputs.iter().copied().chain(results).map(Span::is_by_rows).collect();
                part_of(KernelRequest::RowWise(RowWise { rows: divided(request.rows)?, ..request.clone() }), cut)
            }
            KernelRequest::DepthwiseConvBackpropInput(spec) => {
                part_of(KernelRequest::DepthwiseConvBackpropInput(images(spec)?), vec![false, true, true])
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
                let (movement, cut) = moved(movement, divided)?;
                part_of(KernelRequest::Movement { element: *element, movement }, cut)
            }
            _ => return None,
        })
    }
}

/// A function of sizes.
type Scale<'a> = &'a dyn Fn(u64) -> Option<u64>;

fn part_of(request: KernelRequest, cut: Vec<bool>) -> (KernelRequest, Vec<bool>) {
    (request, cut)
}

/// Of two numbers; of 0 and another one, that.
fn greatest_divisor(one: u64, other: u64) -> u64 {
    let (mut one, mut other) = (one, other);
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// A shape with a part of an axis.
fn along(shape: &[u64], axis: usize, divided: Scale<'_>) -> Option<Vec<u64>> {
    let mut shape = shape.to_vec();
    let size = shape.get_mut(axis)?;
    *size = divided(*size)?;
    Some(shape)
}

/// Operands that broadcast to a shape which is cut along its first axis of more than one element, and whether they are cut, too.
fn operands_of(operands: &[Vec<u64>], shape: &[u64], axis: usize, divided: Scale<'_>) -> Option<(Vec<Vec<u64>>, Vec<bool>)> {
    let part = |operand: &Vec<u64>| {
        let own = (axis + operand.len()).checked_sub(shape.len());
        match own.filter(|own| operand[*own] == shape[axis]) {
            Some(own) => Some((along(operand, own, divided)?, true)),
            None => Some((operand.clone(), false)),
        }
    };
    operands.iter().map(part).collect::<Option<Vec<_>>>().map(|operands| operands.into_iter().unzip())
}

fn results_of(pooling: &Pooling) -> usize {
    if pooling.positions == Positions::None { 1 } else { 2 }
}

/// A part of several products, or of the rows of one, and whether A, B and C are cut.
fn product(spec: &ProductSpec, divided: Scale<'_>) -> Option<(ProductSpec, [bool; 2])> {
    if spec.batch == 1 && spec.places.is_none() {
        let is_by_rows = !spec.transpose_a;
        return is_by_rows.then(|| Some((ProductSpec { m: divided(spec.m)?, ..*spec }, [true, false])))?;
    }
    let places = spec.places();
    let axis = places.sizes.iter().position(|size| *size != 1)?;
    let mut sizes = places.sizes;
    sizes[axis] = divided(sizes[axis])?;
    let part = ProductSpec { batch: divided(spec.batch)?, places: spec.places.map(|places| Places { sizes, ..places }), ..*spec };
    let (whole, one) = (spec.extents().ok()?, part.extents().ok()?);
    // Each part is a run of bytes of its own, or has all of them.
    let is_cut = |argument: usize, distance: u64| match distance {
        0 => (whole[argument] == one[argument]).then_some(false),
        _ => {
            let is_run = sizes[axis].checked_mul(distance) == Some(one[argument]) && divided(whole[argument]) == Some(one[argument]);
            is_run.then_some(true)
        }
    };
    let cut = [is_cut(0, places.a.matrix[axis])?, is_cut(1, places.b.matrix[axis])?];
    is_cut(2, places.c.matrix[axis])?.then_some((part, cut))
}

/// Rows that are moved whole, or elements within them.
fn moved(movement: &Movement, divided: Scale<'_>) -> Option<(Movement, Vec<bool>)> {
    Some(match movement {
        Movement::BroadcastTo { from, to } => {
            let is_cut = from.len() == to.len() && from.first() == to.first();
            let from = if is_cut { along(from, 0, divided)? } else { from.clone() };
            (Movement::BroadcastTo { from, to: along(to, 0, divided)? }, vec![is_cut, true])
        }
        Movement::Concat { shapes, axis } if *axis > 0 => {
            let shapes: Vec<Vec<u64>> = shapes.iter().map(|shape| along(shape, 0, divided)).collect::<Option<_>>()?;
            let cut = vec![true; shapes.len() + 1];
            (Movement::Concat { shapes, axis: *axis }, cut)
        }
        Movement::Pad { shape, paddings, value } if paddings.first() == Some(&(0, 0)) => {
            let cut = if value.is_some() { vec![true, true] } else { vec![true, false, true] };
            (Movement::Pad { shape: along(shape, 0, divided)?, paddings: paddings.clone(), value: value.clone() }, cut)
        }
        Movement::Pick { shape, picks } if picks.first() == Some(&Pick::All) => {
            (Movement::Pick { shape: along(shape, 0, divided)?, picks: picks.clone() }, vec![true; 2])
        }
        Movement::Slice { shape, begin, sizes } if begin.first() == Some(&0) && sizes.first() == shape.first() => {
            let (shape, sizes) = (along(shape, 0, divided)?, along(sizes, 0, divided)?);
            (Movement::Slice { shape, begin: begin.clone(), sizes }, vec![true; 2])
        }
        Movement::Split { shape, axis, sizes } if *axis > 0 => {
            (Movement::Split { shape: along(shape, 0, divided)?, axis: *axis, sizes: sizes.clone() }, vec![true; 1 + sizes.len()])
        }
        Movement::Transpose { shape, perm } if perm.first() == Some(&0) => {
            (Movement::Transpose { shape: along(shape, 0, divided)?, perm: perm.clone() }, vec![true; 2])
        }
        _ => return None,
    })
}
