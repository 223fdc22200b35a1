//! A work's kernel: the variant of its request, its scratch and its cost.

use std::sync::Arc;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::{KernelCall, LaidOut, Variant};
use plimsoll_graph::Shape;
use plimsoll_graph::id::Id;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::expr::Expr;

use crate::Request;
use crate::evaluate::once;
use crate::lir::{Lir, RegionId, Trips, ValueId, View, Work, WorkKind};
use crate::plan::DeviceId;

/// A work's kernel and predicted time.
#[derive(Clone, Debug)]
pub(crate) struct Prepare {
    /// None for copies, works on files, loops and works in parts.
    pub kernel: Option<KernelCall>,
    pub seconds: f64,
    /// Bytes of scratch that all pieces share, as a multiple of the device's alignment, and of the slices behind it, one for each
    /// thread that takes part.
    pub shared: u64,
    pub slices: u64,
}

impl Prepare {
    /// Bytes of scratch in all.
    pub fn scratch(&self) -> u64 {
        self.shared.saturating_add(self.slices)
    }
}

/// The variant of a request that takes a device the least time; of equal ones the first. It has the request's numerics: see
/// [`plimsoll_device::Costs::numerics`].
///
/// # Errors
/// The errors of the device's library; UNIMPLEMENTED where no variant has these numerics.
pub(crate) fn choose(request: &Request<'_>, device: DeviceId, kernel: &KernelRequest) -> Result<Arc<Variant>> {
    let choose = || choose_laid_out(request, device, kernel, &[]);
    match &request.lines.searches {
        Some(searches) => Ok(searches.answer(device, kernel, choose)?.1),
        None => choose(),
    }
}

/// As [`choose`], where some arguments may be read in panels: if a variant of the same numerics does, it takes no more time.
///
/// # Errors
/// As [`choose`].
pub(crate) fn choose_laid_out(request: &Request<'_>, device: DeviceId, kernel: &KernelRequest, may_be: &[LaidOut]) -> Result<Arc<Variant>> {
    let spec = &request.devices[device.index()];
    let library = request.libraries[device.index()];
    let variants_of = |kernel: &KernelRequest| -> Result<Vec<Variant>> {
        Ok(library.variants(spec, kernel)?.into_iter().filter(|variant| !variant.steps.is_empty()).collect())
    };
    let variants = variants_of(kernel)?;
    let bare = kernel.bare_convolution().map(|bare| variants_of(&bare)).transpose()?;
    let numerics = request.costs.numerics(spec.instructions, bare.as_ref().unwrap_or(&variants)).map(str::to_string);
    let seconds = |variant: &Variant| variant.steps.iter().map(|step| request.costs.step_seconds(spec, step)).sum::<f64>();
    let best = |variants: Vec<Variant>| {
        let of_these = variants.into_iter().filter(|variant| numerics.as_deref().is_some_and(|numerics| variant.is_of(numerics)));
        of_these.min_by(|one, other| seconds(one).total_cmp(&seconds(other)))
    };
    for laid_out in may_be {
        let variants = library.laid_out(spec, kernel, *laid_out)?;
        if let Some(best) = best(variants.into_iter().filter(|variant| !variant.steps.is_empty()).collect()) {
            return Ok(Arc::new(best));
        }
    }
    best(variants).map(Arc::new).ok_or_else(|| Error::unimplemented(format!("{} has no kernel for it", spec.name)))
}

/// Whether a device has a kernel for a request.
pub(crate) fn answers(request: &Request<'_>, device: DeviceId, kernel: &KernelRequest) -> bool {
    choose(request, device, kernel).is_ok()
}

/// The predicted seconds of a request on a device.
///
/// # Errors
/// As [`choose`].
pub(crate) fn seconds_of(request: &Request<'_>, device: DeviceId, kernel: &KernelRequest) -> Result<f64> {
    let variant = choose(request, device, kernel)?;
    Ok(variant.steps.iter().map(|step| request.costs.step_seconds(&request.devices[device.index()], step)).sum())
}

/// As [`choose`], for works that are one kernel.
///
/// # Errors
/// As [`choose`]; INTERNAL where the variant has several steps.
pub(crate) fn choose_one(request: &Request<'_>, device: DeviceId, kernel: KernelRequest) -> Result<KernelCall> {
    let choose = || choose_laid_out(request, device, &kernel, &[]);
    let (asked, variant) = match &request.lines.searches {
        Some(searches) => searches.answer(device, &kernel, choose)?,
        None => {
            let variant = choose()?;
            (Arc::new(kernel), variant)
        }
    };
    match variant.steps.len() {
        1 => Ok(KernelCall { request: asked, variant, step: 0 }),
        steps => Err(Error::internal(format!("{} computes in {steps} steps what has to be one", variant.name))),
    }
}

