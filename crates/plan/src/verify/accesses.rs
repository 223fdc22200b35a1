//! Live ranges, rebuilt from the commands. Bytes are read as they were written, by a command that is over by then: whole, or a slice of
//! what is left of them, or whole slices one behind another. No command writes bytes that another may still be reading or writing. A list
//! that a loop is found to write whole ([`whole`](super::whole)) counts as written by the loop's beginning.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use plimsoll_base::Result;
use plimsoll_device::{BufferRef, Place, Work};

use super::commands::Accesses;
use super::loops::{Event, Loops, Member, twice};
use super::schedule::Order;
use super::{Checked, Slot, wrong};
use crate::access::Access;
use crate::plan::{PlanVariable, VariableKind};

/// Bytes of a block that were written together, or the rest after a later write.
#[derive(Clone, Debug)]
struct Range {
    end: u64,
    /// Whether these are all the bytes that were written.
    is_whole: bool,
    /// Whether they are written in every run: not where only iterations of a loop do, which may have none.
    is_sure: bool,
    /// Bytes of one version are the same.
    version: u64,
    /// None for bytes that are there when the run starts.
    writer: Option<Touch>,
    /// By queue the last command that has read them.
    readers: Vec<Touch>,
}

/// A command that has been at bytes.
#[derive(Clone, Copy, Debug)]
struct Touch {
    slot: Slot,
    /// Whether it is of the iteration before that of the commands at hand.
    is_earlier: bool,
}

impl Touch {
    /// Whether it is over when another command starts. Commands of one queue come in the order in which they are looked at here, whatever
    /// their numbers.
    fn is_over(&self, slot: Slot, order: &Order) -> bool {
        self.is_earlier || self.slot.0 == slot.0 || order.is_before(self.slot, slot)
    }
}

/// Where the loops of a plan are.
struct Turns<'a> {
    loops: &'a Loops,
    /// What there was before a loop.
    before: HashMap<usize, HashMap<Place, Block>>,
    /// The loops that have been gone through.
    over: HashSet<usize>,
    /// The versions of the conditions with which it begins, until its first iteration is over.
    tests: HashMap<usize, Vec<Option<u64>>>,
}

/// The bytes of a block, by where they begin. Bytes that are missing have not been written.
#[derive(Clone, Debug, Default)]
struct Block(BTreeMap<u64, Range>);

