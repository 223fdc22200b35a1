//! What has been placed, and how to take it back.

use crate::layout::problem::Item;

/// An item of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub from: u32,
    pub to: u32,
    pub bytes: u64,
    /// Its bytes in units, rounded up.
    pub size: u64,
}

impl Piece {
    fn sections(&self) -> std::ops::Range<usize> {
        self.from as usize..self.to as usize
    }

    pub fn covers(&self, section: usize) -> bool {
        self.sections().contains(&section)
    }
}

/// A change that can be taken back.
#[derive(Clone, Copy)]
enum Change {
    /// The lowest place of a piece was this.
    Lowest(u32, u64),
    /// The height of a section was this.
    Height(u32, u64),
    /// A piece was placed at this height.
    Placed(u32, u64),
}

/// A moment to go back to.
#[derive(Clone, Copy)]
pub(super) struct Mark(usize);

/// Pieces are placed from the bottom up: in each section there is a height, and everything below it is settled.
///
/// The height of a section and what is not yet placed there must not exceed the capacity together.
pub(super) struct State {
    /// In the order of their first sections.
    pub pieces: Vec<Piece>,
    pub unit: u64,
    /// In units, rounded up.
    pub capacity: u64,
    /// For each piece the greatest height at which its last byte is within the capacity.
    highest: Vec<u64>,
    pub placed: Vec<bool>,
    /// For each piece the greatest height of its sections: it cannot lie lower. Of one that is placed, where it lies.
    pub lowest: Vec<u64>,
    pub height: Vec<u64>,
    /// For each section the sizes of its pieces that are not placed.
    pub remaining: Vec<u64>,
    /// For each section its pieces.
    pub live: Vec<Vec<u32>>,
    /// For each piece those that share a section with it, and itself.
    pub beside: Vec<Vec<u32>>,
    /// For each section the first piece that begins there or later.
    pub begins: Vec<u32>,
    changes: Vec<Change>,
}

impl State {
    /// `items` in the order of their first sections.
    pub fn new(items: &[Item], unit: u64, sections: usize) -> State {
        let piece = |item: &Item| Piece { from: item.from, to: item.to, bytes: item.bytes, size: item.bytes.div_ceil(unit) };
        let pieces: Vec<Piece> = items.iter().map(piece).collect();
        let mut live: Vec<Vec<u32>> = vec![Vec::new(); sections];
        let mut remaining = vec![0; sections];
        for (piece, number) in pieces.iter().zip(0..) {
            for section in piece.sections() {
                live[section].push(number);
                remaining[section] += piece.size;
            }
        }
        let beside = |piece: &Piece| {
            let mut beside = live[piece.from as usize].clone();
            // What begins later begins in one of the other sections.
            let after = pieces.partition_point(|other| other.from <= piece.from);
            beside.extend((after as u32..).zip(&pieces[after..]).take_while(|(_, other)| other.from < piece.to).map(|(number, _)| number));
            beside
        };
        let beside = pieces.iter().map(beside).collect();
        let begins = (0..=sections).map(|section| pieces.partition_point(|piece| (piece.from as usize) < section) as u32).collect();
        let count = pieces.len();
        State {
            pieces,
            unit,
            capacity: 0,
            highest: vec![0; count],
            placed: vec![false; count],
            lowest: vec![0; count],
            height: vec![0; sections],
            remaining,
            live,
            beside,
            begins,
            changes: Vec::new(),
        }
    }

    /// Takes everything back, for a search with so many bytes. Returns false if a section has more to hold.
    pub fn reset(&mut self, bytes: u64) -> bool {
        self.back_to(Mark(0));
        self.capacity = bytes.div_ceil(self.unit);
        for (highest, piece) in self.highest.iter_mut().zip(&self.pieces) {
            *highest = bytes.saturating_sub(piece.bytes) / self.unit;
        }
        self.pieces.iter().all(|piece| piece.bytes <= bytes) && self.remaining.iter().all(|&remaining| remaining <= self.capacity)
    }

    pub fn mark(&self) -> Mark {
        Mark(self.changes.len())
    }

    pub fn back_to(&mut self, mark: Mark) {
        while self.changes.len() > mark.0 {
            match self.changes.pop() {
                Some(Change::Lowest(piece, before)) => self.lowest[piece as usize] = before,
                Some(Change::Height(section, before)) => self.height[section as usize] = before,
                Some(Change::Placed(number, height)) => {
                    let piece = self.pieces[number as usize];
                    self.placed[number as usize] = false;
                    self.height[piece.sections()].fill(height);
                    self.remaining[piece.sections()].iter_mut().for_each(|remaining| *remaining += piece.size);
                }
                None => return,
            }
        }
    }

    /// Places a piece whose sections all have the same height. Returns false if there is then no room for another one.
    pub fn place(&mut self, number: u32) -> bool {
        let piece = self.pieces[number as usize];
        let height = self.lowest[number as usize];
        self.placed[number as usize] = true;
        self.changes.push(Change::Placed(number, height));
        self.height[piece.sections()].fill(height + piece.size);
        self.remaining[piece.sections()].iter_mut().for_each(|remaining| *remaining -= piece.size);
        let State { highest, placed, lowest, beside, changes, .. } = self;
        beside[number as usize].iter().all(|&other| push_up(other, height + piece.size, highest, placed, lowest, changes))
    }

    /// Leaves what is below a height empty. Returns false if what is not placed then has no room.
    pub fn raise(&mut self, section: usize, height: u64) -> bool {
        if height > self.capacity.saturating_sub(self.remaining[section]) {
            return false;
        }
        self.changes.push(Change::Height(section as u32, self.height[section]));
        self.height[section] = height;
        let State { highest, placed, lowest, live, changes, .. } = self;
        live[section].iter().all(|&other| push_up(other, height, highest, placed, lowest, changes))
    }
}

/// The piece cannot lie below the height. Returns false if it does not fit above.
fn push_up(number: u32, height: u64, highest: &[u64], placed: &[bool], lowest: &mut [u64], changes: &mut Vec<Change>) -> bool {
    let at = number as usize;
    if placed[at] || lowest[at] >= height {
        return true;
    }
    changes.push(Change::Lowest(number, lowest[at]));
    lowest[at] = height;
    height <= highest[at]
}
