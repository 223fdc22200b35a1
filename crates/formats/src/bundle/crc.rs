//! CRC-32C (Castagnoli), and the mask that checkpoints put over it.

const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][index] = crc;
        index += 1;
    }
    index = 0;
    while index < 256 {
        let mut table = 1;
        while table < 8 {
            let crc = tables[table - 1][index];
            tables[table][index] = crc >> 8 ^ tables[0][(crc & 0xff) as usize];
            table += 1;
        }
        index += 1;
    }
    tables
}

/// The checksum of the bytes it was shown, so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crc(u32);

impl Crc {
    /// Of nothing.
    pub(crate) fn new() -> Crc {
        Crc(!0)
    }

    /// Of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Crc {
        let mut crc = Crc::new();
        crc.update(bytes);
        crc
    }

    /// Shows it more bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        let mut crc = self.0;
        let mut eights = bytes.chunks_exact(8);
        for eight in &mut eights {
            let low = crc ^ u32::from_le_bytes([eight[0], eight[1], eight[2], eight[3]]);
            let byte = |word: u32, shift: u32| (word >> shift & 0xff) as usize;
            crc = TABLES[7][byte(low, 0)]
                ^ TABLES[6][byte(low, 8)]
                ^ TABLES[5][byte(low, 16)]
                ^ TABLES[4][byte(low, 24)]
                ^ TABLES[3][usize::from(eight[4])]
                ^ TABLES[2][usize::from(eight[5])]
                ^ TABLES[1][usize::from(eight[6])]
                ^ TABLES[0][usize::from(eight[7])];
        }
        for byte in eights.remainder() {
            crc = crc >> 8 ^ TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize];
        }
        self.0 = crc;
    }

    /// The checksum as it is stored: rotated, with a constant added.
    pub(crate) fn masked(self) -> u32 {
        self.value().rotate_right(15).wrapping_add(0xa282_ead8)
    }

    /// The checksum.
    pub(crate) fn value(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // RFC 3720, B.4.
        assert_eq!(Crc::of(&[0; 32]).value(), 0x8a91_36aa);
        assert_eq!(Crc::of(&[0xff; 32]).value(), 0x62a8_ab43);
        assert_eq!(Crc::of(&(0..32).collect::<Vec<u8>>()).value(), 0x46dd_794e);
        assert_eq!(Crc::of(b"123456789").value(), 0xe306_9283);
    }

    #[test]
    fn pieces_make_the_whole() {
        let bytes: Vec<u8> = (0..100).map(|i| (i * 7) as u8).collect();
        for cut in 0..bytes.len() {
            let mut crc = Crc::of(&bytes[..cut]);
            crc.update(&bytes[cut..]);
            assert_eq!(crc.value(), Crc::of(&bytes).value());
        }
    }
}
