//! Attention of narrow floats, which engines of cards compute as a whole, alone or with its gradient.
//!
//! The pattern begins with a product of Q and K: the scores. They are multiplied by a number, and a tensor is added to them or a condition hides some.
//! The softmax follows, and the product with V. Between these, values may be cast to floats and back. Tensors lie by heads or by rows, and products of Einsum read
//! them so. Scores may have keys as rows before they are transposed, and shares of hidden scores may be zeros in the graph. With the gradient the
//! shares have its readers, too, and no others: then it computes them anew, and they are nowhere. Some may drop out. Without the gradient, tensors may
//! be transposed before and after, too.
//!
//! Not matched: scores that are changed in two ways, or multiplied behind that; shares that drop out without a gradient; a tensor whose own gradient
//! is wanted.

mod gradient;
mod lying;
mod mask;
mod reading;
mod scores;
mod weights;

use plimsoll_base::DataType;
use plimsoll_request::KernelRequest;
use plimsoll_request::nn::Nn;
use plimsoll_request::scaled_attention::{Lies, ScaledAttention, ScoreBias};

use self::gradient::Gradient;
use self::lying::{Lying, Product, Side, after, before};
use self::mask::Mask;
use self::reading::{maker, readers};
use self::scores::{Change, Scores};
use self::weights::{Kept, Weights};
use crate::fusion::{Becomes, Computes, Patch, Patched, ValueId, View, WorkId, Works};

/// Attention that was found.
struct Found {
    of: ScaledAttention,
    /// Q, K, V.
    operands: [Lying; 3],
    added: Option<View>,
    /// What hides scores, and that condition.
    mask: Option<(Mask, View)>,
    /// Whether shares of hidden scores are zeros, also where a row has no others.
    are_zeros: bool,
    /// What is kept where shares drop out.
    kept: Option<Kept>,
    /// Q as the product reads it that has keys as rows, with its columns before its rows.
    turned: Option<View>,
    /// The works but for the last product: these are gone.
    gone: Vec<WorkId>,
    softmax: WorkId,
    /// What the softmax makes, and what the last product reads: the same, unless it is cast.
    shares: View,
    weights: View,
    /// The work that reads the shares, unless these are the weights.
    behind: Option<WorkId>,
    /// Values between, from the first product on, which only the next work reads.
    inside: Vec<ValueId>,
}

/// Which works a search passes.
#[derive(Clone, Copy, PartialEq)]
enum Search {
    /// Those that have their gradient.
    Plain,
    /// Transpositions of each tensor, too.
    Far,
}

/// Attention whose shares only the product with V reads.
pub(super) fn forward(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let found = Found::at(works, work, Search::Far)?;
    let are_alone = [&found.shares, &found.weights].into_iter().all(|value| readers(works, value).len() == 1);
    if !are_alone || found.kept.is_some() || !found.is_whole(works, work, &found.gone) {
        return None;
    }
    // The result as it is when it has been transposed.
    let &[result] = works.outputs(work) else { return None };
    let [_, _, _, sizes] = found.of.sizes();
    let made = View { value: result, data_type: found.of.data_type, shape: sizes.into() };
    let moved = match found.of.lies[3] {
        Lies::ByHeads => after(works, &made, sizes, false).filter(|(moved, _)| works.absorbs(*moved, work)),
        Lies::ByRows => None,
    };
    let (last, mut of, mut gone) = (moved.map_or(work, |(moved, _)| moved), found.of, found.gone.clone());
    if let Some((_, lies)) = moved {
        gone.push(work);
        of.lies[3] = lies;
    }
    let &[result] = works.outputs(last) else { return None };
    let becomes = KernelRequest::ScaledAttention(of);
    if becomes.arguments().is_err() || !works.answers(last, &becomes) {
        return None;
    }
    let Hidden { mut patch, inputs, seen } = found.hidden(works, of.lies, last)?;
    let Some(seen) = seen.filter(|_| found.are_zeros) else {
        return Some(patch.join(&gone, last, Becomes::Request(becomes), inputs, vec![result]));
    };
    let bytes = becomes.arguments().ok()?.outputs.first().copied()?;
    let made = Lying { view: View { value: patch.value(bytes), ..made }, lies: of.lies[3] };
    let (kept, reads) = seen.without_hidden(&made, sizes).ok()?;
    let attention =
        Patched { work: last, is_new: true, joins: gone, becomes: Becomes::Request(becomes), inputs, outputs: vec![made.view.value] };
    patch.works.push(attention);
    Some(patch.change(last, kept, reads, vec![result]))
}

