//! The library of a card with cuDNN: its convolutions and products, beside the kernels that this crate writes.
//!
//! A product of two dense matrices is a convolution of 1x1, and several at once are one in groups: of these cuDNN has engines for whole floats, too,
//! and it plans them in less than a millisecond. Its own products have neither without a card. The form is the one whose filter is a matrix as it lies.
//!
//! cuDNN has filters with the channels of the result first, TensorFlow has them last. So a kernel turns the filter before the convolution, or
//! behind the gradient by it; what it writes is scratch of the command.
//!
//! A request that cuDNN has an engine for has two variants or more. The one that was measured to be faster comes first ([`Tuned`]), or is
//! predicted to be ([`Rates`]), so plans take it. A variant is called as its engine is ([`EngineName`]): the plan holds which one it is, and
//! the card builds that. An epilogue that adds a bias is a part of an engine, where cuDNN has one ([`Finishing`]). Any other is computed behind
//! the convolution, by a kernel of its own, in the place of a result.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::{Code, DataType, Error, Result};
use plimsoll_cards::CudnnMode;
use plimsoll_device::{Cost, DeviceSpec, FINISHED, KernelCall, Library, Load, Step, Tuned, TunedCudnn, TunedFor, TunedPart, Variant};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::movement::Movement;
use plimsoll_request::product::ProductSpec;
use plimsoll_request::window::{Axes, Layout, WindowAxis};

use crate::cudnn::{ConvolutionKind, ConvolutionPlan, Cudnn, Engine, EngineLimits, EngineName, Finish, Lying, PlanFor, Planner};
use crate::emit::{self, Convolution, Emitted, KernelArg};
use crate::finishing::Finishing;
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

/// The engines of a request.
struct Ways {
    /// The one to be taken first.
    engines: Vec<EngineName>,
    /// That of the bare convolution.
    bare: Option<EngineName>,
    /// Whether the kernels of this crate are to be taken before them.
    kernels_first: bool,
}

/// An engine that was asked for: of a name, or the first within the limits.
type Wanted = (ConvolutionPlan, Option<EngineName>);

/// A convolution that computes a request, or all of it but the epilogue.
#[derive(Clone, Copy)]
struct Form {
    plan: ConvolutionPlan,
    /// Where the request's two tensors and its result are among input, filter and result of the convolution.
    places: [Place; 3],
    /// Whether the request's filter has the channels of the result last.
    turns: bool,
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

/// A product as a convolution of 1x1, the form of it that can finish, and whether it is a plain one. Rows of a plain one are images; but where A is
/// transposed the terms are, and the result is a filter. None for matrices that do not lie one behind the other.
///
/// Several products at once are a convolution in as many groups, of one image whose pixels are columns, with channels first: rows of B (or of the
/// result) are channels, and rows of A are filters. Of two transposed matrices, rows of A are channels and columns pixels, and rows of B are filters.
fn as_convolution(data_type: DataType, spec: &ProductSpec) -> Option<(Form, Option<Form>, bool)> {
    use ConvolutionKind::{ByFilter, ByInput, Forward};
    use Place::{First, Result, Second};
    let ProductSpec { m, n, k, transpose_a, transpose_b, batch, places: None } = *spec else { return None };
    let form = |kind, [images, in_c, out_c, pixels, groups]: [u64; 5], layout, places| {
        let axes = Axes::new(&[WindowAxis { size: pixels, positions: pixels, ..WindowAxis::ONE }]).ok()?;
        let spec = ConvSpec { data_type, batch: images, in_c, out_c, axes, layout, groups };
        Some(Form { plan: ConvolutionPlan::of(kind, spec), places, turns: false })
    };
    let is_plain = batch == 1 && !(transpose_a && transpose_b);
    let forward = form(Forward, [m, k, n, 1, 1], Layout::ChannelsLast, [First, Second, Result]);
    let [rows, columns, terms] = [m, n, k].map(|size| size.checked_mul(batch));
    let (bare, finished) = match (is_plain, transpose_a, transpose_b) {
        (true, false, false) => {
            let finished = forward.map(|form| Form { turns: true, ..form });
            (form(ByInput, [m, n, k, 1, 1], Layout::ChannelsLast, [Result, Second, First]), finished)
        }
        (true, false, true) => (forward, forward),
        (true, true, false) => (form(ByFilter, [k, n, m, 1, 1], Layout::ChannelsLast, [Second, Result, First]), None),
        (_, true, true) if batch == 1 => {
            let bare = form(Forward, [1, k, n, m, 1], Layout::ChannelsLast, [First, Second, Result]);
            (bare.map(|form| Form { plan: ConvolutionPlan { lying: Lying::Turned, ..form.plan }, ..form }), None)
        }
        (_, true, true) => return None,
        (_, false, false) => (form(Forward, [1, terms?, rows?, n, batch], Layout::ChannelsFirst, [Second, First, Result]), None),
        (_, true, false) => (form(ByInput, [1, rows?, terms?, n, batch], Layout::ChannelsFirst, [Result, First, Second]), None),
        (_, false, true) => (form(ByFilter, [1, columns?, rows?, k, batch], Layout::ChannelsFirst, [Second, Result, First]), None),
    };
    Some((bare?, finished, is_plain))
}

impl Form {
    /// A convolution of the request's, with TensorFlow's filter.
    fn of(kind: ConvolutionKind, spec: &ConvSpec) -> Form {
        Form { plan: ConvolutionPlan::of(kind, *spec), places: Place::of(kind), turns: true }
    }

