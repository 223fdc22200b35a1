//! Attention and its gradient as cuDNN has them.
//!
//! Attention is one operation of cuDNN. What is added to scores is a graph of its own in it. For the gradient cuDNN 9.26 has no engine where it is
//! one operation; it has some for the graph of its parts, which is found as a whole: each row's sum of the gradient's products with the result,
//! the shares anew from the logarithms of the sums, and five products. Sums for the gradient by Q are floats in memory. Blocks of keys add to
//! these in any order, unless a knob of the engine has them wait for each other.

use std::sync::Arc;

use plimsoll_base::Result;
use plimsoll_request::scaled_attention::{ScaledAttention, ScoreBias};

use super::convolution::{ALIGNMENT, data_type, numbers, pointwise, said};
use super::descriptor::Descriptor;
use super::raw::{Functions, attribute, element, kind};

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
const BETWEEN: i64 = 15;

/// `cudnnPointwiseMode_t`.
const ADD: i32 = 0;
const MULTIPLY: i32 = 1;
const SUBTRACT: i32 = 9;
const EXPONENTIAL: i32 = 13;
const IDENTITY: i32 = 21;
/// `CUDNN_REDUCE_TENSOR_ADD`.
const SUM: i32 = 0;

/// `CUDNN_KNOB_TYPE_STAGES`, by which blocks of keys add to the gradient by Q in their order: 9.25 and later, on capability 9.0.
const IN_ORDER: (i32, i64) = (14, 4);

/// The distances of elements of a dense tensor.
fn dense([_, b, c, d]: [i64; 4]) -> [i64; 4] {
    [b * c * d, c * d, d, 1]
}

/// Sizes or distances of matrices that are seen transposed.
fn turned([a, b, c, d]: [i64; 4]) -> [i64; 4] {
    [a, b, d, c]
}

fn sizes(sizes: [u64; 4]) -> Result<[i64; 4]> {
    let all = numbers(sizes)?;
    Ok([all[0], all[1], all[2], all[3]])
}

/// The sizes of a tensor in memory, and the distances along them.
type Shape = ([i64; 4], [i64; 4]);

/// A graph that is written.
struct Writing<'a> {
    cudnn: &'a Arc<Functions>,
    /// `cudnnDataType_t` of the elements in memory; sums are floats.
    of: i32,
    /// The number of the next value that is never in memory.
    next: std::cell::Cell<i64>,
}

const FLOAT: i32 = 0;

