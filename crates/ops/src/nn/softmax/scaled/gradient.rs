//! The works of attention's gradient.

use plimsoll_request::KernelRequest;
use plimsoll_request::expr::BinaryOp;
use plimsoll_request::reduce::{ReduceOp, Reduction};
use plimsoll_request::scaled_attention::{Lies, ScaledAttention};

use super::Found;
use super::lying::{Product, Side};
use super::reading::{chosen, factor, is_same, maker, one, operation, readers};
use crate::fusion::{Computes, View, WorkId, Works};

/// The works of a gradient.
pub(super) struct Gradient {
    pub by_q: WorkId,
    pub by_k: WorkId,
    pub by_v: WorkId,
    /// All others.
    pub gone: Vec<WorkId>,
    /// That by the result.
    pub gradient: View,
}

/// Products that a gradient has: rows, columns and terms, what is transposed, and A, B and C as they lie.
struct Expected {
    sizes: [u64; 3],
    transposes: [bool; 2],
    lying: [([u64; 4], Lies); 3],
}

impl Gradient {
    /// The gradient of attention whose last product is `work`, where nothing but it reads the shares.
    pub fn of(works: &dyn Works, found: &Found, work: WorkId) -> Option<Gradient> {
        let [q, k, v] = [&found.operands[0].view, &found.operands[1].view, &found.operands[2].view];
        let ScaledAttention { rows, keys, width, value_width, lies, .. } = found.of;
        let is = |work: WorkId, expected: Expected| {
            let Expected { sizes, transposes, lying } = expected;
            let [a, b, c] = lying;
            let found = Product::of(works, work).is_some_and(|product| {
                let mut sides = [(Side::A, a), (Side::B, b), (Side::C, c)].into_iter();
                let are_there = sides.all(|(side, (sizes, lies))| product.lie_so(side, sizes, lies));
                product.data_type == q.data_type && product.sizes() == sizes && product.transposes() == transposes && are_there
            });
            found && works.outputs(work).len() == 1
        };
        let (all, scores) = (found.of.sizes(), (found.of.scores(), Lies::ByHeads));
        let [of_q, of_k, of_v, of_result] = std::array::from_fn(|at| (all[at], lies[at]));
        // By V: the weights, transposed, and the gradient by the result.
        let of_weights = readers(works, &found.weights);
        let by_v = *of_weights.iter().find(|reader| {
            let reads = works.inputs(**reader).first().is_some_and(|input| input.value == found.weights.value);
            let expected = Expected { sizes: [keys, value_width, rows], transposes: [true, false], lying: [scores, of_result, of_v] };
            **reader != work && reads && is(**reader, expected)
        })?;
        let [_, gradient] = works.inputs(by_v) else { return None };
        // The gradient by the shares, and works that cast it.
        let of_shares = *readers(works, gradient).iter().find(|reader| {
            let reads = works.inputs(**reader).iter().map(|input| input.value).eq([gradient.value, v.value]);
            let expected = Expected { sizes: [rows, keys, value_width], transposes: [false, true], lying: [of_result, of_v, scores] };
            reads && is(**reader, expected)
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
        // What scores are multiplied by, casts, and zeros where they are hidden.
        let mut value = one(works, last)?;
        let (mut scale, mut hides) = (1.0f32, 0);
        let hidden = found.mask.as_ref().map(|(_, condition)| condition);
        let [first, second] = loop {
            match readers(works, &value) {
                [next] => {
                    let choice = chosen(works, *next).filter(|choice| choice.otherwise == 0.0 && choice.of.value == value.value);
                    match choice {
                        Some(choice) if hidden.is_some_and(|hidden| is_same(works, hidden, &choice.condition)) => hides += 1,
                        Some(_) => return None,
                        None => scale *= factor(works, *next)?,
                    }
                    gone.push(*next);
                    value = one(works, *next)?;
                }
                [first, second] => break [*first, *second],
                _ => return None,
            }
        };
        let reads = |work: WorkId, other: &View| works.inputs(work).iter().map(|input| input.value).eq([value.value, other.value]);
        let is_by_q = |work: WorkId| {
            let expected = Expected { sizes: [rows, width, keys], transposes: [false, false], lying: [scores, of_k, of_q] };
            reads(work, k) && is(work, expected)
        };
        let is_by_k = |work: WorkId| {
            let expected = Expected { sizes: [keys, width, rows], transposes: [true, false], lying: [scores, of_q, of_k] };
            reads(work, q) && is(work, expected)
        };
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
        let is_scaled = scale == found.of.scale && hides == usize::from(hidden.is_some());
        let is_it = is_by_q(by_q) && is_by_k(by_k) && is_scaled && is_alone && is_inside && !gone.contains(&found.softmax);
        is_it.then(|| Gradient { by_q, by_k, by_v, gone, gradient: gradient.clone() })
    }
}
