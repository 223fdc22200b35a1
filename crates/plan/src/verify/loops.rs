//! Loops lie one behind the other or in each other, and each is a matter of its queue alone.

use std::ops::Range;

use plimsoll_base::Result;
use plimsoll_device::Work;

use super::{Checked, Slot, wrong};
use crate::frames::MOST_DEPTH;

/// The loops of a queue: by the number of their first command, the commands of their bodies.
pub(super) type Loops = Vec<Vec<(usize, Range<usize>)>>;

impl Checked<'_> {
    /// # Errors
    /// INVALID_ARGUMENT where a loop has no end, an end no loop, or a loop reaches out of another. The same where a command in a loop
    /// waits for another queue, or that queue for it.
    pub(super) fn loops(&self) -> Result<Loops> {
        let mut loops: Loops = vec![Vec::new(); self.queues.len()];
        for (queue, loops) in loops.iter_mut().enumerate() {
            let commands = &self.queues[queue].program.commands;
            let mut open: Vec<(usize, u32)> = Vec::new();
            for (number, command) in commands.iter().enumerate() {
                let at = |error| self.at((queue, number), error);
                if !open.is_empty() && !command.waits.is_empty() {
                    return Err(at(wrong("it waits for another queue in every iteration of a loop")));
                }
                match &command.work {
                    // No plan of ours has one: what the partners read of each other is not looked at here.
                    Work::Loop { with, .. } if !with.is_empty() => return Err(at(wrong("it begins a loop of several queues"))),
                    Work::Loop { .. } if open.len() == MOST_DEPTH => {
                        return Err(at(wrong(format!("loops more than {MOST_DEPTH} deep in each other"))));
                    }
                    Work::Loop { body, .. } => open.push((number, *body)),
                    &Work::Again { body } => match open.pop() {
                        Some((first, length)) if length == body && first + 1 + body as usize == number && command.guard.is_none() => {
                            loops.push((first, first + 1..number));
                        }
                        _ => return Err(at(wrong("it ends a loop that does not begin so many commands before"))),
                    },
                    _ => {}
                }
            }
            if let Some((first, _)) = open.pop() {
                return Err(self.at((queue, first), wrong("it begins a loop without an end")));
            }
            // Those around others first.
            loops.sort_by_key(|(first, body)| (*first, std::cmp::Reverse(body.end)));
        }
        for (slot, command) in self.slots() {
            for wait in &command.waits {
                let is_within = |(first, body): &(usize, Range<usize>)| (first + 1..=body.end).contains(&(wait.commands as usize));
                if loops.get(wait.queue as usize).is_some_and(|loops| loops.iter().any(is_within)) {
                    return Err(self.at(slot, wrong("it waits for a part of a loop")));
                }
            }
        }
        Ok(loops)
    }
}

/// The commands of a queue in an order in which every loop has two iterations, each with the loops that it ends: their first commands.
/// What holds of two iterations, whatever they begin with, holds of any number.
pub(super) fn twice(slots: &[Slot], loops: &Loops) -> Vec<(Slot, Vec<usize>)> {
    let mut visits = Vec::with_capacity(slots.len());
    for &(queue, number) in slots {
        let ends = |(_, body): &&(usize, Range<usize>)| body.end == number;
        match loops[queue].iter().find(ends) {
            None => visits.push(((queue, number), Vec::new())),
            Some((first, body)) => {
                visits.push(((queue, number), Vec::new()));
                // Inner loops have ended by then: once more through each command is enough, since the first time went twice through them.
                visits.extend(body.clone().map(|number| ((queue, number), Vec::new())));
                visits.push(((queue, number), vec![*first]));
            }
        }
    }
    visits
}
