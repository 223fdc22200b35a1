//! The library of a card with cuDNN: its convolutions, products and attention, beside the kernels that this crate writes.
//!
//! A product of two dense matrices is a convolution of 1x1, and several at once are one in groups: of these cuDNN has engines for whole floats, too,
//! and it plans them in less than a millisecond. Its own products have neither without a card. The form is the one whose filter is a matrix as it lies.
//!
//! How tensors of requests lie for cuDNN, and the kernels that bring them there, [`Form`] says.
//!
//! A request that cuDNN has an engine for has two variants or more. The one that was measured to be faster comes first ([`Tuned`]), or is
//! predicted to be ([`Rates`]), so plans take it. A variant is called as its engine is ([`EngineName`]): the plan holds which one it is, and
//! the card builds that. An epilogue that adds a bias, or behind a gradient by the input that of a ReLU, is a part of an engine, where cuDNN has one
//! ([`Finishing`]). Any other is computed behind
//! the convolution, by a kernel of its own, in the place of a result.
//!
//! A convolution that sums the channels of its result for a normalization is one of halves and `bfloat16`: rounding of such elements is coarser than what a
//! difference of sums of floats loses.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::{Code, DataType, Error, Result};
use plimsoll_cards::CudnnMode;
use plimsoll_device::{Cost, DeviceSpec, FINISHED, KernelCall, Library, Load, Step, Tuned, TunedCudnn, TunedFor, TunedPart, Variant};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::window::Layout;

use crate::attend::Attending;
use crate::cudnn::{ConvolutionKind, Cudnn, Engine, EngineLimits, EngineName, Finish, GraphPlan, PlanFor, Planner};
use crate::emit::{self, Convolution, Emitted, KernelArg};
use crate::finishing::Finishing;
use crate::form::{Form, Place, as_convolution, moved_seconds};
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

/// The engines of a request, with predicted seconds of the whole request.
struct Ways {
    /// The one to be taken first.
    engines: Vec<(EngineName, f64)>,
    /// That of the bare convolution.
    bare: Option<EngineName>,
    /// Whether the kernels of this crate are to be taken before them.
    kernels_first: bool,
    /// What those take, where it was measured.
    kernels: Option<f64>,
}

/// An engine that was asked for: of a name, or the first within the limits.
type Wanted = (GraphPlan, Option<EngineName>);

/// Bytes of channels that tensor cores take at once.
const WORD: usize = 16;

/// Tensor cores multiply whole words of channels. Some engines pad channels in their workspace. How much longer others take, which bring parts of words, is
/// a guess; times of the card say it.
const PARTS_OF_WORDS: f64 = 2.0;

/// An engine of the form with padded channels.
fn with_padding(engine: Engine) -> Engine {
    Engine { name: EngineName { padded: true, ..engine.name }, ..engine }
}

/// A request that is a convolution.
struct Asked<'a> {
    /// The form without the epilogue.
    bare: Form,
    /// The form of which engines compute the epilogue as well.
    finished: Option<Form>,
    /// That of the result.
    shape: Vec<u64>,
    task: Task,
    epilogue: Option<&'a Epilogue>,
    /// The epilogue as engines may have it.
    finishing: Option<Finishing>,
    /// Whether operands of the epilogue may lie where results do.
    may_overlap: bool,
    /// Whether predictions say something of it: of products in groups and of two transposed matrices nothing is known without times.
    is_plain: bool,
}

