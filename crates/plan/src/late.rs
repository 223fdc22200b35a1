//! Sizes that a run makes itself. A request that cannot be planned for lack of them runs in stages: the first makes the tensors that
//! sizes depend on (the *late* tensors), the rest is planned with their elements. The rest may be late again.
//!
//! A first stage is everything that late tensors come after, by data or control. Tensors of it that the rest reads, or that are
//! fetched, are *carried*: fetched by the first stage, and fed to the rest. What costs nothing is not carried but done again:
//! constants, handles of variables, and Switches of a known predicate, which say what is dead.
//!
//! Late tensors and carried ones are alive in any case. Where one is alive only on one side of a condition, the predicates of that
//! condition come first, the outer ones before the inner ones.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Kind, Result};
use plimsoll_graph::{HostTensor, NodeId, Output, Shape};
use plimsoll_ops::{Fact, Lower};

use crate::alive::When;
use crate::infer::{Pruned, fed_instead, prune_and_infer};
use crate::plan::Plan;
use crate::request::{Feed, Request, Signature};

/// What a request lacks that cannot be planned for lack of values.
#[derive(Clone, Debug)]
pub enum Late {
    /// The elements of these feeds, by their positions.
    Feeds(Vec<usize>),
    /// Tensors that a first stage of the run makes.
    Stage(Box<Split>),
}

/// A run in stages.
#[derive(Clone, Debug)]
pub struct Split {
    /// The first stage. It takes all feeds; its fetches are the late tensors, then the carried ones.
    pub first: Signature,
    /// The rest.
    pub later: Later,
}

/// The rest of a run behind its first stage.
#[derive(Clone, Debug)]
pub struct Later {
    /// The first node whose sizes only the run knows.
    pub from: NodeId,
    /// The tensors that they depend on.
    pub tensors: Vec<String>,
    /// Name, type and shape of each tensor that the whole run fetches; that of an empty vector, where only the run knows it.
    pub fetches: Vec<(String, DataType, Shape)>,
    /// The plans of the rest, where they are few and all known beforehand; else none.
    pub plans: Vec<Arc<Plan>>,
    /// For each fetch of the whole run, who makes it.
    sources: Vec<Source>,
    /// The rest, without the elements of late tensors.
    signature: Signature,
    /// The position of the first late tensor among its feeds.
    first: usize,
}

/// The maker of a fetched tensor, and the position at it.
#[derive(Clone, Copy, Debug)]
enum Source {
    FirstStage(usize),
    Rest(usize),
}

/// More late bools than these have too many values to plan for all.
const MOST_BOOLS: usize = 4;

impl Later {
    /// With the plans of the rest.
    #[must_use]
    pub fn with_plans(self, plans: Vec<Arc<Plan>>) -> Later {
        Later { plans, ..self }
    }

    /// The signature of the rest, where the first stage has fetched these.
    pub fn signature(&self, made: &[HostTensor]) -> Signature {
        let mut signature = self.signature.clone();
        for (feed, value) in signature.feeds[self.first..].iter_mut().zip(&made[..self.tensors.len()]) {
            feed.value = Some(value.clone());
        }
        signature
    }

    /// The signatures that the rest may have, where late tensors are a few bools; else none.
    ///
    /// # Errors
    /// Those of tensors.
    pub fn alternatives(&self) -> Result<Vec<Signature>> {
        let late = &self.signature.feeds[self.first..][..self.tensors.len()];
        let is_bool = |feed: &Feed| feed.data_type == DataType::Bool && feed.shape == Shape::scalar();
        if late.len() > MOST_BOOLS || !late.iter().all(is_bool) {
            return Ok(Vec::new());
        }
        let values = |number: usize| {
            let bool = |bit: usize| HostTensor::from_bools(Shape::scalar(), &[number >> bit & 1 == 1]);
            Ok(self.signature(&(0..late.len()).map(bool).collect::<Result<Vec<_>>>()?))
        };
        (0..1 << late.len()).map(values).collect()
    }

    /// The fetched tensors of the whole run, of those of the first stage and of the rest.
    ///
    /// # Errors
    /// INTERNAL where there are too few.
    pub fn assemble(&self, made: &[HostTensor], rest: &[HostTensor]) -> Result<Vec<HostTensor>> {
        let fetched = |source: &Source| match *source {
            Source::FirstStage(position) => made.get(position),
            Source::Rest(position) => rest.get(position),
        };
        let fetched = |source| fetched(source).cloned().ok_or_else(|| Error::internal("a stage lacks a fetched tensor"));
        self.sources.iter().map(fetched).collect()
    }
}

