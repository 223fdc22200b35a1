//! The devices whose queues have a part in a loop. Each has a bool of its own that says whether there is another iteration: the loop's
//! device computes it, and the others get copies in every iteration.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::DeviceSpec;
use plimsoll_graph::Shape;
use plimsoll_graph::id::Id;
use plimsoll_request::expr::{ExprBuilder, Scalar};

use crate::Request;
use crate::lir::{Home, Lir, RegionId, ValueId, View, Work, WorkId, WorkKind};
use crate::plan::DeviceId;
use crate::transfer::carrier;

/// Finds the partners of the region at hand, where a loop holds it, and gives each its condition.
///
/// # Errors
/// UNIMPLEMENTED at the node of a work of another device than what it changes.
pub(crate) fn seat(request: &Request<'_>, lir: &mut Lir) -> Result<()> {
    let (region, devices) = (lir.here(), request.devices);
    let Some(holder) = lir.holder(region) else { return Ok(()) };
    let is_there = |work: &&Work| {
        let is_elsewhere = |output: &ValueId| lir.values[*output].device != work.device;
        !matches!(work.kind, WorkKind::Copy | WorkKind::Loop { .. }) && work.outputs.iter().any(is_elsewhere)
    };
    if let Some(node) = lir.all().map(|(_, work)| work).find(is_there).map(|work| work.nodes[0]) {
        let message = "not yet: a loop that changes what is on another device than the operation";
        return Err(Error::unimplemented(message).at_node(&request.graph.node(node).name));
    }
    let mut partners = touched(lir, devices, region);
    if partners.len() > 1 {
        // Shared loops in each other are of the same queues.
        let outermost = std::iter::successors(Some(region), |region| around(lir, *region)).last().unwrap_or(region);
        partners = touched(lir, devices, outermost);
    }
    partners.retain(|device| *device != lir.works[holder].device);
    for &device in &partners {
        deliver(lir, holder, device);
    }
    lir.region_mut().partners = partners;
    Ok(())
}

/// The guards of shared loops of the region at hand become a part of their conditions: each queue looks at its own.
///
/// # Errors
/// Those of expressions.
pub(crate) fn fold_guards(lir: &mut Lir) -> Result<()> {
    for id in lir.ids() {
        let work = &lir.works[id];
        let Some(guard) = work.guard.filter(|_| lir.is_shared(work)) else { continue };
        let (device, node, rank, first) = (work.device, work.nodes[0], work.rank, work.inputs[0].clone());
        let mut builder = ExprBuilder::new();
        let (holds, begins) = (builder.input(DataType::Bool)?, builder.input(DataType::Bool)?);
        let no = builder.constant(Scalar::Bool(false));
        // What was not computed may be any byte.
        let both = builder.select(holds, begins, no)?;
        let kind = WorkKind::Expr { expr: builder.finish(vec![both]), shape: Shape::scalar() };
        let condition = lir.value(device, Home::Arena, 1, node);
        let guard = View { value: guard, data_type: DataType::Bool, shape: Shape::scalar() };
        let begins = View { shape: Shape::scalar(), ..first.clone() };
        let folded = lir.work(kind, device, vec![node], vec![guard, begins], vec![condition]);
        lir.works[folded].rank = rank;
        let partners = lir.devices(&lir.works[id]).count() - 1;
        let work = &mut lir.works[id];
        let WorkKind::Loop { carried, .. } = work.kind else { continue };
        work.guard = None;
        (carried - partners..carried).chain([0]).for_each(|test| work.inputs[test].value = condition);
    }
    Ok(())
}

/// The devices of the loop that holds a region, and those that its works use.
fn touched(lir: &Lir, devices: &[DeviceSpec], region: RegionId) -> Vec<DeviceId> {
    let mut found: Vec<DeviceId> = lir.holder(region).map(|holder| lir.works[holder].device).into_iter().collect();
    let mut open = vec![region];
    while let Some(region) = open.pop() {
        found.extend(lir.passed(region).map(|param| lir.values[param].device));
        for work in lir.regions[region].works.iter().map(|id| &lir.works[*id]) {
            open.extend(work.regions());
            let is_copy = matches!(work.kind, WorkKind::Copy);
            if !is_copy {
                found.push(work.device);
            }
            let to = work.outputs.first().filter(|_| is_copy).map_or(work.device, |output| lir.values[*output].device);
            for value in work.reads().map(|value| &lir.values[value]).filter(|_| work.regions().is_empty()) {
                // A constant is where it is read.
                if !matches!(value.home, Home::Constant(_)) {
                    found.extend([value.device, carrier(devices, value.device, to)]);
                }
            }
            found.extend(work.outputs.iter().map(|output| lir.values[*output].device));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The region that the holder of a region belongs to; none of the plan's own, and of those in that.
fn around(lir: &Lir, region: RegionId) -> Option<RegionId> {
    let holder = lir.holder(region)?;
    let around = lir.values[*lir.works[holder].outputs.first()?].region;
    (around.index() > 0).then_some(around)
}

/// A loop carries one more value, on a device: a copy of its condition.
fn deliver(lir: &mut Lir, holder: WorkId, device: DeviceId) {
    let work = &lir.works[holder];
    let WorkKind::Loop { body, carried, .. } = work.kind else { return };
    let (node, first, outer) = (work.nodes[0], work.inputs[0].clone(), lir.values[work.outputs[0]].region);
    for value in lir.values.values_mut() {
        if let Home::Given { region, param } = &mut value.home
            && *region == body
            && *param as usize >= carried
        {
            *param += 1;
        }
    }
    lir.enter(outer);
    let after = lir.value(device, Home::Arena, 1, node);
    lir.enter(body);
    let work = &mut lir.works[holder];
    work.inputs.insert(carried, first);
    work.outputs.insert(carried, after);
    if let WorkKind::Loop { carried, .. } = &mut work.kind {
        *carried += 1;
    }
    let param = lir.value(device, Home::Given { region: body, param: carried as u32 }, 1, node);
    let is_before = |other: &&ValueId| !matches!(lir.values[**other].home, Home::Given { param, .. } if param as usize > carried);
    let at = lir.region().params.iter().take_while(is_before).count();
    lir.region_mut().params.insert(at, param);
    let next = lir.next_version(param, node);
    let condition = lir.region().results[0];
    let copy = lir.work(WorkKind::Copy, device, vec![node], vec![View::of_bytes(condition, 1)], vec![next]);
    lir.works[copy].is_root = true;
    lir.region_mut().results.push(next);
}
