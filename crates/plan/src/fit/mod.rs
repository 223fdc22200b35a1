//! A schedule that is too big is made to fit: works run again, later, in place of values that would wait; values of cards wait on the host,
//! and those of processors in a file.
//!
//! For each device there is one descent from the schedule as it is: a list of schedules ([`plimsoll_fit::descend`]), each with a lower
//! live peak on that device than the one before and no better predicted time. All but the first have the order of works with the lowest
//! peak that a local search finds, where it takes no longer. The descent does not depend on the line. The first one that is
//! under the line once it is packed is taken. So a lower line never gives a higher peak nor a faster plan. Where none is under the
//! line, the lowest is taken, and its peak is the least limit.
//!
//! Copies of cards run beside their works ([`mod@crate::overlap`]) where all devices have the room; else those of devices that have not are among
//! the works, from which the descent begins.
//!
//! A second list has masks in the place of values that are read late for one thing only, and a third has works in parts. All are one descent:
//! of schedules that fit, the fastest is taken.
//!
//! A loop is one work with several ways to run, one for each schedule of its body: the body has a descent of its own. A loop that writes
//! nothing but values of the arena may also run again. Of one whose lists a later loop reads in reverse, the state of every k-th iteration may
//! be kept in their place: further lists of schedules have such loops.
//!
//! [`away`]: where values wait. [`problem`]: the schedule as numbers; [`part`]: what of them one device has to do with. [`bodies`]: the
//! schedules of loops' bodies. [`descent`]: the schedules of a device. [`masks`]: what is kept in the place of values. [`in_parts`]: works that are done for some of the rows at a time. [`found`]: [`segments`]: loops that keep
//! their state in the place of lists. [`found`]: what the search has found before. [`apply`]: the numbers as works. [`curve`]: what each line costs. [`floor`]: what no line can be below.

mod answers;
mod apply;
mod away;
mod bodies;
mod curve;
mod descent;
mod floor;
mod found;
mod in_parts;
mod masks;
mod part;
mod problem;
mod segments;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use plimsoll_base::{Bytes, Result};
use plimsoll_fit::{Problem, State};
use plimsoll_graph::NodeId;
use plimsoll_graph::id::Id;
use plimsoll_memory::layout::{self, Buffer, Layout};
use serde::{Deserialize, Serialize};

pub use self::curve::{CurvePoint, curve};
use self::descent::Descent;
pub(crate) use self::floor::floors;
pub use self::found::Searches;
use crate::Request;
use crate::lir::Lir;
use crate::live::Live;
use crate::on_rows::on_rows;
use crate::overlap::{Kept, overlap};
use crate::pack::settle_constants;
use crate::plan::DeviceId;
use crate::report::outside_arena;
use crate::updates::put_together;

/// How a plan was made to fit. Where all lists are empty, by another order of works alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fitting {
    /// For each command that runs again: the node that it is named after. A node may be there several times.
    pub recomputed: Vec<NodeId>,
    /// For each value that waits in a slower memory meanwhile: its node and its bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offloaded: Vec<(NodeId, Bytes)>,
    /// For each value of which a mask is kept in its place: its node and the bytes of the mask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<(NodeId, Bytes)>,
    /// For each chain of works that is done part by part of its rows: the node that it is named after and the number of parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(NodeId, u64)>,
    /// For each loop whose state is kept at every k-th iteration in the place of its lists: the node that it is named after, and k.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<(NodeId, u64)>,
    /// For each device, the bytes of the arena of the plan as it was.
    pub unfitted: Vec<Bytes>,
}

/// What a plan is made to fit: see [`Fitting`].
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// For each device, the bytes that it may hold while the plan runs. None where it may hold what the plan needs as it is; so may
    /// devices beyond the last.
    pub most: Vec<Option<Bytes>>,
    /// Variables that are there as well, by key, each with its device and its bytes. Those of the plan may be among them.
    pub variables: BTreeMap<String, (DeviceId, Bytes)>,
    /// Where what searches find is kept for later plans; none to search each time.
    pub searches: Option<Arc<Searches>>,
}

impl Lines {
    /// No line: plans are as they are.
    pub const NONE: Lines = Lines { most: Vec::new(), variables: BTreeMap::new(), searches: None };

    /// [`layout::pack`].
    pub(crate) fn pack(&self, buffers: &[Buffer]) -> Layout {
        self.searches.as_ref().map_or_else(|| layout::pack(buffers), |searches| searches.pack(buffers))
    }

    /// [`plimsoll_fit::descend`].
    fn descend(&self, problem: &Problem, effort: u64) -> Arc<[State]> {
        match &self.searches {
            Some(searches) => searches.descend(problem, effort),
            None => plimsoll_fit::descend(problem, effort).into(),
        }
    }