    /// Bytes of an element.
    fn element(&self) -> usize {
        self.plan.spec.data_type.size().unwrap_or(0)
    }

    /// The kernels that turn the filter from there to there.
    ///
    /// # Errors
    /// As [`emit::emit`].
    fn turned(&self, from: KernelArg, to: KernelArg) -> Result<Vec<emit::Kernel>> {
        let ConvSpec { in_c, out_c, axes, layout, groups, .. } = self.plan.spec;
        let taps = axes.iter().map(|axis| axis.taps).product::<u64>();
        let in_group = in_c.checked_div(groups).unwrap_or(0);
        let (mut shape, perm) = match layout {
            Layout::ChannelsLast => (vec![taps * in_group, out_c], vec![1, 0]),
            Layout::ChannelsFirst => (vec![taps, in_group, out_c], vec![2, 1, 0]),
        };
        if self.plan.kind == ConvolutionKind::ByFilter {
            shape.reverse();
        }
        let movement = KernelRequest::Movement { element: self.element(), movement: Movement::Transpose { shape, perm } };
        let rename = |arg: &KernelArg| match *arg {
            KernelArg::Argument(0) => from,
            KernelArg::Argument(1) => to,
            other => other,
        };
        let kernels = emit::emit(&movement)?.kernels.into_iter();
        Ok(kernels.map(|kernel| emit::Kernel { args: kernel.args.iter().map(rename).collect(), ..kernel }).collect())
    }

