//! A plan as text for people and tests: its peaks, and every command with its arguments and waits.

use std::fmt::{self, Display};

use plimsoll_base::Bytes;
use plimsoll_device::{BufferRef, Place, Work};
use plimsoll_graph::id::Id;

use crate::plan::{Plan, PlanCall};

impl Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for device in &self.devices {
            let parts = &device.peak;
            write!(f, "{}: peak {}", short(&device.name), parts.total().0)?;
            let named = [
                ("variables", parts.variables),
                ("constants", parts.constants),
                ("activations", parts.activations),
                ("workspace", parts.workspace),
                ("transfer", parts.transfer),
                ("overhead", parts.overhead),
            ];
            for (position, (name, bytes)) in named.into_iter().filter(|(_, bytes)| bytes.0 > 0).enumerate() {
                write!(f, "{}{name} {}", if position == 0 { " = " } else { " + " }, bytes.0)?;
            }
            if device.unused() > Bytes::ZERO {
                write!(f, ", {} unused between buffers", device.unused().0)?;
            }
            writeln!(f)?;
        }
        for (index, variable) in self.variables.iter().enumerate() {
            let device = short(&self.devices[variable.device.index()].name);
            writeln!(f, "variable {index}: {} {}{} on {device}", variable.name, variable.data_type, variable.shape)?;
        }
        for (index, constant) in self.constants.iter().enumerate() {
            write!(f, "constant {index}: {} {}{}", constant.name, constant.data_type, constant.shape)?;
            constant.panels.iter().try_for_each(|panels| write!(f, " in {panels}"))?;
            writeln!(f)?;
        }
        for (index, call) in self.calls.iter().enumerate() {
            write!(f, "file {index}: ")?;
            match call {
                PlanCall::Check(check) => writeln!(f, "check {} of {}", names(check.tensors.iter().map(|(name, _)| name)), check.prefix)?,
                PlanCall::Restore(restore) => writeln!(f, "{} of {} to variable {}", restore.name, restore.prefix, restore.variable)?,
                PlanCall::Save(save) => writeln!(f, "save {} as {}", names(save.tensors.iter().map(|tensor| &tensor.name)), save.prefix)?,
            }
        }
        for (index, queue) in self.queues.iter().enumerate() {
            writeln!(f, "queue {index} on {}:", short(&self.devices[queue.device.index()].name))?;
            for command in &queue.program.commands {
                let what = match &command.work {
                    Work::Copy => "copy",
                    Work::Kernel(_) => "call",
                    Work::Outside { .. } => "file",
                    Work::Loop { .. } => "loop",
                    Work::Again { .. } => "again",
                };
                let args: Vec<String> = command.args.iter().map(|arg| buffer(*arg)).collect();
                write!(f, "  {what} {} {}", command.label, args.join(" "))?;
                if let Some(guard) = command.guard {
                    write!(f, " if {}", buffer(guard))?;
                }
                if let Work::Kernel(call) = &command.work {
                    write!(f, " by {}", call.variant.name)?;
                    if call.variant.steps.len() > 1 {
                        write!(f, "#{}", call.step)?;
                    }
                }
                if let Some(scratch) = command.scratch {
                    write!(f, " scratch {}", buffer(scratch))?;
                }
                if let Work::Loop { with, .. } = &command.work {
                    with.iter().try_for_each(|partner| write!(f, " with queue {}", partner.queue))?;
                }
                for wait in &command.waits {
                    write!(f, " after queue {} #{}", wait.queue, wait.commands)?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

fn short(name: &str) -> &str {
    name.rsplit("device:").next().unwrap_or(name)
}

fn buffer(buffer: BufferRef) -> String {
    let (place, index) = match buffer.place {
        Place::Arena(index) => ("arena", index),
        Place::Variable(index) => ("variable", index),
        Place::VariableFlag(index) => ("flag", index),
        Place::Constant(index) => ("constant", index),
        Place::Feed(index) => ("feed", index),
        Place::Fetch(index) => ("fetch", index),
    };
    format!("{place}{index}[{}..{}]", buffer.offset, buffer.offset + buffer.bytes)
}

/// Names in a row.
fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}
