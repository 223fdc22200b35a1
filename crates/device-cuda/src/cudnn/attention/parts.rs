//! Attention as the graph of its parts: forward where shares drop out, for which cuDNN's one operation has no word, and the gradient.

use plimsoll_base::Result;
use plimsoll_request::scaled_attention::KeptShares;

use super::super::convolution::{data_type, said};
use super::super::descriptor::Descriptor;
use super::writing::{Shape, Writing, dense, sizes, turned};
use super::{
    ADD, AttentionPlan, BY_K, BY_Q, BY_V, FACTOR, GRADIENT, IDENTITY, K, KEPT, MULTIPLY, ONE, PRODUCTS_OF_ROWS, Q, RESULT, SCALE, SUMS,
    SUMS_OF_Q, V,
};

/// `cudnnPointwiseMode_t`.
const DIVIDE: i32 = 6;
const SUBTRACT: i32 = 9;
const EXPONENTIAL: i32 = 13;
const LOGARITHM: i32 = 15;

/// `cudnnReduceTensorOp_t`.
const SUM: i32 = 0;
const MAXIMUM: i32 = 3;

/// Operations so far.
struct Parts<'a> {
    writing: &'a Writing<'a>,
    /// The sizes of scores.
    scores: [i64; 4],
    operations: Vec<Descriptor>,
}

impl Parts<'_> {
    fn put(&mut self, operation: Result<Descriptor>) -> Result<()> {
        self.operations.push(operation?);
        Ok(())
    }

    /// Floats of the sizes of scores that an operation makes of two tensors.
    fn made(&mut self, mode: i32, from: &Descriptor, second: Option<&Descriptor>) -> Result<Descriptor> {
        let to = self.writing.between(self.scores)?;
        self.put(self.writing.on_each(mode, from, second, &to))?;
        Ok(to)
    }

    /// What a reduction makes of each row.
    fn reduced(&mut self, operator: i32, from: &Descriptor, of_rows: [i64; 4]) -> Result<Descriptor> {
        let to = self.writing.between(of_rows)?;
        self.put(self.writing.reduced(operator, from, &to))?;
        Ok(to)
    }

    /// Products of that size, in floats.
    fn product(&mut self, a: &Descriptor, b: &Descriptor) -> Result<Descriptor> {
        let to = self.writing.between(self.scores)?;
        self.put(self.writing.product(a, b, &to))?;
        Ok(to)
    }

    /// Scores or their like, rounded, with keys as rows.
    fn by_keys(&mut self, from: &Descriptor) -> Result<Descriptor> {
        let (_, to) = self.writing.named(turned(self.scores), turned(dense(self.scores)), self.writing.of)?;
        self.put(self.writing.seen(from, &to))?;
        Ok(to)
    }

    /// The products of Q and K, multiplied, and what is added to them.
    fn scores(&mut self, [q, k]: [&Descriptor; 2], scale: &Descriptor, bias: Option<&Descriptor>) -> Result<Descriptor> {
        let bare = self.product(q, k)?;
        let scaled = self.made(MULTIPLY, &bare, Some(scale))?;
        match bias {
            Some(bias) => self.made(ADD, &scaled, Some(bias)),
            None => Ok(scaled),
        }
    }

    /// Shares or their gradient, without those that drop out.
    fn without(&mut self, from: &Descriptor, [tensor, factor]: &[Descriptor; 2]) -> Result<Descriptor> {
        let without = self.made(MULTIPLY, from, Some(tensor))?;
        self.made(MULTIPLY, &without, Some(factor))
    }
}

/// A matrix that is read transposed.
fn transposed(writing: &Writing<'_>, name: i64, (sizes, strides): Shape) -> Result<Descriptor> {
    writing.there(name, (turned(sizes), turned(strides)))
}

/// The tensor and the number by which shares are multiplied.
fn factors(writing: &Writing<'_>, KeptShares { data_type: of, sizes: all, .. }: KeptShares) -> Result<[Descriptor; 2]> {
    let all = sizes(all)?;
    let tensor = writing.tensor((KEPT, false), all, dense(all), data_type(of)?)?;
    Ok([tensor, said(writing.cudnn, FACTOR, 4)?])
}

