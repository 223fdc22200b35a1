//! The order of the commands: every queue comes to its end, and which commands are over when another starts.

use plimsoll_base::Result;

use super::{Checked, Slot, wrong};

/// The commands in an order in which they can run.
#[derive(Default)]
pub(super) struct Order {
    pub slots: Vec<Slot>,
    /// By queue and number: how many commands of every queue are over when that command starts.
    over: Vec<Vec<Box<[u32]>>>,
}

impl Order {
    /// Whether a command is over whenever the other starts.
    pub fn is_before(&self, (queue, number): Slot, other: Slot) -> bool {
        self.over[other.0][other.1][queue] as usize > number
    }
}

impl Checked<'_> {
    /// # Errors
    /// INVALID_ARGUMENT where a command waits for commands that are not there, or never starts.
    pub(super) fn schedule(&self) -> Result<Order> {
        let queues = self.queues.len();
        let total: usize = self.queues.iter().map(|queue| queue.program.commands.len()).sum();
        let mut order = Order { slots: Vec::with_capacity(total), over: vec![Vec::new(); queues] };
        // The commands that the next command of every queue knows to be over.
        let mut now: Vec<Vec<u32>> = vec![vec![0; queues]; queues];
        while order.slots.len() < total {
            let started = order.slots.len();
            for (queue, commands) in self.queues.iter().map(|queue| &queue.program.commands).enumerate() {
                while let Some(command) = commands.get(order.over[queue].len()) {
                    let slot = (queue, order.over[queue].len());
                    let at = |error| self.at(slot, error);
                    for wait in &command.waits {
                        let there = self.queues.get(wait.queue as usize).map_or(0, |queue| queue.program.commands.len());
                        if wait.commands as usize > there || wait.queue as usize == queue {
                            return Err(at(wrong(format!("it waits for command {} of queue {}", wait.commands, wait.queue))));
                        }
                    }
                    let is_met = |wait: &plimsoll_device::Wait| order.over[wait.queue as usize].len() >= wait.commands as usize;
                    if !command.waits.iter().all(is_met) {
                        break;
                    }
                    for wait in command.waits.iter().filter(|wait| wait.commands > 0) {
                        let other = wait.queue as usize;
                        let theirs = &order.over[other][wait.commands as usize - 1];
                        now[queue].iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
                        now[queue][other] = now[queue][other].max(wait.commands);
                    }
                    order.over[queue].push(now[queue].as_slice().into());
                    order.slots.push(slot);
                    now[queue][queue] = order.over[queue].len() as u32;
                }
            }
            if order.slots.len() == started {
                return Err(wrong("its queues wait for each other for ever"));
            }
        }
        Ok(order)
    }
}
