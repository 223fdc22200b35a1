//! Works that the library of their device cannot compute go to the host, where soft placement is allowed.
//!
//! The placer knows TensorFlow's kernels and no shapes. Whether a library has a kernel for a request is known once there is one.
//! A work that moves reads copies of its inputs, which [`crate::transfer`] makes; constants are the host's own. A variable stays
//! where it is: the host computes its next version, and a copy takes that to the variable's device. The state of a generator is
//! in the memory of the process anyway, and goes with its work.

use std::collections::HashSet;
use std::sync::Arc;

use plimsoll_base::{Code, Error, Result};
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;
use plimsoll_request::KernelRequest;

use crate::Request;
use crate::lir::{Arg, ConstantId, Home, Lir, ValueId, VariableId, View, WorkId, WorkKind};
use crate::passes::Check;
use crate::plan::{DeviceId, Softened, VariableKind};
use crate::prepare::{choose, request_of};
use crate::select::answer;

/// Moves works to the host, and notes their nodes.
///
/// # Errors
/// UNIMPLEMENTED at the node of a work that its device cannot compute: without soft placement, and where the host cannot compute
/// it either. Other errors of libraries, at the node; the error of `go_on`.
pub(crate) fn soften(request: &Request<'_>, lir: &mut Lir, go_on: &Check<'_>) -> Result<()> {
    let host = request.placement.host;
    let mut moved: HashSet<WorkId> = HashSet::new();
    for id in lir.ids() {
        let work = &lir.works[id];
        if work.device == host {
            continue;
        }
        go_on()?;
        let Some((asked, args)) = asked(lir, id) else { continue };
        let Err(refused) = answer(request, work.device, &asked, &args, work) else { continue };
        let (node, device) = (work.nodes[0], work.device);
        let named = |error: Error| error.at_node(&request.graph.node(node).name);
        if refused.code() != Code::Unimplemented {
            return Err(named(refused));
        }
        let moving = Moving::of(lir, id);
        let answered = match moving.versions[..] {
            [] => answer(request, host, &asked, &args, work).map(drop),
            // The host computes them beside the variables.
            _ => choose(request, host, &asked).map(drop),
        };
        let why = match answered {
            Ok(()) if request.placement.soft => refused.message().to_string(),
            answered => return Err(named(refusal(request, device, refused, answered))),
        };
        if *asked != KernelRequest::Nothing {
            lir.softened.push(Softened { node, device, why });
        }
        moved.insert(moving.to(lir, host)?);
    }
    if moved.is_empty() {
        return Ok(());
    }
    // A node is named once, however many works it became.
    lir.softened.sort_by_key(|softened| softened.node);
    lir.softened.dedup_by_key(|softened| softened.node);
    fetch_in_place(lir, host, &moved)?;
    lir.drop_unread_constants();
    Ok(())
}

/// The request of a work and its arguments; none for works that are none.
fn asked(lir: &Lir, id: WorkId) -> Option<(Arc<KernelRequest>, Vec<Arg>)> {
    let work = &lir.works[id];
    match &work.kind {
        WorkKind::Request { request, args } => Some((Arc::clone(request), args.clone())),
        _ => Some((Arc::new(request_of(work)?), Arg::all(work.inputs.len(), work.outputs.len()))),
    }
}

/// The error for a work that cannot move, or has no place to go to.
fn refusal(request: &Request<'_>, device: DeviceId, refused: Error, answered: Result<()>) -> Error {
    let name = |device: DeviceId| &request.devices[device.index()].name;
    let error = match answered {
        Ok(()) => refused.with_remedy("allow soft placement: the host computes it then"),
        Err(other) => {
            let (device, host) = (name(device).short(), name(request.placement.host).short());
            let message = format!("{device} cannot compute it: {}; nor can {host}: {}", refused.message(), other.message());
            Error::new(other.code(), message)
        }
    };
    error.on_device(name(device).to_string())
}

/// A work on its way to the host.
struct Moving {
    id: WorkId,
    /// The versions of variables, and of what a loop carries, that it defines, by its outputs. States are not among them.
    versions: Vec<(usize, ValueId)>,
    /// The states that it changes.
    states: Vec<VariableId>,
}