impl Checked<'_> {
    pub(super) fn accesses(&self, accesses: &Accesses, order: &Order, loops: &Loops) -> Result<()> {
        let mut blocks: HashMap<Place, Block> = HashMap::new();
        let mut state = vec![Use::default(); self.plan.variables.len()];
        let mut loops = Turns { loops, before: HashMap::new(), over: HashSet::new(), tests: HashMap::new() };
        let mut versions = 0;
        let whole = self.written_whole(accesses);
        for event in twice(&order.slots, loops.loops) {
            let slot = match event {
                Event::Command(slot) => slot,
                Event::Through(number) => {
                    self.tests(&mut loops, (number, false), &mut blocks, order)?;
                    continue;
                }
                Event::Again(number) => {
                    self.tests(&mut loops, (number, false), &mut blocks, order)?;
                    blocks.values_mut().for_each(|block| block.turn(loops.loops.get(number), true));
                    continue;
                }
                Event::Over(number) => {
                    self.tests(&mut loops, (number, true), &mut blocks, order)?;
                    loops.over.insert(number);
                    let members = loops.loops.get(number);
                    // It may have had no iteration at all.
                    let before = loops.before.remove(&number).unwrap_or_default();
                    for (place, block) in &mut blocks {
                        block.turn(members, false);
                        block.keep_what(before.get(place), *place, members);
                    }
                    continue;
                }
            };
            let at = |error| self.at(slot, error);
            let of = &accesses[slot.0][slot.1];
            let begins = loops.loops.beginning(slot);
            // What a loop writes whole is there from its beginning on: nothing reads it before it has been written.
            for &list in whole.get(&slot).into_iter().flatten() {
                versions += 1;
                self.open(&mut blocks, list, &mut versions)?.write(list, slot, (order, versions)).map_err(at)?;
            }
            if let Some(number) = begins.filter(|number| !loops.over.contains(number)) {
                loops.before.entry(number).or_insert_with(|| blocks.clone());
            }
            let mut copied = None;
            for access in of.iter().filter(|access| access.buffer.bytes > 0 && access.reads) {
                let block = self.open(&mut blocks, access.buffer, &mut versions)?;
                let (is_initial, version) = block.read(access.buffer, slot, order).map_err(at)?;
                copied = copied.or(Some(version));
                note_read(&mut state, access.buffer.place, is_initial);
            }
            if let (Some(number), Some(version)) = (begins, copied) {
                loops.tests.entry(number).or_default().push(version);
            }
            // A copy has the version of its source.
            let command = self.command(slot);
            let is_copy = matches!(command.work, Work::Copy) && command.guard.is_none();
            for access in of.iter().filter(|access| access.buffer.bytes > 0 && access.writes) {
                if matches!(access.buffer.place, Place::Constant(_) | Place::Feed(_)) {
                    return Err(at(wrong(format!("it writes {:?}", access.buffer.place))));
                }
                let block = self.open(&mut blocks, access.buffer, &mut versions)?;
                versions += 1;
                let version = copied.flatten().filter(|_| is_copy).unwrap_or(versions);
                block.write(access.buffer, slot, (order, version)).map_err(at)?;
                if let Place::Variable(index) | Place::VariableFlag(index) = access.buffer.place {
                    state[index as usize].is_written = true;
                }
            }
        }
        for (index, fetch) in self.plan.fetches.iter().enumerate().filter(|(_, fetch)| fetch.bytes.0 > 0) {
            let block = blocks.get(&Place::Fetch(index as u32));
            if !block
                .is_some_and(|block| block.0.get(&0).is_some_and(|range| range.is_whole && range.is_sure && range.end == fetch.bytes.0))
            {
                return Err(wrong(format!("no command writes {}", fetch.name)));
            }
        }
        let mut each = self.plan.variables.iter().enumerate().zip(&state);
        each.try_for_each(|((index, variable), state)| {
            self.variable_use(index as u32, variable, state, accesses).map_err(|error| error.at_node(&variable.name))
        })
    }

    /// The conditions at the beginnings of a loop, or at the ends of its bodies: all are copies of one.
    fn tests(
        &self,
        turns: &mut Turns<'_>,
        (number, is_last): (usize, bool),
        blocks: &mut HashMap<Place, Block>,
        order: &Order,
    ) -> Result<()> {
        let members = turns.loops.get(number);
        let mut ends = Vec::with_capacity(members.len());
        for member in members {
            let at = |error| self.at(member.end(), error);
            // Of an iteration behind this one, the queue's condition may be written when the queue has begun it; behind the loop, when
            // the queue has ended it.
            let reader = if is_last { member.end() } else { (member.queue, member.first) };
            let [condition] = self.command(member.end()).args[..] else { return Err(at(wrong("a loop without a condition"))) };
            let block = blocks.get_mut(&condition.place).ok_or_else(|| at(wrong("its condition is not there")))?;
            ends.push(block.read_by(condition, member.end(), reader, order).map_err(at)?.1);
        }
        for versions in [turns.tests.remove(&number).unwrap_or_default(), ends] {
            if versions.windows(2).any(|pair| pair[0].is_none() || pair[0] != pair[1]) {
                return Err(self.at((members[0].queue, members[0].first), wrong("its queues do not go round equally often")));
            }
        }
        Ok(())
    }

    /// The block of a buffer, as it is when the run starts where no command has been at it.
    fn open<'b>(&self, blocks: &'b mut HashMap<Place, Block>, buffer: BufferRef, versions: &mut u64) -> Result<&'b mut Block> {
        let place = buffer.place;
        match blocks.entry(place) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let mut block = Block::default();
                if !matches!(place, Place::Arena(_) | Place::Fetch(_)) {
                    let end = self.block(place)?.1.0;
                    *versions += 1;
                    block.0.insert(0, Range { end, is_whole: true, is_sure: true, version: *versions, writer: None, readers: Vec::new() });
                }
                Ok(new.insert(block))
            }
        }
    }

    fn variable_use(&self, index: u32, variable: &PlanVariable, state: &Use, accesses: &Accesses) -> Result<()> {
        if state.is_written && !variable.written {
            return Err(wrong("it is written, and the plan says that it is not"));
        }
        let is_checked = variable.read_first_by.is_some() || state.is_flag_read || variable.kind == VariableKind::State;
        if state.is_read_first && !is_checked {
            return Err(wrong("it is read before it is known to be initialised"));
        }
        let Some((queue, number)) = variable.assigned_by else { return Ok(()) };
        let writes = |access: &&Access| access.writes && access.buffer.place == Place::Variable(index);
        let written = accesses.get(queue as usize).and_then(|queue| queue.get(number as usize)?.iter().find(writes));
        let is_empty = variable.bytes.0 == 0;
        let is_guarded = self.queues.get(queue as usize).and_then(|queue| queue.program.commands.get(number as usize)?.guard).is_some();
        if (written.is_none() && !is_empty) || is_guarded {
            return Err(wrong(format!("command {number} of queue {queue} does not initialise it")));
        }
        Ok(())
    }
}