/// Attention with its gradient: two works, of which the first has the logarithms of sums as a result.
pub(super) fn with_gradient(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let found = Found::at(works, work, Search::Plain)?;
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
    let Hidden { mut patch, inputs, seen } = found.hidden(works, of.lies, work)?;
    let sums = View { value: patch.value(sums), data_type: DataType::Float, shape: of.of_sums().into() };
    let &[result] = works.outputs(work) else { return None };
    let [q_sizes, _, _, sizes] = of.sizes();
    let result = View { value: result, data_type: of.data_type, shape: sizes.into() };
    let mut made: Vec<_> = last.iter().flat_map(|one| works.outputs(*one)).copied().collect();
    let joined: Vec<WorkId> = gone.into_iter().chain([by_v, by_k]).collect();
    let reads = |gradient: View| inputs.iter().cloned().chain([result.clone(), sums.clone(), gradient]).collect();
    let (becomes, computes) = (Becomes::Request(becomes), Becomes::Request(computes));
    match seen {
        None => {
            let patch = patch.join(&found.gone, work, becomes, inputs.clone(), vec![result.value, sums.value]);
            Some(patch.join(&joined, by_q, computes, reads(gradient), made))
        }
        // Rows that see nothing are zeros, and have no gradient.
        Some(seen) if found.are_zeros => {
            let whole = View { value: patch.value(bytes_of(&result)?), ..result.clone() };
            let outputs = vec![whole.value, sums.value];
            patch.works.push(Patched { work, is_new: true, joins: found.gone.clone(), becomes, inputs: inputs.clone(), outputs });
            let (kept, read) = seen.without_hidden(&Lying { view: whole, lies: of.lies[3] }, sizes).ok()?;
            let mut patch = patch.change(work, kept, read, vec![result.value]);
            let seen_gradient = View { value: patch.value(bytes_of(&result)?), ..result.clone() };
            let (kept, read) = seen.without_hidden(&Lying { view: gradient, lies: of.lies[3] }, sizes).ok()?;
            let patch = patch.add(by_q, kept, read, vec![seen_gradient.value]);
            Some(patch.join(&joined, by_q, computes, reads(seen_gradient), made))
        }
        // Rows of Q that were zeros have no gradient.
        Some(seen) => {
            let mut patch = patch.join(&found.gone, work, becomes, inputs.clone(), vec![result.value, sums.value]);
            let whole = View { value: result.value, data_type: of.data_type, shape: q_sizes.into() };
            let whole = View { value: patch.value(bytes_of(&whole)?), ..whole };
            let of_q = std::mem::replace(made.first_mut()?, whole.value);
            let (kept, read) = seen.without_hidden(&Lying { view: whole, lies: of.lies[0] }, q_sizes).ok()?;
            let inputs = reads(gradient);
            patch.works.push(Patched { work: by_q, is_new: true, joins: joined, becomes: computes, inputs, outputs: made });
            Some(patch.change(by_q, kept, read, vec![of_q]))
        }
    }
}

fn bytes_of(view: &View) -> Option<u64> {
    view.shape.bytes(view.data_type).ok().map(|bytes| bytes.0)
}

