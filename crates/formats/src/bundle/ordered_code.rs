//! The keys of slices: TensorFlow's OrderedCode, whose byte order is the order of the values.

/// The key of the slice of `name` with these `(start, length)`; a whole dimension is `(0, -1)`.
pub(crate) fn slice_key(name: &str, extents: &[(i64, i64)]) -> Vec<u8> {
    let mut key = Vec::new();
    number(&mut key, 0);
    string(&mut key, name.as_bytes());
    number(&mut key, extents.len() as u64);
    for (start, length) in extents {
        signed(&mut key, *start);
        signed(&mut key, *length);
    }
    key
}

/// A length byte, then so many big-endian bytes.
fn number(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    let significant = &bytes[value.leading_zeros() as usize / 8..];
    out.push(significant.len() as u8);
    out.extend_from_slice(significant);
}

/// Zeros and 0xff are escaped; `00 01` ends it.
fn string(out: &mut Vec<u8>, value: &[u8]) {
    for byte in value {
        match byte {
            0 => out.extend([0, 0xff]),
            0xff => out.extend([0xff, 0]),
            byte => out.push(*byte),
        }
    }
    out.extend([0, 1]);
}

/// `n` bytes hold a sign and `7 n - 1` bits; the number of bytes is told by the leading bits of a two's complement.
fn signed(out: &mut Vec<u8>, value: i64) {
    let magnitude = if value < 0 { !value } else { value };
    let length = (1..10).find(|length| magnitude >> (7 * length - 1) == 0).unwrap_or(10);
    let mut bytes = [if value < 0 { 0xff } else { 0 }; 10];
    bytes[2..].copy_from_slice(&value.to_be_bytes());
    let bytes = &mut bytes[10 - length..];
    // The header is `length` ones and a zero, xor-ed over the leading bits.
    let header: u16 = !(0xffffu32 >> length) as u16;
    bytes[0] ^= (header >> 8) as u8;
    if length > 1 {
        bytes[1] ^= header as u8;
    }
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        signed(&mut out, value);
        out
    }

    #[test]
    fn signed_numbers_as_tensorflow_writes_them() {
        assert_eq!(code(0), [0x80]);
        assert_eq!(code(63), [0xbf]);
        assert_eq!(code(-64), [0x40]);
        assert_eq!(code(-1), [0x7f]);
        assert_eq!(code(64), [0xc0, 0x40]);
        assert_eq!(code(-65), [0x3f, 0xbf]);
        assert_eq!(code(8191), [0xdf, 0xff]);
        assert_eq!(code(8192), [0xe0, 0x20, 0x00]);
        assert_eq!(code(i64::MAX).len(), 10);
        assert_eq!(code(i64::MAX)[..2], [0xff, 0xc0]);
    }

    #[test]
    fn the_order_of_keys_is_that_of_values() {
        let mut values: Vec<i64> =
            (0..63).flat_map(|shift| [1i64 << shift, (1i64 << shift) - 1, -(1i64 << shift)]).chain([i64::MIN, i64::MAX]).collect();
        values.sort_unstable();
        values.dedup();
        assert!(values.windows(2).all(|pair| code(pair[0]) < code(pair[1])));
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(slice_key("a\0", &[]), [0, b'a', 0, 0xff, 0, 1, 0]);
        assert_eq!(slice_key("w", &[(0, 2), (0, -1)]), [0, b'w', 0, 1, 1, 2, 0x80, 0x82, 0x80, 0x7f]);
    }
}
