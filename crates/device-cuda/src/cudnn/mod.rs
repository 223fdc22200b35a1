//! cuDNN: which engines it has for a convolution or attention on a card, with the bytes of workspace that each needs, and what they compute.
//!
//! [`Planner`] needs no card: cuDNN 9.8 and later plan from a card's properties as JSON. What it says is a function of the graph, the
//! properties and its version, as far as was tried on processors. On a card it may say otherwise (`bench/gpu/check.sh` asks), so a plan names
//! the engine that it was made with ([`EngineName`]), and the card builds that one ([`Cudnn`]).

mod attention;
mod card;
mod convolution;
mod descriptor;
mod engine;
mod graph;
mod planner;
mod raw;

pub use attention::AttentionPlan;
pub(crate) use card::{Cudnn, ReadyConvolution};
pub use convolution::{ConvolutionKind, ConvolutionPlan, Finish, Lying};
pub use engine::{Engine, EngineLimits, EngineName};
pub use graph::GraphPlan;
pub use planner::{PlanFor, Planner};
