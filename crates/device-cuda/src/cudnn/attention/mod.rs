//! Attention and its gradient as cuDNN has them.
//!
//! Attention is one operation of cuDNN. What is added to scores is a graph of its own in it. Where shares drop out, it is the graph of its parts.
//! So is the gradient, for which cuDNN 9.26 has no engine where it is one operation. Such a graph is found as a whole. Sums for the gradient by Q
//! are floats in memory. Blocks of keys add to these in any order, unless a knob of the engine has them wait for each other.
//!
//! cuDNN 9.26 takes what is kept of shares as floats or narrow floats. It ends the program when it plans with truths, bytes or smaller floats.

mod parts;
mod writing;

use std::sync::Arc;

use plimsoll_base::Result;
use plimsoll_request::scaled_attention::{ScaledAttention, ScoreBias};

use self::writing::{FLOAT, Shape, Writing, dense, sizes};
use super::convolution::{data_type, said};
use super::descriptor::Descriptor;
use super::raw::{Functions, attribute, kind};

/// A graph of attention, or of its gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionPlan {
    /// What it is.
    pub of: ScaledAttention,
    /// Whether the gradients are computed.
    pub is_gradient: bool,
}

/// The numbers of the tensors of a graph.
const Q: i64 = 1;
const K: i64 = 2;
const V: i64 = 3;
const RESULT: i64 = 4;
const BIAS: i64 = 5;
const SUMS: i64 = 6;
const SCALE: i64 = 7;
const GRADIENT: i64 = 8;
const BY_Q: i64 = 9;
const BY_K: i64 = 10;
const BY_V: i64 = 11;
const ONE: i64 = 12;
const PRODUCTS_OF_ROWS: i64 = 13;
const SUMS_OF_Q: i64 = 14;
const KEPT: i64 = 15;
const FACTOR: i64 = 16;
const BETWEEN: i64 = 17;

/// `cudnnPointwiseMode_t`.
const ADD: i32 = 0;
const MULTIPLY: i32 = 1;
const IDENTITY: i32 = 21;

/// `CUDNN_KNOB_TYPE_STAGES`, by which blocks of keys add to the gradient by Q in their order: 9.25 and later, on capability 9.0.
const IN_ORDER: (i32, i64) = (14, 4);

impl AttentionPlan {
    /// The knob without which blocks add in any order.
    pub(super) fn ordered(&self) -> Option<(i32, i64)> {
        self.is_gradient.then_some(IN_ORDER)
    }

    /// Bytes of floats that the gradient has in memory: each row's sum of products, and sums for the gradient by Q.
    pub fn scratch(&self) -> Vec<u64> {
        let ScaledAttention { batch, heads, rows, width, .. } = self.of;
        let bytes = |width: u64| [heads, rows, width, 4].into_iter().fold(batch, u64::saturating_mul);
        if self.is_gradient { vec![bytes(1), bytes(width)] } else { Vec::new() }
    }

    /// The numbers of the tensors that are in memory: the request's arguments, then those of [`AttentionPlan::scratch`].
    pub(super) fn names(&self) -> Vec<i64> {
        let first = [Q, K, V].into_iter().chain(self.of.bias.map(|_| BIAS)).chain(self.of.kept.map(|_| KEPT));
        match self.is_gradient {
            true => first.chain([RESULT, SUMS, GRADIENT, BY_Q, BY_K, BY_V, PRODUCTS_OF_ROWS, SUMS_OF_Q]).collect(),
            false => first.chain([RESULT]).chain(self.of.sums.then_some(SUMS)).collect(),
        }
    }

    pub(super) fn said(&self) -> Vec<(i64, f32)> {
        let kept = self.of.kept.map(|kept| (FACTOR, kept.factor));
        [(SCALE, self.of.scale)].into_iter().chain(self.is_gradient.then_some((ONE, 1.0))).chain(kept).collect()
    }

    /// The graph; for the card of a handle, if one is given.
    ///
    /// # Errors
    /// UNIMPLEMENTED for what cuDNN has no words for; cuDNN's refusal.
    pub(super) fn graph(&self, cudnn: &Arc<Functions>, handle: Option<u64>) -> Result<Descriptor> {
        let writing = Writing { cudnn, of: data_type(self.of.data_type)?, next: BETWEEN.into() };
        let operations = match self.of.kept {
            _ if self.is_gradient => self.gradient(&writing)?,
            Some(kept) => self.forward_by_parts(&writing, kept)?,
            None => vec![self.forward(&writing)?],
        };
        writing.graph(&operations, handle)
    }

    /// Q, K, V and the result as they lie.
    fn shapes(&self) -> Result<[Shape; 4]> {
        let (all, distances) = (self.of.sizes(), self.of.distances());
        let [q, k, v, result]: [Result<Shape>; 4] = std::array::from_fn(|at| Ok((sizes(all[at])?, sizes(distances[at])?)));
        Ok([q?, k?, v?, result?])
    }

    fn bias(&self, writing: &Writing<'_>) -> Result<Option<Descriptor>> {
        let Some(ScoreBias { data_type: of, sizes: all }) = self.of.bias else { return Ok(None) };
        let all = sizes(all)?;
        writing.tensor((BIAS, false), all, dense(all), data_type(of)?).map(Some)
    }

    fn forward(&self, writing: &Writing<'_>) -> Result<Descriptor> {
        let [q, k, v, result] = self.shapes()?;
        let operation = Descriptor::new(writing.cudnn, kind::ATTENTION, "attention")?;
        let tensors = [(attribute::ATTENTION_Q, Q, q), (attribute::ATTENTION_K, K, k), (attribute::ATTENTION_V, V, v)];
        for (at, name, all) in tensors.into_iter().chain([(attribute::ATTENTION_RESULT, RESULT, result)]) {
            operation.descriptors(at, &[&writing.there(name, all)?])?;
        }
        operation.descriptors(attribute::ATTENTION_SCALE, &[&said(writing.cudnn, SCALE, 4)?])?;
        if self.of.sums {
            operation.descriptors(attribute::ATTENTION_SUMS, &[&writing.floats(SUMS, sizes(self.of.of_sums())?)?])?;
        }
        if let Some(bias) = self.bias(writing)? {
            let scores = sizes(self.of.scores())?;
            let [(from, scaled), (to, moved)] =
                [writing.named(scores, dense(scores), FLOAT)?, writing.named(scores, dense(scores), FLOAT)?];
            let graph = writing.graph(&[writing.on_each(ADD, &scaled, Some(&bias), &moved)?], None)?;
            operation.descriptors(attribute::ATTENTION_GRAPH, &[&graph])?;
            operation.integers(attribute::ATTENTION_GRAPH_FROM, &[from])?;
            operation.integers(attribute::ATTENTION_GRAPH_TO, &[to])?;
        }
        operation.finish("attention")
    }
}
