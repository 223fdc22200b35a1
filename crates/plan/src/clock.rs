//! The virtual clock: when the commands of a plan start and end where every device is as fast as its specification says.
//!
//! `Plan::on_the_clock` runs the packed queues on paper by their waits. Logical devices of a card share its processors and its link,
//! by priority. A copy from card to card has the links of both until it ends: several from one card, or to one, go by turns. The result is a pure function of the plan and of the guards that were 0. `Plan::seconds` is the time of a run without
//! such a guard. On the machine, logical devices of a simulated card take turns in the same order.

use plimsoll_device::{DeviceSpec, Work};
use plimsoll_graph::id::Id;

use crate::plan::{DeviceId, Plan};

/// When the commands of a run start and end on the virtual clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// For each queue, for each of its commands: start and end, in seconds since the run began. A command that is passed over
    /// takes no time.
    pub spans: Vec<Vec<(f64, f64)>>,
    /// When the last command ends.
    pub makespan: f64,
}

/// A part of the machine that one command at a time can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Part {
    /// The processor: CPU devices share its threads.
    Processor,
    /// A device that is on no card.
    Alone(usize),
    /// The processors of a card.
    Card(u32),
    /// The link that joins a card to the host and to other cards.
    Link(u32),
    /// The copies beside the works of a device that is on no card.
    Beside(usize),
}

/// How many parts there are.
fn count(parts: &[Vec<[usize; 2]>]) -> usize {
    parts.iter().flatten().flatten().map(|part| part + 1).max().unwrap_or(0)
}

impl Plan {
    /// Runs the plan on the virtual clock of `devices`, those that it was made for. `ran` tells of a queue's command whether it is run
    /// or skipped. The same plan and answers give the same times on every machine, at any load.
    ///
    /// A queue takes its commands in order. Each starts when its waits are over and its part of the machine is free. Of several
    /// that could start, the one that could start first does. Where that is the same time, that of the logical device with the
    /// higher priority (the smaller number).
    pub fn on_the_clock(&self, devices: &[DeviceSpec], ran: impl Fn(usize, usize) -> bool) -> Timeline {
        let queues = &self.queues;
        let mut spans: Vec<Vec<(f64, f64)>> = queues.iter().map(|queue| Vec::with_capacity(queue.seconds.len())).collect();
        let parts = self.parts(devices);
        let mut free = vec![0.0f64; count(&parts)];
        let priority = |queue: usize| devices[queues[queue].device.index()].card.as_ref().map_or(0, |card| card.priority);
        // Of the next command of a queue: when its waits are over, if that is known by now, and when it could start.
        let next = |queue: usize, spans: &[Vec<(f64, f64)>], free: &[f64]| {
            let position = spans[queue].len();
            let command = queues[queue].program.commands.get(position)?;
            let mut ready = spans[queue].last().map_or(0.0, |span| span.1);
            for wait in command.waits.iter().filter(|wait| wait.commands > 0) {
                ready = spans.get(wait.queue as usize)?.get(wait.commands as usize - 1)?.1.max(ready);
            }
            let is_free = |[one, other]: [usize; 2]| free[one].max(free[other]);
            let start = if ran(queue, position) { is_free(parts[queue][position]).max(ready) } else { ready };
            Some((start, priority(queue), ready, queue))
        };
        loop {
            let could = (0..queues.len()).filter_map(|queue| next(queue, &spans, &free));
            let first = could.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.total_cmp(&b.2)).then(a.3.cmp(&b.3)));
            let Some((start, _, _, queue)) = first else { break };
            let position = spans[queue].len();
            let seconds = if ran(queue, position) { queues[queue].seconds[position] } else { 0.0 };
            if seconds > 0.0 {
                parts[queue][position].into_iter().for_each(|part| free[part] = start + seconds);
            }
            spans[queue].push((start, start + seconds));
        }
        let makespan = spans.iter().flatten().fold(0.0, |latest: f64, span| latest.max(span.1));
        Timeline { spans, makespan }
    }

    /// Predicted seconds between the ends of two steps, where so many run at once that the part of the machine that has most to do is
    /// never idle: its seconds in a step.
    pub fn interval(&self, devices: &[DeviceSpec]) -> f64 {
        let parts = self.parts(devices);
        let mut busy = vec![0.0f64; count(&parts)];
        let commands = parts.iter().zip(&self.queues).flat_map(|(parts, queue)| parts.iter().zip(&queue.seconds));
        for ([one, other], seconds) in commands {
            busy[*one] += seconds;
            if other != one {
                busy[*other] += seconds;
            }
        }
        busy.into_iter().fold(0.0, f64::max)
    }

    /// For each command of each queue the numbers of the parts that it needs: two of a copy from card to card, else twice the same.
    fn parts(&self, devices: &[DeviceSpec]) -> Vec<Vec<[usize; 2]>> {
        let mut known: Vec<Part> = Vec::new();
        let mut number = |part: Part| {
            known.iter().position(|other| *other == part).unwrap_or_else(|| {
                known.push(part);
                known.len() - 1
            })
        };
        let card = |device: usize| devices[device].card.as_ref().map(|card| card.card);
        let mut before = None;
        let mut of_queue = |queue: &crate::plan::Queue| {
            let device = queue.device.index();
            // The second queue of a device is that of its copies.
            let is_beside = before.replace(device) == Some(device);
            let own = match card(device) {
                Some(card) if is_beside => Part::Link(card),
                None if is_beside => Part::Beside(device),
                Some(card) => Part::Card(card),
                None if devices[device].kind == plimsoll_device::DeviceKind::Cpu => Part::Processor,
                None => Part::Alone(device),
            };
            let part = |command: &plimsoll_device::Command| {
                let ends = match (&command.work, &command.args[..]) {
                    (Work::Copy, [from, to]) => self.device_of(from.place).zip(self.device_of(to.place)),
                    _ => None,
                };
                let ends = ends.filter(|(from, to)| card(from.index()) != card(to.index()) && devices[device].is_modelled());
                let Some((from, to)) = ends else { return [own, own] };
                let link = |end: DeviceId| card(end.index()).filter(|_| devices[end.index()].is_modelled()).map(Part::Link);
                match [link(from), link(to)] {
                    [Some(one), Some(other)] => [one, other],
                    [Some(only), None] | [None, Some(only)] => [only, only],
                    [None, None] => [own, own],
                }
            };
            queue.program.commands.iter().map(|command| part(command).map(&mut number)).collect()
        };
        self.queues.iter().map(&mut of_queue).collect()
    }
}
