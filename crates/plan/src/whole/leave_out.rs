//! Commands that write zeros into lists that a loop writes whole are left out of a plan.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::Result;
use plimsoll_device::{BufferRef, Command, Library, Program, Wait, Work};
use plimsoll_graph::id::Id;
use plimsoll_request::KernelRequest;

use super::{Commands, body, has_loops, of_constants, plain, written_whole};
use crate::access::{named, overlap, written};
use crate::buffers::{CommandAt, Holds};
use crate::plan::{Plan, Queue};

/// Leaves out commands that no later one needs. The others stay in their order; memory and the predicted time stay as they are. All
/// commands stay where a library does not say what its kernels write.
pub(crate) fn leave_out(plan: &mut Plan, libraries: &[&dyn Library]) {
    if !has_loops(&plan.queues) {
        return;
    }
    let of_queue = |queue: &Queue| queue.program.commands.iter().map(|command| written(libraries[queue.device.index()], command)).collect();
    let Ok(all) = plan.queues.iter().map(of_queue).collect::<Result<Vec<Vec<Vec<BufferRef>>>>>() else { return };
    let constants = of_constants(plan);
    let mut left: Vec<HashMap<usize, usize>> = Vec::with_capacity(all.len());
    for (index, (queue, written)) in plan.queues.iter().zip(&all).enumerate() {
        let others = Commands::others(&plan.queues, index);
        let commands = Commands { commands: &queue.program.commands, written, others: &others, constants: &constants };
        left.push(fills(&commands));
    }
    if left.iter().any(|left| !left.is_empty()) {
        renumber(plan, &left);
    }
}

/// The commands of a queue that write zeros which nothing needs, each with the first command of the loop that writes there.
fn fills(queue: &Commands<'_>) -> HashMap<usize, usize> {
    let bodies: Vec<Range<usize>> = (0..).zip(queue.commands).filter_map(|(at, command)| body(at, command)).collect();
    let mut fills = HashMap::new();
    for (begin, lists) in written_whole(queue) {
        for list in lists {
            let is_at = |at: &usize| named(&queue.commands[*at]).any(|other| overlap(other, list));
            let last = (0..begin).rev().find(is_at);
            let is_within = |at: usize| bodies.iter().any(|body| body.contains(&at));
            if let Some(at) = last.filter(|at| is_fill(&queue.commands[*at], list) && !is_within(*at)) {
                fills.insert(at, begin);
            }
        }
    }
    fills
}

/// Whether a command does nothing but to write the same number everywhere in a buffer.
fn is_fill(command: &Command, list: BufferRef) -> bool {
    let is_same = plain(command).is_some_and(|call| matches!(&*call.request, KernelRequest::Expr { expr, .. } if expr.inputs().is_empty()));
    is_same && command.guard.is_none() && command.scratch.is_none() && command.args == [list]
}

/// Takes commands out of queues. `left` has, by queue, their numbers, and the command that is named in the place of each.
fn renumber(plan: &mut Plan, left: &[HashMap<usize, usize>]) {
    // By queue and number: how many of the commands before stay.
    let before = |(queue, left): (&Queue, &HashMap<usize, usize>)| {
        let mut stayed = 0;
        let each = (0..=queue.program.commands.len()).map(|at| {
            let number = stayed;
            stayed += u32::from(!left.contains_key(&at));
            number
        });
        each.collect()
    };
    let numbers: Vec<Vec<u32>> = plan.queues.iter().zip(left).map(before).collect();
    let number = |queue: u32, at: u32| numbers[queue as usize][at as usize];
    for (queue, left) in plan.queues.iter_mut().zip(left) {
        let mut commands = Vec::with_capacity(queue.program.commands.len() - left.len());
        // What a command waits for that is left out, the next one does.
        let mut waits: Vec<Wait> = Vec::new();
        for (at, command) in queue.program.commands.iter().enumerate() {
            for wait in command.waits.iter().map(|wait| Wait { commands: number(wait.queue, wait.commands), ..*wait }) {
                match waits.iter_mut().find(|other| other.queue == wait.queue) {
                    Some(other) => other.commands = other.commands.max(wait.commands),
                    None => waits.push(wait),
                }
            }
            if left.contains_key(&at) {
                continue;
            }
            let mut command = Command { waits: std::mem::take(&mut waits), ..command.clone() };
            command.waits.retain(|wait| wait.commands > 0);
            command.waits.sort_by_key(|wait| wait.queue);
            if let Work::Loop { with, .. } = &mut command.work {
                with.iter_mut().for_each(|partner| partner.first = number(partner.queue, partner.first));
            }
            commands.push(command);
        }
        let stays = |at: &usize| !left.contains_key(at);
        // The next command has the time, too: a plan is predicted to take as long as schedules are taken to that have the zeros.
        let mut spare = 0.0;
        let seconds = queue.seconds.iter().enumerate().filter_map(|(at, seconds)| {
            spare += seconds;
            stays(&at).then(|| std::mem::take(&mut spare))
        });
        queue.seconds = seconds.collect();
        queue.nodes = (0..queue.nodes.len()).filter(stays).map(|at| queue.nodes[at].clone()).collect();
        queue.bytes = (0..queue.bytes.len()).filter(stays).map(|at| queue.bytes[at]).collect();
        queue.program = Arc::new(Program { commands });
    }
    for variable in &mut plan.variables {
        variable.assigned_by = variable.assigned_by.map(|(queue, at)| (queue, number(queue, at)));
    }
    let mut buffers = plan.buffers.to_vec();
    let queue_of = |device| plan.queues.iter().position(|queue| queue.device == device).map(|queue| queue as u32);
    let command = |(queue, at): CommandAt| match left.get(queue as usize).map(|left| left.get(&(at as usize))) {
        Some(Some(begin)) => (queue, number(queue, *begin as u32)),
        Some(None) => (queue, number(queue, at)),
        None => (queue, at),
    };
    for buffer in &mut buffers {
        if let Some(queue) = queue_of(buffer.device) {
            buffer.commands = (number(queue, buffer.commands.0), number(queue, buffer.commands.1));
        }
        match &mut buffer.holds {
            Holds::Values(values) => values.iter_mut().for_each(|value| {
                value.writer = command(value.writer);
                value.readers.iter_mut().for_each(|reader| *reader = command(*reader));
            }),
            Holds::Scratch(at) => *at = command(*at),
        }
    }
    plan.buffers = Arc::from(buffers);
}
