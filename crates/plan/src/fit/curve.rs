//! The price of memory: for lines between the least and the most that a device can take, the time of a step.

use std::collections::BTreeSet;

use plimsoll_base::{Bytes, Result};
use plimsoll_graph::id::Id;

use super::apply::Applied;
use super::away::Away;
use super::descent::Descent;
use super::{arenas, settled};
use crate::Request;
use crate::evaluate::ends;
use crate::lir::Lir;
use crate::live::Live;
use crate::overlap::{Kept, overlap};
use crate::passes::lir_of;
use crate::plan::DeviceId;
use crate::report::outside_arena;

/// A plan that is made to fit a line.
#[derive(Clone, Debug, PartialEq)]
pub struct CurvePoint {
    /// The line.
    pub limit: Bytes,
    /// The bytes of the device that the plan takes.
    pub peak: Bytes,
    /// Predicted seconds of a step.
    pub seconds: f64,
    /// How many commands run again.
    pub recomputed: usize,
    /// Bytes of values that wait in a slower memory meanwhile.
    pub offloaded: Bytes,
    /// Of how many values a mask is kept in their place.
    pub masked: usize,
    /// How many chains of works are done part by part of their rows.
    pub parts: usize,
    /// How many loops keep their state at every k-th iteration in the place of lists.
    pub segments: usize,
    /// For each command of the device, in order: when it ends, in predicted seconds, and the bytes of the device that are live during
    /// it.
    pub profile: Vec<(f64, Bytes)>,
}

/// So many lines are looked at.
const POINTS: u64 = 10;

/// The plans of a request for lines of one device, from the least that it can take to what the plan takes as it is. The other devices
/// take at most what they take there; one in whose memory values of this device can wait, as much as its line says. A device whose
/// memory no plan changes has one point.
///
/// # Errors
/// As [`crate::plan`].
pub fn curve(request: &Request<'_>, device: DeviceId) -> Result<Vec<CurvePoint>> {
    let lir = lir_of(request)?;
    let settled = settled(&lir);
    let outside = outside_arena(request, &settled, device).total();
    let beside = overlap(&lir, request.devices, &Kept::default());
    let now = arenas(request, beside.as_ref().unwrap_or(&lir));
    let highest = now[device.index()];
    let mut most: Vec<Option<Bytes>> = now.into_iter().map(Some).collect();
    if let Some(slow) = Away::of(request, device).slow {
        let taken = &mut most[slow.device.index()];
        *taken = slow.room(request, &settled).map(|room| room.max(taken.unwrap_or_default()));
    }
    let own = BTreeSet::from([device]);
    let lir = overlap(&lir, request.devices, &Kept { order: own.clone(), copies: own }).unwrap_or(lir);
    let mut descent = Descent::new(request, lir, device, most)?;
    let last = descent.first_below(Bytes::ZERO)?;
    let lowest = descent.bytes(last)?.unwrap_or(highest);
    let mut points: Vec<CurvePoint> = Vec::new();
    for point in 0..POINTS {
        let room = Bytes(lowest.0 + ((highest - lowest).0 as u128 * u128::from(point) / u128::from(POINTS - 1)) as u64);
        if points.last().is_some_and(|last| last.limit == outside + room) {
            break;
        }
        let (applied, bytes) = match &beside {
            Some(beside) if highest <= room => (Applied::unchanged(beside), highest),
            _ => {
                let state = descent.first_below(room)?;
                (descent.schedule(state)?, descent.bytes(state)?.unwrap_or(highest))
            }
        };
        let peak = outside + bytes;
        let (seconds, profile) = profile(&applied.lir, request, device, outside);
        let offloaded = applied.offloaded.iter().map(|(_, bytes)| *bytes).sum();
        let (recomputed, masked, parts) = (applied.recomputed.len(), applied.masked.len(), applied.parts.len());
        let segments = applied.segments.len();
        points.push(CurvePoint { limit: outside + room, peak, seconds, recomputed, offloaded, masked, parts, segments, profile });
    }
    Ok(points)
}

/// The predicted seconds of a step, and what is live on a device during its commands beside `outside`.
fn profile(lir: &Lir, request: &Request<'_>, device: DeviceId, outside: Bytes) -> (f64, Vec<(f64, Bytes)>) {
    let order = &lir.region().works;
    let ends = ends(lir, request.devices.len(), order);
    let live = Live::new(lir, order, request.devices);
    let own = live.lanes.iter().zip(&live.arenas).find(|(lane, _)| lane.device == device && !lane.is_beside);
    let profile =
        own.map(|(lane, arena)| lane.works.iter().zip(&arena.profile).map(|(work, live)| (ends[*work], outside + *live)).collect());
    (ends.values().copied().fold(0.0, f64::max), profile.unwrap_or_default())
}
