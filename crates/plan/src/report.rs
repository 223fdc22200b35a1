//! The parts of a device's peak.

use plimsoll_base::Bytes;
use plimsoll_graph::id::Id;
use plimsoll_memory::layout::Buffer;

use crate::Request;
use crate::constants::ConstantBytes;
use crate::lir::{Lir, ValueId};
use crate::live::Arena;
use crate::need::sort;
use crate::plan::{DeviceId, DevicePlan, Holder, PeakParts, PlanFeed, PlanVariable, VariableKind};

/// The values that are live in an arena at its peak.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeakMoment {
    /// Scratch of the kernel that runs then.
    pub scratch: u64,
    /// Copies of other devices' values.
    pub copies: u64,
    /// Values, one for each buffer, with its bytes.
    pub values: Vec<(ValueId, u64)>,
}

impl PeakMoment {
    /// The first moment at which most is live.
    pub fn find(lir: &Lir, arena: &Arena) -> PeakMoment {
        let most = arena.peak();
        let step = arena.profile.iter().position(|live| *live == most).unwrap_or_default() as u32;
        let mut moment = PeakMoment::default();
        let is_live = |buffer: &Buffer| buffer.first <= step && step <= buffer.last && most > Bytes::ZERO;
        let (values, scratch) = arena.buffers.split_at(arena.value_buffers);
        moment.scratch = scratch.iter().filter(|buffer| is_live(buffer)).map(|buffer| buffer.bytes).sum();
        let mut seen = vec![false; values.len()];
        for (value, buffer) in &arena.values {
            if is_live(&values[*buffer]) && !std::mem::replace(&mut seen[*buffer], true) {
                moment.values.push((*value, values[*buffer].bytes));
                if lir.values[*value].is_copy {
                    moment.copies += values[*buffer].bytes;
                }
            }
        }
        moment
    }
}

/// The holder that is no value.
pub(crate) const SCRATCH: &str = "scratch of kernels";
/// How many holders a device's part of a plan names.
pub(crate) const MOST_HOLDERS: usize = 10;

/// Fills in the peak of a device and its largest holders.
pub(crate) fn peak_parts(request: &Request<'_>, lir: &Lir, device: DeviceId, moment: &PeakMoment, plan: &mut DevicePlan) {
    let variables = || variables(lir, device);
    let on_device = || lir.constants.values().filter(|constant| constant.device == Some(device));
    let (workspace, copies) = (Bytes(moment.scratch), Bytes(moment.copies));
    let outside = outside_arena(request, lir, device);
    let activations = plan.arena - workspace - copies;
    plan.peak = PeakParts { activations, workspace, transfer: copies + outside.transfer, ..outside };
    let name = |value: ValueId| request.graph.node(lir.values[value].node).name.clone();
    let mut holders: Vec<Holder> = moment.values.iter().map(|(value, bytes)| Holder { name: name(*value), bytes: Bytes(*bytes) }).collect();
    holders.extend(variables().map(|variable| Holder { name: variable.name.clone(), bytes: variable.bytes }));
    holders.extend(on_device().map(|constant| Holder { name: constant.name.clone(), bytes: constant.bytes }));
    if device == request.placement.host {
        let fed = |feed: &PlanFeed| Holder { name: request.graph.tensor_name(feed.tensor), bytes: feed.bytes };
        holders.extend(lir.feeds.values().map(fed));
    }
    holders.push(Holder { name: SCRATCH.to_string(), bytes: workspace });
    holders.retain(|holder| holder.bytes > Bytes::ZERO);
    sort(&mut holders);
    holders.truncate(MOST_HOLDERS);
    plan.holders = holders;
}

/// What a plan takes of a device beside its arena.
pub(crate) fn outside_arena(request: &Request<'_>, lir: &Lir, device: DeviceId) -> PeakParts {
    let spec = &request.devices[device.index()];
    let on_host = device == request.placement.host;
    let ends = lir.feeds.values().map(|feed| feed.bytes).chain(lir.fetches.values().map(|fetch| fetch.bytes)).filter(|_| on_host);
    let mut constants = ConstantBytes::new(spec);
    constants.add(device.index(), lir.constants.values().zip(lir.constant_values.values()));
    PeakParts {
        variables: spec.reserved_for(variables(lir, device).map(|variable| variable.bytes)),
        constants: constants.reserved(),
        transfer: spec.reserved_for(ends),
        overhead: spec.overhead,
        ..PeakParts::default()
    }
}

/// The variables on a device. States of random generators are a few bytes of the host's, whatever the device: they count as the
/// process's overhead.
fn variables(lir: &Lir, device: DeviceId) -> impl Iterator<Item = &PlanVariable> {
    lir.variables.values().filter(move |variable| variable.device == device && variable.kind != VariableKind::State)
}
