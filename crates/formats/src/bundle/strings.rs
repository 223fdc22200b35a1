//! String tensors in a data file: the length of every element, a checksum of the lengths, all bytes.

use plimsoll_base::{Error, Result};

use super::crc::Crc;
use crate::wire::{read_varint, write_varint};

/// The encoding of these strings, with its checksum.
pub(crate) fn encode(strings: &[Vec<u8>]) -> (Vec<u8>, Crc) {
    let (mut out, mut crc) = (Vec::new(), Crc::new());
    for string in strings {
        write_varint(&mut out, string.len() as u64);
        add_length(&mut crc, string.len() as u64);
    }
    let lengths = crc.masked().to_le_bytes();
    crc.update(&lengths);
    out.extend(lengths);
    for string in strings {
        crc.update(string);
        out.extend_from_slice(string);
    }
    (out, crc)
}

/// The strings, `count` of them, with the checksum to hold against the index.
///
/// # Errors
/// DATA_LOSS where the bytes are not that.
pub(crate) fn decode(bytes: &[u8], count: u64) -> Result<(Vec<Vec<u8>>, Crc)> {
    let broken = |what: &str| Error::data_loss(format!("{} bytes are not {count} strings: {what}", bytes.len()));
    if count > bytes.len() as u64 {
        return Err(broken("there are fewer bytes than strings"));
    }
    let (mut rest, mut lengths, mut crc) = (bytes, Vec::with_capacity(count as usize), Crc::new());
    for _ in 0..count {
        let (length, taken) = read_varint(rest).ok_or_else(|| broken("a length is cut off"))?;
        add_length(&mut crc, length);
        lengths.push(usize::try_from(length).map_err(|_| broken("a length is beyond memory"))?);
        rest = &rest[taken..];
    }
    let (stored, mut rest) = rest.split_first_chunk::<4>().ok_or_else(|| broken("they are cut off"))?;
    if *stored != crc.masked().to_le_bytes() {
        return Err(broken("the checksum of the lengths differs"));
    }
    crc.update(stored);
    crc.update(rest);
    let mut strings = Vec::with_capacity(lengths.len());
    for length in lengths {
        let (string, after) = rest.split_at_checked(length).ok_or_else(|| broken("they are cut off"))?;
        strings.push(string.to_vec());
        rest = after;
    }
    if rest.is_empty() { Ok((strings, crc)) } else { Err(broken("bytes are left over")) }
}

/// The checksum covers lengths as four bytes, or eight where they need them, not as they are stored.
fn add_length(crc: &mut Crc, length: u64) {
    match u32::try_from(length) {
        Ok(length) => crc.update(&length.to_le_bytes()),
        Err(_) => crc.update(&length.to_le_bytes()),
    }
}
