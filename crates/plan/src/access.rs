//! What the commands of a plan, and requests for rows, read and write.

use plimsoll_base::{DataType, Error, Panels, Result};
use plimsoll_device::{BufferRef, Command, KernelCall, Library, Place, Step, StepArg, Work};
use plimsoll_request::gather::{Gather, ScatterOp};

/// The access of a command to a block's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub buffer: BufferRef,
    pub reads: bool,
    pub writes: bool,
}

/// How a kernel takes an argument.
#[derive(Clone, Copy)]
pub(crate) struct Role {
    pub bytes: u64,
    pub reads: bool,
    pub writes: bool,
    /// The panels that it is in.
    pub panels: Option<Panels>,
}

/// For each argument of a step of a call, how the kernel takes it.
///
/// # Errors
/// Those of the library; INVALID_ARGUMENT for an argument that the call does not have.
pub(crate) fn roles(library: &dyn Library, call: &KernelCall, step: &Step) -> Result<Vec<Role>> {
    let arguments = library.arguments(&call.request)?;
    let laid_out = |index| call.variant.laid_out.filter(|laid_out| laid_out.argument as usize == index).map(|laid_out| laid_out.panels);
    let input = |(index, bytes): (usize, &u64)| Role { bytes: *bytes, reads: true, writes: false, panels: laid_out(index) };
    let output = |(index, bytes): (usize, &u64)| {
        let reads = arguments.updates_first && index == 0;
        Role { bytes: *bytes, reads, writes: true, panels: None }
    };
    let inputs = arguments.inputs.iter().enumerate().map(input);
    let all: Vec<Role> = inputs.chain(arguments.outputs.iter().enumerate().map(output)).collect();
    let Some(args) = &step.args else { return Ok(all) };
    let before = &call.variant.steps[..call.step as usize];
    let role = |arg: &StepArg| match *arg {
        StepArg::Argument(index) => all.get(index as usize).copied(),
        StepArg::Between(index) => {
            let is_written = before.iter().flat_map(|step| step.args.iter().flatten()).any(|earlier| earlier == arg);
            let bytes = call.variant.between.get(index as usize)?;
            Some(Role { bytes: *bytes, reads: is_written, writes: !is_written, panels: None })
        }
    };
    args.iter().map(|arg| role(arg).ok_or_else(|| Error::invalid_argument(format!("{} has no {arg:?}", call.variant.name)))).collect()
}

/// The buffers that a command writes, its scratch among them. Variables that files are read into are not.
///
/// # Errors
/// As [`roles`].
pub(crate) fn written(library: &dyn Library, command: &Command) -> Result<Vec<BufferRef>> {
    let mut written: Vec<BufferRef> = match &command.work {
        Work::Kernel(call) => {
            let roles = roles(library, call, call.step())?;
            roles.iter().zip(&command.args).filter(|(role, _)| role.writes).map(|(_, buffer)| *buffer).collect()
        }
        Work::Copy => command.args.get(1).copied().into_iter().collect(),
        Work::Outside { inputs, .. } => command.args.get(*inputs as usize..).unwrap_or(&command.args).to_vec(),
        Work::Loop { .. } | Work::Again { .. } => Vec::new(),
    };
    written.extend(command.scratch.into_iter().chain(command.worker_scratch));
    Ok(written)
}

/// All buffers that a command names.
pub(crate) fn named(command: &Command) -> impl Iterator<Item = BufferRef> + '_ {
    command.args.iter().copied().chain(command.scratch).chain(command.worker_scratch).chain(command.guard)
}

/// Of a request that replaces one row of some, at an index that is one integer: the shape of the rows, and the index's type.
pub(crate) fn replaced_row(gather: &Gather) -> Option<(&[u64], DataType)> {
    match gather {
        Gather::Scatter {
            op: ScatterOp::Update, index_type, shape, indices: 1, depth: 1, scalar_updates: false, ignore: false, ..
        } => Some((shape, *index_type)),
        _ => None,
    }
}

/// Whether two buffers have a byte in common.
pub(crate) fn overlap(a: BufferRef, b: BufferRef) -> bool {
    let end = |buffer: BufferRef| buffer.offset.saturating_add(buffer.bytes);
    a.place == b.place && a.bytes > 0 && b.bytes > 0 && a.offset < end(b) && b.offset < end(a)
}

/// Whether a buffer is in an arena.
pub(crate) fn is_in_arena(buffer: BufferRef) -> bool {
    matches!(buffer.place, Place::Arena(_))
}
