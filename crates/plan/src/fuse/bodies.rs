//! Expressions of a body of a loop that read each other's results become one expression with several results, also where others read
//! these. A command costs as much as some hundred elements, and an iteration has each of them. The larger one is worth more threads.

use std::collections::{HashMap, HashSet};

use plimsoll_base::Result;
use plimsoll_graph::IdVec;

use super::{MAX_ARGS, MAX_STEPS, is_answered, is_whole, join};
use crate::Request;
use crate::lir::{Applied, Edges, Home, Lir, ValueId, Work, WorkId, WorkKind};
use crate::passes::{Check, Pass};
use crate::patch::{check, may_fuse};

/// Larger results stay apart: those of one work are in memory at the same time.
const MOST_BYTES: u64 = 64 << 10;

/// A body of more works stays as it is: it is looked through for each join.
const MOST_WORKS: usize = 512;

/// Joins expressions of the region at hand, where that is the body of a loop.
///
/// # Errors
/// INTERNAL where a join breaks a rule of the LIR; the error of `go_on`.
pub(super) fn join_in_body(request: &Request<'_>, lir: &mut Lir, go_on: &Check<'_>) -> Result<()> {
    if lir.region().works.len() > MOST_WORKS || lir.holder(lir.here()).is_none() {
        return Ok(());
    }
    let mut body = Body::new(lir);
    let mut is_joined: IdVec<WorkId, bool> = IdVec::filled(false, lir.works.len());
    let mut refused: Vec<(WorkId, WorkId)> = Vec::new();
    while may_fuse(request, lir)
        && let Some((producer, consumer)) = body.pair(lir, &refused)?
    {
        go_on()?;
        let kept = body.kept(lir, producer, consumer);
        match join(lir, producer, consumer, &kept)?.filter(|joined| is_answered(request, joined)) {
            Some(joined) => {
                body.replace(lir, producer, consumer, joined);
                is_joined[producer] = true;
                lir.fusions.push(Applied { name: "expressions", node: lir.works[consumer].nodes[0] });
                check(request, lir, &is_joined, Pass::Fuse)?;
                refused.clear();
            }
            None => refused.push((producer, consumer)),
        }
    }
    lir.retain(|id| !is_joined[id])
}

/// The body of a loop while its works are joined.
struct Body {
    /// Those that are left.
    works: Vec<WorkId>,
    edges: Edges,
    /// By work: those that wait for it.
    waiting: HashMap<WorkId, Vec<WorkId>>,
    /// What is overwritten by versions that others read or wait for. Its readers have to be done before these begin.
    passing: HashSet<ValueId>,
}

impl Body {
    fn new(lir: &Lir) -> Body {
        let edges = Edges::new(lir);
        let mut waiting: HashMap<WorkId, Vec<WorkId>> = HashMap::new();
        for (id, work) in lir.all() {
            work.after.iter().for_each(|before| waiting.entry(*before).or_default().push(id));
        }
        let mut passing = HashSet::new();
        for (_, version) in lir.versions() {
            if edges.readers[version].is_empty() && edges.makers[version].is_none_or(|maker| !waiting.contains_key(&maker)) {
                continue;
            }
            let mut at = lir.values[version].previous;
            while let Some(old) = at.filter(|old| passing.insert(*old)) {
                at = lir.values[old].previous;
            }
        }
        Body { works: lir.ids(), edges, waiting, passing }
    }

    /// The results of a producer that others than the consumer read.
    fn kept(&self, lir: &Lir, producer: WorkId, consumer: WorkId) -> Vec<ValueId> {
        let is_read = |output: &ValueId| {
            self.edges.readers[*output].iter().any(|reader| *reader != consumer) || lir.region().results.contains(output)
        };
        lir.works[producer].outputs.iter().copied().filter(is_read).collect()
    }

    /// The consumer becomes `joined`, and the producer is gone.
    fn replace(&mut self, lir: &mut Lir, producer: WorkId, consumer: WorkId, joined: Work) {
        self.works.retain(|id| *id != producer);
        [producer, consumer].into_iter().for_each(|id| self.edges.forget(id, &lir.works[id]));
        self.edges.add(consumer, &joined);
        lir.works[consumer] = joined;
    }

    /// The first two works that can be one, but for those refused: a producer, and a reader of its results.
    fn pair(&self, lir: &Lir, refused: &[(WorkId, WorkId)]) -> Result<Option<(WorkId, WorkId)>> {
        for consumer in lir.topological_of(&self.works, &self.edges.makers)? {
            for view in &lir.works[consumer].inputs {
                let Some(producer) = self.edges.makers[view.value] else { continue };
                if !refused.contains(&(producer, consumer)) && self.fit(lir, producer, consumer) {
                    return Ok(Some((producer, consumer)));
                }
            }
        }
        Ok(None)
    }

    fn fit(&self, lir: &Lir, producer: WorkId, consumer: WorkId) -> bool {
        let [made, user] = [producer, consumer].map(|id| &lir.works[id]);
        let (WorkKind::Expr { expr, shape }, WorkKind::Expr { expr: behind, shape: other }) = (&made.kind, &user.kind) else {
            return false;
        };
        // Each element once, as it is made.
        let as_made = made.outputs.iter().zip(expr.outputs()).all(|(output, reg)| {
            let mut views = user.inputs.iter().filter(|view| view.value == *output);
            views.all(|view| view.data_type == expr.type_of(*reg) && is_whole(view, shape))
        });
        let arguments = [made, user].map(|work| work.inputs.len() + work.outputs.len()).iter().sum::<usize>();
        shape == other
            && made.device == user.device
            && as_made
            && arguments <= MAX_ARGS
            && expr.instrs().len() + behind.instrs().len() <= MAX_STEPS
            && [producer, consumer].into_iter().all(|id| self.may_join(lir, id))
            && !self.is_between(lir, producer, consumer)
    }

    /// Whether a work is one that nothing but values ties to a place in the order.
    fn may_join(&self, lir: &Lir, id: WorkId) -> bool {
        let work: &Work = &lir.works[id];
        let is_small = |output: &ValueId| {
            let value = &lir.values[*output];
            value.home == Home::Arena && value.bytes <= MOST_BYTES
        };
        !work.is_root
            && work.guard.is_none()
            && !work.can_fail()
            && work.after.is_empty()
            && !self.waiting.contains_key(&id)
            && work.outputs.iter().all(is_small)
            && !work.reads().any(|value| self.passing.contains(&value))
    }

    /// Whether a work has to run behind the producer, and before the consumer.
    fn is_between(&self, lir: &Lir, producer: WorkId, consumer: WorkId) -> bool {
        let readers = |id: WorkId| lir.works[id].outputs.iter().flat_map(|output| self.edges.readers[*output].iter().copied());
        let mut open: Vec<WorkId> = readers(producer).filter(|reader| *reader != consumer).collect();
        let mut seen: HashSet<WorkId> = open.iter().copied().collect();
        while let Some(id) = open.pop() {
            if id == consumer {
                return true;
            }
            let behind = readers(id).chain(self.waiting.get(&id).into_iter().flatten().copied());
            open.extend(behind.filter(|other| seen.insert(*other)).collect::<Vec<_>>());
        }
        false
    }
}
