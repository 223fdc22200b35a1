//! The library of a card with cuDNN: its convolutions and products, beside the kernels that this crate writes.
//!
//! A product of two dense matrices is a convolution of 1x1: of these cuDNN has engines for whole floats, too, and it plans them in less than a
//! millisecond. Its own products have neither without a card.
//!
//! A request that cuDNN has an engine for has two variants. The one that is predicted to be faster comes first ([`Rates`]), so plans take
//! it. A variant is called as its engine is ([`EngineName`]): the plan holds which one it is, and the card builds that. An epilogue is computed behind
//! the convolution, by a kernel of its own, in the place of a result.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::{Code, DataType, Error, Result};
use plimsoll_cards::CudnnMode;
use plimsoll_device::{Cost, DeviceSpec, KernelCall, Library, Load, Step, Variant};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::product::ProductSpec;
use plimsoll_request::window::{Axes, Layout, WindowAxis};

use crate::cudnn::{ConvolutionKind, ConvolutionPlan, Cudnn, Engine, EngineLimits, EngineName, PlanFor, Planner};
use crate::emit::{self, Convolution, Emitted, KernelArg};
use crate::rates::{Rates, Task, Way};
use crate::source::{CudaLibrary, CudaSource, multiplied, scratch_of, variant_of};

/// The kernels of a card with cuDNN.
#[derive(Debug)]
pub struct CudnnLibrary {
    planner: Arc<Planner>,
    /// cuDNN on the card, where that is here.
    card: Option<Arc<Cudnn>>,
    /// Those of the card, as JSON.
    properties: String,
    limits: EngineLimits,
    mode: CudnnMode,
    rates: Rates,
    /// What cuDNN has said already.
    chosen: Mutex<Vec<(ConvolutionPlan, Option<Engine>)>>,
}

/// A request that is a convolution.
struct Asked<'a> {
    plan: ConvolutionPlan,
    /// Where the request's two tensors and its result are among input, filter and result of the convolution.
    places: [Place; 3],
    /// That of the result.
    shape: Vec<u64>,
    task: Task,
    epilogue: Option<&'a Epilogue>,
    /// Whether operands of the epilogue may lie where results do.
    may_overlap: bool,
}

/// A tensor of a request.
#[derive(Clone, Copy)]
enum Place {
    First,
    Second,
    Result,
}

impl Place {
    /// Input, filter and result of a convolution of that kind whose two tensors come in this order.
    fn of(kind: ConvolutionKind) -> [Place; 3] {
        match kind {
            ConvolutionKind::Forward => [Place::First, Place::Second, Place::Result],
            ConvolutionKind::ByInput => [Place::Result, Place::First, Place::Second],
            ConvolutionKind::ByFilter => [Place::First, Place::Result, Place::Second],
        }
    }
}

/// A product as a convolution of 1x1. Rows are images, but where A is transposed: there the terms are, and the result is a filter. None for several
/// products, and for two transposed matrices.
fn as_convolution(data_type: DataType, spec: &ProductSpec) -> Option<(ConvolutionPlan, [Place; 3])> {
    let ProductSpec { m, n, k, transpose_a, transpose_b, batch: 1, places: None } = *spec else { return None };
    let (kind, [batch, in_c, out_c], places) = match (transpose_a, transpose_b) {
        (false, false) => (ConvolutionKind::Forward, [m, k, n], [Place::First, Place::Second, Place::Result]),
        (false, true) => (ConvolutionKind::ByInput, [m, n, k], [Place::Result, Place::Second, Place::First]),
        (true, false) => (ConvolutionKind::ByFilter, [k, m, n], [Place::First, Place::Result, Place::Second]),
        (true, true) => return None,
    };
    let axes = Axes::new(&[WindowAxis::ONE]).ok()?;
    let spec = ConvSpec { data_type, batch, in_c, out_c, axes, layout: Layout::ChannelsLast, groups: 1 };
    Some((ConvolutionPlan { kind, spec }, places))
}

