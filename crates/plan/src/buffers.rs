//! The buffers of the arenas, for pictures and reports: where each lies, from which command to which, and what it holds meanwhile.

use plimsoll_base::Bytes;
use plimsoll_device::DeviceSpec;
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};
use plimsoll_memory::layout::Buffer;

use crate::emit::Regions;
use crate::lir::{Lir, ValueId, WorkId};
use crate::live::{Arena, Lane};
use crate::pack::Addresses;
use crate::plan::DeviceId;

/// A command: its queue, and its number there.
pub type CommandAt = (u32, u32);

/// Bytes of a device's arena that are taken together, from one command to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanBuffer {
    /// The device.
    pub device: DeviceId,
    /// Where it begins in the arena.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The same with the gap that the alignment of the next buffer leaves: of depth 0, these add up to [`crate::DevicePlan::live`].
    pub slot: u64,
    /// The first and the last command of the device's queue during which it is taken. Of a device without commands, 0.
    pub commands: (u32, u32),
    /// In the scratch of so many loops, one within another: those of a body lie in the scratch of its loop.
    pub depth: u32,
    /// The contents.
    pub holds: Holds,
}

/// The contents of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Values, one written over the other.
    Values(Vec<HeldValue>),
    /// Scratch of a command; of a loop, the values of its body.
    Scratch(CommandAt),
}

/// A value in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldValue {
    /// The node that it comes from.
    pub node: NodeId,
    /// Whether it is a copy of another device's value.
    pub is_copy: bool,
    /// The command that writes it.
    pub writer: CommandAt,
    /// The commands that read it.
    pub readers: Vec<CommandAt>,
}

/// Where the commands of a work are: of a loop, those of its body too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub queue: u32,
    pub first: u32,
    pub last: u32,
}

/// For each work where its commands are, in each queue that has some.
pub(crate) struct Spans(IdVec<WorkId, Vec<Span>>);

impl Spans {
    /// `queues` has the work of each command.
    pub fn new<'a>(works: usize, queues: impl Iterator<Item = &'a [WorkId]>) -> Spans {
        let mut spans: IdVec<WorkId, Vec<Span>> = IdVec::filled(Vec::new(), works);
        for (queue, commands) in (0..).zip(queues) {
            for (number, work) in (0..).zip(commands) {
                match spans[*work].last_mut().filter(|span| span.queue == queue) {
                    Some(span) => span.last = number,
                    None => spans[*work].push(Span { queue, first: number, last: number }),
                }
            }
        }
        Spans(spans)
    }

    /// The commands of a work in a queue.
    pub fn on(&self, work: WorkId, queue: u32) -> Option<Span> {
        self.0[work].iter().find(|span| span.queue == queue).copied()
    }

    /// The first command of a work.
    fn command_of(&self, work: WorkId) -> CommandAt {
        self.0[work].first().map_or((0, 0), |span| (span.queue, span.first))
    }
}

/// Collects the buffers of arenas.
pub(crate) struct Buffers<'a> {
    lir: &'a Lir,
    regions: &'a Regions,
    devices: &'a [DeviceSpec],
    spans: &'a Spans,
    /// By value: the work that makes it.
    definitions: IdVec<ValueId, Option<WorkId>>,
    /// By value: the works that read it, in their order.
    readers: IdVec<ValueId, Vec<WorkId>>,
}