impl Moving {
    fn of(lir: &Lir, id: WorkId) -> Moving {
        let mut moving = Moving { id, versions: Vec::new(), states: Vec::new() };
        for (position, &output) in lir.works[id].outputs.iter().enumerate() {
            match lir.values[output].home {
                Home::Variable(variable) if lir.variables[variable].kind == VariableKind::State => moving.states.push(variable),
                Home::Variable(_) | Home::Given { .. } => moving.versions.push((position, output)),
                _ => {}
            }
        }
        moving
    }

    /// Moves it. The work of the host.
    fn to(self, lir: &mut Lir, host: DeviceId) -> Result<WorkId> {
        let Moving { id, versions, states } = self;
        for input in 0..lir.works[id].inputs.len() {
            if let Home::Constant(constant) = lir.values[lir.works[id].inputs[input].value].home {
                lir.works[id].inputs[input].value = constant_on(lir, constant, host)?;
            }
        }
        for state in states {
            lir.variables[state].device = host;
            let versions = lir.values.values_mut().filter(|value| value.home == Home::Variable(state));
            versions.for_each(|value| value.device = host);
        }
        for output in lir.works[id].outputs.clone() {
            if lir.values[output].home == Home::Arena {
                lir.values[output].device = host;
            }
        }
        let Some((&last, others)) = versions.split_last() else {
            lir.works[id].device = host;
            return Ok(id);
        };
        // The copies are what others wait for: the last one keeps the id.
        let whole = lir.works[id].clone();
        let mut outputs = whole.outputs.clone();
        let mut copied = |lir: &mut Lir, (position, version): (usize, ValueId)| {
            let bytes = lir.values[version].bytes;
            outputs[position] = lir.value(host, Home::Arena, bytes, whole.nodes[0]);
            View::of_bytes(outputs[position], bytes)
        };
        let mut copies = Vec::with_capacity(others.len());
        for &version in others {
            let view = copied(lir, version);
            let copy = lir.work(WorkKind::Copy, whole.device, whole.nodes.clone(), vec![view], vec![version.1]);
            let work = &mut lir.works[copy];
            (work.guard, work.is_root, work.rank) = (whole.guard, whole.is_root, whole.rank);
            copies.push(copy);
        }
        let view = copied(lir, last);
        let work = &mut lir.works[id];
        (work.kind, work.inputs, work.outputs, work.after) = (WorkKind::Copy, vec![view], vec![last.1], copies);
        // Elsewhere than in the variable, the first argument is read and the last one written.
        let kind = match whole.kind {
            WorkKind::Request { request, .. } => WorkKind::Request { request, args: Arg::all(whole.inputs.len(), outputs.len()) },
            kind => kind,
        };
        let computed = lir.work(kind, host, whole.nodes, whole.inputs, outputs);
        let work = &mut lir.works[computed];
        (work.guard, work.after, work.rank) = (whole.guard, whole.after, whole.rank);
        Ok(computed)
    }
}

/// The same constant on a device.
fn constant_on(lir: &mut Lir, constant: ConstantId, device: DeviceId) -> Result<ValueId> {
    let (value, known) = (lir.constant_values[constant].clone(), &lir.constants[constant]);
    let (tensor, name) = (known.tensor, known.name.clone());
    lir.constant(&value, device, tensor, &name)
}

/// A fetched value that the host computes now is made where the caller finds it, without a copy.
fn fetch_in_place(lir: &mut Lir, host: DeviceId, moved: &HashSet<WorkId>) -> Result<()> {
    let definitions = lir.definitions();
    let mut is_awaited: IdVec<WorkId, bool> = IdVec::filled(false, lir.works.len());
    lir.all().flat_map(|(_, work)| &work.after).for_each(|before| is_awaited[*before] = true);
    let mut is_gone: IdVec<WorkId, bool> = IdVec::filled(false, lir.works.len());
    for id in lir.ids() {
        let work = &lir.works[id];
        if !matches!(work.kind, WorkKind::Copy) || work.guard.is_some() || !work.after.is_empty() || is_awaited[id] {
            continue;
        }
        let (from, home) = (work.inputs[0].value, lir.values[work.outputs[0]].home);
        let Some(maker) = definitions[from].filter(|maker| moved.contains(maker)) else { continue };
        if matches!(home, Home::Fetch(_)) && lir.values[from].home == Home::Arena && lir.values[from].device == host {
            lir.values[from].home = home;
            lir.works[maker].is_root = true;
            is_gone[id] = true;
        }
    }
    lir.retain(|id| !is_gone[id])
}
