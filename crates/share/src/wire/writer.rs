//! Values into bytes.

use std::fs::File;
use std::sync::Arc;

use plimsoll_memory::{Sealed, Unsealed};
use serde::ser::{self, Serialize};

use super::bulk::BULK;
use super::message::Body;
use super::{DEEPEST, LONG, WireError};

/// A length that says: the next number is that of a segment, which has the bytes.
pub(super) const IN_SEGMENT: u64 = u64::MAX;

/// Writes one value.
#[derive(Default)]
pub(super) struct Writer {
    /// The bytes that follow `before`.
    buffer: Vec<u8>,
    /// The part that did not fit into the buffer.
    before: Option<Unsealed>,
    pub segments: Vec<Arc<Sealed>>,
    depth: usize,
}

/// The buffer stays in a processor's cache.
const BUFFER: usize = 256 << 10;

type Done = Result<(), WireError>;

impl Writer {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Done {
        if self.buffer.len() + bytes.len() > BUFFER {
            self.flush()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    #[cold]
    fn flush(&mut self) -> Done {
        let before = match &mut self.before {
            Some(before) => before,
            none => none.insert(Unsealed::new()?),
        };
        before.append(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// How much was written.
    fn written(&self) -> usize {
        self.before.as_ref().map_or(0, Unsealed::bytes) + self.buffer.len()
    }

    /// Writes something anew that was written at once.
    fn patch(&mut self, at: usize, bytes: &[u8]) -> Done {
        let flushed = self.before.as_ref().map_or(0, Unsealed::bytes);
        match (at.checked_sub(flushed), &mut self.before) {
            (Some(at), _) => self.buffer[at..at + bytes.len()].copy_from_slice(bytes),
            (None, Some(before)) => before.write_at(at, bytes)?,
            (None, None) => {}
        }
        Ok(())
    }

    /// All of it, in shared memory if it is long.
    pub fn finish(mut self) -> Result<(Body, Vec<Arc<Sealed>>), WireError> {
        if self.before.is_some() || self.buffer.len() >= LONG {
            self.flush()?;
        }
        let body = match self.before {
            Some(before) => Body::Shared(Arc::new(before.seal()?)),
            None => Body::Here(self.buffer.into()),
        };
        Ok((body, self.segments))
    }

    fn length(&mut self, length: usize) -> Done {
        self.put(&(length as u64).to_le_bytes())
    }

    fn segment(&mut self, segment: Arc<Sealed>) -> Done {
        self.put(&IN_SEGMENT.to_le_bytes())?;
        self.put(&(self.segments.len() as u32).to_le_bytes())?;
        self.segments.push(segment);
        Ok(())
    }

    /// A run of bytes, short or long.
    fn run(&mut self, bytes: &[u8]) -> Done {
        if bytes.len() >= LONG {
            return self.segment(Arc::new(Sealed::copy_of(bytes)?));
        }
        self.length(bytes.len())?;
        self.put(bytes)
    }

    fn enter(&mut self) -> Done {
        self.depth += 1;
        match self.depth > DEEPEST {
            true => Err(WireError::Value(format!("it has values inside values, more than {DEEPEST} deep"))),
            false => Ok(()),
        }
    }

    fn nested<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.enter()?;
        value.serialize(&mut *self)?;
        self.depth -= 1;
        Ok(())
    }

    fn open(&mut self, length: Option<usize>) -> Result<Open<'_>, WireError> {
        self.enter()?;
        let place = Some((self.written(), length.unwrap_or(0)));
        self.length(length.unwrap_or(0))?;
        Ok(Open { writer: self, place, count: 0 })
    }

    fn fields(&mut self) -> Result<Open<'_>, WireError> {
        self.enter()?;
        Ok(Open { writer: self, place: None, count: 0 })
    }
}

/// Values that belong together.
pub(super) struct Open<'a> {
    writer: &'a mut Writer,
    /// The place of the length, and the length, if there is one.
    place: Option<(usize, usize)>,
    count: usize,
}

impl Open<'_> {
    fn end(self) -> Done {
        if let Some((at, _)) = self.place.filter(|(_, said)| *said != self.count) {
            self.writer.patch(at, &(self.count as u64).to_le_bytes())?;
        }
        self.writer.depth -= 1;
        Ok(())
    }
}

