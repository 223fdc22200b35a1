//! Lists that a loop writes whole: iteration `i` writes row `i`, there are as many iterations as rows, and nothing in the loop reads them.
//! What such a list held before the loop does not matter, so nothing has to be written there.
//!
//! This is found in the commands alone, by [`numbers`], and believed by none: the planner leaves out zeros for such lists
//! ([`leave_out`]), and the verifier of plans finds again that they are such.

mod leave_out;
mod numbers;
#[cfg(test)]
mod tests;

use std::ops::Range;

use plimsoll_base::DataType;
use plimsoll_device::{BufferRef, Command, KernelCall, Work};
use plimsoll_graph::HostTensor;
use plimsoll_request::KernelRequest;

use self::numbers::{Known, MOST, Numbers};
use crate::access::{is_in_arena, named, overlap, replaced_row};
use crate::plan::{Plan, PlanConstant, Queue};

pub(crate) use self::leave_out::leave_out;

/// So often a loop is gone through. Every time, numbers that do not grow by 1 in each iteration are forgotten.
const MOST_ROUNDS: usize = 4;

/// The commands of a queue, with what each writes.
pub(crate) struct Commands<'a> {
    pub commands: &'a [Command],
    /// For each of them, every buffer that it writes.
    pub written: &'a [Vec<BufferRef>],
    /// The buffers that other queues name. What is there is not followed.
    pub others: &'a [BufferRef],
    /// The elements of constants of one integer, by number.
    pub constants: &'a [Option<(DataType, i64)>],
}

/// A row that a command writes in place.
struct Row {
    list: BufferRef,
    rows: u64,
    index: (BufferRef, DataType),
}

/// The lists that a loop writes whole, by the number of its first command. Only loops of one queue that lie in no other count.
///
/// A command that fails ends the run: nothing reads a list that has been written in part.
pub(crate) fn written_whole(queue: &Commands<'_>) -> Vec<(usize, Vec<BufferRef>)> {
    let (mut found, mut at) = (Vec::new(), 0);
    let mut numbers = Numbers::default();
    while let Some(command) = queue.commands.get(at) {
        let Some(body) = body(at, command) else {
            queue.follow(&mut numbers, at);
            at += 1;
            continue;
        };
        let is_plain = matches!(&command.work, Work::Loop { with, .. } if with.is_empty()) && command.guard.is_none();
        let begins = command.args.first().and_then(|test| numbers.get(*test, DataType::Bool));
        if is_plain && begins == Some(Known::Is(1)) && body.end < queue.commands.len() {
            let lists = queue.lists(&numbers, body.clone());
            if !lists.is_empty() {
                found.push((at, lists));
            }
        }
        queue.forget(&mut numbers, body.clone());
        at = body.end + 1;
    }
    found
}

/// Whether a plan has a loop.
pub(crate) fn has_loops(queues: &[Queue]) -> bool {
    queues.iter().flat_map(|queue| &queue.program.commands).any(|command| matches!(command.work, Work::Loop { .. }))
}

/// The commands of the body of a loop that begins with a command.
fn body(at: usize, command: &Command) -> Option<Range<usize>> {
    match command.work {
        Work::Loop { body, .. } => Some(at + 1..(at + 1).saturating_add(body as usize)),
        _ => None,
    }
}

/// The elements of the constants of one integer, by number.
pub(crate) fn of_constants(plan: &Plan) -> Vec<Option<(DataType, i64)>> {
    let integer = |(constant, value): (&PlanConstant, &HostTensor)| match value.to_i64s().as_deref() {
        Some([integer]) if constant.panels.is_none() => Some((constant.data_type, *integer)),
        _ => None,
    };
    plan.constant_values().map(integer).collect()
}

