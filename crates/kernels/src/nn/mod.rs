//! Softmax and the cross entropies, row by row.
//!
//! As TensorFlow, the largest logit of a row is taken off before anything is raised to a power. Sums are taken in lanes and
//! blocks that the number of classes alone decides.

mod lanes;
mod softmax;
mod xent;

pub(crate) use softmax::softmax_in_place;
pub use softmax::{log_softmax, softmax};
pub use xent::{softmax_cross_entropy, sparse_softmax_cross_entropy};

#[cfg(test)]
mod tests;