macro_rules! numbers {
    ($($method:ident: $type:ty,)*) => {
        $(#[inline] fn $method(self, value: $type) -> Done {
            self.put(&value.to_le_bytes())
        })*
    };
}

impl<'a> ser::Serializer for &'a mut Writer {
    type Ok = ();
    type Error = WireError;
    type SerializeSeq = Open<'a>;
    type SerializeTuple = Open<'a>;
    type SerializeTupleStruct = Open<'a>;
    type SerializeTupleVariant = Open<'a>;
    type SerializeMap = Open<'a>;
    type SerializeStruct = Open<'a>;
    type SerializeStructVariant = Open<'a>;

    numbers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_f32: f32, serialize_f64: f64,
    }

    fn serialize_bool(self, value: bool) -> Done {
        self.put(&[u8::from(value)])
    }

    fn serialize_char(self, value: char) -> Done {
        self.put(&u32::from(value).to_le_bytes())
    }

    fn serialize_str(self, value: &str) -> Done {
        self.run(value.as_bytes())
    }

    fn serialize_bytes(self, value: &[u8]) -> Done {
        self.run(value)
    }

    fn serialize_none(self) -> Done {
        self.put(&[0])
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        self.put(&[1])?;
        self.nested(value)
    }

    fn serialize_unit(self) -> Done {
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Done {
        Ok(())
    }

    fn serialize_unit_variant(self, _name: &'static str, index: u32, _variant: &'static str) -> Done {
        self.put(&index.to_le_bytes())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Done {
        self.nested(value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(self, name: &'static str, index: u32, _variant: &'static str, value: &T) -> Done {
        if name != BULK {
            self.put(&index.to_le_bytes())?;
            return self.nested(value);
        }
        // The index is the descriptor of shared memory, where it is in shared memory: it goes as it is, without a copy.
        match File::open(format!("/proc/self/fd/{index}")).ok().and_then(|file| Sealed::received(file).ok()) {
            Some(shared) => self.segment(Arc::new(shared)),
            None => value.serialize(self),
        }
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Open<'a>, WireError> {
        self.open(length)
    }

    fn serialize_tuple(self, _length: usize) -> Result<Open<'a>, WireError> {
        self.fields()
    }

    fn serialize_tuple_struct(self, _name: &'static str, _length: usize) -> Result<Open<'a>, WireError> {
        self.fields()
    }

    fn serialize_tuple_variant(self, _: &'static str, index: u32, _: &'static str, _: usize) -> Result<Open<'a>, WireError> {
        self.put(&index.to_le_bytes())?;
        self.fields()
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Open<'a>, WireError> {
        self.open(length)
    }

    fn serialize_struct(self, _name: &'static str, _length: usize) -> Result<Open<'a>, WireError> {
        self.fields()
    }

    fn serialize_struct_variant(self, _: &'static str, index: u32, _: &'static str, _: usize) -> Result<Open<'a>, WireError> {
        self.put(&index.to_le_bytes())?;
        self.fields()
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Fields have no names on the wire.
macro_rules! skips {
    () => {
        fn skip_field(&mut self, name: &'static str) -> Done {
            Err(WireError::Value(format!(
                "its field '{name}' is left out at times (serde's skip_serializing_if), which the wire cannot say"
            )))
        }
    };
}

macro_rules! opened {
    ($($name:ident $method:ident($($key:ident: $type:ty),*) { $($more:tt)* })*) => {
        $(impl ser::$name for Open<'_> {
            type Ok = ();
            type Error = WireError;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, $($key: $type,)* value: &T) -> Done {
                $(let _ = $key;)*
                self.count += 1;
                value.serialize(&mut *self.writer)
            }

            fn end(self) -> Done {
                Open::end(self)
            }

            $($more)*
        })*
    };
}

opened! {
    SerializeSeq serialize_element() {}
    SerializeTuple serialize_element() {}
    SerializeTupleStruct serialize_field() {}
    SerializeTupleVariant serialize_field() {}
    SerializeStruct serialize_field(name: &'static str) { skips! {} }
    SerializeStructVariant serialize_field(name: &'static str) { skips! {} }
}

impl ser::SerializeMap for Open<'_> {
    type Ok = ();
    type Error = WireError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        self.count += 1;
        key.serialize(&mut *self.writer)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        value.serialize(&mut *self.writer)
    }

    fn end(self) -> Done {
        Open::end(self)
    }
}
