//! Attention by engines of cuDNN.
//!
//! Such a request has one variant, that of the engine, where one is there and its parts are not predicted to be faster. No kernel of this crate
//! computes it: without an engine the parts stay what they are.

use plimsoll_base::Result;
use plimsoll_device::{Class, Cost, DeviceSpec, Load, Variant};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::product::ProductSpec;
use plimsoll_request::scaled_attention::ScaledAttention;

use crate::cudnn::{AttentionPlan, Engine, EngineLimits, EngineName, Finish, GraphPlan};
use crate::emit::{Convolution, Emitted, KernelArg};
use crate::form::moved_seconds;
use crate::source::variant_of;

/// Operations a second as a part of the card's peak of single precision, forward and of the gradient, and seconds of a call. No card has
/// run these engines: guesses, below what tensor cores come to in products.
const FORWARD: (f64, f64) = (5.0, 6e-6);
const GRADIENT: (f64, f64) = (2.5, 18e-6);

/// Columns of Q, K and V are a multiple of this: 16 bytes.
const COLUMNS: u64 = 8;

/// Bytes of each score that the parts read and write at least beside the products: its softmax, or that one's gradient.
const OF_SCORE: f64 = 8.0;
const OF_GRADIENT: f64 = 12.0;

/// Bytes of each share, or of its gradient, that are read and written once more where some drop out.
const OF_KEPT: f64 = 4.0;

/// A request that is attention, or its gradient.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attending {
    of: ScaledAttention,
    is_gradient: bool,
}

impl Attending {
    /// None for other requests, and for sizes that make no sense.
    pub fn of(request: &KernelRequest) -> Option<Attending> {
        let (of, is_gradient) = match request {
            KernelRequest::ScaledAttention(of) => (*of, false),
            KernelRequest::ScaledAttentionGrad(of) => (*of, true),
            _ => return None,
        };
        request.arguments().is_ok().then_some(Attending { of, is_gradient })
    }

    /// The graph.
    pub fn plan(&self) -> AttentionPlan {
        AttentionPlan { of: self.of, is_gradient: self.is_gradient }
    }

    /// Whether engines take such columns, and there is something to compute.
    pub fn may_be_computed(&self) -> bool {
        let ScaledAttention { batch, heads, rows, keys, width, value_width, .. } = self.of;
        let are_wide = [width, value_width].iter().all(|columns| columns.is_multiple_of(COLUMNS));
        are_wide && ![batch, heads, rows, keys, width, value_width].contains(&0)
    }

    /// Whether an engine of such a name may be one of the graph's.
    pub fn is_of(&self, engine: &EngineName) -> bool {
        self.may_be_computed() && !engine.padded && engine.finish == Finish::NONE
    }

    /// Operations of products: two forward; the gradient computes scores anew, and four more.
    fn operations(&self) -> f64 {
        let ScaledAttention { batch, heads, rows, keys, width, value_width, .. } = self.of;
        let [scores, width, value_width] = [batch * heads, width, value_width].map(|size| size as f64);
        let scores = scores * rows as f64 * keys as f64;
        2.0 * scores * if self.is_gradient { 3.0 * width + 2.0 * value_width } else { width + value_width }
    }

    fn cost(&self) -> Cost {
        let request = self.request();
        let bytes =
            request.arguments().map_or(0.0, |arguments| arguments.inputs.iter().chain(&arguments.outputs).map(|bytes| *bytes as f64).sum());
        let scratch: f64 = self.plan().scratch().iter().map(|bytes| *bytes as f64).sum();
        Cost { flops: self.operations(), bytes: bytes + 2.0 * scratch }
    }

    fn request(&self) -> KernelRequest {
        if self.is_gradient { KernelRequest::ScaledAttentionGrad(self.of) } else { KernelRequest::ScaledAttention(self.of) }
    }

    /// The predicted seconds of an engine.
    pub fn engine_seconds(&self, spec: &DeviceSpec, engine: &Engine) -> f64 {
        let (part, call) = if self.is_gradient { GRADIENT } else { FORWARD };
        let Cost { flops, bytes } = self.cost();
        let bytes = bytes + 2.0 * engine.name.workspace.0 as f64;
        call + (flops / (part * spec.flops)).max(bytes / (DeviceSpec::REACHED * spec.bandwidth))
    }

    /// The products in whose place the engine is.
    pub fn parts(&self) -> Vec<KernelRequest> {
        let ScaledAttention { data_type, batch, heads, rows, keys, width, value_width, .. } = self.of;
        let part = |[m, n, k]: [u64; 3], transpose_a, transpose_b| {
            let spec = ProductSpec { m, n, k, transpose_a, transpose_b, batch: batch * heads, places: None };
            KernelRequest::Anchor { anchor: Anchor::Product(data_type, spec), epilogue: None, pooling: None }
        };
        match self.is_gradient {
            false => vec![part([rows, keys, width], false, true), part([rows, value_width, keys], false, false)],
            true => vec![
                part([rows, keys, value_width], false, true),
                part([keys, value_width, rows], true, false),
                part([rows, width, keys], false, false),
                part([keys, width, rows], true, false),
            ],
        }
    }

    /// The predicted seconds of what is between these, at least.
    pub fn moved_seconds(&self, spec: &DeviceSpec) -> f64 {
        let scores = self.of.scores().into_iter().map(|size| size as f64).product::<f64>();
        let of_kept = if self.of.kept.is_some() { OF_KEPT } else { 0.0 };
        moved_seconds(spec, scores * (of_kept + if self.is_gradient { OF_GRADIENT } else { OF_SCORE }))
    }

    /// What runs: the engine, on the request's arguments and scratch.
    pub fn emitted(&self, engine: &EngineName, limits: EngineLimits) -> Emitted {
        let plan = self.plan();
        let scratch = plan.scratch();
        let added = u32::from(self.of.bias.is_some()) + u32::from(self.of.kept.is_some());
        let arguments = if self.is_gradient { 9 + added } else { 4 + added + u32::from(self.of.sums) };
        let further = (1..=scratch.len() as u32).map(KernelArg::Between);
        let tensors = (0..arguments).map(KernelArg::Argument).chain(further).collect();
        let between = [engine.workspace.0].into_iter().chain(scratch).collect();
        let (plan, workspace) = (GraphPlan::from(&plan), KernelArg::Between(0));
        Emitted {
            convolution: Some(Convolution { plan, engine: engine.clone(), limits, tensors, workspace }),
            between,
            ..Emitted::default()
        }
    }

    /// The variant of an engine.
    ///
    /// # Errors
    /// As [`variant_of`].
    pub fn variant(&self, engine: &EngineName, limits: EngineLimits, seconds: Option<f64>) -> Result<Variant> {
        let cost = self.cost();
        let load = Load { class: Class::Product, issued: cost.flops, elementwise: 0.0 };
        let mut variant = variant_of(&self.emitted(engine, limits), cost, load)?;
        let name = engine.to_string();
        (variant.name, variant.numerics) = (name.clone().into(), name.into());
        variant.steps.iter_mut().for_each(|step| step.seconds = seconds);
        Ok(variant)
    }
}