/// The accesses of the commands to a variable.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    is_written: bool,
    is_read_first: bool,
    is_flag_read: bool,
}

fn note_read(state: &mut [Use], place: Place, is_initial: bool) {
    match place {
        Place::Variable(index) => state[index as usize].is_read_first |= is_initial,
        Place::VariableFlag(index) => state[index as usize].is_flag_read = true,
        _ => {}
    }
}

impl Block {
    /// The commands of a loop at hand are those of its second iteration, or of no iteration any more.
    fn turn(&mut self, members: &[Member], is_second: bool) {
        for range in self.0.values_mut() {
            for touch in range.writer.iter_mut().chain(&mut range.readers) {
                touch.is_earlier = is_second && members.iter().any(|member| member.has(touch.slot));
            }
        }
    }

    /// Of what a loop writes, only what was there before, too, is there for sure: bytes that were written together then, or in slices.
    fn keep_what(&mut self, before: Option<&Block>, place: Place, members: &[Member]) {
        let is_there = |begin: u64, end: u64| match before {
            Some(before) => before.has(begin, end),
            // No command had been at the block.
            None => !matches!(place, Place::Arena(_) | Place::Fetch(_)),
        };
        let is_within = |touch: &Touch| members.iter().any(|member| member.has(touch.slot));
        let of_loop = self.0.iter_mut().filter(|(_, range)| range.writer.as_ref().is_some_and(is_within));
        of_loop.for_each(|(begin, range)| range.is_sure &= is_there(*begin, range.end));
    }

    /// Whether these bytes are there for sure: written together, or in slices one behind another.
    fn has(&self, begin: u64, end: u64) -> bool {
        let mut at = begin;
        for (from, range) in self.0.range(begin..end) {
            if *from != at || !range.is_whole || !range.is_sure {
                return false;
            }
            at = range.end;
        }
        at == end
    }

    /// Where the bytes begin that were written with the one at `from`; there, if that was not written.
    fn first_of(&self, from: u64) -> u64 {
        self.0.range(..=from).next_back().filter(|(_, range)| range.end > from).map_or(from, |(begin, _)| *begin)
    }

    /// A command reads a buffer; whether it reads bytes that were there when the run started, and their version.
    fn read(&mut self, buffer: BufferRef, slot: Slot, order: &Order) -> Result<(bool, Option<u64>)> {
        self.read_by(buffer, slot, slot, order)
    }

    /// As [`Block::read`]. What writes there later has to come behind another command. Only what was written as it is read has a version that
    /// other bytes may have, too.
    fn read_by(&mut self, buffer: BufferRef, slot: Slot, reader: Slot, order: &Order) -> Result<(bool, Option<u64>)> {
        let (from, to) = (buffer.offset, buffer.offset + buffer.bytes);
        let first = self.first_of(from);
        let (mut at, mut is_initial, mut version) = (first, true, None);
        for (begin, range) in self.0.range_mut(first..to) {
            let sticks_out = *begin < from || to < range.end;
            let is_alone = *begin <= from && to <= range.end;
            if *begin != at || !range.is_sure || !(is_alone || (range.is_whole && !sticks_out)) {
                return Err(wrong(format!("it reads {}, which is not there", said(buffer))));
            }
            if range.writer.is_some_and(|writer| !writer.is_over(slot, order)) {
                return Err(wrong(format!("it reads {}, which may not be there yet", said(buffer))));
            }
            let touch = Touch { slot: reader, is_earlier: false };
            match range.readers.iter_mut().find(|other| other.slot.0 == reader.0) {
                Some(other) => *other = touch,
                None => range.readers.push(touch),
            }
            is_initial &= range.writer.is_none();
            version = Some(range.version).filter(|_| range.is_whole && *begin == from && range.end == to);
            at = range.end;
        }
        if at < to {
            return Err(wrong(format!("it reads {}, which is not there", said(buffer))));
        }
        Ok((is_initial, version))
    }

