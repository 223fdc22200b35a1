//! Attention of narrow floats, which engines of cards compute as a whole, alone or with its gradient.
//!
//! The pattern is a product of Q and K, a number that scores are multiplied by, a tensor that is added to them, the softmax, and the product
//! with V. Between these, values may be cast to floats and back. With the gradient the shares have its readers, too, and no others: then it
//! computes them anew, and they are nowhere.
//!
//! Not matched: scores that are chosen by a condition, that two tensors are added to, or that are multiplied behind the sum; shares that
//! drop out; a tensor whose own gradient is wanted.

use plimsoll_base::DataType;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::{BinaryOp, Expr, Instr, Reg, Scalar};
use plimsoll_request::nn::Nn;
use plimsoll_request::product::ProductSpec;
use plimsoll_request::reduce::{ReduceOp, Reduction};
use plimsoll_request::scaled_attention::{ScaledAttention, ScoreBias};

use crate::fusion::{Becomes, Computes, Patch, View, WorkId, Works};

/// A value, and the works between it and what it is made of.
type Passed = (View, Vec<WorkId>);

/// Attention that was found.
struct Found {
    of: ScaledAttention,
    /// Q, K, V.
    operands: [View; 3],
    bias: Option<View>,
    /// The works but for the last product: these are gone.
    gone: Vec<WorkId>,
    softmax: WorkId,
    /// What the softmax makes, and what the last product reads: the same, unless it is cast.
    shares: View,
    weights: View,
    /// Scores, from the first product on, which only the next work reads.
    scores: Vec<View>,
}

/// Attention whose shares only the product with V reads.
pub(super) fn forward(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let found = Found::at(works, work)?;
    let are_alone = [&found.shares, &found.weights].into_iter().all(|value| readers(works, value).len() == 1);
    if !are_alone || !found.is_whole(works, work, &found.gone) {
        return None;
    }
    let becomes = KernelRequest::ScaledAttention(found.of);
    if becomes.arguments().is_err() || !works.answers(work, &becomes) {
        return None;
    }
    let inputs = found.inputs();
    Some(Patch::new(works).join(&found.gone, work, Becomes::Request(becomes), inputs, works.outputs(work).to_vec()))
}

/// Attention with its gradient: two works, of which the first has the logarithms of sums as a result.
pub(super) fn with_gradient(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let found = Found::at(works, work)?;
    let Gradient { by_q, by_k, by_v, gone, gradient } = Gradient::of(works, &found, work)?;
    let of = ScaledAttention { sums: true, ..found.of };
    let (becomes, computes) = (KernelRequest::ScaledAttention(of), KernelRequest::ScaledAttentionGrad(of));
    let last = [by_q, by_k, by_v];
    let inner: Vec<WorkId> = found.gone.iter().chain(&gone).chain(&last).copied().collect();
    // No result comes before what the other two, or the attention, are made of: all that they read is there before any of them is read.
    let are_beside = last.iter().all(|one| {
        let [made] = works.outputs(*one) else { return false };
        let others = last.iter().filter(|other| *other != one);
        others.into_iter().all(|other| works.is_next(*one, *other) && works.inputs(*other).iter().all(|input| input.value != *made))
    });
    let sums = becomes.arguments().ok()?.outputs.get(1).copied()?;
    if !are_beside || !found.is_whole(works, work, &inner) || computes.arguments().is_err() {
        return None;
    }
    if !works.answers(by_q, &computes) || !works.answers(work, &becomes) {
        return None;
    }
    let mut patch = Patch::new(works);
    let sums = View { value: patch.value(sums), data_type: DataType::Float, shape: of.of_sums().into() };
    let &[result] = works.outputs(work) else { return None };
    let [_, _, _, sizes] = of.sizes();
    let result = View { value: result, data_type: of.data_type, shape: sizes.into() };
    let inputs = found.inputs();
    let read = inputs.iter().cloned().chain([result.clone(), sums.clone(), gradient]).collect();
    let made = last.iter().flat_map(|one| works.outputs(*one)).copied().collect();
    let joined: Vec<WorkId> = gone.into_iter().chain([by_v, by_k]).collect();
    let patch = patch.join(&found.gone, work, Becomes::Request(becomes), inputs, vec![result.value, sums.value]);
    Some(patch.join(&joined, by_q, Becomes::Request(computes), read, made))
}

