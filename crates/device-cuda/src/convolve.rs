//! The library of a card with cuDNN: its convolutions and products, beside the kernels that this crate writes.
//!
//! A product of two dense matrices is a convolution of 1x1: of these cuDNN has engines for whole floats, too, and it plans them in less than a
//! millisecond. Its own products have neither without a card.
//!
//! A request that cuDNN has an engine for has two variants. The one that was measured to be faster comes first ([`Tuned`]), or is predicted to be
//! ([`Rates`]), so plans take it. A variant is called as its engine is ([`EngineName`]): the plan holds which one it is, and the card builds that. An epilogue is computed behind
//! the convolution, by a kernel of its own, in the place of a result.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::{Code, DataType, Error, Result};
use plimsoll_cards::CudnnMode;
use plimsoll_device::{Cost, DeviceSpec, KernelCall, Library, Load, Step, Tuned, TunedCudnn, TunedFor, TunedPart, Variant};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::product::ProductSpec;
use plimsoll_request::window::{Axes, Layout, WindowAxis};

use crate::cudnn::{ConvolutionKind, ConvolutionPlan, Cudnn, Engine, EngineLimits, EngineName, PlanFor, Planner};
use crate::emit::{self, Convolution, Emitted, KernelArg};
use crate::rates::{Rates, Task, Way};
use crate::source::{CudaLibrary, CudaSource, OWN, multiplied, scratch_of, variant_of};

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
    /// Times that were measured on such a card.
    tuned: TunedPart,
    /// What cuDNN has said already: of the engine that it predicts to be the best, and of those that times name.
    chosen: Mutex<Vec<(Wanted, Option<Engine>)>>,
}

/// An engine that was asked for: of a name, or the first within the limits.
type Wanted = (ConvolutionPlan, Option<EngineName>);

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
        CudnnLibrary { planner, card: None, properties, limits, mode, rates, tuned: TunedPart::new(), chosen: Mutex::default() }
    }

    /// The library of an open card.
    pub(crate) fn on(cudnn: &Arc<Cudnn>, card: &str, limits: EngineLimits, mode: CudnnMode) -> CudnnLibrary {
        CudnnLibrary { card: Some(cudnn.clone()), ..CudnnLibrary::new(&cudnn.planner, cudnn.properties.clone(), card, limits, mode) }
    }

    /// The same library, which chooses by the times of the table that were measured on a card of that name, with this cuDNN and these
    /// bounds.
    #[must_use]
    pub fn tuned(self, table: &Tuned, card: &str) -> CudnnLibrary {
        let tuned = table.part(&self.tuned_for(card)).cloned().unwrap_or_default();
        CudnnLibrary { tuned, ..self }
    }

    /// The engine of a convolution that cuDNN predicts to be the best; none where there is none within the limits, and where cuDNN refuses
    /// the graph.
    ///
    /// # Errors
    /// Those of a card that has no room, or is lost.
    pub fn engine(&self, plan: &ConvolutionPlan) -> Result<Option<Engine>> {
        self.once((*plan, None), || Ok(self.engines(plan, 1)?.into_iter().next()))
    }

    /// The first engines of a convolution within the limits, at most so many.
    fn engines(&self, plan: &ConvolutionPlan, most: usize) -> Result<Vec<Engine>> {
        let wants = |name: &EngineName| Ok(Some(name.workspace));
        match &self.card {
            Some(cudnn) => cudnn.choose(plan, self.limits, most),
            None => {
                let chosen = self.planner.choose_with(PlanFor::Properties(&self.properties), plan, (self.limits, most), wants);
                Ok(chosen.unwrap_or_default())
            }
        }
    }

    /// The engine of that name, where the limits allow it and it wants no more than its name says.
    fn named(&self, plan: &ConvolutionPlan, name: &EngineName) -> Result<Option<Engine>> {
        self.once((*plan, Some(name.clone())), || {
            let found = match &self.card {
                Some(cudnn) => cudnn.named(plan, name)?,
                None => self.planner.rebuilt(PlanFor::Properties(&self.properties), plan, name).ok(),
            };
            let is_fine = |engine: &Engine| {
                let wanted = engine.name.workspace;
                wanted <= name.workspace && name.workspace <= self.limits.workspace && self.limits.allow(engine, plan.spec.data_type)
            };
            Ok(found.filter(is_fine).map(|engine| Engine { name: name.clone(), ..engine }))
        })
    }

    fn once(&self, wanted: Wanted, find: impl FnOnce() -> Result<Option<Engine>>) -> Result<Option<Engine>> {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, engine)) = chosen.iter().find(|(other, _)| *other == wanted) {
            return Ok(engine.clone());
        }
        let engine = find()?;
        chosen.push((wanted, engine.clone()));
        Ok(engine)
    }

    /// The engine of a request, and whether it comes before the kernels of this crate: by times, where there are some of the request, else by
    /// predictions. With the mode `Always` it always does.
    fn choose(&self, spec: &DeviceSpec, request: &KernelRequest, asked: &Asked<'_>) -> Result<Option<(Engine, bool)>> {
        let always = self.mode == CudnnMode::Always;
        let times = if self.tuned.is_empty() { None } else { self.tuned.get(&Tuned::key(request)?) };
        let mut kernels_are_faster = false;
        for (name, _) in times.map_or(&[][..], |request| &request.times) {
            match name.parse::<EngineName>() {
                Ok(name) => {
                    if let Some(engine) = self.named(&asked.plan, &name)? {
                        return Ok(Some((engine, always || !kernels_are_faster)));
                    }
                }
                Err(_) => kernels_are_faster |= name == OWN,
            }
        }
        let Some(engine) = self.engine(&asked.plan)? else { return Ok(None) };
        let seconds = |way| self.rates.seconds(spec, asked.task, way, asked.operations());
        let is_faster = !kernels_are_faster && seconds(Way::of(&engine)) < seconds(Way::Kernels);
        Ok(Some((engine, always || is_faster)))
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
        let Some((engine, is_first)) = self.choose(spec, request, &asked)? else { return CudaLibrary.variants(spec, request) };
        let kernels = CudnnLibrary::kernels(spec, request)?;
        let by_cudnn = self.variant(&asked, &engine.name, kernels.as_ref())?;
        Ok(match kernels {
            None => vec![by_cudnn],
            Some(kernels) if is_first => vec![by_cudnn, kernels],
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
    fn tuned_for(&self, card: &str) -> TunedFor {
        let EngineLimits { tensor_float_32, workspace } = self.limits;
        let version = EngineName::version_text(self.planner.version());
        TunedFor { card: card.to_string(), cudnn: Some(TunedCudnn { version, tensor_float_32, workspace }) }
    }

    fn candidates(&self, spec: &DeviceSpec, request: &KernelRequest, engines: usize) -> Result<Vec<Variant>> {
        let Some(asked) = Asked::of(request) else { return CudaLibrary.candidates(spec, request, engines) };
        let kernels = CudnnLibrary::kernels(spec, request)?;
        let engines = self.engines(&asked.plan, engines)?;
        let by_engines = engines.iter().map(|engine| self.variant(&asked, &engine.name, kernels.as_ref()));
        by_engines.chain(kernels.clone().map(Ok)).collect()
    }

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
