//! The parts of a device's peak.

use plimsoll_base::Bytes;
use plimsoll_graph::id::Id;
use plimsoll_memory::layout::Buffer;

use crate::Request;
use crate::constants::ConstantBytes;
use crate::lir::{Lir, ValueId};
use crate::live::Arena;
use crate::need::sort;
use crate::plan::{DeviceId, DevicePlan, Holder, PeakParts, PlanFeed, VariableKind};

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
    let spec = &request.devices[device.index()];
    // States of random generators are a few bytes of the host's, whatever the device: they count as the process's overhead.
    let variables = || lir.variables.values().filter(|variable| variable.device == device && variable.kind != VariableKind::State);
    let on_device = || lir.constants.values().filter(|constant| constant.device == Some(device));
    let on_host = device == request.placement.host;
    let ends = lir.feeds.values().map(|feed| feed.bytes).chain(lir.fetches.values().map(|fetch| fetch.bytes)).filter(|_| on_host);
    let mut constants = ConstantBytes::new(spec);
    constants.add(device.index(), lir.constants.values().zip(lir.constant_values.values()));
    let workspace = Bytes(moment.scratch);
    let copies = Bytes(moment.copies);
    plan.peak = PeakParts {
        variables: spec.reserved_for(variables().map(|variable| variable.bytes)),
        constants: constants.reserved(),
        activations: plan.arena - workspace - copies,
        workspace,
        transfer: copies + spec.reserved_for(ends),
        overhead: spec.overhead,
    };
    let name = |value: ValueId| request.graph.node(lir.values[value].node).name.clone();
    let mut holders: Vec<Holder> = moment.values.iter().map(|(value, bytes)| Holder { name: name(*value), bytes: Bytes(*bytes) }).collect();
    holders.extend(variables().map(|variable| Holder { name: variable.name.clone(), bytes: variable.bytes }));
    holders.extend(on_device().map(|constant| Holder { name: constant.name.clone(), bytes: constant.bytes }));
    if on_host {
        let fed = |feed: &PlanFeed| Holder { name: request.graph.tensor_name(feed.tensor), bytes: feed.bytes };
        holders.extend(lir.feeds.values().map(fed));
    }
    holders.push(Holder { name: SCRATCH.to_string(), bytes: workspace });
    holders.retain(|holder| holder.bytes > Bytes::ZERO);
    sort(&mut holders);
    holders.truncate(MOST_HOLDERS);
    plan.holders = holders;
}