impl Found {
    /// Attention whose last product a work is; who reads the shares it does not ask.
    fn at(works: &dyn Works, work: WorkId) -> Option<Found> {
        let (data_type, values) = product(works, work)?;
        let [weights, v] = works.inputs(work) else { return None };
        if values.transpose_a || values.transpose_b {
            return None;
        }
        let (shares, gone) = back(works, weights, |expr, reg| cast(expr, reg).map(|_| ()))?;
        if gone.len() > 1 {
            return None;
        }
        let softmax = works.maker(shares.value)?;
        let Computes::Request(KernelRequest::Nn(Nn::Softmax { log: false, rows, classes, .. })) = works.computes(softmax) else {
            return None;
        };
        let scores = works.inputs(softmax).first()?;
        let (above, Score { scale, bias, product: first }) = Score::of(works, scores)?;
        let (of_scores, spec) = product(works, first)?;
        let [q, k] = works.inputs(first) else { return None };
        let is_it = of_scores == data_type
            && !spec.transpose_a
            && spec.transpose_b
            && (spec.batch, spec.m, spec.n) == (values.batch, values.m, values.k)
            && (Some(*rows), *classes) == (spec.batch.checked_mul(spec.m), spec.n);
        let [batch, heads, ..] = four(&scores.shape, &scores.shape, [spec.m, spec.n])?;
        if !is_it || batch.checked_mul(heads) != Some(spec.batch) {
            return None;
        }
        let of_bias = match &bias {
            Some(bias) => {
                let sizes = four(&bias.shape, &scores.shape, [0, 0])?;
                Some(ScoreBias { data_type: bias.data_type, sizes })
            }
            None => None,
        };
        let of = ScaledAttention {
            data_type,
            batch,
            heads,
            rows: spec.m,
            keys: spec.n,
            width: spec.k,
            value_width: values.n,
            scale,
            bias: of_bias,
            sums: false,
        };
        of.check().ok()?;
        let values = [works.outputs(first), &above.iter().flat_map(|work| works.outputs(*work)).copied().collect::<Vec<_>>()].concat();
        let score = |value| View { value, data_type, shape: scores.shape.clone() };
        let scores = values.into_iter().map(score).collect();
        // In the order in which they were.
        let gone = [vec![first], above.into_iter().rev().collect(), vec![softmax], gone].concat();
        let (operands, weights) = ([q.clone(), k.clone(), v.clone()], weights.clone());
        Some(Found { of, operands, bias, gone, softmax, shares, weights, scores })
    }

    fn inputs(&self) -> Vec<View> {
        self.operands.iter().chain(&self.bias).cloned().collect()
    }

    /// Whether the works can be one with the last product, and scores have no reader but the next work of them.
    fn is_whole(&self, works: &dyn Works, work: WorkId, inner: &[WorkId]) -> bool {
        let are_alone = self.scores.iter().all(|score| readers(works, score).len() == 1);
        let inside = [&self.shares, &self.weights].into_iter().chain(&self.scores);
        are_alone && inside.into_iter().all(|value| !works.is_kept(value.value)) && inner.iter().all(|other| works.absorbs(work, *other))
    }
}

fn readers<'a>(works: &'a dyn Works, value: &View) -> &'a [WorkId] {
    works.readers(value.value)
}

/// The products of narrow floats that a work computes, whose matrices lie dense.
fn product(works: &dyn Works, work: WorkId) -> Option<(DataType, ProductSpec)> {
    let (data_type, spec) = match works.computes(work) {
        Computes::Anchor(Anchor::Product(data_type, spec), None) => (*data_type, *spec),
        Computes::Request(KernelRequest::Anchor { anchor: Anchor::Product(data_type, spec), epilogue: None, pooling: None }) => {
            (*data_type, *spec)
        }
        _ => return None,
    };
    let is_narrow = matches!(data_type, DataType::Half | DataType::Bfloat16);
    (is_narrow && spec.places.is_none()).then_some((data_type, spec))
}