impl AttentionPlan {
    /// Each row's maximum, exponentials and their sum, the shares of these, and the product with V.
    pub(super) fn forward_by_parts(&self, writing: &Writing<'_>, kept: KeptShares) -> Result<Vec<Descriptor>> {
        let [of_q, of_k, of_v, of_result] = self.shapes()?;
        let of_rows = sizes(self.of.of_sums())?;
        let mut parts = Parts { writing, scores: sizes(self.of.scores())?, operations: Vec::new() };
        let (q, k) = (writing.there(Q, of_q)?, transposed(writing, K, of_k)?);
        let (bias, [tensor, factor]) = (self.bias(writing)?, factors(writing, kept)?);
        let scores = parts.scores([&q, &k], &said(writing.cudnn, SCALE, 4)?, bias.as_ref())?;
        let most = parts.reduced(MAXIMUM, &scores, of_rows)?;
        let below = parts.made(SUBTRACT, &scores, Some(&most))?;
        let exponential = parts.made(EXPONENTIAL, &below, None)?;
        let sum = parts.reduced(SUM, &exponential, of_rows)?;
        let logarithm = writing.between(of_rows)?;
        parts.put(writing.on_each(LOGARITHM, &sum, None, &logarithm))?;
        parts.put(writing.on_each(ADD, &most, Some(&logarithm), &writing.floats(SUMS, of_rows)?))?;
        let share = parts.made(DIVIDE, &exponential, Some(&sum))?;
        let without = parts.made(MULTIPLY, &share, Some(&tensor))?;
        let (_, rounded) = writing.named(parts.scores, dense(parts.scores), writing.of)?;
        parts.put(writing.on_each(MULTIPLY, &without, Some(&factor), &rounded))?;
        parts.put(writing.product(&rounded, &writing.there(V, of_v)?, &writing.there(RESULT, of_result)?))?;
        Ok(parts.operations)
    }

    /// Each row's sum of the gradient's products with the result, the shares anew from the logarithms, and five products.
    pub(super) fn gradient(&self, writing: &Writing<'_>) -> Result<Vec<Descriptor>> {
        let [of_q, of_k, of_v, of_result] = self.shapes()?;
        let of_rows = sizes(self.of.of_sums())?;
        let mut parts = Parts { writing, scores: sizes(self.of.scores())?, operations: Vec::new() };
        let (q, k, v) = (writing.there(Q, of_q)?, transposed(writing, K, of_k)?, transposed(writing, V, of_v)?);
        let (result, gradient) = (writing.there(RESULT, of_result)?, writing.there(GRADIENT, of_result)?);
        let [scale, one] = [said(writing.cudnn, SCALE, 4)?, said(writing.cudnn, ONE, 4)?];
        let (bias, kept) = (self.bias(writing)?, self.of.kept.map(|kept| factors(writing, kept)).transpose()?);

        let products = writing.between(of_result.0)?;
        parts.put(writing.on_each(MULTIPLY, &gradient, Some(&result), &products))?;
        let summed = parts.reduced(SUM, &products, of_rows)?;
        let of_row = writing.floats(PRODUCTS_OF_ROWS, of_rows)?;
        parts.put(writing.on_each(MULTIPLY, &summed, Some(&one), &of_row))?;

        let score = parts.scores([&q, &k], &scale, bias.as_ref())?;
        let below = parts.made(SUBTRACT, &score, Some(&writing.floats(SUMS, of_rows)?))?;
        let share = parts.made(EXPONENTIAL, &below, None)?;
        let weight = kept.as_ref().map(|kept| parts.without(&share, kept)).transpose()?;
        let rounded = parts.by_keys(weight.as_ref().unwrap_or(&share))?;
        parts.put(writing.product(&rounded, &gradient, &writing.there(BY_V, of_v)?))?;

        let of_weight = parts.product(&gradient, &v)?;
        let of_share = kept.as_ref().map(|kept| parts.without(&of_weight, kept)).transpose()?;
        let moved = parts.made(SUBTRACT, of_share.as_ref().unwrap_or(&of_weight), Some(&of_row))?;
        let of_score = parts.made(MULTIPLY, &moved, Some(&share))?;
        let scaled = parts.made(MULTIPLY, &of_score, Some(&scale))?;
        let rounded = parts.by_keys(&scaled)?;
        parts.put(writing.product(&rounded, &q, &writing.there(BY_K, of_k)?))?;
        let (_, keys) = writing.named(of_k.0, of_k.1, writing.of)?;
        let sums = writing.floats(SUMS_OF_Q, of_q.0)?;
        parts.put(writing.seen(&k, &keys))?;
        parts.put(writing.product(&scaled, &keys, &sums))?;
        parts.put(writing.on_each(IDENTITY, &sums, None, &writing.there(BY_Q, of_q)?))?;
        Ok(parts.operations)
    }
}
