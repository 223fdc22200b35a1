//! A work's kernel: its code, its scratch and what it costs.

use plimsoll_base::Result;
use plimsoll_device::Prepared;
use plimsoll_graph::id::Id;
use plimsoll_kernels::anchor::{Anchor, Epilogue};
use plimsoll_kernels::expr::elementwise;

use crate::Request;
use crate::lir::{Lir, ValueId, Work, WorkKind};

/// A work's kernel and predicted time.
#[derive(Clone, Debug)]
pub(crate) struct Prepare {
    /// None for copies, and works on files.
    pub kernel: Option<Prepared>,
    pub seconds: f64,
    /// Bytes of scratch that all pieces share, as a multiple of 64, and of the slices behind it, one for each who takes part.
    pub shared: u64,
    pub slices: u64,
}

impl Prepare {
    /// Bytes of scratch in all.
    pub fn scratch(&self) -> u64 {
        self.shared.saturating_add(self.slices)
    }
}

/// What a command costs beside its kernel: waiting for it, and calling it.
const SECONDS_PER_COMMAND: f64 = 2e-7;

pub(crate) fn prepare(request: &Request<'_>, lir: &Lir, work: &Work) -> Result<Prepare> {
    let operands = |from: usize| work.inputs[from..].iter().map(|view| view.shape.to_vec()).collect::<Vec<_>>();
    let kernel = match &work.kind {
        WorkKind::Expr { expr, shape } => Some(elementwise(expr, shape.dims(), &operands(0))?),
        WorkKind::Anchor { anchor, epilogue, pooling } => {
            let epilogue = epilogue.as_ref().map(|expr| Epilogue { expr: expr.clone(), operands: operands(Anchor::INPUTS) });
            Some(anchor.prepare(epilogue, *pooling)?)
        }
        WorkKind::Kernel { prepared, .. } => Some(prepared.clone()),
        WorkKind::Copy | WorkKind::Outside { .. } => None,
    };
    let spec = &request.devices[work.device.index()];
    let seconds =
        kernel.as_ref().map_or_else(|| copy_seconds(request, lir, work), |kernel| spec.seconds(kernel.cost)) + SECONDS_PER_COMMAND;
    let scratch = match work.kind {
        WorkKind::Outside { scratch, .. } => scratch,
        _ => kernel.as_ref().map_or(0, |kernel| kernel.scratch),
    };
    let shared = scratch.next_multiple_of(64);
    let slices = kernel.as_ref().map_or(0, |kernel| {
        let (slices, bytes) = kernel.worker_slices(spec.threads);
        bytes.saturating_mul(u64::from(slices))
    });
    Ok(Prepare { kernel, seconds, shared, slices })
}

/// What a copy takes, between devices or in the memory of one.
fn copy_seconds(request: &Request<'_>, lir: &Lir, work: &Work) -> f64 {
    let (Some(input), Some(output)) = (work.inputs.first(), work.outputs.first()) else { return 0.0 };
    let device = |value: ValueId| &request.devices[lir.values[value].device.index()];
    device(*output).copy_seconds(device(input.value), lir.values[*output].bytes as f64)
}