impl Commands<'_> {
    /// The buffers that other queues name.
    pub fn others(queues: &[Queue], queue: usize) -> Vec<BufferRef> {
        let others = queues.iter().enumerate().filter(|(other, _)| *other != queue);
        others.flat_map(|(_, other)| other.program.commands.iter().flat_map(named)).collect()
    }

    /// Whether another queue names a byte of a buffer.
    fn is_shared(&self, buffer: BufferRef) -> bool {
        self.others.iter().any(|other| overlap(*other, buffer))
    }

    /// The lists that a loop writes whole which has a first iteration. The numbers are those before it.
    fn lists(&self, before: &Numbers, body: Range<usize>) -> Vec<BufferRef> {
        let rows: Vec<(usize, Row)> = body.clone().flat_map(|at| rows(&self.commands[at]).into_iter().map(move |row| (at, row))).collect();
        if rows.is_empty() {
            return Vec::new();
        }
        let mut stays = before.clone();
        self.forget(&mut stays, body.clone());
        let mut counts: Vec<(BufferRef, DataType, i64)> = before.integers().filter(|(at, ..)| !stays.has(*at)).collect();
        for _ in 0..MOST_ROUNDS {
            let mut numbers = stays.clone();
            counts.iter().for_each(|(at, data_type, first)| numbers.set(*at, *data_type, Known::Grows(*first)));
            let is_counter = self.turn(&mut numbers, body.clone(), &rows);
            let all = counts.len();
            counts.retain(|(at, data_type, first)| numbers.get(*at, *data_type) == Some(Known::Grows(first + 1)));
            if counts.len() < all {
                continue;
            }
            let again = &self.commands[body.end];
            let trips = match again.args.first().and_then(|test| numbers.get(*test, DataType::Bool)) {
                Some(Known::Under(more)) => more.max(0) + 1,
                Some(Known::Is(0)) => 1,
                _ => return Vec::new(),
            };
            let is_whole = |number: &usize| {
                let (at, row) = &rows[*number];
                let is_all = is_counter[*number] && trips <= MOST && u64::try_from(trips) == Ok(row.rows);
                is_all
                    && is_in_arena(row.list)
                    && !self.is_shared(row.list)
                    && self.commands[*at].guard.is_none()
                    && self.is_written_only(row.list, *at, &body)
            };
            return (0..rows.len()).filter(is_whole).map(|number| rows[number].1.list).collect();
        }
        Vec::new()
    }

    /// Follows an iteration. For each row that is written, whether its index is the number of the iteration.
    fn turn(&self, numbers: &mut Numbers, body: Range<usize>, rows: &[(usize, Row)]) -> Vec<bool> {
        let mut is_counter = vec![false; rows.len()];
        let (mut at, mut next) = (body.start, 0);
        while at < body.end {
            // The rows of a loop in it are passed over: it may have no iteration.
            while let Some((_, row)) = rows.get(next).filter(|(of, _)| *of <= at) {
                is_counter[next] = rows[next].0 == at && numbers.get(row.index.0, row.index.1) == Some(Known::Grows(0));
                next += 1;
            }
            match self::body(at, &self.commands[at]) {
                Some(inner) => {
                    self.forget(numbers, inner.clone());
                    at = inner.end + 1;
                }
                None => {
                    self.follow(numbers, at);
                    at += 1;
                }
            }
        }
        is_counter
    }

    /// Whether nothing in a loop is at a list but the command that writes a row of it.
    fn is_written_only(&self, list: BufferRef, writer: usize, body: &Range<usize>) -> bool {
        let is_there = |at: usize| named(&self.commands[at]).filter(|other| overlap(*other, list)).count();
        // As it was before, and afterwards.
        (body.start..=body.end).all(|at| is_there(at) == if at == writer { 2 } else { 0 })
    }

    /// Notes what a command writes.
    fn follow(&self, numbers: &mut Numbers, at: usize) {
        let command = &self.commands[at];
        let made = if command.guard.is_none() { numbers.made(command, self.constants) } else { Vec::new() };
        self.written[at].iter().for_each(|buffer| numbers.forget(*buffer));
        for (buffer, data_type, known) in made {
            if is_in_arena(buffer) && !self.is_shared(buffer) {
                numbers.set(buffer, data_type, known);
            }
        }
    }

    /// Nothing is known of what these commands write.
    fn forget(&self, numbers: &mut Numbers, commands: Range<usize>) {
        let written = self.written.get(commands).unwrap_or(self.written);
        written.iter().flatten().for_each(|buffer| numbers.forget(*buffer));
    }
}

/// The kernel of a command that has all arguments of its request.
fn plain(command: &Command) -> Option<&KernelCall> {
    match &command.work {
        Work::Kernel(call) if call.variant.steps.len() == 1 && call.step().args.is_none() => Some(call),
        _ => None,
    }
}

/// The rows that a command writes in place, each the only one of its list.
fn rows(command: &Command) -> Vec<Row> {
    let Some(call) = plain(command) else { return Vec::new() };
    let arg = |at: usize| command.args.get(at).copied();
    let row = |list: usize, index: usize, after: usize, rows: u64, index_type: DataType| {
        let (list, index) = (arg(list).filter(|list| arg(after) == Some(*list))?, arg(index)?);
        Some(Row { list, rows, index: (index, index_type) })
    };
    match &*call.request {
        KernelRequest::Gather(gather) => {
            let replaced = replaced_row(gather).and_then(|(shape, index_type)| row(0, 1, 3, *shape.first()?, index_type));
            replaced.into_iter().collect()
        }
        KernelRequest::OnRows(on_rows) => {
            let Ok(arguments) = on_rows.request.arguments() else { return Vec::new() };
            // Inputs, lists, indices of the rows that are read, indices of those that are written, outputs.
            let (lists, read) = (arguments.inputs.len(), on_rows.inputs.len());
            let indices = lists + on_rows.outputs.len() + read;
            let outputs = indices + on_rows.outputs.len();
            let each = on_rows.outputs.iter().enumerate();
            each.filter_map(|(at, of)| row(lists + at, indices + at, outputs + of.argument as usize, of.rows, of.index_type)).collect()
        }
        _ => Vec::new(),
    }
}
