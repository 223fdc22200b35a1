//! cuDNN's planner: which engines it has for a convolution on a card, in its order, with the bytes of workspace that each needs.
//!
//! It needs no card: cuDNN 9.8 and later plan from a card's properties as JSON. What it says is a function of the graph, the properties
//! and its version, as far as was tried on processors; `bench/gpu/check.sh` asks on a card whether that says the same. Nothing is
//! computed by cuDNN yet: cards convolve with generated kernels ([`crate::emit`]).

mod convolution;
mod descriptor;
mod planner;
mod raw;

pub use convolution::{ConvolutionKind, ConvolutionPlan};
pub use planner::{Engine, PlanFor, Planner};