/// The sizes of scores, or of what is added to them, as those of examples, heads, rows and keys. None where there are more.
fn four(shape: &[u64], scores: &[u64], [rows, keys]: [u64; 2]) -> Option<[u64; 4]> {
    let whole = |rest: &[u64]| rest == [rows, keys] || [rows, keys] == [0, 0];
    let mut sizes = vec![1; scores.len().checked_sub(shape.len())?];
    sizes.extend(shape);
    match sizes[..] {
        [m, n] if whole(&[m, n]) => Some([1, 1, m, n]),
        [a, m, n] if whole(&[m, n]) => Some([a, 1, m, n]),
        [a, b, m, n] if whole(&[m, n]) => Some([a, b, m, n]),
        _ => None,
    }
}

/// The operand that a cast is of.
fn cast(expr: &Expr, reg: Reg) -> Option<u32> {
    match expr.instrs().get(reg.0 as usize)? {
        Instr::Input(0) => Some(0),
        Instr::Cast(DataType::Float | DataType::Half | DataType::Bfloat16, of) => cast(expr, *of),
        _ => None,
    }
}

/// The value before expressions of one operand that `is_it` takes, and their works.
fn back(works: &dyn Works, value: &View, is_it: impl Fn(&Expr, Reg) -> Option<()>) -> Option<Passed> {
    let (mut value, mut passed) = (value.clone(), Vec::new());
    while let Some(work) = works.maker(value.value) {
        let (Computes::Expr(expr, _), [before]) = (works.computes(work), works.inputs(work)) else { break };
        let [output] = expr.outputs() else { break };
        if before.elements() != value.elements() || is_it(expr, *output).is_none() {
            break;
        }
        passed.push(work);
        value = before.clone();
    }
    Some((value, passed))
}

/// A number of an expression.
fn number(expr: &Expr, reg: Reg) -> Option<f32> {
    match expr.instrs().get(reg.0 as usize)? {
        Instr::Const(Scalar::F32(number)) => Some(*number),
        Instr::Const(Scalar::F16(number)) => Some(number.to_f32()),
        Instr::Const(Scalar::Bf16(number)) => Some(number.to_f32()),
        Instr::Cast(DataType::Float | DataType::Half | DataType::Bfloat16, of) => number(expr, *of),
        _ => None,
    }
}

/// What an expression makes of one of its operands: the number it multiplies it by.
fn scaled(expr: &Expr, reg: Reg) -> Option<f32> {
    match expr.instrs().get(reg.0 as usize)? {
        Instr::Input(0) => Some(1.0),
        Instr::Cast(DataType::Float | DataType::Half | DataType::Bfloat16, of) => scaled(expr, *of),
        Instr::Binary(BinaryOp::Mul, one, other) => match (number(expr, *one), number(expr, *other)) {
            (None, Some(number)) => Some(scaled(expr, *one)? * number),
            (Some(number), None) => Some(scaled(expr, *other)? * number),
            _ => None,
        },
        Instr::Binary(BinaryOp::Div, one, other) => Some(scaled(expr, *one)? / number(expr, *other)?),
        _ => None,
    }
}

/// The two operands of an expression that is one operation.
fn operation(works: &dyn Works, work: WorkId, op: BinaryOp) -> Option<[View; 2]> {
    let Computes::Expr(expr, _) = works.computes(work) else { return None };
    let [output] = expr.outputs() else { return None };
    let Instr::Binary(found, one, other) = expr.instrs().get(output.0 as usize)? else { return None };
    let input = |reg: &Reg| match expr.instrs().get(reg.0 as usize)? {
        Instr::Input(number) => works.inputs(work).get(*number as usize).cloned(),
        _ => None,
    };
    if *found != op { None } else { Some([input(one)?, input(other)?]) }
}

