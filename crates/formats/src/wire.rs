//! Protobuf's wire: fields read one after the other from bytes that are not checked yet, and written.
//!
//! A reader borrows and allocates nothing. Slices that it hands out are never longer than its input.

use crate::flaw::{Flaw, Found};

/// Messages in messages, as deep as protobuf's own parsers go.
pub(crate) const MAX_DEPTH: u32 = 100;

/// The contents of a field, by its wire type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Payload<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64(u64),
    /// Wire type 2.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32(u32),
}

/// A field as it lies on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    /// Its number.
    pub number: u32,
    /// Its contents.
    pub payload: Payload<'a>,
    /// Tag and payload, as they lie there.
    pub raw: &'a [u8],
    /// The byte of the file where it begins, if there is a file behind the bytes.
    pub offset: Option<usize>,
    depth: u32,
}

/// The fields of a message, one after the other. After an error there are no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    offset: Option<usize>,
    depth: u32,
}

impl<'a> Reader<'a> {
    /// The fields of a file.
    pub(crate) fn of_file(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, offset: Some(0), depth: 0 }
    }

    /// The fields of bytes that stand in no file (they were transcoded from text, or carried along).
    pub(crate) fn of_bytes(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, offset: None, depth: 0 }
    }

    /// All that is left to read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The same reader over other bytes, which stand in no file.
    pub(crate) fn over<'b>(&self, bytes: &'b [u8]) -> Reader<'b> {
        Reader { bytes, offset: None, depth: self.depth }
    }

    fn varint(&mut self) -> Found<u64> {
        let (value, length) = read_varint(self.bytes).ok_or_else(|| self.flaw("a number is cut off or longer than 64 bits"))?;
        self.skip(length);
        Ok(value)
    }

    fn take(&mut self, length: u64) -> Found<&'a [u8]> {
        let taken = usize::try_from(length).ok().and_then(|length| self.bytes.get(..length));
        let taken = taken.ok_or_else(|| self.flaw(format!("{length} bytes are announced where {} are left", self.bytes.len())))?;
        self.skip(taken.len());
        Ok(taken)
    }

    fn skip(&mut self, length: usize) {
        self.bytes = &self.bytes[length..];
        self.offset = self.offset.map(|offset| offset + length);
    }

    fn flaw(&self, message: impl Into<String>) -> Flaw {
        Flaw::malformed(message).at(self.offset)
    }

    fn field(&mut self) -> Found<Field<'a>> {
        let (start, offset) = (self.bytes, self.offset);
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| (1..1 << 29).contains(number));
        let number = number.ok_or_else(|| Flaw::malformed("a field has no valid number").at(offset))?;
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                Payload::Bytes(self.take(length)?)
            }
            5 => Payload::Fixed32(u32::from_le_bytes(self.array()?)),
            wire_type => {
                return Err(Flaw::malformed(format!("field {number} has wire type {wire_type}, which is not read here")).at(offset));
            }
        };
        Ok(Field { number, payload, raw: &start[..start.len() - self.bytes.len()], offset, depth: self.depth })
    }

    fn array<const N: usize>(&mut self) -> Found<[u8; N]> {
        let bytes = self.take(N as u64)?;
        Ok(bytes.try_into().expect("as many as were taken"))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Found<Field<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.bytes = &[];
        }
        Some(field)
    }
}

impl<'a> Field<'a> {
    /// The integer, bool or enumerator.
    pub(crate) fn varint(&self) -> Found<u64> {
        match self.payload {
            Payload::Varint(value) => Ok(value),
            _ => Err(self.mistyped("a number")),
        }
    }

    /// The four bytes of a float or fixed32.
    pub(crate) fn fixed32(&self) -> Found<u32> {
        match self.payload {
            Payload::Fixed32(value) => Ok(value),
            _ => Err(self.mistyped("four bytes")),
        }
    }

    /// The eight bytes of a double or fixed64.
    pub(crate) fn fixed64(&self) -> Found<u64> {
        match self.payload {
            Payload::Fixed64(value) => Ok(value),
            _ => Err(self.mistyped("eight bytes")),
        }
    }