impl Asked<'_> {
    /// None for other requests, and where the epilogue can fail: it would have written a part of its results.
    fn of(request: &KernelRequest) -> Option<Asked<'_>> {
        let asked = |kind, spec: &ConvSpec, shape| {
            let (plan, places, task) = (ConvolutionPlan { kind, spec: *spec }, Place::of(kind), Task::Convolution(kind));
            Asked { plan, places, shape, task, epilogue: None, may_overlap: false }
        };
        let (asked, epilogue) = match request {
            KernelRequest::Anchor { anchor: Anchor::Product(data_type, spec), epilogue, pooling: None } => {
                let (plan, places) = as_convolution(*data_type, spec)?;
                let asked = Asked { plan, places, shape: vec![spec.m, spec.n], task: Task::Product, epilogue: None, may_overlap: true };
                (asked, epilogue.as_ref())
            }
            KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue, pooling: None } => {
                (asked(ConvolutionKind::Forward, spec, spec.output()), epilogue.as_ref())
            }
            KernelRequest::Anchor { anchor: Anchor::ConvBackpropInput(spec), epilogue, pooling: None } => {
                (asked(ConvolutionKind::ByInput, spec, spec.input()), epilogue.as_ref())
            }
            KernelRequest::ConvBackpropFilter { spec, unpooled: None } => (asked(ConvolutionKind::ByFilter, spec, spec.filter()), None),
            _ => return None,
        };
        let is_safe = epilogue.is_none_or(|epilogue| !epilogue.expr.can_fail());
        is_safe.then_some(Asked { epilogue, ..asked })
    }

    /// What runs: the convolution, and a kernel for the epilogue.
    ///
    /// # Errors
    /// As [`emit::emit`].
    fn emitted(&self, engine: &EngineName, limits: EngineLimits) -> Result<Emitted> {
        let mut emitted = Emitted { between: vec![engine.workspace.0], ..Emitted::default() };
        let mut result = KernelArg::Argument(Anchor::INPUTS as u32);
        if let Some(Epilogue { expr, operands }) = self.epilogue {
            let all: Vec<Vec<u64>> = [self.shape.clone()].into_iter().chain(operands.iter().cloned()).collect();
            let elements = self.shape.iter().product::<u64>();
            let behind = emit::emit(&KernelRequest::Expr { expr: expr.clone(), shape: self.shape.clone(), operands: all })?;
            let first = (Anchor::INPUTS + operands.len()) as u32;
            // Where an operand may lie in the place of a result, the convolution's elements lie between; else in a result, if they can.
            let pairs = behind.in_place.iter().filter(|(operand, _)| *operand > 0 && self.may_overlap);
            emitted.in_place = pairs.map(|(operand, output)| (operand + Anchor::INPUTS - 1, *output)).collect();
            let place = behind.in_place.iter().find(|(operand, _)| *operand == 0 && emitted.in_place.is_empty());
            result = match place {
                Some((_, output)) => KernelArg::Argument(first + *output as u32),
                None => {
                    let size = self.plan.spec.data_type.size().unwrap_or(0) as u64;
                    emitted.between.push(elements * size);
                    KernelArg::Between(1)
                }
            };
            // The expression's operands and results, as they are called here.
            let rename = |arg: &KernelArg| match *arg {
                KernelArg::Argument(0) => result,
                KernelArg::Argument(at) => KernelArg::Argument(at + Anchor::INPUTS as u32 - 1),
                other => other,
            };
            let kernels =
                behind.kernels.iter().map(|kernel| emit::Kernel { args: kernel.args.iter().map(rename).collect(), ..kernel.clone() });
            emitted.kernels = kernels.collect();
        }
        let tensors = self.places.map(|place| match place {
            Place::First => KernelArg::Argument(0),
            Place::Second => KernelArg::Argument(1),
            Place::Result => result,
        });
        emitted.convolution =
            Some(Convolution { plan: self.plan, engine: engine.clone(), limits, tensors, workspace: KernelArg::Between(0) });
        Ok(emitted)
    }

    /// The arithmetic operations of the convolution.
    fn operations(&self) -> f64 {
        let spec = self.plan.spec;
        multiplied(&match self.plan.kind {
            ConvolutionKind::Forward | ConvolutionKind::ByFilter => Anchor::Conv(spec),
            ConvolutionKind::ByInput => Anchor::ConvBackpropInput(spec),
        })
    }
}

impl CudnnLibrary {
    /// The library of cards of that name with these properties, as JSON, which are not here.
    pub fn new(planner: &Arc<Planner>, properties: String, card: &str, limits: EngineLimits, mode: CudnnMode) -> CudnnLibrary {
        let (planner, rates) = (planner.clone(), Rates::on(card));
        CudnnLibrary { planner, card: None, properties, limits, mode, rates, chosen: Mutex::default() }
    }

