//! The planner: engines for graphs.

use std::path::Path;
use std::sync::Arc;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_cards::Environment;

use super::descriptor::Descriptor;
use super::engine::{Engine, EngineLimits, EngineName};
use super::graph::GraphPlan;
use super::raw::{BY_MODEL, Functions, NOTE_COMPILES, attribute, element, kind};
use crate::ComputeLibrary;
use crate::library::Library;

/// The oldest cuDNN that plans without a card.
const OLDEST: usize = 90_800;

/// The most engines of a graph that are looked at; cuDNN names about 40.
const MOST_ENGINES: usize = 64;
/// The most knobs of an engine; there are about 30 types of them.
const MOST_KNOBS: usize = 64;

/// The card that plans are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanFor<'a> {
    /// One with these properties, as JSON. It may be on another machine.
    Properties(&'a str),
    /// The card with this number here.
    Here(i32),
}

/// What an engine is built for.
pub(super) enum Target<'a> {
    /// A card with these properties.
    Properties(&'a Descriptor),
    /// The card of cuDNN's handle.
    Handle(u64),
}

/// The engines that are in the library already. Without the file all are compiled for a graph.
const PRECOMPILED: &str = "libcudnn_engines_precompiled.so.9";

/// cuDNN, as far as it plans.
#[derive(Debug)]
pub struct Planner {
    pub(super) cudnn: Arc<Functions>,
    version: usize,
    compiles_all: bool,
}

impl Planner {
    /// Looks for it, as [`ComputeLibrary::find`] does, and loads it.
    ///
    /// # Errors
    /// NOT_FOUND where it is not there, with the way to get it, also where cuBLASLt is not: cuDNN ends the process where it needs that and
    /// finds none. FAILED_PRECONDITION where it is too old.
    pub fn find(environment: &Environment) -> Result<Planner> {
        let find = |library: ComputeLibrary| {
            let found = library.find(environment).found;
            found.map_err(|why| Error::not_found(format!("{} was not found: {why}", library.name())).with_remedy(library.install()))
        };
        let path = find(ComputeLibrary::Cudnn)?.path;
        let compiles_all = path.parent().is_some_and(|folder| folder.is_dir() && !folder.join(PRECOMPILED).exists());
        if !compiles_all {
            find(ComputeLibrary::CublasLt)?;
        }
        Ok(Planner { compiles_all, ..Planner::load(&path)? })
    }

    fn load(path: &Path) -> Result<Planner> {
        let name = path.to_str().ok_or_else(|| Error::not_found(format!("{}: not a name in UTF-8", path.display())))?;
        let library = Library::load(name).map_err(|why| Error::not_found(format!("there is no cuDNN: {why}")))?;
        let cudnn = Arc::new(Functions::of(&library));
        let too_old = |what: &str| Error::failed_precondition(format!("cuDNN {what}")).with_remedy("install cuDNN 9.8 or later");
        if let Some(missing) = cudnn.missing(&["text", "last_text"]) {
            return Err(too_old(&format!("has no {missing}")));
        }
        // SAFETY: by cuDNN's documentation it takes nothing, and needs no card.
        let version = cudnn.version.map_or(0, |version| unsafe { version() });
        if version < OLDEST {
            return Err(too_old(&format!("{version} plans on a card only")));
        }
        Ok(Planner { cudnn, version, compiles_all: false })
    }

    /// The version, as cuDNN counts it: 92700 is 9.27.0.
    pub fn version(&self) -> usize {
        self.version
    }

    /// Whether it is the small edition, which has no engines but those that it compiles for a graph.
    pub fn compiles_all(&self) -> bool {
        self.compiles_all
    }

    /// The properties of a card of this machine, as JSON.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where there is no such card, or cuDNN does not say them.
    pub fn properties(&self, card: i32) -> Result<String> {
        self.card(PlanFor::Here(card))?.read_text(attribute::PROPERTIES_JSON)
    }

    fn card(&self, of: PlanFor<'_>) -> Result<Descriptor> {
        let card = Descriptor::new(&self.cudnn, kind::PROPERTIES, "a card's properties")?;
        match of {
            PlanFor::Properties(json) => card.text(attribute::PROPERTIES_JSON, json)?,
            PlanFor::Here(number) => card.number(attribute::PROPERTIES_CARD, element::INT32, number)?,
        }
        card.finish("a card's properties")
    }

    /// The first engines for a graph, at most so many, best first as cuDNN predicts. Those that it cannot finish are left out. An
    /// engine that is compiled takes seconds.
    ///
    /// # Errors
    /// UNIMPLEMENTED where cuDNN has no engine for it; otherwise what it says of graph or card.
    pub fn engines(&self, of: PlanFor<'_>, graph: impl Into<GraphPlan>, most: usize) -> Result<Vec<Engine>> {
        let graph = &graph.into();
        let mut engines = Vec::new();
        self.look(
            (of, graph),
            |_| true,
            |_| true,
            |engine| {
                engines.push(engine);
                engines.len() >= most
            },
        )?;
        engines.truncate(most);
        Ok(engines)
    }