    /// The bytes of a string, of bytes, of a message or of packed numbers.
    pub(crate) fn bytes(&self) -> Found<&'a [u8]> {
        match self.payload {
            Payload::Bytes(bytes) => Ok(bytes),
            _ => Err(self.mistyped("bytes")),
        }
    }

    /// The text of a string.
    pub(crate) fn text(&self) -> Found<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| self.flaw("a text is not UTF-8"))
    }

    /// The fields of a message.
    pub(crate) fn message(&self) -> Found<Reader<'a>> {
        if self.depth >= MAX_DEPTH {
            return Err(self.flaw(format!("messages lie more than {MAX_DEPTH} deep in each other")));
        }
        let bytes = self.bytes()?;
        let header = self.raw.len() - bytes.len();
        Ok(Reader { bytes, offset: self.offset.map(|offset| offset + header), depth: self.depth + 1 })
    }

    /// Every number of a repeated field, packed (as varints) or one alone.
    pub(crate) fn varints(&self, mut each: impl FnMut(u64)) -> Found<()> {
        if let Payload::Varint(value) = self.payload {
            each(value);
            return Ok(());
        }
        let mut rest = self.bytes()?;
        while !rest.is_empty() {
            let (value, length) = read_varint(rest).ok_or_else(|| self.flaw("a packed number is cut off or longer than 64 bits"))?;
            each(value);
            rest = &rest[length..];
        }
        Ok(())
    }

    /// The bytes of every four-byte number of a repeated field, packed or one alone, in order.
    pub(crate) fn fixed32s(&self, out: &mut Vec<u8>) -> Found<()> {
        match self.payload {
            Payload::Fixed32(value) => out.extend(value.to_le_bytes()),
            _ => out.extend(self.packed(4)?),
        }
        Ok(())
    }

    /// The bytes of every eight-byte number of a repeated field, packed or one alone, in order.
    pub(crate) fn fixed64s(&self, out: &mut Vec<u8>) -> Found<()> {
        match self.payload {
            Payload::Fixed64(value) => out.extend(value.to_le_bytes()),
            _ => out.extend(self.packed(8)?),
        }
        Ok(())
    }

    fn packed(&self, size: usize) -> Found<&'a [u8]> {
        let bytes = self.bytes()?;
        if bytes.len().is_multiple_of(size) {
            Ok(bytes)
        } else {
            Err(self.flaw(format!("{} packed bytes are not a whole number of values", bytes.len())))
        }
    }

    /// Writes the field, with tag, number and length in their shortest form, whichever they had: texts, which do not tell the forms
    /// apart, come back as the same bytes.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self.payload {
            Payload::Varint(value) => put_varint(out, self.number, value),
            Payload::Fixed64(value) => put_fixed64(out, self.number, value),
            Payload::Bytes(bytes) => put_bytes(out, self.number, bytes),
            Payload::Fixed32(value) => put_fixed32(out, self.number, value),
        }
    }

    /// A flaw of this field.
    pub(crate) fn flaw(&self, message: impl Into<String>) -> Flaw {
        Flaw::malformed(message).at(self.offset)
    }

    fn mistyped(&self, wanted: &str) -> Flaw {
        let wire_type = match self.payload {
            Payload::Varint(_) => 0,
            Payload::Fixed64(_) => 1,
            Payload::Bytes(_) => 2,
            Payload::Fixed32(_) => 5,
        };
        self.flaw(format!("field {} has wire type {wire_type} where {wanted} should be", self.number))
    }
}

/// The number at the start of `bytes` and how many bytes it takes.
pub(crate) fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Writes a number.
pub(crate) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a field that holds a number.
pub(crate) fn put_varint(out: &mut Vec<u8>, number: u32, value: u64) {
    write_varint(out, u64::from(number) << 3);
    write_varint(out, value);
}

/// Writes a field that holds eight bytes.
pub(crate) fn put_fixed64(out: &mut Vec<u8>, number: u32, value: u64) {
    write_varint(out, u64::from(number) << 3 | 1);
    out.extend(value.to_le_bytes());
}

/// Writes a field that holds four bytes.
pub(crate) fn put_fixed32(out: &mut Vec<u8>, number: u32, value: u32) {
    write_varint(out, u64::from(number) << 3 | 5);
    out.extend(value.to_le_bytes());
}

/// Writes a field that holds bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    write_varint(out, u64::from(number) << 3 | 2);
    write_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Writes a field with the contents that `write` writes.
pub(crate) fn put_message(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    write_varint(out, u64::from(number) << 3 | 2);
    let start = out.len();
    write(out);
    let length = out.len() - start;
    let mut prefix = Vec::with_capacity(10);
    write_varint(&mut prefix, length as u64);
    out.extend_from_slice(&prefix);
    out[start..].rotate_right(prefix.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Found<Vec<(u32, Payload<'_>)>> {
        Reader::of_file(bytes).map(|field| field.map(|field| (field.number, field.payload))).collect()
    }

    #[test]
    fn reads_what_it_writes() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, 1, u64::MAX);
        put_fixed64(&mut bytes, 2, 7);
        put_fixed32(&mut bytes, (1 << 29) - 1, 8);
        put_bytes(&mut bytes, 4, b"abc");
        put_message(&mut bytes, 5, |out| put_bytes(out, 1, &[0; 200]));
        let read = fields(&bytes).unwrap();
        assert_eq!(read[..3], [(1, Payload::Varint(u64::MAX)), (2, Payload::Fixed64(7)), ((1 << 29) - 1, Payload::Fixed32(8))]);
        assert_eq!(read[3], (4, Payload::Bytes(b"abc")));
        let Payload::Bytes(inner) = read[4].1 else { panic!("a message is bytes") };
        assert_eq!(fields(inner).unwrap(), [(1, Payload::Bytes(&[0; 200]))]);
        for end in 1..bytes.len() {
            if let Err(flaw) = fields(&bytes[..end]) {
                assert_eq!(flaw.code(), plimsoll_base::Code::DataLoss);
            }
        }
    }

    #[test]
    fn refuses_what_is_no_field() {
        for bytes in [
            &[0x00][..],                                                               // field number 0
            &[0x0b],                                                                   // a group
            &[0x0f],                                                                   // no wire type
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x00], // 2^64-1 bytes
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],       // 65 bits
            &[0x0d, 1, 2, 3],                                                          // four bytes cut off
            &[0xff, 0xff, 0xff, 0xff, 0x7f, 0x00],                                     // a field number beyond 2^29
        ] {
            assert!(fields(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn says_where_it_stopped() {
        let error = plimsoll_base::Error::from(fields(&[0x08, 0x01, 0x12, 0x05, 0x00]).unwrap_err());
        assert_eq!(error.to_string(), "DATA_LOSS: at byte 4: 5 bytes are announced where 1 are left");
    }
}
