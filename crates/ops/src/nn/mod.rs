//! Neural networks: activations, biases, softmax and losses.

use crate::OpRules;

pub mod activation;
pub mod avg_pool;
pub mod bias;
pub mod conv;
pub mod cross_entropy;
pub mod depthwise_conv2d;
pub mod fused_batch_norm;
pub mod in_top_k;
pub mod l2_loss;
pub mod lrn;
pub mod max_pool;
mod pooling;
pub mod softmax;
mod window;

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[
    activation::RULES,
    avg_pool::RULES,
    bias::RULES,
    conv::RULES,
    cross_entropy::RULES,
    depthwise_conv2d::RULES,
    fused_batch_norm::RULES,
    in_top_k::RULES,
    l2_loss::RULES,
    lrn::RULES,
    max_pool::RULES,
    softmax::RULES,
];
