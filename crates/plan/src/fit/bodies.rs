//! The bodies of loops: schedules with ever lower arenas. A loop is one work with a way to run for each of them.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_fit::{Step, Way};
use plimsoll_graph::IdVec;

use super::away::Away;
use super::descent::ordered;
use super::{apply, descent, problem};
use crate::Request;
use crate::evaluate;
use crate::lir::{Home, Lir, Region, RegionId, Trips, ValueId, WorkId, WorkKind};
use crate::order::taken;
use crate::plan::DeviceId;
use crate::prepare::{in_ticks, prepare};

/// So many schedules of a body are kept, the last among them.
const MOST_BODIES: usize = 16;

/// A body that takes less than this part of the device's arena stays as it is.
const LEAST_PART: u64 = 64;

/// A schedule of the body of a loop.
#[derive(Clone)]
struct Body {
    /// The works in the order of their first runs; steps are their numbers.
    works: Arc<[WorkId]>,
    steps: Vec<Step>,
    /// What it takes of the device while the loop runs.
    arena: u64,
    /// Once through.
    seconds: f64,
}

/// For each region that a loop holds its schedules below the one that it has, each with a smaller arena and no less time.
#[derive(Clone, Default)]
pub(super) struct Bodies(HashMap<RegionId, Vec<Body>>);

impl Bodies {
    /// Of the loops that have a part on one device, whose arena takes so much.
    ///
    /// # Errors
    /// INTERNAL where a schedule of the search does not hold.
    pub fn new(request: &Request<'_>, lir: &Lir, device: DeviceId, arena: Bytes) -> Result<Bodies> {
        let is_here = |region: &RegionId| {
            let bytes = lir.regions[*region].takes(device);
            bytes > 0 && bytes.saturating_mul(LEAST_PART) >= arena.0
        };
        // Inner regions come behind outer ones.
        let regions: Vec<RegionId> = lir.regions.ids().skip(1).filter(is_here).collect();
        let mut bodies = Bodies::default();
        if regions.is_empty() {
            return Ok(bodies);
        }
        let mut lir = lir.clone();
        for region in regions.iter().rev() {
            let around = lir.enter(*region);
            let found = bodies.of(request, &lir, device, regions.len() as u64)?;
            lir.enter(around);
            bodies.0.insert(*region, found);
        }
        Ok(bodies)
    }

    /// The schedules of the region at hand, one of so many. The other devices of a shared loop take no more than they do.
    fn of(&self, request: &Request<'_>, lir: &Lir, device: DeviceId, count: u64) -> Result<Vec<Body>> {
        let mut seconds = once(request, lir);
        let mut least = lir.region().takes(device);
        let ordered = ordered(request, lir, device);
        let given = ordered.as_ref().unwrap_or(lir);
        let works: Arc<[WorkId]> = given.region().works.as_slice().into();
        let problem = problem::problem(request, given, device, None, self);
        let states = plimsoll_fit::descend(&problem, descent::effort(problem.works.len()) / count.max(4));
        let away = Away { device, slow: None };
        let stride = states.len().div_ceil(MOST_BODIES).max(1);
        let mut bodies = Vec::new();
        for state in states.iter().rev().step_by(stride).collect::<Vec<_>>().into_iter().rev() {
            let applied = apply::apply(request, given, &state.steps, away, self)?.lir;
            let (arenas, takes) = (taken(&applied, request.devices), once(request, &applied));
            let is_over = |(other, bytes): &(DeviceId, u64)| *other != device && *bytes > lir.region().takes(*other);
            let arena = arenas.iter().find(|(other, _)| *other == device).map_or(0, |(_, bytes)| *bytes);
            if arena < least && takes >= seconds && !arenas.iter().any(is_over) {
                (least, seconds) = (arena, takes);
                bodies.push(Body { works: works.clone(), steps: state.steps.clone(), arena, seconds });
            }
        }
        Ok(bodies)
    }

    /// The same where works have other numbers.
    pub fn renumbered(&self, works: &IdVec<WorkId, Option<WorkId>>) -> Bodies {
        let body = |body: &Body| Body { works: body.works.iter().filter_map(|work| works[*work]).collect(), ..body.clone() };
        Bodies(self.0.iter().map(|(region, bodies)| (*region, bodies.iter().map(body).collect())).collect())
    }

