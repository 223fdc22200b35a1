//! The works of attention's gradient.

use plimsoll_request::KernelRequest;
use plimsoll_request::expr::BinaryOp;
use plimsoll_request::reduce::{ReduceOp, Reduction};
use plimsoll_request::scaled_attention::{Lies, ScaledAttention};

use super::Found;
use super::lying::{Product, Side, after};
use super::reading::{chosen, factor, is_same, one, operation, readers, transposition};
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
        // The gradient by the shares, and what was done to these.
        let of_shares = *readers(works, gradient).iter().find(|reader| {
            let reads = works.inputs(**reader).iter().map(|input| input.value).eq([gradient.value, v.value]);
            let expected = Expected { sizes: [rows, keys, value_width], transposes: [false, true], lying: [of_result, of_v, scores] };
            reads && is(**reader, expected)
        })?;
        let Changed { value, works: between, factor, hides, drops, turns } = Changed::of(works, found, one(works, of_shares)?)?;
        let kept = found.kept.as_ref().map_or((1.0, 0), |kept| (kept.of.factor, 1));
        if (factor, drops) != kept || hides != usize::from(found.are_zeros) || turns != 0 {
            return None;
        }
        let &[multiplied, moved] = readers(works, &value) else { return None };
        let mut gone = [vec![of_shares], between].concat();
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
        // What scores are multiplied by, casts, zeros where they are hidden, and whether they are turned.
        let Changed { value, works: between, factor, hides, drops, turns } = Changed::of(works, found, one(works, last)?)?;
        let is_turned = found.turned.is_some();
        let hidden = usize::from(found.mask.is_some());
        if factor != found.of.scale || hides != hidden || drops != 0 || turns != usize::from(is_turned) {
            return None;
        }
        gone.extend(between);
        let &[first, second] = readers(works, &value) else { return None };
        let reads = |work: WorkId, all: [&View; 2]| works.inputs(work).iter().map(|input| input.value).eq(all.map(|view| view.value));
        let by_heads = |rows, columns| ([found.of.batch, found.of.heads, rows, columns], Lies::ByHeads);
        let is_by_q = |work: WorkId| {
            let turned = by_heads(keys, rows);
            let (all, expected) = match &found.turned {
                None => ([&value, k], Expected { sizes: [rows, width, keys], transposes: [false, false], lying: [scores, of_k, of_q] }),
                Some(_) => {
                    let lying = [of_k, turned, by_heads(width, rows)];
                    ([k, &value], Expected { sizes: [width, rows, keys], transposes: [true, false], lying })
                }
            };
            reads(work, all) && is(work, expected)
        };
        let is_by_k = |work: WorkId| {
            let (all, expected) = match &found.turned {
                None => ([&value, q], Expected { sizes: [keys, width, rows], transposes: [true, false], lying: [scores, of_q, of_k] }),
                Some(q) => {
                    let lying = [by_heads(keys, rows), by_heads(width, rows), of_k];
                    ([&value, q], Expected { sizes: [keys, width, rows], transposes: [false, true], lying })
                }
            };
            reads(work, all) && is(work, expected)
        };
        let [mut by_q, by_k] = if is_by_q(first) { [first, second] } else { [second, first] };
        if !is_by_q(by_q) || !is_by_k(by_k) {
            return None;
        }
        // That by Q lies as Q behind a transposition.
        if is_turned {
            let (moved, lies) = after(works, &one(works, by_q)?, all[0], true)?;
            if lies != found.of.lies[0] {
                return None;
            }
            gone.push(by_q);
            by_q = moved;
        }
        // The shares have these readers alone.
        let of_softmax = found.behind.map_or(vec![work, by_v], |behind| vec![behind]);
        let readers_of_shares: Vec<WorkId> = of_softmax.into_iter().chain([multiplied, last]).collect();
        let are_all = |value: &View, all: &[WorkId]| {
            let readers = readers(works, value);
            readers.len() == all.len() && all.iter().all(|reader| readers.contains(reader))
        };
        let is_alone = are_all(&found.shares, &readers_of_shares) && (found.behind.is_none() || are_all(&found.weights, &[work, by_v]));
        let inside = gone.iter().flat_map(|work| works.outputs(*work));
        let is_inside = inside.into_iter().all(|value| !works.is_kept(*value));
        let is_it = is_alone && is_inside && !gone.contains(&found.softmax);
        is_it.then(|| Gradient { by_q, by_k, by_v, gone, gradient: gradient.clone() })
    }
}

/// What works behind a value make of it until several read it, each of which nothing else reads.
struct Changed {
    value: View,
    works: Vec<WorkId>,
    /// The number it is multiplied by.
    factor: f32,
    /// How often it is zero where scores are hidden, and where shares drop out.
    hides: usize,
    drops: usize,
    /// How often rows and columns are exchanged.
    turns: usize,
}

impl Changed {
    /// None where something else is made of it.
    fn of(works: &dyn Works, found: &Found, value: View) -> Option<Changed> {
        let mut changed = Changed { value, works: Vec::new(), factor: 1.0, hides: 0, drops: 0, turns: 0 };
        while let &[next] = readers(works, &changed.value) {
            changed.pass(works, found, next)?;
            changed.works.push(next);
            changed.value = one(works, next)?;
        }
        Some(changed)
    }

    fn pass(&mut self, works: &dyn Works, found: &Found, next: WorkId) -> Option<()> {
        let value = self.value.value;
        if let Some(choice) = chosen(works, next).filter(|choice| choice.otherwise == 0.0 && choice.of.value == value) {
            let is_hidden = found.mask.as_ref().is_some_and(|(_, hidden)| is_same(works, hidden, &choice.condition));
            let is_kept = found.kept.as_ref().is_some_and(|kept| kept.is(works, &choice.condition));
            self.hides += usize::from(is_hidden);
            self.drops += usize::from(!is_hidden && is_kept);
            return (is_hidden || is_kept).then_some(());
        }
        if let Some(factor) = factor(works, next) {
            self.factor *= factor;
        } else if transposition(works, next).is_some_and(|(_, perm)| perm == [0, 1, 3, 2]) {
            self.turns += 1;
        } else {
            let [one, other] = operation(works, next, BinaryOp::Mul)?;
            let tensor = if one.value == value { other } else { one };
            found.kept.as_ref().filter(|kept| kept.is(works, &tensor))?;
            self.drops += 1;
        }
        Some(())
    }
}