/// Scores before the softmax.
struct Score {
    scale: f32,
    bias: Option<View>,
    product: WorkId,
}

impl Score {
    /// What scores are, and the works behind their product.
    fn of(works: &dyn Works, scores: &View) -> Option<(Vec<WorkId>, Score)> {
        let (value, casts) = back(works, scores, |expr, reg| cast(expr, reg).map(|_| ()))?;
        let added = works.maker(value.value).and_then(|work| Some((work, operation(works, work, BinaryOp::Add)?)));
        let scaled = |value: &View| {
            let (first, passed) = back(works, value, |expr, reg| scaled(expr, reg).map(|_| ()))?;
            let scale = passed.iter().rev().try_fold(1.0f32, |scale, work| Some(scale * factor(works, *work)?))?;
            let product = works.maker(first.value).filter(|work| product(works, *work).is_some())?;
            (value.elements() == scores.elements()).then_some((passed, scale, product))
        };
        match added {
            Some((work, [one, other])) => {
                let ((passed, scale, product), bias) = match scaled(&one) {
                    Some(found) => (found, other),
                    None => (scaled(&other)?, one),
                };
                let works = [casts, vec![work], passed].concat();
                Some((works, Score { scale, bias: Some(bias), product }))
            }
            None => {
                let (passed, scale, product) = scaled(&value)?;
                Some(([casts, passed].concat(), Score { scale, bias: None, product }))
            }
        }
    }
}

/// The number that a work multiplies its one operand by. A sum along no axis, or along axes of one element, is the operand: gradients of operations
/// that may broadcast have such sums.
fn factor(works: &dyn Works, work: WorkId) -> Option<f32> {
    match works.computes(work) {
        Computes::Expr(expr, _) => match (expr.outputs(), works.inputs(work)) {
            ([output], [_]) => scaled(expr, *output),
            _ => None,
        },
        Computes::Request(KernelRequest::Reduction(Reduction::Reduce { op: ReduceOp::Sum, shape, axes, .. })) => {
            axes.iter().all(|axis| shape.get(*axis) == Some(&1)).then_some(1.0)
        }
        _ => None,
    }
}

/// The works of a gradient.
struct Gradient {
    by_q: WorkId,
    by_k: WorkId,
    by_v: WorkId,
    /// All others.
    gone: Vec<WorkId>,
    /// That by the result.
    gradient: View,
}