/// What a request lacks, whose planning ended with `error`; none where no stage would help.
///
/// # Errors
/// As [`crate::plan()`]. UNIMPLEMENTED for a reference or handle that nodes of the first stage make and the rest reads.
pub fn late(request: &Request<'_>, error: &Error) -> Result<Option<Late>> {
    if error.kind() != Kind::NeedsValues {
        return Ok(None);
    }
    let pruned = prune_and_infer(request)?;
    let splitter = Splitter { request, pruned: &pruned };
    let Some((from, wanted)) = splitter.wanted(error) else { return Ok(None) };
    // A loop is in one stage: what its iterations lack, no stage before has.
    if wanted.iter().any(|tensor| pruned.frames.is_within(tensor.node)) {
        return Ok(None);
    }
    let position = |tensor: &Output| pruned.feeds.iter().position(|feed| feed == tensor);
    let mut wanted = splitter.outermost(wanted);
    // Every round goes to predicates before those of the round before.
    loop {
        let fed: Vec<usize> = wanted.iter().filter_map(position).collect();
        if !fed.is_empty() {
            return Ok(Some(Late::Feeds(fed)));
        }
        if wanted.is_empty() {
            return Ok(None);
        }
        let stage = splitter.stage(&wanted);
        let behind = splitter.behind(&stage);
        if behind.predicates.is_empty() {
            return splitter.split(from, &wanted, &stage, behind).map(|split| Some(Late::Stage(Box::new(split))));
        }
        if behind.predicates.iter().any(|tensor| pruned.frames.is_within(tensor.node)) {
            return Ok(None);
        }
        wanted = behind.predicates;
    }
}

/// The nodes before late tensors.
struct Stage {
    /// Those that are done there and nowhere else.
    done: HashSet<NodeId>,
    /// The same, in order.
    order: Vec<NodeId>,
}

/// The part of a run behind a first stage.
#[derive(Default)]
struct Behind {
    /// Tensors of the first stage that it reads or that are fetched.
    carried: BTreeSet<Output>,
    /// Predicates that have to be known before the first stage can be told from the rest.
    predicates: BTreeSet<Output>,
}

struct Splitter<'a> {
    request: &'a Request<'a>,
    pruned: &'a Pruned,
}

