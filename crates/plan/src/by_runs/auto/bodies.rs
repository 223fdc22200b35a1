//! The order of a run's works on paper, where loops are one work, or where their bodies are placed work by work.
//!
//! A loop takes as long as one iteration on the devices of its body, times the iterations: each begins when the one before has ended on all
//! of them. So each work of a body is on paper once, between what the loop is given and what it hands out, and takes as long as in all
//! iterations together. So does a copy of what an iteration makes; what stays in the loop is copied once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use plimsoll_base::Result;
use plimsoll_graph::{IdVec, NodeId};
use plimsoll_request::anchor::Anchor;

use super::problem::is_transfer;
use crate::lir::{Home, Lir, RegionId, ValueId, WorkId, WorkKind};

/// The rank of the work of each node.
type Ranks = HashMap<NodeId, u32>;

/// What is on paper.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    /// A work of a region.
    Work(WorkId, RegionId),
    /// What a work of a body reads, at the moment at which a plan copies it to the work's device: by the rank of the work, although other
    /// works come before it.
    Reach(WorkId, RegionId, ValueId),
    /// A value of one region becomes one of another.
    Hand(Hand),
}

/// A value that a loop is given, or that leaves it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hand {
    /// The loop.
    pub holder: WorkId,
    pub from: ValueId,
    pub to: ValueId,
    /// A node that is where the loop has it.
    pub node: NodeId,
}

/// The works of a run, each behind what it needs.
pub(super) struct Order {
    pub items: Vec<Item>,
    /// For each region how often it runs. Those that are a part of a work run once.
    pub times: IdVec<RegionId, f64>,
    /// Of what stays in a loop: the value around it for each parameter.
    outer: HashMap<ValueId, ValueId>,
    /// For each region with works of its own the bool that says whether there is an iteration.
    tests: HashMap<RegionId, ValueId>,
}

impl Order {
    /// The works of a plan, with those of bodies in place of their loops if there are the works `apart`, before they were fused.
    ///
    /// # Errors
    /// INTERNAL where works form a cycle.
    pub fn new(lir: &Lir, apart: Option<&Lir>) -> Result<Order> {
        let times = IdVec::filled(1.0, lir.regions.len());
        let mut order = Order { items: Vec::new(), times, outer: HashMap::new(), tests: HashMap::new() };
        let ranks = apart.map(|apart| apart.works.values().rev().filter_map(|work| Some((*work.nodes.first()?, work.rank))).collect());
        order.region(lir, lir.here(), ranks.as_ref())?;
        Ok(order)
    }

    fn region(&mut self, lir: &Lir, region: RegionId, ranks: Option<&Ranks>) -> Result<()> {
        let is_body = region != lir.here();
        // For each value its readers, with their ranks before they were fused: those of copies.
        let mut readers: HashMap<ValueId, Vec<(u32, WorkId)>> = HashMap::new();
        for &id in lir.regions[region].works.iter().filter(|id| is_body && lir.works[**id].regions().is_empty()) {
            let work = &lir.works[id];
            let first = ranks.and_then(|ranks| ranks.get(&work.nodes[0])).map_or(work.rank, |rank| work.rank.min(*rank));
            for (at, input) in work.inputs.iter().enumerate() {
                let is_of_main = matches!(work.kind, WorkKind::Anchor { .. }) && at < Anchor::INPUTS;
                readers.entry(input.value).or_default().push((if is_of_main { first } else { work.rank }, id));
            }
        }
        // What is there and is read by a work of a lower rank than the next one.
        let mut there: BinaryHeap<Reverse<(u32, WorkId, ValueId)>> = BinaryHeap::new();
        let mut done: HashSet<WorkId> = HashSet::new();
        for id in lir.topological_in(region)? {
            while let Some(Reverse((_, reader, value))) = there.peek().copied().filter(|next| next.0.0 < lir.works[id].rank) {
                there.pop();
                self.items.extend((!done.contains(&reader)).then_some(Item::Reach(reader, region, value)));
            }
            done.insert(id);
            let made = lir.works[id].outputs.iter().filter_map(|output| Some((*output, readers.get(output)?)));
            let reach = made.flat_map(|(value, readers)| readers.iter().map(move |(rank, reader)| Reverse((*rank, *reader, value))));
            there.extend(reach);
            match lir.works[id].kind {
                WorkKind::Loop { body, carried, trips } if ranks.is_some() => {
                    self.times[body] = self.times[region] * trips.predicted();
                    self.body(lir, id, (body, carried), ranks)?;
                }
                _ => self.items.push(Item::Work(id, region)),
            }
        }
        Ok(())
    }