    /// The ways to run a loop with less.
    pub fn ways(&self, body: RegionId, trips: Trips) -> Vec<Way> {
        let bodies = self.0.get(&body).map_or(&[][..], |bodies| bodies);
        bodies.iter().map(|body| Way { scratch: body.arena, seconds: in_ticks(body.seconds * trips.predicted()) }).collect()
    }
}

/// Predicted seconds of the region at hand, once through.
fn once(request: &Request<'_>, lir: &Lir) -> f64 {
    evaluate::once(lir, lir.here(), request.devices.len())
}

/// Gives a loop, a work of the region at hand, another schedule of its body, with the nodes of works that run again in it.
///
/// # Errors
/// As [`apply::apply`].
pub(super) fn narrow(request: &Request<'_>, mut lir: Lir, work: WorkId, way: usize, away: Away, bodies: &Bodies) -> Result<apply::Applied> {
    let none = || Error::internal("a schedule has a step that the region has not");
    let WorkKind::Loop { body, .. } = lir.works[work].kind else { return Err(none()) };
    let Body { works, steps, .. } = bodies.0.get(&body).and_then(|bodies| bodies.get(way)).ok_or_else(none)?;
    let around = lir.enter(body);
    lir.region_mut().works = works.to_vec();
    let mut applied = apply::apply(request, &lir, steps, away, bodies)?;
    applied.lir.region_mut().arena = taken(&applied.lir, request.devices);
    applied.lir.enter(around);
    let prepared = prepare(request, &applied.lir, &applied.lir.works[work])?;
    applied.lir.works[work].prepared = Some(prepared);
    Ok(applied)
}

/// Whether a region may run a second time for the same results: it and what it holds reach no files.
pub(super) fn may_repeat(lir: &Lir, region: RegionId) -> bool {
    lir.regions[region].works.iter().map(|work| &lir.works[*work].kind).all(|kind| match kind {
        WorkKind::Loop { body, .. } => may_repeat(lir, *body),
        WorkKind::Request { .. } | WorkKind::Outside { .. } => false,
        WorkKind::Expr { .. } | WorkKind::Anchor { .. } | WorkKind::Kernel { .. } | WorkKind::Copy | WorkKind::Parts(_) => true,
    })
}

/// The same region once more, for a second run of the loop that holds it. The number of the one, and of the other.
pub(super) fn copy(lir: &mut Lir, region: RegionId) -> RegionId {
    let new = lir.regions.push(Region::default());
    let mut values: HashMap<ValueId, ValueId> = HashMap::new();
    let own: Vec<ValueId> = lir.values.iter().filter(|(_, value)| value.region == region).map(|(id, _)| id).collect();
    for id in own {
        let mut value = lir.values[id].clone();
        value.region = new;
        if let Home::Given { region, .. } = &mut value.home {
            *region = new;
        }
        values.insert(id, lir.values.push(value));
    }
    let at = |id: ValueId| values.get(&id).copied().unwrap_or(id);
    for id in values.values() {
        lir.values[*id].previous = lir.values[*id].previous.map(at);
    }
    let before = lir.regions[region].clone();
    let mut works: IdVec<WorkId, Option<WorkId>> = IdVec::filled(None, lir.works.len());
    for id in &before.works {
        let mut work = lir.works[*id].clone();
        work.inputs
            .iter_mut()
            .map(|view| &mut view.value)
            .chain(&mut work.outputs)
            .chain(&mut work.guard)
            .for_each(|value| *value = at(*value));
        if let WorkKind::Loop { body, .. } = &mut work.kind {
            *body = copy(lir, *body);
        }
        works[*id] = Some(lir.works.push(work));
    }
    let renumbered = |ids: &[WorkId]| ids.iter().filter_map(|id| works[*id]).collect::<Vec<_>>();
    let copied = renumbered(&before.works);
    for id in &copied {
        let mut after = renumbered(&lir.works[*id].after);
        after.sort_unstable();
        lir.works[*id].after = after;
    }
    let all = |ids: &[ValueId]| ids.iter().map(|id| at(*id)).collect::<Vec<_>>();
    lir.regions[new] = Region { params: all(&before.params), works: copied, results: all(&before.results), ..before };
    new
}