impl Asked<'_> {
    /// None for other requests, and where the epilogue can fail: it would have written a part of its results.
    fn of(request: &KernelRequest) -> Option<Asked<'_>> {
        let asked = |kind, spec: &ConvSpec, shape| {
            let (bare, task) = (Form::of(kind, spec), Task::Convolution(kind));
            let may_finish = kind != ConvolutionKind::ByFilter && spec.layout == Layout::ChannelsLast;
            let finished = may_finish.then_some(bare);
            Asked { bare, finished, shape, task, epilogue: None, finishing: None, may_overlap: false, is_plain: true }
        };
        let (asked, epilogue) = match request {
            KernelRequest::Anchor { anchor: Anchor::Product(data_type, spec), epilogue, pooling: None } => {
                // Nothing follows several products.
                let is_known = spec.batch == 1 || epilogue.is_none();
                let (bare, finished, is_plain) = as_convolution(*data_type, spec).filter(|_| is_known)?;
                let (shape, task) = (vec![spec.m, spec.n], Task::Product);
                (Asked { bare, finished, shape, task, epilogue: None, finishing: None, may_overlap: true, is_plain }, epilogue.as_ref())
            }
            KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue, pooling: None } => {
                (asked(ConvolutionKind::Forward, spec, spec.output()), epilogue.as_ref())
            }
            KernelRequest::Anchor { anchor: Anchor::ConvBackpropInput(spec), epilogue, pooling: None } => {
                (asked(ConvolutionKind::ByInput, spec, spec.input()), epilogue.as_ref())
            }
            KernelRequest::ConvBackpropFilter { spec, unpooled: None } => (asked(ConvolutionKind::ByFilter, spec, spec.filter()), None),
            KernelRequest::ConvStatistics(spec) if matches!(spec.data_type, DataType::Half | DataType::Bfloat16) => {
                let asked = asked(ConvolutionKind::Forward, spec, spec.output());
                return Some(Asked { finishing: asked.finished.map(|_| Finishing::STATISTICS), ..asked });
            }
            _ => return None,
        };
        let is_safe = epilogue.is_none_or(|epilogue| !epilogue.expr.can_fail());
        let data_type = asked.bare.plan.spec.data_type;
        let finishing =
            epilogue.zip(asked.finished).and_then(|(epilogue, form)| Finishing::of(form.plan.kind, data_type, &asked.shape, epilogue));
        is_safe.then_some(Asked { epilogue, finishing, ..asked })
    }

    fn has_statistics(&self) -> bool {
        self.finishing == Some(Finishing::STATISTICS)
    }

    /// The form with that behind the convolution; none where it is not the request's epilogue. No kernel computes statistics behind an engine without.
    fn form_with(&self, finish: Finish) -> Option<Form> {
        if !finish.is_some() {
            return (!self.has_statistics()).then_some(self.bare);
        }
        let form = self.finished.filter(|_| self.finishing.is_some_and(|finishing| finishing.finish == finish))?;
        Some(form.finishing(finish))
    }

    /// The same with channels padded, where these are no whole words of tensor cores. An engine that finishes writes the request's own result.
    fn padded_with(&self, finish: Finish) -> Option<Form> {
        let form = self.form_with(finish)?.padded((WORD / self.bare.element().max(1)) as u64)?;
        (!finish.is_some() || form.has_whole_results()).then_some(form)
    }

    /// The form of an engine.
    fn form_of(&self, engine: &EngineName) -> Option<Form> {
        if engine.padded { self.padded_with(engine.finish) } else { self.form_with(engine.finish) }
    }

    /// What runs: the convolution, a kernel for the epilogue, and those that bring tensors into scratch or take them from there.
    ///
    /// # Errors
    /// As [`emit::emit`].
    fn emitted(&self, engine: &EngineName, limits: EngineLimits) -> Result<Emitted> {
        let form = self.form_of(engine);
        let form = form.ok_or_else(|| Error::internal(format!("{engine} of a request with another epilogue")))?;
        let mut emitted = Emitted { between: vec![engine.workspace.0], ..Emitted::default() };
        let between = |emitted: &mut Emitted, bytes: u64| {
            emitted.between.push(bytes);
            KernelArg::Between(emitted.between.len() as u32 - 1)
        };
        let mut result = KernelArg::Argument(Anchor::INPUTS as u32);
        let mut further = Vec::new();
        if let Some(finishing) = self.finishing.filter(|_| engine.finish.is_some()) {
            let argument = |at: usize| KernelArg::Argument((Anchor::INPUTS + at) as u32);
            let operands = self.epilogue.map_or(0, |epilogue| epilogue.operands.len());
            result = argument(operands);
            further.extend(finishing.operands().map(argument));
            if finishing.finish.statistics {
                further.extend([operands + 1, operands + 2].map(argument));
            }
        } else if let Some(Epilogue { expr, operands }) = self.epilogue {
            let all: Vec<Vec<u64>> = [self.shape.clone()].into_iter().chain(operands.iter().cloned()).collect();
            let behind = emit::emit(&KernelRequest::Expr { expr: expr.clone(), shape: self.shape.clone(), operands: all })?;
            let first = (Anchor::INPUTS + operands.len()) as u32;
            // Where an operand may lie in the place of a result, the convolution's elements lie between; else in a result, if they can.
            let pairs = behind.in_place.iter().filter(|(operand, _)| *operand > 0 && self.may_overlap);
            emitted.in_place = pairs.map(|(operand, output)| (operand + Anchor::INPUTS - 1, *output)).collect();
            let place = behind.in_place.iter().find(|(operand, _)| *operand == 0 && emitted.in_place.is_empty());
            result = match place {
                Some((_, output)) => KernelArg::Argument(first + *output as u32),
                None => between(&mut emitted, self.shape.iter().product::<u64>() * form.element() as u64),
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
        let mut tensors = form.places.map(|place| match place {
            Place::First => KernelArg::Argument(0),
            Place::Second => KernelArg::Argument(1),
            Place::Result => result,
        });
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        for (at, bytes) in form.packed() {
            let scratch = between(&mut emitted, bytes);
            let (kernel, is_before) = form.packing(at, std::mem::replace(&mut tensors[at], scratch), scratch)?;
            if is_before { before.push(kernel) } else { behind.push(kernel) }
        }
        emitted.before = before.len();
        emitted.kernels.splice(0..0, before.into_iter().chain(behind));
        let tensors = tensors.into_iter().chain(further).collect();
        let plan = GraphPlan::from(&form.plan);
        emitted.convolution = Some(Convolution { plan, engine: engine.clone(), limits, tensors, workspace: KernelArg::Between(0) });
        Ok(emitted)
    }

    /// The predicted seconds of a kernel for the epilogue: it reads and writes the result. Zero without an epilogue.
    fn pass_seconds(&self, spec: &DeviceSpec) -> f64 {
        let elements = |shape: &[u64]| shape.iter().map(|size| *size as f64).product::<f64>();
        let Some(Epilogue { operands, .. }) = self.epilogue else { return 0.0 };
        let elements = 2.0 * elements(&self.shape) + operands.iter().map(|operand| elements(operand)).sum::<f64>();
        moved_seconds(spec, elements * self.bare.element() as f64)
    }

    /// The predicted seconds of an engine by the rates of a card, with the kernels that turn the filter, and with what follows it.
    fn engine_seconds(&self, spec: &DeviceSpec, rates: &Rates, engine: &Engine) -> f64 {
        let form = self.form_of(&engine.name).unwrap_or(self.bare);
        let (sizes, element) = (form.plan.spec, form.element());
        let elements = |shape: Vec<u64>| shape.into_iter().map(|size| size as f64).product::<f64>();
        let result = elements(self.shape.clone());
        let finish = engine.name.finish;
        let further = [finish.residual, finish.relu_grad].into_iter().filter(|is_there| *is_there).count() as f64 * result;
        let bytes = (elements(sizes.input()) + elements(sizes.filter()) + elements(sizes.output()) + further) * element as f64;
        let behind = if finish.is_some() { 0.0 } else { self.pass_seconds(spec) };
        let mut operations = multiplied(&Anchor::Conv(sizes));
        if let Some(wide) = self.padded_with(engine.name.finish).filter(|_| engine.uses_tensor_cores && !engine.name.padded) {
            let pads_itself = engine.name.workspace.0 >= wide.padded_bytes();
            operations = multiplied(&Anchor::Conv(wide.plan.spec)) * if pads_itself { 1.0 } else { PARTS_OF_WORDS };
        }
        let own = rates.seconds(spec, self.task, Way::of(engine, element), (operations, bytes));
        own + form.packing_seconds(spec) + behind
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

    /// The engine of a graph that cuDNN predicts to be the best; none where there is none within the limits, and where cuDNN refuses
    /// the graph.
    ///
    /// # Errors
    /// Those of a card that has no room, or is lost.
    pub fn engine(&self, plan: impl Into<GraphPlan>) -> Result<Option<Engine>> {
        let plan = plan.into();
        self.once((plan, None), || Ok(self.engines(&plan, 1)?.into_iter().next()))
    }

    /// The first engines of a convolution within the limits, at most so many.
    fn engines(&self, plan: &GraphPlan, most: usize) -> Result<Vec<Engine>> {
        let wants = |name: &EngineName| Ok(Some(name.workspace));
        match &self.card {
            Some(cudnn) => cudnn.choose(plan, self.limits, most),
            None => {
                let chosen = self.planner.choose_with((PlanFor::Properties(&self.properties), plan), (self.limits, most), false, wants);
                Ok(chosen.unwrap_or_default())
            }
        }
    }

    /// The engine of that name, where the limits allow it and it wants no more than its name says.
    fn named(&self, plan: &GraphPlan, name: &EngineName) -> Result<Option<Engine>> {
        self.once((*plan, Some(name.clone())), || {
            let found = match &self.card {
                Some(cudnn) => cudnn.named(plan, name)?,
                None => self.planner.rebuilt(PlanFor::Properties(&self.properties), plan, name).ok(),
            };
            let is_fine = |engine: &Engine| {
                let wanted = engine.name.workspace;
                wanted <= name.workspace && name.workspace <= self.limits.workspace && self.limits.allow(engine, plan.data_type())
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

    /// The engine that is predicted to be the best with that behind the convolution: as it is, or with padded channels.
    fn best(&self, spec: &DeviceSpec, asked: &Asked<'_>, finish: Finish) -> Result<Option<Engine>> {
        let plain = asked.form_with(finish).map_or(Ok(None), |form| self.engine(&form.plan))?;
        let padded = match self.padded(asked, finish) {
            Some(form) => self.engine(&form.plan)?.map(with_padding),
            None => None,
        };
        let seconds = |engine: &Engine| asked.engine_seconds(spec, &self.rates, engine);
        let engines = [plain, padded].into_iter().flatten();
        Ok(engines.min_by(|one, other| seconds(one).total_cmp(&seconds(other))))
    }

    /// The variants of a convolution with statistics: the engine that times say is the fastest, or that is predicted to be. It is predicted to take no
    /// less than the convolution alone by whatever is the fastest.
    ///
    /// # Errors
    /// UNIMPLEMENTED where cuDNN has no engine within the limits.
    fn with_statistics(&self, spec: &DeviceSpec, request: &KernelRequest, asked: &Asked<'_>) -> Result<Vec<Variant>> {
        let times = if self.tuned.is_empty() { None } else { self.tuned.get(&Tuned::key(request)?) };
        for (name, seconds) in times.iter().flat_map(|times| &times.times) {
            let named = name.parse::<EngineName>().ok();
            let Some((name, form)) = named.and_then(|name| Some((name.clone(), asked.form_of(&name)?))) else { continue };
            if let Some(engine) = self.named(&GraphPlan::from(&form.plan), &name)? {
                return Ok(vec![self.summing(spec, request, asked, &engine, Some(*seconds))?]);
            }
        }
        let none = || Error::unimplemented("an engine of cuDNN: a convolution with statistics");
        let engine = self.best(spec, asked, Finish::STATISTICS)?.ok_or_else(none)?;
        Ok(vec![self.summing(spec, request, asked, &engine, None)?])
    }

    /// The variant of an engine with statistics, which takes so long.
    fn summing(
        &self,
        spec: &DeviceSpec,
        request: &KernelRequest,
        asked: &Asked<'_>,
        engine: &Engine,
        measured: Option<f64>,
    ) -> Result<Variant> {
        let bare = request.without_sums().map_or(Ok(Vec::new()), |bare| self.variants(spec, &bare))?;
        let least = bare.first().map_or(0.0, |first| first.steps.iter().filter_map(|step| step.seconds).sum());
        let seconds = measured.unwrap_or_else(|| asked.engine_seconds(spec, &self.rates, engine).max(least));
        self.variant(asked, (&engine.name, None), CudnnLibrary::kernels(spec, request)?.as_ref(), Some(seconds))
    }

    /// The form with padded channels, where tensor cores may compute it.
    fn padded(&self, asked: &Asked<'_>, finish: Finish) -> Option<Form> {
        let may_round = asked.bare.element() == 2 || self.limits.tensor_float_32;
        asked.padded_with(finish).filter(|_| may_round)
    }

    /// The engines of a request, the one to be taken first, and whether the kernels of this crate come before them: by times, where there are some of
    /// the request, else by predictions. With the mode `Always` they never do.
    fn ways(&self, spec: &DeviceSpec, request: &KernelRequest, asked: &Asked<'_>, kernels: Option<&Variant>) -> Result<Ways> {
        let times = if self.tuned.is_empty() { None } else { self.tuned.get(&Tuned::key(request)?) };
        let times = times.map_or(&[][..], |request| &request.times);
        let (mut timed, mut kernels_are_faster) = (None, false);
        for (name, _) in times {
            match name.parse::<EngineName>() {
                Ok(name) if timed.is_none() => {
                    if let Some(form) = asked.form_of(&name) {
                        timed = self.named(&GraphPlan::from(&form.plan), &name)?;
                    }
                }
                Ok(_) => {}
                Err(_) => kernels_are_faster |= name == OWN && timed.is_none(),
            }
        }
        let is_bare = |engine: &Engine| !engine.name.finish.is_some();
        let best = |finish: Finish| self.best(spec, asked, finish);
        let bare = match timed.clone().filter(is_bare) {
            Some(engine) => Some(engine),
            None => best(Finish::NONE)?,
        };
        let finished = match timed.clone().filter(|engine| !is_bare(engine)) {
            Some(engine) => Some(engine),
            None => asked.finishing.map_or(Ok(None), |finishing| best(finishing.finish))?,
        };
        // Times are those of the whole request, or of the bare convolution.
        let times_are_whole = Tuned::subject(request) == *request;
        let behind = if times_are_whole { 0.0 } else { asked.pass_seconds(spec) };
        let measured = |name: &str| times.iter().find(|(timed, _)| timed == name).map(|(_, seconds)| *seconds);
        let seconds = |engine: &Engine| {
            let measured = measured(&engine.name.to_string()).map(|seconds| seconds + behind);
            measured.unwrap_or_else(|| asked.engine_seconds(spec, &self.rates, engine))
        };
        let finished_is_first = match (&bare, &finished, &timed) {
            (_, Some(finished), Some(timed)) if times_are_whole => timed == finished,
            (Some(bare), Some(finished), _) => seconds(finished) <= seconds(bare),
            _ => true,
        };
        let own = measured(OWN).or_else(|| kernels?.steps.iter().map(|step| step.seconds).sum());
        let best = [&finished, &bare].into_iter().flatten().map(seconds).fold(f64::INFINITY, f64::min);
        let kernels_first = match timed.is_some() || kernels_are_faster {
            true => kernels_are_faster,
            false if !asked.is_plain => true,
            false => own.is_some_and(|own| best >= own),
        };
        let of_bare = bare.as_ref().map(|bare| bare.name.clone());
        let by = |engine: Engine| (engine.name.clone(), seconds(&engine));
        let mut engines: Vec<(EngineName, f64)> = [finished, bare].into_iter().flatten().map(by).collect();
        if !finished_is_first {
            engines.reverse();
        }
        Ok(Ways { engines, bare: of_bare, kernels_first: kernels_first && self.mode != CudnnMode::Always, kernels: measured(OWN) })
    }

    /// The variant of an engine. Where the kernels of this crate compute the request too, its cost is theirs: which of them is taken is the
    /// library's own decision. An engine that finishes has bits of its own. Its numerics begin with the name of the bare engine: a plan that takes
    /// that one takes it finished, too ([`FINISHED`]).
    fn variant(
        &self,
        asked: &Asked<'_>,
        (engine, bare): (&EngineName, Option<&EngineName>),
        kernels: Option<&Variant>,
        seconds: Option<f64>,
    ) -> Result<Variant> {
        let emitted = asked.emitted(engine, self.limits)?;
        let mut variant = match kernels {
            Some(kernels) => {
                let (scratch, in_place) = (scratch_of(&emitted)?, &emitted.in_place);
                let step = |step: &Step| Step { scratch, in_place: in_place.clone(), ..step.clone() };
                let steps = kernels.steps.iter().map(step);
                Variant { steps: steps.collect(), ..kernels.clone() }
            }
            None => {
                let cost = Cost { flops: multiplied(&Anchor::Conv(asked.bare.plan.spec)), bytes: 0.0 };
                variant_of(&emitted, cost, Load::default())?
            }
        };
        let name = engine.to_string();
        let numerics = match bare.filter(|_| engine.finish.is_some()) {
            Some(bare) => format!("{bare}{FINISHED}{name}"),
            None => name.clone(),
        };
        (variant.name, variant.numerics) = (name.into(), numerics.into());
        variant.steps.iter_mut().for_each(|step| step.seconds = seconds);
        Ok(variant)
    }

    /// The variant of attention, or of its gradient.
    ///
    /// # Errors
    /// UNIMPLEMENTED where there is no engine, and where its parts are predicted to be faster.
    fn attention(&self, spec: &DeviceSpec, attending: &Attending) -> Result<Variant> {
        let plan = attending.plan();
        let engine = if attending.may_be_computed() { self.engine(&plan)? } else { None };
        let engine = engine.ok_or_else(|| Error::unimplemented("attention for which cuDNN has no engine"))?;
        let seconds = attending.engine_seconds(spec, &engine);
        let parts = attending.parts().iter().map(|part| self.seconds(spec, part)).sum::<Result<f64>>()?;
        let parts = parts + attending.moved_seconds(spec);
        if seconds >= parts && self.mode != CudnnMode::Always {
            return Err(Error::unimplemented("attention whose parts are predicted to be faster"));
        }
        attending.variant(&engine.name, self.limits, Some(seconds))
    }

    /// The predicted seconds of a request.
    fn seconds(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<f64> {
        let first = self.variants(spec, request)?.into_iter().next();
        Ok(first.map_or(0.0, |first| first.steps.iter().filter_map(|step| step.seconds).sum()))
    }

    /// The variants of this crate's kernels; none where there are none for it. Of a convolution with statistics those of the convolution alone.
    fn kernels(spec: &DeviceSpec, request: &KernelRequest) -> Result<Option<Variant>> {
        match CudaLibrary.variants(spec, request.without_sums().as_ref().unwrap_or(request)) {
            Ok(variants) => Ok(variants.into_iter().next()),
            Err(error) if error.code() == Code::Unimplemented => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Library for CudnnLibrary {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        if let Some(attending) = Attending::of(request) {
            return self.attention(spec, &attending).map(|variant| vec![variant]);
        }
        let Some(asked) = Asked::of(request) else { return CudaLibrary.variants(spec, request) };
        if let KernelRequest::ConvStatistics(_) = request {
            return self.with_statistics(spec, request, &asked);
        }
        let kernels = CudnnLibrary::kernels(spec, request)?;
        let Ways { engines, bare, kernels_first, kernels: measured } = self.ways(spec, request, &asked, kernels.as_ref())?;
        if engines.is_empty() {
            return CudaLibrary.variants(spec, request);
        }
        let by_cudnn =
            engines.iter().map(|(engine, seconds)| self.variant(&asked, (engine, bare.as_ref()), kernels.as_ref(), Some(*seconds)));
        let mut variants: Vec<Variant> = by_cudnn.collect::<Result<_>>()?;
        if let Some(mut kernels) = kernels {
            kernels.steps.iter_mut().for_each(|step| step.seconds = measured.or(step.seconds));
            variants.insert(if kernels_first { 0 } else { variants.len() }, kernels);
        }
        Ok(variants)
    }

    /// Where an engine is taken that finishes.
    fn finishes(&self, spec: &DeviceSpec, request: &KernelRequest) -> bool {
        let first = self.variants(spec, request).ok().and_then(|variants| variants.into_iter().next());
        first.and_then(|first| first.name.parse::<EngineName>().ok()).is_some_and(|name| name.finish.is_some())
    }

    /// Each engine of this version is known by its name: whether the card has it with so much workspace, it says when a program is loaded.
    fn has(&self, spec: &DeviceSpec, request: &KernelRequest, variant: &Variant) -> Result<bool> {
        let named = variant.name.parse::<EngineName>().ok().filter(|name| name.version == self.planner.version());
        if let (Some(engine), Some(attending)) = (&named, Attending::of(request)) {
            let is_fine = engine.workspace <= self.limits.workspace && attending.is_of(engine);
            return Ok(is_fine && attending.variant(engine, self.limits, None)? == variant.without_seconds());
        }
        match (named, Asked::of(request)) {
            (Some(engine), Some(asked)) if engine.workspace <= self.limits.workspace && asked.form_of(&engine).is_some() => {
                let made = self.variant(&asked, (&engine, None), CudnnLibrary::kernels(spec, request)?.as_ref(), None)?;
                // Where the plan was made, the bare engine may be another one, and predictions may.
                let is_named = variant.numerics.rsplit(FINISHED).next() == Some(&*made.numerics);
                Ok(is_named && Variant { numerics: variant.numerics.clone(), ..made } == variant.without_seconds())
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
        let all = |finish: Finish| -> Result<Vec<Engine>> {
            let plain = asked.form_with(finish).map_or(Ok(Vec::new()), |form| self.engines(&GraphPlan::from(&form.plan), engines))?;
            let padded = self.padded(&asked, finish).map_or(Ok(Vec::new()), |form| self.engines(&GraphPlan::from(&form.plan), engines))?;
            Ok(plain.into_iter().chain(padded.into_iter().map(with_padding)).collect())
        };
        let bare = all(Finish::NONE)?;
        let finished = asked.finishing.map_or(Ok(Vec::new()), |finishing| all(finishing.finish))?;
        let first = bare.first().map(|engine| engine.name.clone());
        let by_engines = finished.iter().chain(&bare).map(|engine| {
            let seconds = asked.engine_seconds(spec, &self.rates, engine);
            self.variant(&asked, (&engine.name, first.as_ref()), kernels.as_ref(), Some(seconds))
        });
        by_engines.chain(kernels.clone().filter(|_| !asked.has_statistics()).map(Ok)).collect()
    }

    fn emitted(&self, request: &KernelRequest) -> Result<Emitted> {
        CudaLibrary.emitted(request)
    }

    fn code(&self, call: &KernelCall) -> Result<Emitted> {
        if let (Ok(engine), Some(attending)) = (call.variant.name.parse::<EngineName>(), Attending::of(&call.request)) {
            return Ok(attending.emitted(&engine, self.limits));
        }
        match (call.variant.name.parse::<EngineName>(), Asked::of(&call.request)) {
            (Ok(engine), Some(asked)) => asked.emitted(&engine, self.limits),
            (Ok(engine), None) => Err(Error::internal(format!("{engine} of a request that it cannot compute"))),
            _ => CudaLibrary.emitted(&call.request),
        }
    }
}
