//! The commands one by one. Their arguments lie in blocks and are as long as their kernels take them. They overlap only where the
//! kernel allows it.

use plimsoll_base::{Bytes, Panels, Result};
use plimsoll_device::{BufferRef, Command, DeviceKind, KernelCall, Place, Step, Work};
use plimsoll_graph::id::Id;

use super::{Checked, wrong};
use crate::access::{Access, overlap, roles};
use crate::pack::label;
use crate::plan::{DeviceId, PlanCall, Queue};

/// For each queue and command, its inputs and outputs.
pub(super) type Accesses = Vec<Vec<Vec<Access>>>;

fn read(buffer: BufferRef) -> Access {
    Access { buffer, reads: true, writes: false }
}

fn write(buffer: BufferRef) -> Access {
    Access { buffer, reads: false, writes: true }
}

impl Checked<'_> {
    pub(super) fn commands(&self) -> Result<Accesses> {
        let mut devices: Vec<DeviceId> = Vec::with_capacity(self.queues.len());
        for queue in self.queues {
            self.spec(queue.device)?;
            let commands = queue.program.commands.len();
            if [queue.seconds.len(), queue.nodes.len(), queue.bytes.len()] != [commands; 3] {
                return Err(wrong(format!("a queue of {commands} commands with another number of reports")));
            }
            for (nodes, command) in queue.nodes.iter().zip(&queue.program.commands) {
                nodes.iter().try_for_each(|node| self.require_node(*node))?;
                // Errors and profiles show it.
                if command.label != label(self.graph, nodes) {
                    return Err(wrong("a command is named after other nodes than its own"));
                }
            }
            let is_copies = queue.program.commands.iter().all(|command| matches!(command.work, Work::Copy));
            let is_beside = is_copies && devices.last() == Some(&queue.device) && devices.iter().rev().nth(1) != Some(&queue.device);
            if devices.last().is_some_and(|last| *last >= queue.device) && !is_beside {
                return Err(wrong("two queues of one device"));
            }
            devices.push(queue.device);
        }
        let mut accesses: Accesses = self.queues.iter().map(|queue| Vec::with_capacity(queue.program.commands.len())).collect();
        for ((queue, number), command) in self.slots() {
            let of = self.command_accesses(&self.queues[queue], command).map_err(|error| self.at((queue, number), error))?;
            accesses[queue].push(of);
        }
        Ok(accesses)
    }

    fn command_accesses(&self, queue: &Queue, command: &Command) -> Result<Vec<Access>> {
        let mut accesses = match &command.work {
            Work::Kernel(call) => self.kernel(queue.device, command, call)?,
            Work::Copy => self.copy(queue.device, command)?,
            Work::Outside { call, inputs } => self.outside(queue.device, command, *call, *inputs)?,
            Work::Loop { .. } | Work::Again { .. } => {
                let [condition] = command.args[..] else { return Err(wrong("a loop of more or less than one condition")) };
                self.bounds(condition)?;
                if condition.bytes != 1 || self.block(condition.place)?.0 != Some(queue.device) {
                    return Err(wrong("the condition of a loop is no bool of its device"));
                }
                vec![read(condition)]
            }
        };
        for access in &accesses {
            self.bounds(access.buffer)?;
        }
        let scratch: Vec<BufferRef> = command.scratch.into_iter().chain(command.worker_scratch).collect();
        for (index, buffer) in scratch.iter().enumerate() {
            self.bounds(*buffer)?;
            if buffer.place != Place::Arena(queue.device.index() as u32) {
                return Err(wrong("its scratch is not in its device's arena"));
            }
            let mut others = accesses.iter().map(|access| access.buffer).chain(scratch[..index].iter().copied());
            if others.any(|other| overlap(other, *buffer)) {
                return Err(wrong("its scratch overlaps something else"));
            }
        }
        accesses.extend(scratch.into_iter().map(write));
        if let Some(guard) = command.guard {
            self.bounds(guard)?;
            let device = self.block(guard.place)?.0;
            // A file looks at guards in the memory of processors.
            let is_seen = match self.kind(queue.device) {
                DeviceKind::Spill => device.is_some_and(|device| self.kind(device) == DeviceKind::Cpu),
                _ => device == Some(queue.device),
            };
            if guard.bytes != 1 || !is_seen {
                return Err(wrong("its guard is no bool of its device"));
            }
            accesses.push(read(guard));
        }
        Ok(accesses)
    }

    /// The panels that a block is in: a constant's.
    fn panels(&self, place: Place) -> Option<Panels> {
        match place {
            Place::Constant(index) => self.plan.constants.get(index as usize)?.panels,
            _ => None,
        }
    }

    fn kind(&self, device: DeviceId) -> DeviceKind {
        self.devices[device.index()].kind
    }

    /// A buffer lies in its block, where the device can reach it: all of the block, but for arenas, and for feeds of which works in parts
    /// read slices.
    fn bounds(&self, buffer: BufferRef) -> Result<()> {
        let (device, bytes) = self.block(buffer.place)?;
        let end = buffer.offset.checked_add(buffer.bytes).filter(|end| *end <= bytes.0);
        let is_whole = match buffer.place {
            Place::Arena(_) | Place::Feed(_) => {
                device.is_some_and(|device| buffer.offset.is_multiple_of(self.devices[device.index()].alignment))
            }
            _ => buffer.offset == 0 && Bytes(buffer.bytes) == bytes,
        };
        if end.is_none() || !is_whole {
            let BufferRef { place, offset, bytes: length } = buffer;
            return Err(wrong(format!("{length} bytes at {offset} of {place:?}, which has {}", bytes.0)));
        }
        Ok(())
    }

    fn kernel(&self, device: DeviceId, command: &Command, call: &KernelCall) -> Result<Vec<Access>> {
        let step = self.step(device, call)?;
        let roles = roles(self.libraries[device.index()], call, step)?;
        if roles.len() != command.args.len() {
            return Err(wrong(format!("{} takes {} arguments, not {}", call.variant.name, roles.len(), command.args.len())));
        }
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for (role, &buffer) in roles.iter().zip(&command.args) {
            if self.block(buffer.place)?.0 != Some(device) {
                return Err(wrong(format!("its argument {:?} is another device's", buffer.place)));
            }
            if self.panels(buffer.place) != role.panels {
                return Err(wrong(format!("its argument {:?} is in panels, or should be", buffer.place)));
            }
            let fits = if role.writes { buffer.bytes == role.bytes } else { buffer.bytes >= role.bytes };
            if !fits {
                return Err(wrong(format!("{} takes {} bytes, not {}", call.variant.name, role.bytes, buffer.bytes)));
            }
            (if role.writes { &mut writes } else { &mut reads }).push(Access { buffer, reads: role.reads, writes: role.writes });
        }
        for (output, written) in writes.iter().enumerate() {
            let may = |input: usize| step.in_place.contains(&(input, output));
            let clashes =
                |(input, other): (usize, &Access)| overlap(other.buffer, written.buffer) && !(may(input) && other.buffer == written.buffer);
            let twice = writes[..output].iter().any(|other| overlap(other.buffer, written.buffer));
            if twice || reads.iter().enumerate().any(clashes) {
                return Err(wrong("it writes where another of its arguments lies"));
            }
        }
        self.scratch(device, command, step)?;
        Ok(reads.into_iter().chain(writes).collect())
    }

    /// The step of a call, which the device's library has.
    fn step<'c>(&self, device: DeviceId, call: &'c KernelCall) -> Result<&'c Step> {
        let (spec, library) = (self.spec(device)?, self.libraries[device.index()]);
        if !library.has(spec, &call.request, &call.variant)? {
            return Err(wrong(format!("{} has no such variant {}", spec.name, call.variant.name)));
        }
        call.variant.steps.get(call.step as usize).ok_or_else(|| wrong(format!("{} has no step {}", call.variant.name, call.step)))
    }

    fn scratch(&self, device: DeviceId, command: &Command, step: &Step) -> Result<()> {
        let spec = self.spec(device)?;
        let (slices, slice) = step.worker_slices(spec.threads, spec.alignment);
        let have = |buffer: Option<BufferRef>| buffer.map_or(0, |buffer| buffer.bytes);
        let slices = slice.checked_mul(u64::from(slices)).ok_or_else(|| wrong("scratch of more than 64 bits"))?;
        if have(command.scratch) < step.scratch || have(command.worker_scratch) < slices {
            return Err(wrong(format!("it needs {} bytes of scratch and {slices} of its workers", step.scratch)));
        }
        Ok(())
    }

    fn copy(&self, device: DeviceId, command: &Command) -> Result<Vec<Access>> {
        let [from, to] = command.args[..] else { return Err(wrong(format!("a copy of {} arguments", command.args.len()))) };
        if from.bytes != to.bytes || overlap(from, to) {
            return Err(wrong(format!("a copy of {} bytes to {}", from.bytes, to.bytes)));
        }
        if self.panels(from.place).is_some() {
            return Err(wrong("a copy of a constant in panels"));
        }
        // A constant in the graph's memory is the host's to read.
        let source = self.block(from.place)?.0.unwrap_or(self.plan.host);
        let target = self.block(to.place)?.0.ok_or_else(|| wrong("a copy to a constant"))?;
        let is_card = |device: DeviceId| self.kind(device) == DeviceKind::Gpu;
        let is_file = |device: DeviceId| self.kind(device) == DeviceKind::Spill;
        // It copies between itself and processors.
        let goes_beyond = |file: DeviceId, other: DeviceId| is_file(file) && (device != file || self.kind(other) != DeviceKind::Cpu);
        let is_at_one_end = device == source || device == target;
        if !is_at_one_end
            || (!is_card(device) && (is_card(source) || is_card(target)))
            || (is_card(source) && is_card(target) && device != target)
            || goes_beyond(source, target)
            || goes_beyond(target, source)
        {
            return Err(wrong("a copy that its device cannot make"));
        }
        Ok(vec![read(from), write(to)])
    }

    fn outside(&self, device: DeviceId, command: &Command, call: u32, inputs: u32) -> Result<Vec<Access>> {
        let call = self.plan.calls.get(call as usize).ok_or_else(|| wrong(format!("there is no file {call}")))?;
        if device != self.plan.host || inputs as usize != command.args.len() {
            return Err(wrong("files are read and written by the host"));
        }
        let variable = |index: u32| {
            let bytes = self.plan.variables[index as usize].bytes.0;
            BufferRef { place: Place::Variable(index), offset: 0, bytes }
        };
        let mut args = command.args.iter();
        let (mut accesses, mut streams) = (Vec::new(), true);
        match call {
            PlanCall::Check(_) => {}
            PlanCall::Restore(restore) => accesses.push(write(variable(restore.variable))),
            PlanCall::Save(save) => {
                streams = save.tensors.iter().any(|tensor| tensor.variable.is_some());
                for tensor in &save.tensors {
                    let bytes = tensor.shape.bytes(tensor.data_type)?.0;
                    let buffer = match tensor.variable {
                        Some(index) => Some(variable(index)),
                        None => args.next().copied().filter(|buffer| buffer.bytes == bytes),
                    };
                    accesses.push(read(buffer.ok_or_else(|| wrong(format!("{} is not there to be saved", tensor.name)))?));
                }
            }
        }
        let is_host = |buffer: &BufferRef| {
            let is_there = self.block(buffer.place).is_ok_and(|(device, _)| device.is_none_or(|device| device == self.plan.host));
            is_there && self.panels(buffer.place).is_none()
        };
        if args.next().is_some() || !command.args.iter().all(is_host) {
            return Err(wrong("a file is not given what it takes"));
        }
        if streams && command.scratch.is_none_or(|scratch| scratch.bytes == 0) {
            return Err(wrong("a file without a buffer"));
        }
        Ok(accesses)
    }
}
