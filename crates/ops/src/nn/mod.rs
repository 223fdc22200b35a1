//! Neural networks: activations, biases, softmax and losses.

use crate::OpRules;
use crate::fusion::Fusion;

pub mod activation;
pub mod avg_pool;
pub mod bias;
pub mod conv;
pub mod cross_entropy;
pub mod depthwise_conv2d;
pub mod dilation;
pub mod fake_quant;
pub mod fused_batch_norm;
pub mod in_top_k;
pub mod l2_loss;
mod layout;
pub mod lrn;
pub mod max_pool;
mod pooling;
pub mod quantize;
pub mod quantize_and_dequantize;
mod row_wise;
pub mod softmax;
pub mod top_k;
mod window;

pub(crate) use window::taken_over;

/// The fusions of this family, in the order in which they are tried.
pub const FUSIONS: &[&[Fusion]] = &[
    max_pool::FUSIONS,
    bias::FUSIONS,
    conv::FUSIONS,
    depthwise_conv2d::FUSIONS,
    fused_batch_norm::FUSIONS,
    softmax::FUSIONS,
    row_wise::FUSIONS,
];

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[
    activation::RULES,
    avg_pool::RULES,
    bias::RULES,
    conv::RULES,
    cross_entropy::RULES,
    depthwise_conv2d::RULES,
    dilation::RULES,
    fake_quant::RULES,
    fused_batch_norm::RULES,
    in_top_k::RULES,
    l2_loss::RULES,
    lrn::RULES,
    max_pool::RULES,
    quantize::RULES,
    quantize_and_dequantize::RULES,
    softmax::RULES,
    top_k::RULES,
];