    /// What the arena of a device may take of its line.
    fn room(&self, request: &Request<'_>, lir: &Lir, device: DeviceId) -> Option<Bytes> {
        let line = self.most.get(device.index()).copied().flatten()?;
        let outside = outside_arena(request, lir, device);
        let spec = &request.devices[device.index()];
        let own: HashSet<&str> = lir.variables.values().map(|variable| variable.key.as_str()).collect();
        let others =
            self.variables.iter().filter(|(key, (at, _))| *at == device && !own.contains(key.as_str())).map(|(_, (_, bytes))| *bytes);
        Some(line - outside.total() - spec.reserved_for(others))
    }
}

/// The schedule, made to fit the lines of the request. Then updates of variables are put together, and works of loops are done on rows of
/// lists, where that takes no memory.
///
/// # Errors
/// INTERNAL where a schedule of the search does not hold.
pub(crate) fn fit(request: &Request<'_>, lir: Cow<'_, Lir>) -> Result<(Lir, Option<Fitting>)> {
    let (mut lir, fitting) = fit_lines(request, lir)?;
    if let Some(joined) = put_together(request, &lir, &|lir| arenas(request, lir))? {
        lir = Cow::Owned(joined);
    }
    if let Some(changed) = on_rows(request, &lir)? {
        lir = Cow::Owned(changed);
    }
    Ok((lir.into_owned(), fitting))
}

/// The schedule, made to fit the lines of the request.
///
/// # Errors
/// As [`fit`].
fn fit_lines<'l>(request: &Request<'_>, lir: Cow<'l, Lir>) -> Result<(Cow<'l, Lir>, Option<Fitting>)> {
    let mut kept = Kept::default();
    let mut beside = overlap(&lir, request.devices, &kept);
    if request.lines.most.iter().all(Option::is_none) {
        return Ok((beside.map_or(lir, Cow::Owned), None));
    }
    let settled = settled(&lir);
    let rooms: Vec<Option<Bytes>> =
        (0..request.devices.len()).map(|index| request.lines.room(request, &settled, DeviceId::from_index(index))).collect();
    let mut now = arenas(request, beside.as_ref().unwrap_or(&lir));
    let before = now.clone();
    // Works of devices that have no room for it stay in their order; where that is not enough, their copies stay among the works.
    while beside.is_some() {
        let is_over = |device: &DeviceId| rooms[device.index()].is_some_and(|room| now[device.index()] > room);
        let mut is_new = false;
        for device in (0..rooms.len()).map(DeviceId::from_index).filter(is_over) {
            is_new |= kept.order.insert(device) || kept.copies.insert(device);
        }
        if !is_new {
            break;
        }
        beside = overlap(&lir, request.devices, &kept);
        now = arenas(request, beside.as_ref().unwrap_or(&lir));
    }
    let mut fitting = (now != before).then(|| Fitting { unfitted: before.clone(), ..Fitting::default() });
    let mut lir = beside.unwrap_or_else(|| lir.into_owned());
    for (index, room) in rooms.iter().enumerate() {
        let Some(room) = *room else { continue };
        if now[index] <= room {
            continue;
        }
        // The others may take what they took.
        let most: Vec<Option<Bytes>> = rooms.iter().zip(&now).map(|(room, now)| room.map(|room| room.max(*now))).collect();
        let mut descent = Descent::new(request, lir, DeviceId::from_index(index), most)?;
        let state = descent.first_below(room)?;
        let applied = descent.schedule(state)?;
        lir = applied.lir;
        if state == 0 {
            continue;
        }
        now = arenas(request, &lir);
        let fitting = fitting.get_or_insert_with(|| Fitting { unfitted: before.clone(), ..Fitting::default() });
        fitting.recomputed.extend(applied.recomputed);
        fitting.offloaded.extend(applied.offloaded);
        fitting.masked.extend(applied.masked);
        fitting.parts.extend(applied.parts);
        fitting.segments.extend(applied.segments);
    }
    Ok((Cow::Owned(lir), fitting))
}

/// With the constants that the plan will have.
fn settled(lir: &Lir) -> Lir {
    let mut settled = lir.clone();
    settle_constants(&mut settled);
    settled
}

/// For each device, the bytes that its packed arena takes.
fn arenas(request: &Request<'_>, lir: &Lir) -> Vec<Bytes> {
    packed(request, &Live::new(lir, &lir.region().works, request.devices))
}

/// The same, of what is live when.
fn packed(request: &Request<'_>, live: &Live) -> Vec<Bytes> {
    let mut bytes = vec![Bytes::ZERO; request.devices.len()];
    for (lane, arena) in live.lanes.iter().zip(&live.arenas).filter(|(lane, _)| !lane.is_beside) {
        let spec = &request.devices[lane.device.index()];
        bytes[lane.device.index()] = spec.reserved(spec.slot(Bytes(request.lines.pack(&arena.buffers).peak)));
    }
    bytes
}
