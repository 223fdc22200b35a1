//! Neural networks: activations, biases, softmax and losses.

use crate::OpRules;

pub mod activation;
pub mod bias;
pub mod cross_entropy;
pub mod in_top_k;
pub mod l2_loss;
pub mod softmax;

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[activation::RULES, bias::RULES, cross_entropy::RULES, in_top_k::RULES, l2_loss::RULES, softmax::RULES];