/// A patch with the works that hide scores, what attention reads then, and which rows are seen, where it matters.
struct Hidden {
    patch: Patch,
    inputs: Vec<View>,
    seen: Option<mask::Made>,
}

impl Found {
    /// Attention whose last product a work is; who reads the shares it does not ask.
    fn at(works: &dyn Works, work: WorkId, search: Search) -> Option<Found> {
        let values = Product::of(works, work)?;
        let [weights, v] = works.inputs(work) else { return None };
        let behind_shares = Weights::of(works, weights)?;
        let Weights { shares, between, .. } = &behind_shares;
        let softmax = maker(works, shares)?;
        let Computes::Request(KernelRequest::Nn(Nn::Softmax { log: false, rows, classes, .. })) = works.computes(softmax) else {
            return None;
        };
        let scores = works.inputs(softmax).first()?;
        let (above, Scores { scale, change, product: first, are_turned }) = Scores::of(works, scores)?;
        let product = Product::of(works, first)?;
        let [m, n, width] = product.sizes();
        let [keys_first, rows_first] = [[n, m], [m, n]];
        let [row_count, keys] = if are_turned { keys_first } else { rows_first };
        let [batch, heads] = examples(&scores.shape, [row_count, keys])?;
        let [values_m, value_width, values_k] = values.sizes();
        let count = batch.checked_mul(heads)?;
        let is_it = product.data_type == values.data_type
            && product.transposes() == [false, !are_turned]
            && values.transposes() == [false, false]
            && [product.spec.batch, values.spec.batch] == [count; 2]
            && [values_m, values_k] == [row_count, keys]
            && (Some(*rows), *classes) == (count.checked_mul(row_count), keys);
        if !is_it {
            return None;
        }
        let four = |rows, columns| [batch, heads, rows, columns];
        let (of_q, of_k, of_v) = (four(row_count, width), four(keys, width), four(keys, value_width));
        let is_dense = |product: &Product, side, sizes| product.lies(side, sizes) == Some(Lies::ByHeads);
        // Scores and shares lie by heads.
        let are_plain = is_dense(&product, Side::C, four(m, n)) && is_dense(&values, Side::A, four(row_count, keys));
        let [a, b] = works.inputs(first) else { return None };
        let lying = |product: &Product, side, view: &View, sizes| {
            let found = Lying { view: view.clone(), lies: product.lies(side, sizes)? };
            let is_far = search == Search::Far && found.lies == Lies::ByHeads;
            Some(if is_far { before(works, view, sizes, false).unwrap_or(found) } else { found })
        };
        let (q, k) = if are_turned {
            // The columns of Q are before its rows, unless it is transposed once more.
            let is_plain = is_dense(&product, Side::B, four(width, row_count));
            (before(works, b, of_q, true).filter(|_| is_plain)?, lying(&product, Side::A, a, of_k)?)
        } else {
            (lying(&product, Side::A, a, of_q)?, lying(&product, Side::B, b, of_k)?)
        };
        let v = lying(&values, Side::B, v, of_v)?;
        let result = values.lies(Side::C, four(row_count, value_width))?;
        let all = four(row_count, keys);
        let (added, mask) = match change {
            Change::Nothing => (None, None),
            Change::Added(bias) => (Some(bias), None),
            Change::Hidden(condition) => (None, Some((Mask::of(works, &condition, all)?, condition))),
        };
        let hidden = mask.as_ref().map(|(_, condition)| condition);
        let (are_zeros, kept) = behind_shares.kept(works, product.data_type, &scores.shape, hidden)?;
        let bias = match (&added, &mask) {
            (Some(bias), _) => Some(ScoreBias { data_type: bias.data_type, sizes: sizes_of_added(&bias.shape, &scores.shape)? }),
            (None, Some((mask, _))) => Some(mask.bias()),
            (None, None) => None,
        };
        let of = ScaledAttention {
            data_type: product.data_type,
            batch,
            heads,
            rows: row_count,
            keys,
            width,
            value_width,
            scale,
            bias,
            kept: kept.as_ref().map(|kept| kept.of),
            sums: kept.is_some(),
            lies: [q.lies, k.lies, v.lies, result],
        };
        of.check().ok()?;
        let inside = std::iter::once(&first).chain(&above).chain(between.iter().skip(1)).flat_map(|work| works.outputs(*work));
        let inside = inside.copied().collect();
        // In the order in which they were.
        let gone = [vec![first], above.into_iter().rev().collect(), vec![softmax], between.iter().rev().copied().collect()].concat();
        let (operands, weights, shares, behind) = ([q, k, v], weights.clone(), shares.clone(), between.last().copied());
        let turned = are_turned.then(|| b.clone());
        let found = Found { of, operands, added, mask, are_zeros, kept, turned, gone, softmax, shares, weights, behind, inside };
        (are_plain && !found.gone.contains(&work)).then_some(found)
    }