    /// The first engines that the limits allow, at most so many, best first as cuDNN predicts. `wants` says how many bytes of workspace the
    /// card wants for an engine, which is then in its name; none where the card does not take it. Where it builds the engine for that
    /// (`builds`), those that are compiled are not built before: it would take as long again.
    ///
    /// # Errors
    /// As [`Planner::engines`]; those of `wants`.
    pub(crate) fn choose_with(
        &self,
        (of, graph): (PlanFor<'_>, &GraphPlan),
        (limits, most): (EngineLimits, usize),
        builds: bool,
        mut wants: impl FnMut(&EngineName) -> Result<Option<Bytes>>,
    ) -> Result<Vec<Engine>> {
        let (mut chosen, mut refused) = (Vec::new(), Ok(()));
        self.look(
            (of, graph),
            |engine| limits.allow(engine, graph.data_type()),
            |engine| !(builds && engine.is_compiled),
            |mut engine| {
                if engine.name.workspace > limits.workspace {
                    return false;
                }
                match wants(&engine.name) {
                    Ok(Some(wanted)) if wanted <= limits.workspace => {
                        engine.name.workspace = wanted;
                        chosen.push(engine);
                    }
                    Ok(_) => {}
                    Err(error) => refused = Err(error),
                }
                refused.is_err() || chosen.len() >= most
            },
        )?;
        refused.map(|()| chosen)
    }

    /// The first engine that the limits allow, on a card that wants what cuDNN says for its properties.
    ///
    /// # Errors
    /// As [`Planner::engines`].
    pub fn choose(&self, of: PlanFor<'_>, graph: impl Into<GraphPlan>, limits: EngineLimits) -> Result<Option<Engine>> {
        Ok(self.choose_with((of, &graph.into()), (limits, 1), false, |name| Ok(Some(name.workspace)))?.pop())
    }

    /// An engine by its name, as cuDNN has it for a card: with the workspace that it wants there.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where this cuDNN is of another version; UNIMPLEMENTED where it has no such engine for the graph.
    pub fn rebuilt(&self, of: PlanFor<'_>, graph: impl Into<GraphPlan>, name: &EngineName) -> Result<Engine> {
        let card = self.card(of)?;
        self.build(&Target::Properties(&card), &graph.into(), name).map(|(engine, _)| engine)
    }

    /// Builds the engine of that name.
    ///
    /// # Errors
    /// As [`Planner::rebuilt`].
    pub(super) fn build(&self, of: &Target<'_>, graph: &GraphPlan, name: &EngineName) -> Result<(Engine, Descriptor)> {
        if name.version != self.version {
            let [own, others] = [self.version, name.version].map(EngineName::version_text);
            return Err(Error::failed_precondition(format!("an engine of cuDNN {others}, and this is cuDNN {own}")));
        }
        if name.finish != graph.finish() {
            return Err(Error::unimplemented(format!("{name} for a graph with `{}` behind the convolution", graph.finish())));
        }
        let handle = match *of {
            Target::Handle(handle) => Some(handle),
            Target::Properties(_) => None,
        };
        let made = graph.graph(&self.cudnn, handle)?;
        let engine = Descriptor::new(&self.cudnn, kind::ENGINE, "an engine")?;
        engine.descriptors(attribute::ENGINE_GRAPH, &[&made])?;
        engine.integers(attribute::ENGINE_INDEX, &[name.index])?;
        if let Target::Properties(card) = of {
            engine.descriptors(attribute::ENGINE_PROPERTIES, &[card])?;
        }
        let engine = engine.finish("an engine")?;
        let mut noted = noted(&engine, name.clone(), graph)?;
        let knob = |(of, value): &(i32, i64)| {
            let knob = Descriptor::new(&self.cudnn, kind::KNOB_CHOICE, "a knob")?;
            knob.number(attribute::KNOB_TYPE, element::KNOB_TYPE, *of)?;
            knob.integers(attribute::KNOB_VALUE, &[*value])?;
            knob.finish("a knob")
        };
        let knobs: Vec<Descriptor> = name.knobs.iter().map(knob).collect::<Result<_>>()?;
        let choice = Descriptor::new(&self.cudnn, kind::ENGINE_CHOICE, "a choice of an engine")?;
        choice.descriptors(attribute::CHOICE_ENGINE, &[&engine])?;
        if !knobs.is_empty() {
            choice.descriptors(attribute::CHOICE_KNOBS, &knobs.iter().collect::<Vec<_>>())?;
        }
        let plan = self.plan(of, &choice.finish("a choice of an engine")?)?;
        noted.name.workspace = workspace(&plan)?;
        Ok((noted, plan))
    }

    fn plan(&self, of: &Target<'_>, choice: &Descriptor) -> Result<Descriptor> {
        let plan = Descriptor::new(&self.cudnn, kind::PLAN, "a plan")?;
        plan.descriptors(attribute::PLAN_CHOICE, &[choice])?;
        match of {
            Target::Properties(card) => plan.descriptors(attribute::PLAN_PROPERTIES, &[card])?,
            Target::Handle(handle) => plan.addresses(attribute::PLAN_HANDLE, element::HANDLE, &[*handle])?,
        }
        plan.finish("a plan")
    }

    /// Shows the engines of a graph that are `wanted` to `take`, until it says that it has enough. Those that are `finished` have the workspace that
    /// they want by the card's properties, others none.
    fn look(
        &self,
        (of, graph): (PlanFor<'_>, &GraphPlan),
        wanted: impl Fn(&Engine) -> bool,
        finished: impl Fn(&Engine) -> bool,
        mut take: impl FnMut(Engine) -> bool,
    ) -> Result<()> {
        let (card, made) = (self.card(of)?, graph.graph(&self.cudnn, None)?);
        let heuristics = Descriptor::new(&self.cudnn, kind::HEURISTICS, "heuristics")?;
        heuristics.descriptors(attribute::HEURISTICS_GRAPH, &[&made])?;
        heuristics.number(attribute::HEURISTICS_MODE, element::HEURISTICS_MODE, BY_MODEL)?;
        heuristics.descriptors(attribute::HEURISTICS_PROPERTIES, &[&card])?;
        let heuristics = heuristics.finish("heuristics")?;
        let choices = heuristics.read_descriptors(attribute::HEURISTICS_RESULTS, kind::ENGINE_CHOICE, MOST_ENGINES)?;
        let (mut is_any, mut refusal) = (false, None);
        for choice in &choices {
            match self.engine(&card, (choice, graph), &wanted, &finished) {
                Ok(None) => is_any = true,
                Ok(Some(engine)) => {
                    is_any = true;
                    if take(engine) {
                        break;
                    }
                }
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        match refusal.filter(|_| !is_any) {
            Some(refusal) => Err(refusal),
            None if choices.is_empty() => Err(Error::unimplemented(format!("cuDNN has no engine for {}", graph.what()))),
            None => Ok(()),
        }
    }

    fn engine(
        &self,
        card: &Descriptor,
        (choice, graph): (&Descriptor, &GraphPlan),
        wanted: impl Fn(&Engine) -> bool,
        finished: impl Fn(&Engine) -> bool,
    ) -> Result<Option<Engine>> {
        let engine = choice.read_descriptor(attribute::CHOICE_ENGINE, kind::ENGINE)?;
        let knob =
            |knob: &Descriptor| Ok((knob.read_number(attribute::KNOB_TYPE, element::KNOB_TYPE)?, knob.integer(attribute::KNOB_VALUE)?));
        let knobs = choice.read_descriptors(attribute::CHOICE_KNOBS, kind::KNOB_CHOICE, MOST_KNOBS)?;
        let mut knobs = knobs.iter().map(knob).collect::<Result<Vec<_>>>()?;
        knobs.extend(graph.ordered());
        let (version, index) = (self.version, engine.integer(attribute::ENGINE_INDEX)?);
        let name = EngineName { version, index, knobs, workspace: Bytes::ZERO, padded: false, finish: graph.finish() };
        let mut engine = noted(&engine, name, graph)?;
        if !wanted(&engine) {
            return Ok(None);
        }
        if finished(&engine) {
            let target = Target::Properties(card);
            engine.name.workspace = match graph.ordered() {
                None => workspace(&self.plan(&target, choice)?)?,
                Some(_) => self.build(&target, graph, &engine.name)?.0.name.workspace,
            };
        }
        Ok(Some(engine))
    }
}

/// What is said of an engine.
fn noted(engine: &Descriptor, name: EngineName, graph: &GraphPlan) -> Result<Engine> {
    let numerics = engine.numbers(attribute::ENGINE_NUMERICS, element::NUMERICAL_NOTE)?;
    let behaviour = engine.numbers(attribute::ENGINE_BEHAVIOUR, element::BEHAVIOUR_NOTE)?;
    Ok(Engine::noted(name, graph, &numerics, behaviour.contains(&NOTE_COMPILES)))
}

/// The bytes of workspace of a plan.
fn workspace(plan: &Descriptor) -> Result<Bytes> {
    let workspace = plan.integer(attribute::PLAN_WORKSPACE)?;
    u64::try_from(workspace).map(Bytes).map_err(|_| Error::failed_precondition(format!("cuDNN: a workspace of {workspace} bytes")))
}