    /// A command writes a buffer: its former contents are gone, and these are of a version.
    fn write(&mut self, buffer: BufferRef, slot: Slot, (order, version): (&Order, u64)) -> Result<()> {
        let (from, to) = (buffer.offset, buffer.offset + buffer.bytes);
        let first = self.first_of(from);
        let touched: Vec<u64> = self.0.range(first..to).map(|(begin, _)| *begin).collect();
        for begin in touched {
            let Some(range) = self.0.remove(&begin) else { continue };
            if range.writer.iter().chain(&range.readers).any(|other| !other.is_over(slot, order)) {
                return Err(wrong(format!("it writes {}, which another command may be at", said(buffer))));
            }
            if begin < from {
                self.0.insert(begin, Range { end: from, is_whole: false, ..range.clone() });
            }
            if range.end > to {
                self.0.insert(to, Range { is_whole: false, ..range });
            }
        }
        let writer = Some(Touch { slot, is_earlier: false });
        self.0.insert(from, Range { end: to, is_whole: true, is_sure: true, version, writer, readers: Vec::new() });
        Ok(())
    }
}

fn said(BufferRef { place, offset, bytes }: BufferRef) -> String {
    format!("{bytes} bytes at {offset} of {place:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(from: u64, to: u64) -> BufferRef {
        BufferRef { place: Place::Arena(0), offset: from, bytes: to - from }
    }

    #[test]
    fn slices_are_read_of_what_was_written_together_and_left() {
        let (order, mut block) = (Order::default(), Block::default());
        let write =
            |block: &mut Block, from, to, number: usize| block.write(bytes(from, to), (0, number), (&order, number as u64)).unwrap();
        let read = |block: &mut Block, from, to| block.read(bytes(from, to), (0, 9), &order).ok().map(|(_, version)| version);
        write(&mut block, 0, 128, 0);
        // All of it, and slices. Slices of one version may differ.
        assert_eq!(read(&mut block, 0, 128), Some(Some(0)));
        assert_eq!([(0, 64), (64, 128), (32, 96)].map(|(from, to)| read(&mut block, from, to)), [Some(None); 3]);
        // Whole slices one behind another are read together.
        write(&mut block, 128, 192, 1);
        write(&mut block, 192, 256, 2);
        assert_eq!([(128, 192), (192, 256)].map(|(from, to)| read(&mut block, from, to)), [Some(Some(1)), Some(Some(2))]);
        assert_eq!([(128, 256), (0, 256), (160, 192)].map(|(from, to)| read(&mut block, from, to)), [Some(None); 3]);
        assert_eq!([(160, 256), (64, 192), (0, 320), (256, 320), (192, 257)].map(|(from, to)| read(&mut block, from, to)), [None; 5]);
        // Of what was written over a part is left, which is no part of what is there now.
        write(&mut block, 0, 64, 3);
        assert_eq!([(0, 64), (64, 128), (64, 96)].map(|(from, to)| read(&mut block, from, to)), [Some(Some(3)), Some(None), Some(None)]);
        assert_eq!([(0, 128), (32, 96), (64, 192)].map(|(from, to)| read(&mut block, from, to)), [None; 3]);
    }

    #[test]
    fn what_a_loop_alone_writes_may_not_be_there() {
        let (order, mut block) = (Order::default(), Block::default());
        block.write(bytes(0, 64), (0, 1), (&order, 1)).unwrap();
        assert!(block.read(bytes(0, 32), (0, 2), &order).is_ok());
        block.keep_what(None, Place::Arena(0), &[Member { queue: 0, first: 0, body: 1..2 }]);
        assert!([(0, 64), (0, 32)].into_iter().all(|(from, to)| block.read(bytes(from, to), (0, 3), &order).is_err()));
    }
}