impl Gradient {
    /// The gradient of attention whose last product is `work`, where nothing but it reads the shares.
    fn of(works: &dyn Works, found: &Found, work: WorkId) -> Option<Gradient> {
        let &[q, k, v] = &[&found.operands[0], &found.operands[1], &found.operands[2]];
        let ScaledAttention { rows, keys, width, value_width, .. } = found.of;
        let is = |work: WorkId, sizes: [u64; 3], transposes: [bool; 2]| {
            let found = product(works, work).is_some_and(|(data_type, spec)| {
                data_type == q.data_type && [spec.m, spec.n, spec.k] == sizes && [spec.transpose_a, spec.transpose_b] == transposes
            });
            found && works.outputs(work).len() == 1
        };
        // By V: the weights, transposed, and the gradient by the result.
        let of_weights = readers(works, &found.weights);
        let by_v = *of_weights.iter().find(|reader| {
            let reads = works.inputs(**reader).first().is_some_and(|input| input.value == found.weights.value);
            **reader != work && reads && is(**reader, [keys, value_width, rows], [true, false])
        })?;
        let [_, gradient] = works.inputs(by_v) else { return None };
        // The gradient by the shares, and works that cast it.
        let of_shares = *readers(works, gradient).iter().find(|reader| {
            let reads = works.inputs(**reader).iter().map(|input| input.value).eq([gradient.value, v.value]);
            reads && is(**reader, [rows, keys, value_width], [false, true])
        })?;
        let mut gone = vec![of_shares];
        let mut value = one(works, of_shares)?;
        let [multiplied, moved] = loop {
            match readers(works, &value) {
                [next] if factor(works, *next) == Some(1.0) => {
                    gone.push(*next);
                    value = one(works, *next)?;
                }
                [first, second] => break [*first, *second],
                _ => return None,
            }
        };
        // What the gradient of the softmax is: (g - sum(g s)) s.
        let is_product = |work: WorkId, of: &View| {
            let read = operation(works, work, BinaryOp::Mul);
            read.is_some_and(|[a, b]| {
                let all = [a.value, b.value];
                all == [of.value, found.shares.value] || all == [found.shares.value, of.value]
            })
        };
        let [multiplied, moved] = if is_product(multiplied, &value) { [multiplied, moved] } else { [moved, multiplied] };
        if !is_product(multiplied, &value) {
            return None;
        }
        let products = one(works, multiplied)?;
        let &[summed] = readers(works, &products) else { return None };
        let Computes::Request(KernelRequest::Reduction(Reduction::Reduce { op: ReduceOp::Sum, shape, axes, .. })) = works.computes(summed)
        else {
            return None;
        };
        let sum = one(works, summed)?;
        let is_last = axes[..] == [shape.len().checked_sub(1)?] && shape.last() == Some(&keys);
        let read = operation(works, moved, BinaryOp::Sub)?;
        let is_moved = [read[0].value, read[1].value] == [value.value, sum.value] && readers(works, &sum) == [moved];
        if !is_last || !is_moved || read[1].shape.last() != Some(&1) {
            return None;
        }
        let rest = one(works, moved)?;
        let &[last] = readers(works, &rest) else { return None };
        if !is_product(last, &rest) {
            return None;
        }
        gone.extend([multiplied, summed, moved, last]);
        // What scores are multiplied by, and casts.
        let mut value = one(works, last)?;
        let mut scale = 1.0f32;
        let [first, second] = loop {
            match readers(works, &value) {
                [next] => {
                    scale *= factor(works, *next)?;
                    gone.push(*next);
                    value = one(works, *next)?;
                }
                [first, second] => break [*first, *second],
                _ => return None,
            }
        };
        let reads = |work: WorkId, other: &View| works.inputs(work).iter().map(|input| input.value).eq([value.value, other.value]);
        let is_by_q = |work: WorkId| reads(work, k) && is(work, [rows, width, keys], [false, false]);
        let is_by_k = |work: WorkId| reads(work, q) && is(work, [keys, width, rows], [true, false]);
        let [by_q, by_k] = if is_by_q(first) { [first, second] } else { [second, first] };
        // The shares have these readers alone.
        let of_softmax = if found.shares.value == found.weights.value { vec![work, by_v] } else { vec![maker(works, &found.weights)?] };
        let all: Vec<WorkId> = of_softmax.into_iter().chain([multiplied, last]).collect();
        let are_all = |value: &View, all: &[WorkId]| {
            let readers = readers(works, value);
            readers.len() == all.len() && all.iter().all(|reader| readers.contains(reader))
        };
        let is_alone =
            are_all(&found.shares, &all) && (found.shares.value == found.weights.value || are_all(&found.weights, &[work, by_v]));
        let inside = gone.iter().flat_map(|work| works.outputs(*work));
        let is_inside = inside.into_iter().all(|value| !works.is_kept(*value));
        let is_it = is_by_q(by_q) && is_by_k(by_k) && scale == found.of.scale && is_alone && is_inside && !gone.contains(&found.softmax);
        is_it.then(|| Gradient { by_q, by_k, by_v, gone, gradient: gradient.clone() })
    }
}

fn maker(works: &dyn Works, value: &View) -> Option<WorkId> {
    works.maker(value.value)
}

/// The one value that a work defines; its shape does not count.
fn one(works: &dyn Works, work: WorkId) -> Option<View> {
    let &[value] = works.outputs(work) else { return None };
    let (data_type, shape) = match works.computes(work) {
        Computes::Expr(expr, shape) => (*expr.output_types().first()?, shape.clone()),
        _ => (DataType::Float, plimsoll_graph::Shape::from([])),
    };
    Some(View { value, data_type, shape })
}
