//! Work cut into pieces by shape alone, and the sizes of shapes.

use std::ops::Range;

use plimsoll_base::{DataType, Error, Result};

/// Bytes that a piece should move, so that handing it to a thread costs little beside it.
const PIECE_BYTES: u64 = 128 << 10;

/// A tensor of so many bytes has two pieces at least where two threads may have made it: to fetch a line from another core's cache takes as long
/// as to copy a hundred from its own.
pub(crate) const HALVED: usize = 16 << 10;

/// More pieces than this help no number of threads that we expect.
const MOST_PIECES: usize = 64;

/// `units` equal parts of work, gathered into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    units: usize,
    per_piece: usize,
}

impl Cut {
    /// Cuts `units` parts that move `unit_bytes` each; a piece holds a multiple of `grain` units (but for the last).
    pub(crate) fn new(units: usize, unit_bytes: u64, grain: usize) -> Cut {
        Cut::at_most(MOST_PIECES, units, unit_bytes, grain)
    }

    /// As [`Cut::new`], for kernels that hand on what two threads may have made: each of these had better hand on its own part, which is in its
    /// cache, where that is more than a few lines.
    pub(crate) fn shared(units: usize, unit_bytes: u64, grain: usize) -> Cut {
        let cut = Cut::new(units, unit_bytes, grain);
        let is_one = cut.pieces() == 1 && (units as u64).saturating_mul(unit_bytes) >= 2 * HALVED as u64;
        if is_one { Cut { per_piece: units.div_ceil(2).next_multiple_of(grain.max(1)), ..cut } } else { cut }
    }

    /// As [`Cut::new`], into at most so many pieces.
    pub(crate) fn at_most(most: usize, units: usize, unit_bytes: u64, grain: usize) -> Cut {
        let grain = grain.max(1);
        let by_size = usize::try_from(PIECE_BYTES.div_ceil(unit_bytes.max(1))).unwrap_or(usize::MAX);
        let per_piece = by_size.max(units.div_ceil(most.max(1))).max(1);
        // Pieces of one size, and an even number of them: most machines have an even number of threads.
        let pieces = units.div_ceil(per_piece);
        let pieces = if pieces > 1 { pieces.next_multiple_of(2).min(most.max(1)) } else { 1 };
        let per_piece = units.div_ceil(pieces).max(1);
        Cut { units, per_piece: per_piece.checked_next_multiple_of(grain).unwrap_or(usize::MAX) }
    }

    /// All in one piece.
    pub(crate) fn whole(units: usize) -> Cut {
        Cut { units, per_piece: units.max(1) }
    }

    /// How many pieces there are: at least one, and at most 64.
    pub(crate) fn pieces(&self) -> u32 {
        self.units.div_ceil(self.per_piece).max(1) as u32
    }

    /// The units of these pieces.
    pub(crate) fn units(&self, pieces: Range<u32>) -> Range<usize> {
        let end = (pieces.end as usize).saturating_mul(self.per_piece).min(self.units);
        (pieces.start as usize).saturating_mul(self.per_piece).min(end)..end
    }
}

/// The number of elements of `shape`; refused where their bytes (16 each at most) could not be addressed.
pub(crate) fn elements(shape: &[u64]) -> Result<usize> {
    // Zero dimensions count as one here, so that any part of the shape can be multiplied safely as well.
    let most = shape.iter().try_fold(1u64, |product, size| product.checked_mul((*size).max(1)));
    match most {
        Some(most) if most <= (isize::MAX as u64) / 32 => Ok(shape.iter().product::<u64>() as usize),
        _ => Err(Error::invalid_argument(format!("the shape {shape:?} has more elements than memory can hold"))),
    }
}

/// Bytes of an element of `data_type`.
pub(crate) fn size_of_type(data_type: DataType) -> Result<usize> {
    data_type.size().ok_or_else(|| Error::unimplemented(format!("elements of {data_type} have no fixed size")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_units_once() {
        for (units, bytes, grain) in
            [(0, 4, 1), (1, 4, 1), (1000, 4, 16), (1_000_000, 4, 1), (1_000_003, 4, 16), (7, u64::MAX, 4), (7, 0, 1)]
        {
            let cut = Cut::new(units, bytes, grain);
            assert!((1..=64).contains(&cut.pieces()));
            let sizes = (0..cut.pieces()).map(|piece| cut.units(piece..piece + 1).len());
            assert!(units < 1000 || sizes.clone().max() <= Some(2 * sizes.min().unwrap_or(0)), "{units} in {cut:?}");
            let mut next = 0;
            for piece in 0..cut.pieces() {
                let range = cut.units(piece..piece + 1);
                assert_eq!(range.start, next);
                assert!(range.start.is_multiple_of(grain));
                next = range.end;
            }
            assert_eq!(next, units);
            assert_eq!(cut.units(0..cut.pieces()), 0..units);
        }
        let pieces = |units: usize, bytes: u64| (Cut::new(units, bytes, 16).pieces(), Cut::shared(units, bytes, 16).pieces());
        assert_eq!(
            [pieces(4096, 8), pieces(4095, 8), pieces(100, 8), pieces(40_000, 8), pieces(1, 1 << 20)],
            [(1, 2), (1, 1), (1, 1), (4, 4), (1, 1)]
        );
        assert_eq!(Cut::shared(4096, 8, 64).units(1..2), 2048..4096);
        assert_eq!(Cut::whole(7).pieces(), 1);
        assert_eq!(Cut::whole(0).units(0..1), 0..0);
    }

    #[test]
    fn shapes_beyond_memory_are_refused() {
        assert_eq!(elements(&[]).unwrap(), 1);
        assert_eq!(elements(&[2, 0, 3]).unwrap(), 0);
        assert!(elements(&[u64::MAX, 2]).is_err());
        assert!(elements(&[1 << 40, 0, 1 << 40]).is_err());
        assert!(size_of_type(DataType::String).is_err());
    }
}