    /// The library of an open card.
    pub(crate) fn on(cudnn: &Arc<Cudnn>, card: &str, limits: EngineLimits, mode: CudnnMode) -> CudnnLibrary {
        CudnnLibrary { card: Some(cudnn.clone()), ..CudnnLibrary::new(&cudnn.planner, cudnn.properties.clone(), card, limits, mode) }
    }

    /// The engine of a convolution; none where there is none within the limits, and where cuDNN refuses the graph.
    ///
    /// # Errors
    /// Those of a card that has no room, or is lost.
    pub fn engine(&self, plan: &ConvolutionPlan) -> Result<Option<Engine>> {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, engine)) = chosen.iter().find(|(other, _)| other == plan) {
            return Ok(engine.clone());
        }
        let engine = match &self.card {
            Some(cudnn) => cudnn.choose(plan, self.limits)?,
            None => self.planner.choose(PlanFor::Properties(&self.properties), plan, self.limits).ok().flatten(),
        };
        chosen.push((*plan, engine.clone()));
        Ok(engine)
    }

    /// The variant of an engine. Where the kernels of this crate compute the request too, its cost is theirs: which of them is taken is the library's
    /// own decision.
    fn variant(&self, asked: &Asked<'_>, engine: &EngineName, kernels: Option<&Variant>) -> Result<Variant> {
        let emitted = asked.emitted(engine, self.limits)?;
        let mut variant = match kernels {
            Some(kernels) => {
                let (scratch, in_place) = (scratch_of(&emitted)?, &emitted.in_place);
                let step = |step: &Step| Step { scratch, in_place: in_place.clone(), ..step.clone() };
                let steps = kernels.steps.iter().map(step);
                Variant { steps: steps.collect(), ..kernels.clone() }
            }
            None => {
                let cost = Cost { flops: asked.operations(), bytes: 0.0 };
                variant_of(&emitted, cost, Load::default())?
            }
        };
        let name = engine.to_string();
        (variant.name, variant.numerics) = (name.as_str().into(), name.as_str().into());
        Ok(variant)
    }

    /// The variants of this crate's kernels; none where there are none for it.
    fn kernels(spec: &DeviceSpec, request: &KernelRequest) -> Result<Option<Variant>> {
        match CudaLibrary.variants(spec, request) {
            Ok(variants) => Ok(variants.into_iter().next()),
            Err(error) if error.code() == Code::Unimplemented => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Library for CudnnLibrary {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        let Some(asked) = Asked::of(request) else { return CudaLibrary.variants(spec, request) };
        let Some(engine) = self.engine(&asked.plan)? else { return CudaLibrary.variants(spec, request) };
        let kernels = CudnnLibrary::kernels(spec, request)?;
        let by_cudnn = self.variant(&asked, &engine.name, kernels.as_ref())?;
        let seconds = |way| self.rates.seconds(spec, asked.task, way, asked.operations());
        let is_faster = self.mode == CudnnMode::Always || seconds(Way::of(&engine)) < seconds(Way::Kernels);
        Ok(match kernels {
            None => vec![by_cudnn],
            Some(kernels) if is_faster => vec![by_cudnn, kernels],
            Some(kernels) => vec![kernels, by_cudnn],
        })
    }

    /// Each engine of this version is known by its name: whether the card has it with so much workspace, it says when a program is loaded.
    fn has(&self, spec: &DeviceSpec, request: &KernelRequest, variant: &Variant) -> Result<bool> {
        let named = variant.name.parse::<EngineName>().ok().filter(|name| name.version == self.planner.version());
        match (named, Asked::of(request)) {
            (Some(engine), Some(asked)) if engine.workspace <= self.limits.workspace => {
                Ok(self.variant(&asked, &engine, CudnnLibrary::kernels(spec, request)?.as_ref())? == *variant)
            }
            _ => CudaLibrary.has(spec, request, variant),
        }
    }
}

impl CudaSource for CudnnLibrary {
    fn emitted(&self, request: &KernelRequest) -> Result<Emitted> {
        CudaLibrary.emitted(request)
    }

    fn code(&self, call: &KernelCall) -> Result<Emitted> {
        match (call.variant.name.parse::<EngineName>(), Asked::of(&call.request)) {
            (Ok(engine), Some(asked)) => asked.emitted(&engine, self.limits),
            (Ok(engine), None) => Err(Error::internal(format!("{engine} of a request that it cannot compute"))),
            _ => CudaLibrary.emitted(&call.request),
        }
    }
}
