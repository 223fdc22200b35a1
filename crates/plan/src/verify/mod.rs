//! Whether a plan from a file keeps the rules of every plan of [`crate::plan()`], so that devices may be given it.
//!
//! A plan from a file is not trusted. Everything that devices trust is rebuilt here from the graph, the libraries and the commands
//! alone. That is: sizes and identities of blocks ([`blocks`]), arguments and scratch of every command ([`commands`]), and the
//! order of the queues ([`schedule`]). And no command reads bytes that another may be writing ([`accesses`]). Names in reports are
//! not checked.

mod accesses;
mod blocks;
mod calls;
mod commands;
mod loops;
mod peak;
mod schedule;
mod whole;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Command, DeviceSpec, Library};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, NodeId};

use crate::infer::Pruned;
use crate::plan::{DeviceId, Plan, Queue};
use crate::{Request, Signature};

/// A plan with the facts that it is held against.
pub(crate) struct Checked<'a> {
    graph: &'a Graph,
    devices: &'a [DeviceSpec],
    libraries: &'a [&'a dyn Library],
    signature: &'a Signature,
    pruned: &'a Pruned,
    plan: &'a Plan,
    queues: &'a [Queue],
}

/// Checks a plan. Its constants have their elements.
///
/// # Errors
/// INVALID_ARGUMENT at the first thing that does not hold, with its command; the errors of libraries.
pub(crate) fn verify(request: &Request<'_>, pruned: &Pruned, plan: &Plan) -> Result<()> {
    let &Request { graph, devices, libraries, signature, .. } = request;
    let checked = Checked { graph, devices, libraries, signature, pruned, plan, queues: &plan.queues };
    checked.blocks()?;
    checked.calls()?;
    let commands = checked.commands()?;
    let order = checked.schedule()?;
    let loops = checked.loops()?;
    checked.accesses(&commands, &order, &loops)?;
    checked.peak()
}

/// A place in the plan: its queue, and its number there.
type Slot = (usize, usize);

impl<'a> Checked<'a> {
    fn command(&self, (queue, number): Slot) -> &'a Command {
        &self.queues[queue].program.commands[number]
    }

    /// Every command with its place.
    fn slots(&self) -> impl Iterator<Item = (Slot, &'a Command)> {
        let commands = |(index, queue): (usize, &'a Queue)| {
            queue.program.commands.iter().enumerate().map(move |(number, command)| ((index, number), command))
        };
        self.queues.iter().enumerate().flat_map(commands)
    }

    fn spec(&self, device: DeviceId) -> Result<&'a DeviceSpec> {
        self.devices.get(device.index()).ok_or_else(|| wrong(format!("there is no device {}", device.index())))
    }

    fn require_node(&self, node: NodeId) -> Result<()> {
        if self.graph.nodes().get(node).is_none() {
            return Err(wrong(format!("the graph has no node {}", node.index())));
        }
        Ok(())
    }

    /// The error at a command.
    fn at(&self, (queue, number): Slot, error: Error) -> Error {
        let label = self.command((queue, number)).label.to_string();
        error.context(format_args!("command {number} of queue {queue}")).at_node(label)
    }
}

/// The error for a plan in which something does not hold.
fn wrong(what: impl Into<String>) -> Error {
    Error::invalid_argument(what)
}
