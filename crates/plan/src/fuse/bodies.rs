//! Expressions of a body of a loop that read each other's results become one expression with several results, also where others read
//! these. A command costs as much as some hundred elements, and an iteration has each of them. The larger one is worth more threads.

use std::collections::{HashMap, HashSet};

use plimsoll_base::Result;
use plimsoll_graph::IdVec;

use super::{MAX_ARGS, MAX_STEPS, is_answered, is_whole, join};
use crate::Request;
use crate::lir::{Applied, Home, Lir, ValueId, Work, WorkId, WorkKind};
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
    let mut refused: Vec<(WorkId, WorkId)> = Vec::new();
    while may_fuse(request, lir)
        && let Some((producer, consumer)) = Body::new(lir).pair(&refused)?
    {
        go_on()?;
        let kept = kept(lir, producer, consumer);
        match join(lir, producer, consumer, &kept)?.filter(|joined| is_answered(request, joined)) {
            Some(joined) => {
                lir.works[consumer] = joined;
                lir.fusions.push(Applied { name: "expressions", node: lir.works[consumer].nodes[0] });
                lir.retain(|id| id != producer)?;
                check(request, lir, &IdVec::filled(false, lir.works.len()), Pass::Fuse)?;
                refused.clear();
            }
            None => refused.push((producer, consumer)),
        }
    }
    Ok(())
}

/// The results of a producer that others than the consumer read.
fn kept(lir: &Lir, producer: WorkId, consumer: WorkId) -> Vec<ValueId> {
    let uses = lir.uses();
    let is_read = |output: &ValueId| uses[*output].iter().any(|reader| *reader != consumer) || lir.region().results.contains(output);
    lir.works[producer].outputs.iter().copied().filter(is_read).collect()
}

struct Body<'a> {
    lir: &'a Lir,
    definitions: IdVec<ValueId, Option<WorkId>>,
    uses: IdVec<ValueId, Vec<WorkId>>,
    /// By work: those that wait for it.
    waiting: HashMap<WorkId, Vec<WorkId>>,
    /// What is overwritten by versions that others read or wait for. Its readers have to be done before these begin.
    passing: HashSet<ValueId>,
}

impl<'a> Body<'a> {
    fn new(lir: &'a Lir) -> Body<'a> {
        let (definitions, uses) = (lir.definitions(), lir.uses());
        let mut waiting: HashMap<WorkId, Vec<WorkId>> = HashMap::new();
        for (id, work) in lir.all() {
            work.after.iter().for_each(|before| waiting.entry(*before).or_default().push(id));
        }
        let mut passing = HashSet::new();
        for (_, version) in lir.versions() {
            if uses[version].is_empty() && definitions[version].is_none_or(|maker| !waiting.contains_key(&maker)) {
                continue;
            }
            let mut at = lir.values[version].previous;
            while let Some(old) = at.filter(|old| passing.insert(*old)) {
                at = lir.values[old].previous;
            }
        }
        Body { lir, definitions, uses, waiting, passing }
    }

    /// The first two works that can be one, but for those refused: a producer, and a reader of its results.
    fn pair(&self, refused: &[(WorkId, WorkId)]) -> Result<Option<(WorkId, WorkId)>> {
        for consumer in self.lir.topological()? {
            for view in &self.lir.works[consumer].inputs {
                let Some(producer) = self.definitions[view.value] else { continue };
                if !refused.contains(&(producer, consumer)) && self.fit(producer, consumer) {
                    return Ok(Some((producer, consumer)));
                }
            }
        }
        Ok(None)
    }

    fn fit(&self, producer: WorkId, consumer: WorkId) -> bool {
        let [made, user] = [producer, consumer].map(|id| &self.lir.works[id]);
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
            && [producer, consumer].into_iter().all(|id| self.may_join(id))
            && !self.is_between(producer, consumer)
    }

    /// Whether a work is one that nothing but values ties to a place in the order.
    fn may_join(&self, id: WorkId) -> bool {
        let work: &Work = &self.lir.works[id];
        let is_small = |output: &ValueId| {
            let value = &self.lir.values[*output];
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
    fn is_between(&self, producer: WorkId, consumer: WorkId) -> bool {
        let readers = |id: WorkId| self.lir.works[id].outputs.iter().flat_map(|output| self.uses[*output].iter().copied());
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