    /// Elements of the filter.
    fn filter_elements(&self) -> u64 {
        self.plan.spec.filter().iter().product()
    }
}

impl Asked<'_> {
    /// None for other requests, and where the epilogue can fail: it would have written a part of its results.
    fn of(request: &KernelRequest) -> Option<Asked<'_>> {
        let asked = |kind, spec: &ConvSpec, shape| {
            let (bare, task) = (Form::of(kind, spec), Task::Convolution(kind));
            let may_finish = kind == ConvolutionKind::Forward && spec.layout == Layout::ChannelsLast;
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
            _ => return None,
        };
        let is_safe = epilogue.is_none_or(|epilogue| !epilogue.expr.can_fail());
        let data_type = asked.bare.plan.spec.data_type;
        let finishing = epilogue.filter(|_| asked.finished.is_some()).and_then(|epilogue| Finishing::of(data_type, &asked.shape, epilogue));
        is_safe.then_some(Asked { epilogue, finishing, ..asked })
    }

    /// The form with that behind the convolution; none where it is not the request's epilogue.
    fn form_with(&self, finish: Finish) -> Option<Form> {
        if !finish.is_some() {
            return Some(self.bare);
        }
        let form = self.finished.filter(|_| self.finishing.is_some_and(|finishing| finishing.finish == finish))?;
        Some(Form { plan: ConvolutionPlan { finish, ..form.plan }, ..form })
    }

    /// The convolution of that form.
    fn plan_with(&self, finish: Finish) -> Option<ConvolutionPlan> {
        self.form_with(finish).map(|form| form.plan)
    }

    /// What runs: the convolution, a kernel for the epilogue, and those that turn the filter.
    ///
    /// # Errors
    /// As [`emit::emit`].
    fn emitted(&self, engine: &EngineName, limits: EngineLimits) -> Result<Emitted> {
        let form = self.form_with(engine.finish);
        let form = form.ok_or_else(|| Error::internal(format!("{engine} of a request with another epilogue")))?;
        let mut emitted = Emitted { between: vec![engine.workspace.0], ..Emitted::default() };
        let between = |emitted: &mut Emitted, elements: u64| {
            emitted.between.push(elements * form.element() as u64);
            KernelArg::Between(emitted.between.len() as u32 - 1)
        };
        let mut result = KernelArg::Argument(Anchor::INPUTS as u32);
        let mut further = Vec::new();
        if let Some(Finishing { bias, residual, .. }) = self.finishing.filter(|_| engine.finish.is_some()) {
            let argument = |at: usize| KernelArg::Argument((Anchor::INPUTS + at) as u32);
            let operands = self.epilogue.map_or(0, |epilogue| epilogue.operands.len());
            result = argument(operands);
            further.extend([bias].into_iter().chain(residual).map(argument));
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
                None => between(&mut emitted, self.shape.iter().product()),
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
        if form.turns {
            let (asked, turned) = (tensors[1], between(&mut emitted, form.filter_elements()));
            tensors[1] = turned;
            if form.plan.kind == ConvolutionKind::ByFilter {
                emitted.kernels.extend(form.turned(turned, asked)?);
            } else {
                let before = form.turned(asked, turned)?;
                emitted.before = before.len();
                emitted.kernels.splice(0..0, before);
            }
        }
        let tensors = tensors.into_iter().chain(further).collect();
        let plan = form.plan;
        emitted.convolution = Some(Convolution { plan, engine: engine.clone(), limits, tensors, workspace: KernelArg::Between(0) });
        Ok(emitted)
    }

    /// The predicted seconds of a kernel for the epilogue: it reads and writes the result.
    fn pass_seconds(&self, spec: &DeviceSpec) -> f64 {
        let bytes = self.shape.iter().map(|size| *size as f64).product::<f64>() * self.bare.element() as f64;
        2.0 * bytes / spec.bandwidth
    }

    /// The arithmetic operations of the convolution.
    fn operations(&self) -> f64 {
        let spec = self.bare.plan.spec;
        multiplied(&match self.bare.plan.kind {
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

    /// The engines of a request, the one to be taken first, and whether the kernels of this crate come before them: by times, where there are some of
    /// the request, else by predictions. With the mode `Always` they never do.
    fn ways(&self, spec: &DeviceSpec, request: &KernelRequest, asked: &Asked<'_>) -> Result<Ways> {
        let times = if self.tuned.is_empty() { None } else { self.tuned.get(&Tuned::key(request)?) };
        let (mut timed, mut kernels_are_faster) = (None, false);
        for (name, _) in times.map_or(&[][..], |request| &request.times) {
            match name.parse::<EngineName>() {
                Ok(name) if timed.is_none() => {
                    if let Some(plan) = asked.plan_with(name.finish) {
                        timed = self.named(&plan, &name)?;
                    }
                }
                Ok(_) => {}
                Err(_) => kernels_are_faster |= name == OWN && timed.is_none(),
            }
        }
        let is_bare = |engine: &Engine| !engine.name.finish.is_some();
        let bare = match timed.clone().filter(is_bare) {
            Some(engine) => Some(engine),
            None => self.engine(&asked.bare.plan)?,
        };
        let finished = match timed.clone().filter(|engine| !is_bare(engine)) {
            Some(engine) => Some(engine),
            None => match asked.finishing.and_then(|finishing| asked.plan_with(finishing.finish)) {
                Some(plan) => self.engine(&plan)?,
                None => None,
            },
        };
        // Times are those of the whole request, or of the bare convolution.
        let times_are_whole = Tuned::subject(request) == *request;
        let seconds = |engine: &Engine| self.rates.seconds(spec, asked.task, Way::of(engine), asked.operations());
        let with_kernel = |engine: &Engine| seconds(engine) + asked.epilogue.map_or(0.0, |_| asked.pass_seconds(spec));
        let finished_is_first = match (&bare, &finished, &timed) {
            (_, Some(finished), Some(timed)) if times_are_whole => timed == finished,
            (Some(bare), Some(finished), _) => seconds(finished) <= with_kernel(bare),
            _ => true,
        };
        let best = [&finished, &bare].into_iter().flatten().map(with_kernel).fold(f64::INFINITY, f64::min);
        let kernels_first = match timed.is_some() || kernels_are_faster {
            true => kernels_are_faster,
            false if !asked.is_plain => true,
            false => best >= self.rates.seconds(spec, asked.task, Way::Kernels, asked.operations()),
        };
        let of_bare = bare.as_ref().map(|bare| bare.name.clone());
        let mut engines: Vec<EngineName> = [finished, bare].into_iter().flatten().map(|engine| engine.name).collect();
        if !finished_is_first {
            engines.reverse();
        }
        Ok(Ways { engines, bare: of_bare, kernels_first: kernels_first && self.mode != CudnnMode::Always })
    }

    /// The variant of an engine. Where the kernels of this crate compute the request too, its cost is theirs: which of them is taken is the
    /// library's own decision. An engine that finishes has bits of its own. Its numerics begin with the name of the bare engine: a plan that takes
    /// that one takes it finished, too ([`FINISHED`]).
    fn variant(&self, asked: &Asked<'_>, (engine, bare): (&EngineName, Option<&EngineName>), kernels: Option<&Variant>) -> Result<Variant> {
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
        let numerics = match bare.filter(|_| engine.finish.is_some()) {
            Some(bare) => format!("{bare}{FINISHED}{name}"),
            None => name.clone(),
        };
        (variant.name, variant.numerics) = (name.into(), numerics.into());
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
        let Ways { engines, bare, kernels_first } = self.ways(spec, request, &asked)?;
        let kernels = CudnnLibrary::kernels(spec, request)?;
        if engines.is_empty() {
            return CudaLibrary.variants(spec, request);
        }
        let by_cudnn = engines.iter().map(|engine| self.variant(&asked, (engine, bare.as_ref()), kernels.as_ref()));
        let mut variants: Vec<Variant> = by_cudnn.collect::<Result<_>>()?;
        if let Some(kernels) = kernels {
            variants.insert(if kernels_first { 0 } else { variants.len() }, kernels);
        }
        Ok(variants)
    }

    /// Each engine of this version is known by its name: whether the card has it with so much workspace, it says when a program is loaded.
    fn has(&self, spec: &DeviceSpec, request: &KernelRequest, variant: &Variant) -> Result<bool> {
        let named = variant.name.parse::<EngineName>().ok().filter(|name| name.version == self.planner.version());
        match (named, Asked::of(request)) {
            (Some(engine), Some(asked)) if engine.workspace <= self.limits.workspace && asked.plan_with(engine.finish).is_some() => {
                let made = self.variant(&asked, (&engine, None), CudnnLibrary::kernels(spec, request)?.as_ref())?;
                // Where the plan was made, the bare engine may be another one.
                let is_named = variant.numerics.rsplit(FINISHED).next() == Some(&*made.numerics);
                Ok(is_named && Variant { numerics: variant.numerics.clone(), ..made } == *variant)
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
        let bare = self.engines(&asked.bare.plan, engines)?;
        let finished = match asked.finishing.and_then(|finishing| asked.plan_with(finishing.finish)) {
            Some(plan) => self.engines(&plan, engines)?,
            None => Vec::new(),
        };
        let first = bare.first().map(|engine| engine.name.clone());
        let by_engines = finished.iter().chain(&bare).map(|engine| self.variant(&asked, (&engine.name, first.as_ref()), kernels.as_ref()));
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