/// The request of a work whose arguments are all its inputs, then all its outputs; none for other works.
pub(crate) fn request_of(work: &Work) -> Option<KernelRequest> {
    match &work.kind {
        WorkKind::Expr { expr, shape } => Some(expression(expr, shape, &work.inputs)),
        WorkKind::Anchor { anchor, epilogue } => {
            let epilogue = epilogue.as_ref().map(|expr| Epilogue { expr: expr.clone(), operands: shapes(&work.inputs[Anchor::INPUTS..]) });
            Some(KernelRequest::Anchor { anchor: *anchor, epilogue, pooling: None })
        }
        _ => None,
    }
}

/// The request of an expression on these operands.
pub(crate) fn expression(expr: &Expr, shape: &Shape, operands: &[View]) -> KernelRequest {
    KernelRequest::Expr { expr: expr.clone(), shape: shape.to_vec(), operands: shapes(operands) }
}

fn shapes(views: &[View]) -> Vec<Vec<u64>> {
    views.iter().map(|view| view.shape.to_vec()).collect()
}

pub(crate) fn prepare(request: &Request<'_>, lir: &Lir, work: &Work) -> Result<Prepare> {
    let kernel = match &work.kind {
        WorkKind::Kernel { call, .. } => Some(call.clone()),
        WorkKind::Request { .. } => return Err(Error::internal("a request without a variant")),
        WorkKind::Loop { body, trips, .. } => return repeated(request, lir, work, (*body, *trips)),
        WorkKind::Parts(parts) => return Ok(Prepare { kernel: None, seconds: parts.seconds(), shared: parts.scratch, slices: 0 }),
        _ => request_of(work).map(|kernel| choose_one(request, work.device, kernel)).transpose()?,
    };
    let spec = &request.devices[work.device.index()];
    let step = kernel.as_ref().map(KernelCall::step);
    let seconds = step.map_or_else(|| copy_seconds(request, lir, work), |step| request.costs.step_seconds(spec, step));
    let scratch = match work.kind {
        WorkKind::Outside { scratch, .. } => scratch,
        _ => step.map_or(0, |step| step.scratch),
    };
    let shared = spec.slot(Bytes(scratch)).0;
    let slices = step.map_or(0, |step| {
        let (slices, bytes) = step.worker_slices(spec.threads, spec.alignment);
        bytes.saturating_mul(u64::from(slices))
    });
    Ok(Prepare { kernel, seconds: in_ticks(seconds), shared, slices })
}

/// A loop takes what its body takes, which is scheduled.
///
/// # Errors
/// UNIMPLEMENTED where a work of the body is on a device that has no part in the loop.
fn repeated(request: &Request<'_>, lir: &Lir, work: &Work, (body, trips): (RegionId, Trips)) -> Result<Prepare> {
    let region = &lir.regions[body];
    let mut inner = region.works.iter().map(|inner| &lir.works[*inner]);
    if let Some(other) = inner.find(|inner| !lir.devices(work).any(|device| device == inner.device)) {
        let names = [work.device, other.device].map(|device| request.devices[device.index()].name.short());
        let name = &request.graph.node(other.nodes[0]).name;
        return Err(Error::unimplemented(format!("not yet: a loop on {}, of which {name} is on {}", names[0], names[1])));
    }
    let seconds = in_ticks(once(lir, body, request.devices.len()) * trips.predicted());
    Ok(Prepare { kernel: None, seconds, shared: region.takes(work.device), slices: 0 })
}

/// A time as a multiple of 2^-44 seconds. Sums of such times are exact, so no order of the same works is faster by a rounding.
pub(crate) fn in_ticks(seconds: f64) -> f64 {
    const TICKS: f64 = (1u64 << 44) as f64;
    (seconds * TICKS).round() / TICKS
}

/// The time of a work without a kernel and without a copy, such as one on files: nothing is known of it.
const SECONDS_ELSEWHERE: f64 = 2e-7;

/// The time of a copy within the memory of a device.
pub(crate) fn copy_time(request: &Request<'_>, lir: &Lir, work: &Work, device: DeviceId) -> f64 {
    let spec = &request.devices[device.index()];
    work.outputs.first().map_or(SECONDS_ELSEWHERE, |output| request.costs.copy_seconds(spec, spec, lir.values[*output].bytes as f64))
}

/// The time of a copy, between devices or in the memory of one.
fn copy_seconds(request: &Request<'_>, lir: &Lir, work: &Work) -> f64 {
    let (Some(input), Some(output)) = (work.inputs.first(), work.outputs.first()) else { return SECONDS_ELSEWHERE };
    let device = |value: ValueId| &request.devices[lir.values[value].device.index()];
    request.costs.copy_seconds(device(input.value), device(*output), lir.values[*output].bytes as f64)
}
