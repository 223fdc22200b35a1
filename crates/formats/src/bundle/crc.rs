//! CRC-32C (Castagnoli), and the mask that checkpoints put over it.

/// The checksum of the bytes it was shown, so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crc(u32);

impl Crc {
    /// Of nothing.
    pub(crate) fn new() -> Crc {
        Crc(0)
    }

    /// Of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Crc {
        let mut crc = Crc::new();
        crc.update(bytes);
        crc
    }

    /// Shows it more bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// The checksum as it is stored: rotated, with a constant added.
    pub(crate) fn masked(self) -> u32 {
        self.value().rotate_right(15).wrapping_add(0xa282_ead8)
    }

    /// The checksum.
    pub(crate) fn value(self) -> u32 {
        self.0
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
