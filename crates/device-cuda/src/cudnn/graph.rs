//! The graphs that engines compute.

use std::sync::Arc;

use plimsoll_base::{DataType, Result};

use super::attention::AttentionPlan;
use super::convolution::{ConvolutionKind, ConvolutionPlan, Finish};
use super::descriptor::Descriptor;
use super::raw::Functions;

/// What an engine computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GraphPlan {
    /// A convolution, and what is behind it.
    Convolution(ConvolutionPlan),
    /// Attention, or its gradient.
    Attention(AttentionPlan),
}

impl From<&ConvolutionPlan> for GraphPlan {
    fn from(plan: &ConvolutionPlan) -> GraphPlan {
        GraphPlan::Convolution(*plan)
    }
}

impl From<&AttentionPlan> for GraphPlan {
    fn from(plan: &AttentionPlan) -> GraphPlan {
        GraphPlan::Attention(*plan)
    }
}

impl From<&GraphPlan> for GraphPlan {
    fn from(plan: &GraphPlan) -> GraphPlan {
        *plan
    }
}

impl GraphPlan {
    /// The type of the elements.
    pub fn data_type(&self) -> DataType {
        match self {
            GraphPlan::Convolution(plan) => plan.spec.data_type,
            GraphPlan::Attention(plan) => plan.of.data_type,
        }
    }

    /// What it is, for errors.
    pub(super) fn what(&self) -> &'static str {
        match self {
            GraphPlan::Convolution(_) => "a convolution",
            GraphPlan::Attention(AttentionPlan { is_gradient: false, .. }) => "attention",
            GraphPlan::Attention(_) => "the gradient of attention",
        }
    }

    /// What is behind a convolution.
    pub(super) fn finish(&self) -> Finish {
        match self {
            GraphPlan::Convolution(plan) => plan.finish,
            GraphPlan::Attention(_) => Finish::NONE,
        }
    }

    /// A knob that engines need beside those that cuDNN turns by itself, so that they give the same bits each time.
    pub(super) fn ordered(&self) -> Option<(i32, i64)> {
        match self {
            GraphPlan::Convolution(_) => None,
            GraphPlan::Attention(plan) => plan.ordered(),
        }
    }

    /// Whether an engine has other values, without a note of cuDNN that says so. `bench/gpu/check.sh` found which: cuDNN 9.19 on an H200. Of
    /// gradients by the filter, engine 17 rounds more than sums, and engine 1 reads behind images that are padded unevenly.
    pub(super) fn has_other_values(&self, index: i64) -> bool {
        let GraphPlan::Convolution(plan) = self else { return false };
        plan.kind == ConvolutionKind::ByFilter && (index == 17 || index == 1 && plan.pads_unevenly())
    }

    /// The numbers of the tensors that are in memory, in the order in which addresses come.
    pub(super) fn names(&self) -> Vec<i64> {
        match self {
            GraphPlan::Convolution(plan) => plan.names(),
            GraphPlan::Attention(plan) => plan.names(),
        }
    }

    /// The numbers of floats that are said beside the addresses, and these.
    pub(super) fn said(&self) -> Vec<(i64, f32)> {
        match self {
            GraphPlan::Convolution(plan) => plan.said().to_vec(),
            GraphPlan::Attention(plan) => plan.said(),
        }
    }

    /// The graph; for the card of a handle, if one is given.
    ///
    /// # Errors
    /// UNIMPLEMENTED for what cuDNN has no words for; cuDNN's refusal.
    pub(super) fn graph(&self, cudnn: &Arc<Functions>, handle: Option<u64>) -> Result<Descriptor> {
        match self {
            GraphPlan::Convolution(plan) => plan.graph(cudnn, handle),
            GraphPlan::Attention(plan) => plan.graph(cudnn, handle),
        }
    }
}