impl<'a> Buffers<'a> {
    pub fn new(lir: &'a Lir, regions: &'a Regions, devices: &'a [DeviceSpec], spans: &'a Spans) -> Buffers<'a> {
        let mut definitions = IdVec::filled(None, lir.values.len());
        let mut readers: IdVec<ValueId, Vec<WorkId>> = IdVec::filled(Vec::new(), lir.values.len());
        for id in lir.regions.values().flat_map(|region| &region.works) {
            let work = &lir.works[*id];
            work.outputs.iter().for_each(|output| definitions[*output] = Some(*id));
            let read = work.reads_once().into_iter().filter_map(|value| regions.given(lir, value));
            read.for_each(|value| readers[value].push(*id));
        }
        Buffers { lir, regions, devices, spans, definitions, readers }
    }

    /// The buffers of the arena of a queue's device, by the command that they begin with; those of more bytes first, and those of a
    /// loop's body behind its scratch.
    pub fn of_lane(&self, (queue, lane): (u32, &Lane), arena: &Arena, addresses: &Addresses) -> Vec<PlanBuffer> {
        let mut buffers = Vec::new();
        self.collect((queue, lane, arena), addresses, (0, 0), &mut buffers);
        buffers.sort_by_key(|buffer| (buffer.commands.0, buffer.depth, std::cmp::Reverse(buffer.bytes), buffer.offset));
        buffers
    }

    /// Adds those of an arena that begins at `base`, in the scratch of `depth` loops.
    fn collect(
        &self,
        (queue, lane, arena): (u32, &Lane, &Arena),
        addresses: &Addresses,
        (base, depth): (u64, u32),
        buffers: &mut Vec<PlanBuffer>,
    ) {
        let spec = &self.devices[lane.device.index()];
        let span = |position: u32| lane.works.get(position as usize).and_then(|work| self.spans.on(*work, queue));
        let of = |index: usize, holds: Holds| {
            let Buffer { first, last, bytes, .. } = arena.buffers[index];
            PlanBuffer {
                device: lane.device,
                offset: base + addresses.buffers[index],
                bytes,
                slot: spec.slot(Bytes(bytes)).0,
                commands: (span(first).map_or(0, |span| span.first), span(last).map_or(0, |span| span.last)),
                depth,
                holds,
            }
        };
        let mut held: Vec<Vec<HeldValue>> = vec![Vec::new(); arena.value_buffers];
        for (value, buffer) in &arena.values {
            let Some(writer) = self.definitions[*value] else { continue };
            let (node, is_copy) = (self.lir.values[*value].node, self.lir.values[*value].is_copy);
            let readers = self.readers[*value].iter().map(|work| self.spans.command_of(*work)).collect();
            held[*buffer].push(HeldValue { node, is_copy, writer: self.spans.command_of(writer), readers });
        }
        buffers.extend(held.into_iter().enumerate().map(|(index, held)| of(index, Holds::Values(held))));
        for (work, scratch) in lane.works.iter().zip(&arena.scratch) {
            let first = self.spans.on(*work, queue).map_or((0, 0), |span| (queue, span.first));
            buffers.extend(scratch.map(|buffer| of(buffer, Holds::Scratch(first))));
            for region in self.lir.works[*work].regions() {
                let Some((held, base)) = self.regions.body(*region, lane.device) else { continue };
                self.collect((queue, &held.lane, &held.arena), &held.addresses, (base, depth + 1), buffers);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::id::Id;

    use super::*;

    #[test]
    fn spans_of_works_follow_from_the_works_of_commands() {
        let [one, outer, inner, last, unseen] = [0, 1, 2, 3, 4].map(WorkId::from_index);
        // A loop of two queues: a copy, its beginning, two commands of its body, its end.
        let queues = [vec![one, outer, outer, inner, inner, outer], vec![last, outer, outer]];
        let spans = Spans::new(5, queues.iter().map(Vec::as_slice));
        let span = |queue, first, last| Some(Span { queue, first, last });
        assert_eq!([spans.on(one, 0), spans.on(outer, 0), spans.on(inner, 0)], [span(0, 0, 0), span(0, 1, 5), span(0, 3, 4)]);
        assert_eq!([spans.on(last, 1), spans.on(outer, 1), spans.on(inner, 1)], [span(1, 0, 0), span(1, 1, 2), None]);
        assert_eq!((spans.on(unseen, 0), spans.command_of(outer)), (None, (0, 1)));
    }
}