    /// What attention reads whose tensors lie so, and the works that make it.
    fn hidden(&self, works: &dyn Works, lies: [Lies; 4], before: WorkId) -> Option<Hidden> {
        let mut inputs: Vec<View> = self.operands.iter().map(|operand| operand.view.clone()).chain(self.added.clone()).collect();
        let (mut patch, mut seen) = (Patch::new(works), None);
        if let Some((mask, _)) = &self.mask {
            if !mask.is_of_rows(lies[if self.are_zeros { 3 } else { 0 }]) {
                return None;
            }
            let (with_mask, made) = mask.make(patch, before).ok()?;
            patch = with_mask;
            inputs.push(made.bias.clone());
            if !self.are_zeros {
                let ([q, ..], [sizes, ..]) = (&self.operands, self.of.sizes());
                let (kept, reads) = made.without_hidden(q, sizes).ok()?;
                let shape = reads.last()?.shape.clone();
                let bytes = shape.bytes(self.of.data_type).ok()?.0;
                let value = patch.value(bytes);
                patch = patch.add(before, kept, reads, vec![value]);
                inputs[0] = View { value, data_type: self.of.data_type, shape };
            }
            seen = Some(made);
        }
        if let Some(kept) = &self.kept {
            let (with_kept, made) = kept.make(patch, before).ok()?;
            patch = with_kept;
            inputs.push(made);
        }
        Some(Hidden { patch, inputs, seen })
    }

    /// Whether the works can be one with the last product, and values between have no reader but the next work.
    fn is_whole(&self, works: &dyn Works, work: WorkId, inner: &[WorkId]) -> bool {
        let are_alone = self.inside.iter().all(|value| works.readers(*value).len() == 1);
        let all = [self.shares.value, self.weights.value].into_iter().chain(self.inside.iter().copied());
        are_alone && all.into_iter().all(|value| !works.is_kept(value)) && inner.iter().all(|other| works.absorbs(work, *other))
    }
}

/// Examples and heads of scores.
fn examples(shape: &[u64], matrix: [u64; 2]) -> Option<[u64; 2]> {
    let (leading, last) = shape.split_at(shape.len().checked_sub(2)?);
    match *leading {
        _ if last != matrix => None,
        [] => Some([1, 1]),
        [batch] => Some([batch, 1]),
        [batch, heads] => Some([batch, heads]),
        _ => None,
    }
}

/// The sizes of what is added to scores, as those of examples, heads, rows and keys. None where there are more.
fn sizes_of_added(shape: &[u64], scores: &[u64]) -> Option<[u64; 4]> {
    let mut sizes = vec![1; scores.len().checked_sub(shape.len())?];
    sizes.extend(shape);
    match sizes[..] {
        [m, n] => Some([1, 1, m, n]),
        [a, m, n] => Some([a, 1, m, n]),
        [a, b, m, n] => Some([a, b, m, n]),
        _ => None,
    }
}
