//! What a placement takes: the plans of all runs, made with it.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::{Bytes, Error, Result, Shortage};

use super::{Fitted, How, PlaceRequest, Tried};
use crate::fit::Lines;
use crate::footprint::Footprint;
use crate::infer::Pruned;
use crate::lir::Lir;
use crate::passes::{attempted, prune};
use crate::place::Placement;
use crate::request::{Request, Signature};

/// Plans all runs with a placement, under lines where devices may hold so much at most.
///
/// # Errors
/// The errors of [`crate::plan()`].
pub(super) fn attempt(request: &PlaceRequest<'_>, placement: Placement, how: How, most: Vec<Option<Bytes>>) -> Result<Fitted> {
    Ok(attempt_from(request, placement, how, most, &Needed::new(request), None)?.0)
}

/// What each run needs of the graph, which is found out once for all placements.
pub(super) struct Needed(Vec<Mutex<Option<Arc<Pruned>>>>);

impl Needed {
    pub fn new(request: &PlaceRequest<'_>) -> Needed {
        Needed(request.runs.iter().map(|_| Mutex::default()).collect())
    }

    /// # Errors
    /// Those of planning.
    pub fn of(&self, run: usize, plan: &Request<'_>) -> Result<Arc<Pruned>> {
        let mut known = self.0[run].lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some(known) => Ok(Arc::clone(known)),
            None => Ok(Arc::clone(known.insert(Arc::new(prune(plan)?)))),
        }
    }
}

/// As [`attempt`], where the last run's works may be known as [`Pass::Fuse`](crate::Pass::Fuse) leaves them with this placement. Also that run's works in order; none
/// where there are no runs.
///
/// # Errors
/// As [`attempt`].
pub(super) fn attempt_from(
    request: &PlaceRequest<'_>,
    placement: Placement,
    how: How,
    most: Vec<Option<Bytes>>,
    needed: &Needed,
    mut fused: Option<Lir>,
) -> Result<(Fitted, Option<Arc<Lir>>)> {
    let lines = request.lines(most);
    let mut footprint = Footprint::new(request.devices);
    let (mut seconds, mut interval, mut moved, mut is_fitted) = (0.0, 0.0, Bytes::ZERO, false);
    let mut ordered = None;
    for (number, run) in request.runs.iter().enumerate() {
        let fused = if number + 1 == request.runs.len() { fused.take() } else { None };
        let asked = plan_request(request, &placement, run, &lines);
        let (plan, works) = attempted(&asked, || needed.of(number, &asked), fused)?;
        let plan = (request.complete)(plan, &placement)?;
        ordered = Some(works);
        footprint.add(&plan);
        (seconds, interval, moved) = (plan.seconds, plan.interval(request.devices), plan.moved_bytes());
        is_fitted |= plan.fitting.is_some();
    }
    let needs = footprint.needs().iter().zip(request.devices).enumerate().filter(|(_, (need, spec))| need.peak > spec.overhead);
    let needs = needs
        .map(|(index, (need, spec))| (spec.name.short(), need.peak - spec.overhead, request.left(index).map(|left| left - spec.overhead)));
    let tried = Tried { how, needs: needs.collect(), seconds, interval, moved, is_fitted };
    Ok((Fitted { placement, footprint, tried: vec![tried], least: None, compared: Vec::new() }, ordered))
}

/// The request of a run's plan.
pub(super) fn plan_request<'p, 'a: 'p>(
    request: &PlaceRequest<'a>,
    placement: &'p Placement,
    run: &'p Signature,
    lines: &'p Lines,
) -> Request<'p> {
    let PlaceRequest { registry, devices, libraries, costs, graph_for, .. } = *request;
    Request { graph: graph_for(run), registry, devices, libraries, costs, placement, signature: run, lines }
}

/// The refusal of a model for which no attempt had room.
pub(super) fn no_room(tried: &[Tried], what: &str) -> Error {
    let all = tried.iter().map(|tried| format!("\n  {tried}")).collect::<String>();
    let last = tried.last().and_then(|tried| tried.needs.iter().find(|(_, needed, left)| left.is_some_and(|left| *needed > left)));
    let (requested, limit) = last.map_or_else(Default::default, |(_, needed, left)| (*needed, *left));
    let shortage = Shortage { requested, limit, ..Shortage::default() };
    Error::no_room(format!("the model fits nowhere, {what}:{all}"), shortage).with_remedy("raise a limit, or feed a smaller batch")
}
