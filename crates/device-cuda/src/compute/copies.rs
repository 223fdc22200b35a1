//! Copies that a queue pushes by themselves: in the card's memory, from and to cards that it reaches, and in pieces by pinned memory from and
//! to the host and the other cards.

use std::sync::Arc;

use super::loaded::{NONE, Step};
use super::queue::{BEYOND_REACH, Ended, PIECE, Queue, Side, fault_of};
use crate::emit;

impl Queue<'_> {
    /// Copies; whether the guard let it.
    pub fn copy(&mut self, step: &Step) -> Result<bool, Ended> {
        let bytes = self.loaded.buffers[step.args.0 as usize].bytes;
        let (from, to) = (self.kept.bound[step.args.0 as usize].clone(), self.kept.bound[step.args.0 as usize + 1].clone());
        if let ((from, Side::Here), (to, Side::Here)) = (&from, &to) {
            return self.copy_here(step, *from, *to, bytes).map(|()| true);
        }
        if !self.is_wanted(step)? {
            return Ok(false);
        }
        // Nothing is written behind a fault.
        if self.may_have_failed {
            self.sync()?;
        }
        if self.copy_across(&from, &to, bytes)? {
            return Ok(true);
        }
        // Pieces go by pinned memory. Another card's is used by the host: what this stream waits for has to be over.
        if matches!((&from.1, &to.1), (Side::Other(_), _) | (_, Side::Other(_))) {
            self.sync()?;
        }
        for at in (0..bytes).step_by(PIECE) {
            let size = (bytes - at).min(PIECE as u64) as usize;
            let slot = self.kept.next;
            self.kept.next = 1 - slot;
            let freed = self.kept.free[slot].synchronize();
            self.check(freed)?;
            self.read_piece(&from, at, slot, size)?;
            self.write_piece(&to, at, slot, size)?;
        }
        Ok(true)
    }

    /// Copies between two cards in the stream, where one reaches the other.
    fn copy_across(&mut self, (from, of): &(u64, Side), (to, onto): &(u64, Side), bytes: u64) -> Result<bool, Ended> {
        let here = &self.shared.context;
        let (of, onto, elsewhere) = match (of, onto) {
            (Side::Other(other), Side::Here) if here.reaches(other) => (other, here, *from),
            (Side::Here, Side::Other(other)) if here.reaches(other) => (here, other, *to),
            _ => return Ok(false),
        };
        // Where the driver does not open the other's memory to this card, the host carries the bytes.
        if here.driver.open_to(elsewhere, here).is_err() {
            return Ok(false);
        }
        let copied = self.shared.stream.copy_across((*to, onto), (*from, of), bytes);
        self.is_pending = true;
        copied.map(|()| true).map_err(|trouble| {
            // Which of them it is, only the card itself says.
            let other = if Arc::ptr_eq(of, here) { onto } else { of };
            let is_the_others = other.free_bytes().is_err();
            self.failed(fault_of(if is_the_others { other } else { here }, trouble))
        })
    }

    /// Bytes of the source to a piece of pinned memory. They are there when it is back.
    fn read_piece(&mut self, (address, side): &(u64, Side), at: u64, slot: usize, size: usize) -> Result<(), Ended> {
        let (address, offset) = (address + at, slot * PIECE);
        match side {
            Side::Here => {
                self.is_pending = true;
                let copied = self.shared.stream.copy_out(&self.kept.pinned, offset, address, size);
                self.check(copied)?;
                self.sync()
            }
            Side::Host => {
                // SAFETY: the run keeps so many bytes there, and no other command writes them meanwhile.
                let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, size) };
                self.kept.pinned.write(offset, bytes);
                Ok(())
            }
            Side::Other(other) => {
                let mut bounce = std::mem::take(&mut self.kept.bounce);
                bounce.resize(size, 0);
                let read = other.read(address, &mut bounce);
                self.kept.pinned.write(offset, &bounce);
                self.kept.bounce = bounce;
                read.map_err(|trouble| self.failed(fault_of(other, trouble)))
            }
            Side::Nowhere => Ok(()),
        }
    }

    /// Bytes of a piece of pinned memory to where they go.
    fn write_piece(&mut self, (address, side): &(u64, Side), at: u64, slot: usize, size: usize) -> Result<(), Ended> {
        let (address, offset) = (address + at, slot * PIECE);
        match side {
            Side::Here => {
                self.is_pending = true;
                let copied = self.shared.stream.copy_in(address, &self.kept.pinned, offset, size);
                let copied = copied.and_then(|()| self.kept.free[slot].record(&self.shared.stream));
                self.check(copied)
            }
            Side::Host => {
                // SAFETY: the run keeps so many bytes there, and no other command uses them meanwhile.
                let bytes = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, size) };
                self.kept.pinned.read(offset, bytes);
                Ok(())
            }
            Side::Other(other) => {
                let mut bounce = std::mem::take(&mut self.kept.bounce);
                bounce.resize(size, 0);
                self.kept.pinned.read(offset, &mut bounce);
                let written = other.write(address, &bounce);
                self.kept.bounce = bounce;
                written.map_err(|trouble| self.failed(fault_of(other, trouble)))
            }
            Side::Nowhere => Ok(()),
        }
    }

    /// A copy in the card's memory: the driver's, or a kernel's where it may be passed over.
    fn copy_here(&mut self, step: &Step, from: u64, to: u64, bytes: u64) -> Result<(), Ended> {
        self.is_pending = true;
        if step.guard == NONE && !self.may_have_failed {
            let copied = self.shared.stream.copy(to, from, bytes);
            return self.check(copied);
        }
        let Some(function) = self.loaded.copy.filter(|_| step.guard == NONE || self.is_reached(step.guard)) else {
            return Err(self.failed(BEYOND_REACH));
        };
        let stop = if self.may_have_failed { self.kept.word.address() } else { 0 };
        let mut arguments = [self.address(step.guard), stop, emit::fault_base(self.number), from, to, bytes];
        self.push(function, emit::copy_blocks(bytes), &mut arguments)
    }
}
