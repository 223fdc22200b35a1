//! The bytes that allocations are counted as: at least those that the driver is believed to take for them. No figure here was tried
//! on a card.

use crate::abi::{ARRAY_DEFERRED, ARRAY_SPARSE, Array3dDescriptor};

/// The least that the driver maps.
pub const BLOCK: u64 = 2 << 20;

/// Smaller allocations share blocks.
pub const SMALL: u64 = 1 << 20;

/// The steps of small allocations.
const STEP: u64 = 512;

/// How much a pool may grow by at once beyond the request.
pub const POOL_STEP: u64 = 32 << 20;

/// The steps of small arrays.
const ARRAY_STEP: u64 = 64 << 10;

/// The next multiple of a power of two.
pub fn up(bytes: u64, step: u64) -> u64 {
    bytes.saturating_add(step - 1) & !(step - 1)
}

/// An allocation of its own, or one in the blocks that small ones share.
pub fn plain(bytes: u64) -> u64 {
    if bytes < SMALL { up(bytes, STEP) } else { up(bytes, BLOCK) }
}

/// A whole block, in the parts by which [`part`] counts.
pub const WHOLE: u64 = 1 << 44;

/// The part of a block that an allocation in it takes where all in it are as large: of three quarters of a MiB a block has two. Gaps
/// between those of different sizes are not counted.
pub fn part(bytes: u64) -> u64 {
    match bytes {
        0 => 0,
        _ => WHOLE / (BLOCK / bytes).max(1),
    }
}

/// Rows of a pitched allocation.
pub fn pitched(width: u64, rows: u64) -> u64 {
    up(width, STEP).saturating_mul(rows)
}

/// An array, where its memory is not mapped by the program.
pub fn array(of: &Array3dDescriptor) -> u64 {
    if of.flags & (ARRAY_SPARSE | ARRAY_DEFERRED) != 0 {
        return 0;
    }
    // Rows and layers are laid out in tiles of 64 bytes by 8 rows.
    let row = up((of.width as u64).max(1).saturating_mul(element(of.format, of.channels)), 64);
    let rows = if of.height > 1 { up(of.height as u64, 8) } else { 1 };
    let bytes = row.saturating_mul(rows).saturating_mul((of.depth as u64).max(1));
    if bytes < SMALL { up(bytes, ARRAY_STEP) } else { up(bytes, BLOCK) }
}

/// An array with smaller copies of itself.
pub fn mipmap(of: &Array3dDescriptor, levels: u32) -> u64 {
    // More levels than a size has bits are the same as so many.
    let level = |level: u32| {
        let half = |size: usize| if size == 0 { 0 } else { (size >> level).max(1) };
        array(&Array3dDescriptor { width: half(of.width), height: half(of.height), depth: half(of.depth), ..*of })
    };
    (0..levels.clamp(1, 32)).map(level).fold(0, u64::saturating_add)
}

/// Bytes of an element, all its channels counted: at least.
fn element(format: i32, channels: u32) -> u64 {
    let channel = match format {
        0x01 | 0x08 | 0xc0..=0xc2 | 0xc6..=0xc8 => 1,
        0x02 | 0x09 | 0x10 | 0xc3..=0xc5 | 0xc9..=0xcb => 2,
        0x03 | 0x0a | 0x20 => 4,
        // Compressed blocks take at most a byte of an element.
        0x91..=0x9e => 1,
        // Planes of video: at most two bytes of a channel, and three channels, for every description.
        0x50..=0x5e | 0x9f..=0xa9 | 0xb0..=0xb5 => return 8,
        _ => 4,
    };
    channel * u64::from(channels.clamp(1, 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(width: usize, height: usize, depth: usize, format: i32, channels: u32, flags: u32) -> Array3dDescriptor {
        Array3dDescriptor { width, height, depth, format, channels, flags }
    }

    #[test]
    fn sizes_are_never_less_than_what_is_asked_for() {
        assert_eq!([0, 1, 512, 513, SMALL - 1, SMALL, BLOCK, BLOCK + 1].map(plain), [0, 512, 512, 1024, SMALL, BLOCK, BLOCK, 2 * BLOCK]);
        assert_eq!(plain(u64::MAX), !(BLOCK - 1));
        assert_eq!((pitched(1, 3), pitched(513, 2), pitched(u64::MAX, 2)), (1536, 2048, u64::MAX));
    }

    #[test]
    fn a_block_has_as_many_small_ones_as_fit() {
        let blocks = |count: u64, bytes: u64| (count * part(plain(bytes))).div_ceil(WHOLE);
        for bytes in (1..SMALL).step_by(997).chain([BLOCK / 3, BLOCK / 3 + 1, 700 << 10, SMALL - 1]) {
            let fit = BLOCK / plain(bytes);
            for full in [1, 7, 1000] {
                assert_eq!((blocks(full * fit, bytes), blocks(full * fit + 1, bytes)), (full, full + 1), "{bytes}");
            }
        }
        assert_eq!((part(0), part(BLOCK), part(u64::MAX)), (0, WHOLE, WHOLE));
    }

    #[test]
    fn arrays_have_rows_layers_and_levels() {
        assert_eq!(array(&of(1000, 1000, 0, 0x20, 4, 0)), 16 << 20);
        assert_eq!(array(&of(256, 0, 0, 0x01, 1, 0)), ARRAY_STEP);
        assert_eq!(array(&of(1024, 1024, 6, 0x10, 1, 4)), 12 << 20);
        assert_eq!(array(&of(1024, 1024, 1, 0x20, 1, ARRAY_SPARSE)), 0);
        assert_eq!(array(&of(usize::MAX, usize::MAX, usize::MAX, 0x20, 4, 0)), !(BLOCK - 1));
        let whole = array(&of(1024, 1024, 0, 0x20, 1, 0));
        assert!(mipmap(&of(1024, 1024, 0, 0x20, 1, 0), 11) > whole + whole / 4);
        assert_eq!(mipmap(&of(1024, 1024, 0, 0x20, 1, 0), 1), whole);
        assert!(mipmap(&of(1024, 1024, 0, 0x20, 1, 0), u32::MAX) < 3 * whole);
    }
}