impl Splitter<'_> {
    fn fact(&self, tensor: Output) -> Option<&Fact> {
        self.pruned.facts[tensor.node].get(tensor.index as usize)
    }

    fn lower(&self, id: NodeId) -> Option<Lower> {
        self.request.registry.get(&self.request.graph.node(id).op).map(|rules| rules.lower)
    }

    fn when(&self, tensor: Output) -> When {
        if self.pruned.is_fed(tensor) { When::Always } else { self.pruned.alive.output(tensor) }
    }

    /// Whether the size of a tensor is known.
    fn is_sized(&self, tensor: Output) -> bool {
        self.fact(tensor).is_some_and(|fact| fact.data_type == DataType::Resource || fact.shape.complete().is_some())
    }

    fn is_whole(&self, id: NodeId) -> bool {
        (0..self.pruned.facts[id].len()).all(|index| self.is_sized(Output { node: id, index: index as u32 }))
    }

    /// The tensors whose elements are wanted, and the first node that wants some.
    fn wanted(&self, error: &Error) -> Option<(NodeId, BTreeSet<Output>)> {
        let mut first = None;
        let mut wanted = BTreeSet::new();
        // Those of unknown size, and those behind them: of no use to a first stage.
        let mut open: HashSet<NodeId> = HashSet::new();
        for &id in self.pruned.order.iter().filter(|id| self.pruned.alive.node(**id) != When::Never) {
            if self.before(id).iter().any(|before| open.contains(before)) {
                open.insert(id);
                continue;
            }
            if !self.is_whole(id) {
                open.insert(id);
            }
            let more = self.wanted_by(id);
            if !more.is_empty() {
                first.get_or_insert(id);
                wanted.extend(more);
            }
        }
        if first.is_none() {
            // All sizes are known: a kernel wants elements.
            let id = self.request.graph.find(error.node()?)?;
            let is_small = |input: &Output| {
                let fact = self.fact(*input)?;
                let is_of_sizes = fact.data_type.is_integer() || fact.data_type == DataType::Bool;
                Some(is_of_sizes && fact.value.is_none() && fact.shape.complete()?.elements().ok()? <= MOST_ELEMENTS)
            };
            wanted.extend(self.request.graph.node(id).inputs.iter().filter(|input| is_small(input) == Some(true)).copied());
            first = Some(id).filter(|_| !wanted.is_empty());
        }
        Some((first?, wanted))
    }

    /// The tensors whose elements a node lacks for the sizes of its results, where the sizes of its inputs are known.
    fn wanted_by(&self, id: NodeId) -> Vec<Output> {
        let node = self.request.graph.node(id);
        if self.is_whole(id) {
            return Vec::new();
        }
        let own = self.pruned.alive.node(id);
        let living = || node.inputs.iter().copied().filter(|input| self.when(*input) != When::Never);
        if let Some(Lower::Merge) = self.lower(id) {
            let holds = |side: &crate::alive::Side| matches!(&own, When::Under(sides) if sides.contains(side));
            return living()
                .flat_map(|input| sides(&self.when(input)))
                .filter(|side| !holds(side))
                .map(|(predicate, _)| predicate)
                .collect();
        }
        self.pruned.unanswered.get(&id).map_or_else(Vec::new, |asked| asked.iter().map(|position| node.inputs[*position]).collect())
    }

    /// The tensors that are alive in any case, and in the place of each other one the outer predicates that it depends on.
    fn outermost(&self, tensors: BTreeSet<Output>) -> BTreeSet<Output> {
        let mut outermost = BTreeSet::new();
        for tensor in tensors {
            match self.when(tensor) {
                When::Always => drop(outermost.insert(tensor)),
                when => outermost.extend(self.outer_predicates(&when)),
            }
        }
        outermost
    }

    fn outer_predicates(&self, when: &When) -> Vec<Output> {
        sides(when).into_iter().map(|(predicate, _)| predicate).filter(|predicate| self.when(*predicate) == When::Always).collect()
    }

    /// Everything that these tensors come after.
    fn stage(&self, tensors: &BTreeSet<Output>) -> Stage {
        let (mut seen, mut joined) = (HashSet::new(), HashSet::new());
        let mut open: Vec<NodeId> = tensors.iter().map(|tensor| tensor.node).collect();
        while let Some(id) = open.pop() {
            if self.pruned.alive.node(id) == When::Never || !seen.insert(id) {
                continue;
            }
            open.extend(self.before(id));
            // A loop is in one stage, whichever of its results are read.
            if let Some(outermost) = self.pruned.frames.outermost(id).filter(|outermost| joined.insert(*outermost)) {
                open.extend(self.pruned.frames.nodes(outermost));
            }
        }
        let order: Vec<NodeId> = self.pruned.order.iter().copied().filter(|id| seen.contains(id) && !self.is_free(*id)).collect();
        Stage { done: order.iter().copied().collect(), order }
    }

    /// The nodes that a node waits for, but for those that are fed instead or were done before.
    fn before(&self, id: NodeId) -> Vec<NodeId> {
        let node = self.request.graph.node(id);
        let inputs = node.inputs.iter().filter(|input| !self.pruned.is_fed(**input)).map(|input| input.node);
        inputs.chain(self.controls(id)).collect()
    }

    fn controls(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let graph = self.request.graph;
        let runs = |control: &NodeId| self.pruned.needed[*control] && fed_instead(graph, &self.pruned.fed, *control).is_none();
        graph.node(id).controls.iter().copied().filter(runs)
    }

    /// Whether a node costs nothing, and is done again by every stage that reads it.
    fn is_free(&self, id: NodeId) -> bool {
        let (node, facts) = (self.request.graph.node(id), &self.pruned.facts[id]);
        let stands_for_variable = || facts.iter().all(|fact| fact.is_ref || fact.data_type == DataType::Resource);
        match self.lower(id) {
            Some(Lower::Variable | Lower::Const | Lower::Placeholder) => true,
            Some(Lower::Switch) if self.fact(node.inputs[1]).is_some_and(|predicate| predicate.value.is_some()) => true,
            Some(Lower::Alias | Lower::Switch | Lower::Merge) if !facts.is_empty() && facts[0].is_ref => stands_for_variable(),
            Some(Lower::Alias | Lower::Switch | Lower::Merge) if !facts.is_empty() => {
                facts[0].data_type == DataType::Resource || facts.iter().all(|fact| fact.value.is_some())
            }
            _ => !facts.is_empty() && facts.iter().all(|fact| fact.value.is_some()),
        }
    }

    /// The part of the run behind a stage.
    fn behind(&self, stage: &Stage) -> Behind {
        let graph = self.request.graph;
        let mut behind = Behind::default();
        let mut seen: HashSet<NodeId> = HashSet::new();
        let mut open: Vec<NodeId> = Vec::new();
        for &fetch in &self.pruned.fetches {
            match stage.done.contains(&fetch.node) {
                true => self.carry(fetch, &mut behind),
                false => open.push(fetch.node),
            }
        }
        open.extend(self.pruned.targets.iter().filter(|target| !stage.done.contains(target)));
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let is_dead = self.pruned.alive.node(id) == When::Never;
            for &input in graph.node(id).inputs.iter().filter(|input| !self.pruned.is_fed(**input)) {
                match stage.done.contains(&input.node) {
                    true if is_dead && self.when(input) != When::Always => {}
                    true => self.carry(input, &mut behind),
                    false => open.push(input.node),
                }
            }
            for control in self.controls(id) {
                match stage.done.contains(&control) {
                    true if is_dead => {}
                    true => behind.predicates.extend(self.outer_predicates(&self.pruned.alive.node(control))),
                    false => open.push(control),
                }
            }
        }
        behind
    }

    fn carry(&self, tensor: Output, behind: &mut Behind) {
        match self.when(tensor) {
            When::Always => drop(behind.carried.insert(tensor)),
            When::Never => {}
            when => behind.predicates.extend(self.outer_predicates(&when)),
        }
    }

    fn split(&self, from: NodeId, wanted: &BTreeSet<Output>, stage: &Stage, behind: Behind) -> Result<Split> {
        let (graph, given) = (self.request.graph, self.request.signature);
        let carried = behind.carried.iter().copied().filter(|tensor| !wanted.contains(tensor));
        let made: Vec<Output> = wanted.iter().copied().chain(carried).collect();
        let mut signature = Signature { feeds: given.feeds.clone(), done: given.done.clone(), ..Signature::default() };
        for &tensor in &made {
            let node = graph.node(tensor.node);
            let fact = self.fact(tensor).ok_or_else(|| Error::internal("a tensor without facts"))?;
            if fact.is_ref || fact.data_type.size().is_none() {
                let what = format!("not yet: {} is made in an earlier stage of the run than the one that reads it", fact_name(fact));
                return Err(Error::unimplemented(what).at_node(&node.name));
            }
            let shape = fact.shape.complete().ok_or_else(|| Error::needs_values(format!("the shape of {} is late", node.name)))?;
            signature.feeds.push(Feed { tensor: graph.tensor_name(tensor), data_type: fact.data_type, shape, value: None });
        }
        signature.done.extend(stage.order.iter().map(|id| graph.node(*id).name.clone()));
        let is_done = |target: &&NodeId| stage.done.contains(*target);
        let name = |target: &NodeId| graph.node(*target).name.clone();
        signature.targets = self.pruned.targets.iter().filter(|target| !is_done(target)).map(name).collect();
        let first = Signature {
            feeds: given.feeds.clone(),
            fetches: made.iter().map(|tensor| graph.tensor_name(*tensor)).collect(),
            targets: self.pruned.targets.iter().filter(is_done).map(name).collect(),
            done: given.done.clone(),
        };
        let mut sources = Vec::with_capacity(given.fetches.len());
        let mut fetches = Vec::with_capacity(given.fetches.len());
        for (tensor, name) in self.pruned.fetches.iter().zip(&given.fetches) {
            let fact = self.fact(*tensor).ok_or_else(|| Error::internal("a fetch without facts"))?;
            fetches.push((name.clone(), fact.data_type, fact.shape.complete().unwrap_or_else(|| Shape::from([0]))));
            sources.push(match made.iter().position(|made| made == tensor) {
                Some(position) => Source::FirstStage(position),
                None => {
                    signature.fetches.push(name.clone());
                    Source::Rest(signature.fetches.len() - 1)
                }
            });
        }
        let tensors = first.fetches[..wanted.len()].to_vec();
        let later = Later { from, tensors, fetches, plans: Vec::new(), sources, signature, first: given.feeds.len() };
        Ok(Split { first, later })
    }
}

/// A kernel that wants more elements than this does not want sizes.
const MOST_ELEMENTS: u64 = 4096;

fn sides(when: &When) -> Vec<crate::alive::Side> {
    match when {
        When::Under(sides) => sides.to_vec(),
        _ => Vec::new(),
    }
}

fn fact_name(fact: &Fact) -> String {
    match fact.is_ref {
        true => "a reference to a variable".to_string(),
        false => format!("a value of type {}", fact.data_type),
    }
}
