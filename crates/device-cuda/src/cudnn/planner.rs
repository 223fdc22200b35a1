//! The planner: engines for graphs.

use std::path::Path;
use std::sync::Arc;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_cards::Environment;

use super::convolution::ConvolutionPlan;
use super::descriptor::Descriptor;
use super::raw::{BY_MODEL, Functions, NOTE_COMPILES, NOTE_NONDETERMINISTIC, NOTE_TENSOR_CORE, attribute, element, kind};
use crate::ComputeLibrary;
use crate::library::Library;

/// The oldest cuDNN that plans without a card.
const OLDEST: usize = 90_800;

/// The card that plans are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanFor<'a> {
    /// One with these properties, as JSON. It may be on another machine.
    Properties(&'a str),
    /// The card with this number here.
    Here(i32),
}

/// A way of cuDNN to compute a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Its number in this version.
    pub index: i64,
    /// Bytes of workspace.
    pub workspace: Bytes,
    /// Whether it gives the same bits each time.
    pub is_deterministic: bool,
    /// Whether it uses tensor cores: floats are rounded to TF32 for these.
    pub uses_tensor_cores: bool,
    /// Whether cuDNN compiles it for the graph.
    pub is_compiled: bool,
}

/// The engines that are in the library already. Without the file all are compiled for a graph.
const PRECOMPILED: &str = "libcudnn_engines_precompiled.so.9";

/// cuDNN, as far as it plans.
#[derive(Debug)]
pub struct Planner {
    cudnn: Arc<Functions>,
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

    /// The first engines for a convolution, at most so many, best first as cuDNN predicts. Those that it cannot finish are left out. An
    /// engine that is compiled takes seconds.
    ///
    /// # Errors
    /// UNIMPLEMENTED where cuDNN has no engine for it; otherwise what it says of graph or card.
    pub fn engines(&self, of: PlanFor<'_>, graph: &ConvolutionPlan, most: usize) -> Result<Vec<Engine>> {
        let (card, graph) = (self.card(of)?, graph.graph(&self.cudnn)?);
        let heuristics = Descriptor::new(&self.cudnn, kind::HEURISTICS, "heuristics")?;
        heuristics.descriptors(attribute::HEURISTICS_GRAPH, &[&graph])?;
        heuristics.number(attribute::HEURISTICS_MODE, element::HEURISTICS_MODE, BY_MODEL)?;
        heuristics.descriptors(attribute::HEURISTICS_PROPERTIES, &[&card])?;
        let heuristics = heuristics.finish("heuristics")?;
        let choices = heuristics.read_descriptors(attribute::HEURISTICS_RESULTS, kind::ENGINE_CHOICE, 64)?;
        let (mut engines, mut refusal) = (Vec::new(), None);
        for choice in &choices {
            if engines.len() == most {
                break;
            }
            match self.engine(&card, choice) {
                Ok(engine) => engines.push(engine),
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        match refusal.filter(|_| engines.is_empty() && most > 0) {
            Some(refusal) => Err(refusal),
            None if choices.is_empty() => Err(Error::unimplemented("cuDNN has no engine for a convolution")),
            None => Ok(engines),
        }
    }

    fn engine(&self, card: &Descriptor, choice: &Descriptor) -> Result<Engine> {
        let plan = Descriptor::new(&self.cudnn, kind::PLAN, "a plan")?;
        plan.descriptors(attribute::PLAN_CHOICE, &[choice])?;
        plan.descriptors(attribute::PLAN_PROPERTIES, &[card])?;
        let plan = plan.finish("a plan")?;
        let workspace = plan.integer(attribute::PLAN_WORKSPACE)?;
        let workspace =
            u64::try_from(workspace).map_err(|_| Error::failed_precondition(format!("cuDNN: a workspace of {workspace} bytes")))?;
        let engine = choice.read_descriptor(attribute::CHOICE_ENGINE, kind::ENGINE)?;
        let numerics = engine.numbers(attribute::ENGINE_NUMERICS, element::NUMERICAL_NOTE)?;
        let behaviour = engine.numbers(attribute::ENGINE_BEHAVIOUR, element::BEHAVIOUR_NOTE)?;
        Ok(Engine {
            index: engine.integer(attribute::ENGINE_INDEX)?,
            workspace: Bytes(workspace),
            is_deterministic: !numerics.contains(&NOTE_NONDETERMINISTIC),
            uses_tensor_cores: numerics.contains(&NOTE_TENSOR_CORE),
            is_compiled: behaviour.contains(&NOTE_COMPILES),
        })
    }
}
