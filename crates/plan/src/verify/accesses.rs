//! Live ranges, rebuilt from the commands. Bytes are read as they were written, whole, by one command that is over by then. No
//! command writes bytes that another may still be reading or writing.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use plimsoll_base::Result;
use plimsoll_device::{BufferRef, Place};

use super::commands::{Access, Accesses};
use super::loops::{Loops, twice};
use super::schedule::Order;
use super::{Checked, Slot, wrong};
use crate::plan::{PlanVariable, VariableKind};

/// Bytes of a block that were written together, or the rest after a later write.
#[derive(Clone, Debug)]
struct Range {
    end: u64,
    /// Whether these are all the bytes that were written.
    is_whole: bool,
    /// None for bytes that are there when the run starts.
    writer: Option<Slot>,
    /// By queue the last command that has read them.
    readers: Vec<Slot>,
}

/// The bytes of a block, by where they begin. Bytes that are missing have not been written.
#[derive(Clone, Debug, Default)]
struct Block(BTreeMap<u64, Range>);

impl Checked<'_> {
    pub(super) fn accesses(&self, accesses: &Accesses, order: &Order, loops: &Loops) -> Result<()> {
        let mut blocks: HashMap<Place, Block> = HashMap::new();
        let mut state = vec![Use::default(); self.plan.variables.len()];
        let mut before: HashMap<Slot, HashMap<Place, Block>> = HashMap::new();
        for (slot, ended) in twice(&order.slots, loops) {
            if loops[slot.0].iter().any(|(first, _)| *first == slot.1) {
                before.entry(slot).or_insert_with(|| blocks.clone());
            }
            let at = |error| self.at(slot, error);
            let of = &accesses[slot.0][slot.1];
            for access in of.iter().filter(|access| access.buffer.bytes > 0) {
                let block = self.open(&mut blocks, access.buffer)?;
                if access.reads {
                    let is_initial = block.read(access.buffer, slot, order).map_err(at)?;
                    note_read(&mut state, access.buffer.place, is_initial);
                }
            }
            for access in of.iter().filter(|access| access.buffer.bytes > 0 && access.writes) {
                if matches!(access.buffer.place, Place::Constant(_) | Place::Feed(_)) {
                    return Err(at(wrong(format!("it writes {:?}", access.buffer.place))));
                }
                self.open(&mut blocks, access.buffer)?.write(access.buffer, slot, order).map_err(at)?;
                if let Place::Variable(index) | Place::VariableFlag(index) = access.buffer.place {
                    state[index as usize].is_written = true;
                }
            }
            for first in ended {
                // It may have had no iteration at all.
                if let Some(before) = before.remove(&(slot.0, first)) {
                    blocks.iter_mut().for_each(|(place, block)| block.keep_what(before.get(place), *place));
                }
            }
        }
        for (index, fetch) in self.plan.fetches.iter().enumerate().filter(|(_, fetch)| fetch.bytes.0 > 0) {
            let block = blocks.get(&Place::Fetch(index as u32));
            if !block.is_some_and(|block| block.0.get(&0).is_some_and(|range| range.is_whole && range.end == fetch.bytes.0)) {
                return Err(wrong(format!("no command writes {}", fetch.name)));
            }
        }
        let mut each = self.plan.variables.iter().enumerate().zip(&state);
        each.try_for_each(|((index, variable), state)| {
            self.variable_use(index as u32, variable, state, accesses).map_err(|error| error.at_node(&variable.name))
        })
    }

    /// The block of a buffer, as it is when the run starts where no command has been at it.
    fn open<'b>(&self, blocks: &'b mut HashMap<Place, Block>, buffer: BufferRef) -> Result<&'b mut Block> {
        let place = buffer.place;
        match blocks.entry(place) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let mut block = Block::default();
                if !matches!(place, Place::Arena(_) | Place::Fetch(_)) {
                    let end = self.block(place)?.1.0;
                    block.0.insert(0, Range { end, is_whole: true, writer: None, readers: Vec::new() });
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
    /// Only what was there before, too, is there for sure: bytes that were written together then.
    fn keep_what(&mut self, before: Option<&Block>, place: Place) {
        let is_there = |begin: u64, end: u64| match before {
            Some(before) => before.0.get(&begin).is_some_and(|range| range.is_whole && range.end == end),
            // No command had been at the block.
            None => !matches!(place, Place::Arena(_) | Place::Fetch(_)),
        };
        self.0.iter_mut().for_each(|(begin, range)| range.is_whole &= is_there(*begin, range.end));
    }

    /// A command reads a buffer; whether it reads bytes that were there when the run started.
    fn read(&mut self, buffer: BufferRef, slot: Slot, order: &Order) -> Result<bool> {
        let BufferRef { offset, bytes, .. } = buffer;
        let whole = self.0.get_mut(&offset).filter(|range| range.is_whole && range.end == offset + bytes);
        let Some(range) = whole else { return Err(wrong(format!("it reads {}, which is not there", said(buffer)))) };
        // Commands of one queue come in the order in which they are looked at here, whatever their numbers.
        if range.writer.is_some_and(|writer| writer.0 != slot.0 && !order.is_before(writer, slot)) {
            return Err(wrong(format!("it reads {}, which may not be there yet", said(buffer))));
        }
        match range.readers.iter_mut().find(|reader| reader.0 == slot.0) {
            Some(reader) => *reader = slot,
            None => range.readers.push(slot),
        }
        Ok(range.writer.is_none())
    }

    /// A command writes a buffer: its former contents are gone.
    fn write(&mut self, buffer: BufferRef, slot: Slot, order: &Order) -> Result<()> {
        let (from, to) = (buffer.offset, buffer.offset + buffer.bytes);
        let first = self.0.range(..=from).next_back().filter(|(_, range)| range.end > from).map_or(from, |(begin, _)| *begin);
        let touched: Vec<u64> = self.0.range(first..to).map(|(begin, _)| *begin).collect();
        for begin in touched {
            let Some(range) = self.0.remove(&begin) else { continue };
            let mut before = range.writer.iter().chain(&range.readers);
            if before.any(|other| other.0 != slot.0 && !order.is_before(*other, slot)) {
                return Err(wrong(format!("it writes {}, which another command may be at", said(buffer))));
            }
            if begin < from {
                self.0.insert(begin, Range { end: from, is_whole: false, ..range.clone() });
            }
            if range.end > to {
                self.0.insert(to, Range { is_whole: false, ..range });
            }
        }
        self.0.insert(from, Range { end: to, is_whole: true, writer: Some(slot), readers: Vec::new() });
        Ok(())
    }
}

fn said(BufferRef { place, offset, bytes }: BufferRef) -> String {
    format!("{bytes} bytes at {offset} of {place:?}")
}