    /// The works of a loop. Loops are at most 64 deep in each other.
    fn body(&mut self, lir: &Lir, holder: WorkId, (body, carried): (RegionId, usize), ranks: Option<&Ranks>) -> Result<()> {
        let work = &lir.works[holder];
        let index = |param: ValueId| match lir.values[param].home {
            Home::Given { param, .. } => param as usize,
            _ => usize::MAX,
        };
        let params: Vec<(ValueId, usize)> = lir.passed(body).map(|param| (param, index(param))).collect();
        let results = &lir.regions[body].results;
        let hand = |from: ValueId, to: ValueId, node: NodeId| Item::Hand(Hand { holder, from, to, node });
        for &(param, index) in &params {
            let Some(input) = work.inputs.get(index) else { continue };
            match results.get(index) {
                Some(result) => self.items.push(hand(input.value, param, lir.values[*result].node)),
                None => _ = self.outer.insert(param, input.value),
            }
        }
        self.tests.extend(params.iter().find(|(_, index)| *index == 0).map(|(test, _)| (body, *test)));
        self.region(lir, body, ranks)?;
        for (result, output) in results.iter().zip(&work.outputs) {
            self.items.push(hand(*result, *output, lir.values[*result].node));
        }
        // Variables that the body writes.
        for output in work.outputs.iter().skip(carried) {
            let param = work.inputs.iter().skip(carried).position(|input| lir.values[input.value].home == lir.values[*output].home);
            let home = param.map(|param| Home::Given { region: body, param: (carried + param) as u32 });
            let newest = lir.values.iter().filter(|(_, value)| Some(value.home) == home).map(|(id, _)| id).next_back();
            self.items.extend(newest.map(|newest| hand(newest, *output, lir.values[newest].node)));
        }
        Ok(())
    }

    /// The works, but for copies between devices.
    pub fn works<'a>(&'a self, lir: &'a Lir) -> impl Iterator<Item = WorkId> + 'a {
        self.all().filter(|id| !is_transfer(lir, &lir.works[*id]))
    }

    /// The works.
    pub fn all(&self) -> impl Iterator<Item = WorkId> + '_ {
        self.items.iter().filter_map(|item| match item {
            Item::Work(id, _) => Some(*id),
            Item::Hand(_) | Item::Reach(..) => None,
        })
    }

    /// For each copy of another device's value, and each parameter that stays, that value.
    pub fn aliases(&self, lir: &Lir) -> HashMap<ValueId, ValueId> {
        let copies = self.all().map(|id| &lir.works[id]).filter(|work| is_transfer(lir, work));
        let copies = copies.filter_map(|work| Some((*work.outputs.first()?, work.inputs.first()?.value)));
        copies.chain(self.outer.iter().map(|(param, outer)| (*param, *outer))).collect()
    }

    /// The value around a loop that a version of what stays in it began as.
    pub fn around(&self, lir: &Lir, value: ValueId) -> Option<ValueId> {
        let first = std::iter::successors(Some(value), |value| lir.values[*value].previous).last()?;
        self.outer.get(&first).copied()
    }

    /// The bool that each work of a region waits for; none outside of loops.
    pub fn test(&self, region: RegionId) -> Option<ValueId> {
        self.tests.get(&region).copied()
    }
}
