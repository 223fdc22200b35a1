//! What the runs before the last hold. They do not count for time, but have to fit: an initializer holds a value beside its variable.

use std::collections::HashSet;

use plimsoll_base::Bytes;
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};

use super::super::PlaceRequest;
use super::super::wholes::Wholes;
use super::parts::Groups;
use super::problem::{is_transfer, scratch};
use crate::lir::{Home, Lir, ValueId, Work, WorkKind};

/// What runs before the last hold of each part.
pub(super) struct Before {
    /// Bytes of variables that the last run does not reach.
    pub kept: Vec<u64>,
    /// Bytes that the largest work takes beside variables.
    pub most: Vec<u64>,
}

/// The part of each unit: what the last run does not reach goes with what it reads, else with what reads it.
pub(super) fn followed(request: &PlaceRequest<'_>, wholes: &Wholes, part_of_unit: &[Option<u32>]) -> Vec<Option<u32>> {
    let mut parts = part_of_unit.to_vec();
    let mut unit_of: IdVec<NodeId, Option<usize>> = IdVec::filled(None, request.graph.nodes().len());
    wholes.units.free.iter().enumerate().for_each(|(unit, nodes)| nodes.iter().for_each(|node| unit_of[*node] = Some(unit)));
    for forward in [true, false] {
        for unit in 0..parts.len() {
            for &node in &wholes.units.free[unit] {
                for input in &request.graph.node(node).inputs {
                    let (here, there) = if forward { (Some(unit), unit_of[input.node]) } else { (unit_of[input.node], Some(unit)) };
                    if let (Some(here), Some(there)) = (here, there)
                        && parts[here].is_none()
                    {
                        parts[here] = parts[there];
                    }
                }
            }
        }
    }
    parts
}

/// What runs hold of each part. `seen` are the variables of the last run.
pub(super) fn before(
    request: &PlaceRequest<'_>,
    groups: &mut Groups,
    followed: &[Option<u32>],
    mut seen: HashSet<NodeId>,
    lirs: &[Lir],
) -> Before {
    let mut of_part: Vec<(u32, u64, u64)> = Vec::new();
    for lir in lirs {
        for (_, value) in lir.values.iter() {
            if let Home::Variable(id) = value.home
                && seen.insert(value.node)
            {
                let part = groups.unit(value.node).and_then(|unit| followed[unit as usize]);
                let bytes = request.devices[value.device.index()].slot(lir.variables[id].bytes).0;
                of_part.push((part.unwrap_or_else(|| groups.fixed(value.device)), bytes, 0));
            }
        }
        for (_, work) in lir.all().filter(|(_, work)| !is_transfer(lir, work)) {
            let part = work.nodes.iter().find_map(|node| groups.unit(*node)).and_then(|unit| followed[unit as usize]);
            of_part.push((part.unwrap_or_else(|| groups.fixed(work.device)), 0, held(request, lir, work)));
        }
    }
    let (mut kept, mut most) = (vec![0u64; groups.choices.len()], vec![0u64; groups.choices.len()]);
    for (part, variable, work) in of_part {
        kept[part as usize] += variable;
        most[part as usize] = most[part as usize].max(work);
    }
    Before { kept, most }
}

/// Bytes that a work has to have beside variables and constants. What is elementwise is written over what it reads.
fn held(request: &PlaceRequest<'_>, lir: &Lir, work: &Work) -> u64 {
    let made = |values: Vec<ValueId>| -> u64 {
        let made = values.into_iter().filter(|value| matches!(lir.values[*value].home, Home::Arena));
        made.map(|value| request.devices[work.device.index()].slot(Bytes(lir.values[value].bytes)).0).sum()
    };
    let mut reads: Vec<ValueId> = work.reads().collect();
    reads.sort_unstable();
    reads.dedup();
    let (reads, outputs) = (made(reads), made(work.outputs.clone()));
    let is_in_place = matches!(work.kind, WorkKind::Expr { .. });
    if is_in_place { reads.max(outputs) } else { reads + outputs + scratch(lir, work) }
}
