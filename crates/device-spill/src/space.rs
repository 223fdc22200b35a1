//! Which parts of the file a block has. A block has addresses of its own, one behind the other, and lies in the file in pieces: so
//! there is room for a block wherever there are as many free bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use plimsoll_memory::pages::PageSet;

use crate::disk::BLOCK;

/// Set in the addresses of files. It is beyond what a process has for itself, and no card's.
const IN_A_FILE: u64 = 1 << 54;

/// Whether an address is in a file; others are the processor's.
pub(crate) fn is_in_a_file(address: u64) -> bool {
    address & IN_A_FILE != 0
}

/// The parts of a file.
#[derive(Debug)]
pub(crate) struct Space {
    free: PageSet,
    bytes: u64,
    /// All above was never written.
    clean_from: u64,
    /// By first address: the pieces of a block.
    blocks: BTreeMap<u64, Vec<Range<u64>>>,
    /// The first address that no block had yet.
    next: u64,
}

impl Space {
    /// Of a file of so many bytes.
    pub fn new(bytes: u64) -> Space {
        let mut free = PageSet::default();
        free.insert(0..bytes);
        Space { free, bytes, clean_from: 0, blocks: BTreeMap::new(), next: IN_A_FILE }
    }

    /// Gives a block of so many bytes, a multiple of [`BLOCK`], its address, and says which of its pieces have been written before.
    /// None where so many are not free.
    pub fn take(&mut self, bytes: u64) -> Option<(u64, Vec<Range<u64>>)> {
        let (mut pieces, mut missing) = (Vec::new(), bytes);
        for free in self.free.overlap(&(0..self.bytes)) {
            let piece = free.start..free.end.min(free.start + missing);
            missing -= piece.end - piece.start;
            if !piece.is_empty() {
                pieces.push(piece);
            }
        }
        if missing > 0 {
            return None;
        }
        pieces.iter().for_each(|piece| self.free.remove(piece));
        let written = pieces.iter().map(|piece| piece.start..piece.end.min(self.clean_from)).filter(|piece| !piece.is_empty());
        let written = written.collect();
        self.clean_from = pieces.last().map_or(0, |piece| piece.end).max(self.clean_from);
        let address = self.next;
        // One block of no bytes has another address than the next.
        self.next += bytes.max(BLOCK);
        self.blocks.insert(address, pieces);
        Some((address, written))
    }

    /// Takes a block back.
    pub fn give_back(&mut self, address: u64) {
        self.blocks.remove(&address).into_iter().flatten().for_each(|piece| self.free.insert(piece));
    }

    /// Where an address is in the file, and how many bytes lie behind it there. None for an address of no block.
    pub fn find(&self, address: u64) -> Option<(u64, u64)> {
        let (first, pieces) = self.blocks.range(..=address).next_back()?;
        let mut skipped = address - first;
        for piece in pieces {
            let length = piece.end - piece.start;
            if skipped < length {
                return Some((piece.start + skipped, length - skipped));
            }
            skipped -= length;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_lies_where_others_leave_room() {
        let mut space = Space::new(8 * BLOCK);
        let blocks: Vec<u64> = (0..4).map(|_| space.take(2 * BLOCK).unwrap().0).collect();
        assert!(space.take(BLOCK).is_none());
        space.give_back(blocks[0]);
        space.give_back(blocks[2]);
        let (whole, written) = space.take(4 * BLOCK).unwrap();
        assert_eq!(written, [0..2 * BLOCK, 4 * BLOCK..6 * BLOCK]);
        assert!(is_in_a_file(whole) && !is_in_a_file(whole & !IN_A_FILE));
        assert_eq!(space.find(whole + 1), Some((1, 2 * BLOCK - 1)));
        assert_eq!(space.find(whole + 2 * BLOCK + 5), Some((4 * BLOCK + 5, 2 * BLOCK - 5)));
        assert_eq!((space.find(whole + 4 * BLOCK), space.find(blocks[0]), space.find(7)), (None, None, None));
        assert!(space.take(0).is_some_and(|(address, written)| written.is_empty() && space.find(address).is_none()));
    }

    #[test]
    fn what_was_never_written_needs_no_clearing() {
        let mut space = Space::new(4 * BLOCK);
        let (first, written) = space.take(2 * BLOCK).unwrap();
        assert!(written.is_empty());
        space.give_back(first);
        assert_eq!(space.take(3 * BLOCK).unwrap().1, vec![0..2 * BLOCK; 1]);
    }
}