impl Writing<'_> {
    fn tensor(&self, (name, is_virtual): (i64, bool), sizes: [i64; 4], strides: [i64; 4], of: i32) -> Result<Descriptor> {
        let tensor = Descriptor::new(self.cudnn, kind::TENSOR, "a tensor")?;
        tensor.number(attribute::TENSOR_TYPE, element::DATA_TYPE, of)?;
        tensor.integers(attribute::TENSOR_SIZES, &sizes)?;
        tensor.integers(attribute::TENSOR_STRIDES, &strides)?;
        tensor.integers(attribute::TENSOR_NAME, &[name])?;
        tensor.integers(attribute::TENSOR_ALIGNMENT, &[ALIGNMENT])?;
        tensor.bool(attribute::TENSOR_IS_VIRTUAL, is_virtual)?;
        tensor.finish("a tensor")
    }

    /// A tensor in memory.
    fn there(&self, name: i64, (sizes, strides): Shape) -> Result<Descriptor> {
        self.tensor((name, false), sizes, strides, self.of)
    }

    /// Floats in memory.
    fn floats(&self, name: i64, sizes: [i64; 4]) -> Result<Descriptor> {
        self.tensor((name, false), sizes, dense(sizes), FLOAT)
    }

    /// A value between: its number, and it.
    fn named(&self, sizes: [i64; 4], strides: [i64; 4], of: i32) -> Result<(i64, Descriptor)> {
        let name = self.next.replace(self.next.get() + 1);
        Ok((name, self.tensor((name, true), sizes, strides, of)?))
    }

    /// Floats between.
    fn between(&self, sizes: [i64; 4]) -> Result<Descriptor> {
        self.named(sizes, dense(sizes), FLOAT).map(|(_, tensor)| tensor)
    }

    fn on_each(&self, mode: i32, from: &Descriptor, second: Option<&Descriptor>, to: &Descriptor) -> Result<Descriptor> {
        pointwise(self.cudnn, mode, [Some(from), second, None], to)
    }

    fn product(&self, a: &Descriptor, b: &Descriptor, to: &Descriptor) -> Result<Descriptor> {
        let what = "a product";
        let product = Descriptor::new(self.cudnn, kind::PRODUCT, what)?;
        product.number(attribute::PRODUCT_TYPE, element::DATA_TYPE, FLOAT)?;
        let product = product.finish(what)?;
        let operation = Descriptor::new(self.cudnn, kind::MULTIPLIED, what)?;
        for (at, tensor) in [(attribute::PRODUCT_A, a), (attribute::PRODUCT_B, b), (attribute::PRODUCT_TO, to)] {
            operation.descriptors(at, &[tensor])?;
        }
        operation.descriptors(attribute::PRODUCT_OF, &[&product])?;
        operation.finish(what)
    }

    /// The sums of rows.
    fn sums(&self, from: &Descriptor, to: &Descriptor) -> Result<Descriptor> {
        let what = "sums";
        let sum = Descriptor::new(self.cudnn, kind::REDUCTION, what)?;
        sum.number(attribute::REDUCTION_OPERATOR, element::REDUCTION_OPERATOR, SUM)?;
        sum.number(attribute::REDUCTION_TYPE, element::DATA_TYPE, FLOAT)?;
        let sum = sum.finish(what)?;
        let operation = Descriptor::new(self.cudnn, kind::REDUCED, what)?;
        operation.descriptors(attribute::REDUCED_FROM, &[from])?;
        operation.descriptors(attribute::REDUCED_TO, &[to])?;
        operation.descriptors(attribute::REDUCED_BY, &[&sum])?;
        operation.finish(what)
    }

    /// The same elements, seen as another tensor.
    fn seen(&self, from: &Descriptor, to: &Descriptor) -> Result<Descriptor> {
        let operation = Descriptor::new(self.cudnn, kind::SEEN, "a tensor seen otherwise")?;
        operation.descriptors(attribute::SEEN_FROM, &[from])?;
        operation.descriptors(attribute::SEEN_TO, &[to])?;
        operation.finish("a tensor seen otherwise")
    }

    fn graph(&self, operations: &[Descriptor], handle: Option<u64>) -> Result<Descriptor> {
        let graph = Descriptor::new(self.cudnn, kind::GRAPH, "a graph")?;
        graph.descriptors(attribute::GRAPH_OPERATIONS, &operations.iter().collect::<Vec<_>>())?;
        if let Some(handle) = handle {
            graph.addresses(attribute::GRAPH_HANDLE, element::HANDLE, &[handle])?;
        }
        graph.finish("a graph of attention")
    }
}

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
        let first = [Q, K, V].into_iter().chain(self.of.bias.map(|_| BIAS));
        match self.is_gradient {
            true => first.chain([RESULT, SUMS, GRADIENT, BY_Q, BY_K, BY_V, PRODUCTS_OF_ROWS, SUMS_OF_Q]).collect(),
            false => first.chain([RESULT]).chain(self.of.sums.then_some(SUMS)).collect(),
        }
    }

    pub(super) fn said(&self) -> Vec<(i64, f32)> {
        [(SCALE, self.of.scale)].into_iter().chain(self.is_gradient.then_some((ONE, 1.0))).collect()
    }

    /// The graph; for the card of a handle, if one is given.
    ///
    /// # Errors
    /// UNIMPLEMENTED for what cuDNN has no words for; cuDNN's refusal.
    pub(super) fn graph(&self, cudnn: &Arc<Functions>, handle: Option<u64>) -> Result<Descriptor> {
        let writing = Writing { cudnn, of: data_type(self.of.data_type)?, next: BETWEEN.into() };
        let operations = if self.is_gradient { self.gradient(&writing)? } else { vec![self.forward(&writing)?] };
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

    fn gradient(&self, writing: &Writing<'_>) -> Result<Vec<Descriptor>> {
        let [of_q, of_k, of_v, of_result] = self.shapes()?;
        let (scores, of_rows) = (sizes(self.of.scores())?, sizes(self.of.of_sums())?);
        let transposed = |name, (sizes, strides): Shape| writing.there(name, (turned(sizes), turned(strides)));
        let (q, k, v) = (writing.there(Q, of_q)?, transposed(K, of_k)?, transposed(V, of_v)?);
        let (result, gradient) = (writing.there(RESULT, of_result)?, writing.there(GRADIENT, of_result)?);
        let [scale, one] = [said(writing.cudnn, SCALE, 4)?, said(writing.cudnn, ONE, 4)?];
        let between = || writing.between(scores);
        // Scores and their like, rounded, with keys as rows.
        let by_keys = || writing.named(turned(scores), turned(dense(scores)), writing.of).map(|(_, tensor)| tensor);
        let mut operations = Vec::new();

        let (products, summed) = (writing.between(of_result.0)?, writing.between(of_rows)?);
        let of_row = writing.floats(PRODUCTS_OF_ROWS, of_rows)?;
        operations.push(writing.on_each(MULTIPLY, &gradient, Some(&result), &products)?);
        operations.push(writing.sums(&products, &summed)?);
        operations.push(writing.on_each(MULTIPLY, &summed, Some(&one), &of_row)?);

        let (bare, mut score) = (between()?, between()?);
        operations.push(writing.product(&q, &k, &bare)?);
        operations.push(writing.on_each(MULTIPLY, &bare, Some(&scale), &score)?);
        if let Some(bias) = self.bias(writing)? {
            let moved = between()?;
            operations.push(writing.on_each(ADD, &score, Some(&bias), &moved)?);
            score = moved;
        }
        let (below, share) = (between()?, between()?);
        operations.push(writing.on_each(SUBTRACT, &score, Some(&writing.floats(SUMS, of_rows)?), &below)?);
        operations.push(writing.on_each(EXPONENTIAL, &below, None, &share)?);
        let rounded = by_keys()?;
        operations.push(writing.seen(&share, &rounded)?);
        operations.push(writing.product(&rounded, &gradient, &writing.there(BY_V, of_v)?)?);

        let [of_share, moved, of_score, scaled] = [between()?, between()?, between()?, between()?];
        operations.push(writing.product(&gradient, &v, &of_share)?);
        operations.push(writing.on_each(SUBTRACT, &of_share, Some(&of_row), &moved)?);
        operations.push(writing.on_each(MULTIPLY, &moved, Some(&share), &of_score)?);
        operations.push(writing.on_each(MULTIPLY, &of_score, Some(&scale), &scaled)?);
        let rounded = by_keys()?;
        operations.push(writing.seen(&scaled, &rounded)?);
        operations.push(writing.product(&rounded, &q, &writing.there(BY_K, of_k)?)?);
        let (_, keys) = writing.named(of_k.0, of_k.1, writing.of)?;
        let sums = writing.floats(SUMS_OF_Q, of_q.0)?;
        operations.push(writing.seen(&k, &keys)?);
        operations.push(writing.product(&scaled, &keys, &sums)?);
        operations.push(writing.on_each(IDENTITY, &sums, None, &writing.there(BY_Q, of_q)?)?);
        Ok(operations)
    }
}
