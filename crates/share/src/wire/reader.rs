//! Bytes into values.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use plimsoll_memory::Sealed;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};

use super::bulk::BULK;
use super::writer::IN_SEGMENT;
use super::{DEEPEST, WireError};

/// Reads one value. Slices that it lends live as long as the message.
pub(super) struct Reader<'de> {
    pub rest: &'de [u8],
    pub segments: &'de [Arc<Sealed>],
    pub depth: usize,
}

/// A run of bytes.
enum Run<'de> {
    Here(&'de [u8]),
    Segment(&'de Arc<Sealed>),
}

impl<'de> Run<'de> {
    fn bytes(&self) -> &'de [u8] {
        match self {
            Run::Here(bytes) => bytes,
            Run::Segment(segment) => segment,
        }
    }
}

impl<'de> Reader<'de> {
    fn take(&mut self, count: usize) -> Result<&'de [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| WireError::Value("it ends too early".into()))?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| WireError::Value("it ends too early".into()))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn length(&mut self) -> Result<usize, WireError> {
        usize::try_from(u64::from_le_bytes(self.array()?)).map_err(|_| WireError::Value("it has a length beyond all memory".into()))
    }

    fn run(&mut self) -> Result<Run<'de>, WireError> {
        let length = u64::from_le_bytes(self.array()?);
        if length == IN_SEGMENT {
            let number = u32::from_le_bytes(self.array()?) as usize;
            let segment = self.segments.get(number);
            return segment.map(Run::Segment).ok_or_else(|| WireError::Value(format!("it has no segment {number}")));
        }
        let length = usize::try_from(length).map_err(|_| WireError::Value("it has a length beyond all memory".into()))?;
        self.take(length).map(Run::Here)
    }

    fn text(&mut self) -> Result<&'de str, WireError> {
        let bytes = self.run()?.bytes();
        std::str::from_utf8(bytes).map_err(|error| WireError::Value(format!("a text is not UTF-8: {error}")))
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Reader<'de>) -> Result<T, WireError>) -> Result<T, WireError> {
        if self.depth >= DEEPEST {
            return Err(WireError::Value(format!("it has values inside values, more than {DEEPEST} deep")));
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn counted<V: Visitor<'de>>(&mut self, length: usize, visitor: V) -> Result<V::Value, WireError> {
        self.nested(|reader| visitor.visit_seq(Counted { reader, left: length }))
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty,)*) => {
        $(#[inline] fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
            visitor.$visit(<$type>::from_le_bytes(self.array()?))
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = WireError;

    numbers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_i128 visit_i128 i128,
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64, deserialize_u128 visit_u128 u128,
        deserialize_f32 visit_f32 f32, deserialize_f64 visit_f64 f64,
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, WireError> {
        Err(WireError::Value("its type asks what comes next (serde's untagged, flatten or any), which the wire does not say".into()))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        match self.array()? {
            [0] => visitor.visit_bool(false),
            [1] => visitor.visit_bool(true),
            [other] => Err(WireError::Value(format!("{other} is not a truth value"))),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        let number = u32::from_le_bytes(self.array()?);
        visitor.visit_char(char::from_u32(number).ok_or_else(|| WireError::Value(format!("{number} is not a character")))?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        visitor.visit_borrowed_str(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        visitor.visit_borrowed_bytes(self.run()?.bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        match self.array()? {
            [0] => visitor.visit_none(),
            [1] => self.nested(|reader| visitor.visit_some(reader)),
            [other] => Err(WireError::Value(format!("{other} says neither some nor none"))),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, WireError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, WireError> {
        self.nested(|reader| visitor.visit_newtype_struct(reader))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        let length = self.length()?;
        self.counted(length, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, WireError> {
        self.counted(length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(self, _: &'static str, length: usize, visitor: V) -> Result<V::Value, WireError> {
        self.counted(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        let left = self.length()?;
        self.nested(|reader| visitor.visit_map(Counted { reader, left }))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WireError> {
        self.counted(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WireError> {
        if name != BULK {
            return self.nested(|reader| visitor.visit_enum(reader));
        }
        match self.run()? {
            Run::Here(bytes) => visitor.visit_borrowed_bytes(bytes),
            // It opens the descriptor, which stays as long as the message, for itself.
            Run::Segment(segment) => match segment.file() {
                Some(file) => visitor.visit_u64(file.as_raw_fd() as u64),
                None => visitor.visit_borrowed_bytes(segment),
            },
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        self.deserialize_u32(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        self.deserialize_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// So many values, or keys with values.
struct Counted<'a, 'de> {
    reader: &'a mut Reader<'de>,
    left: usize,
}

impl Counted<'_, '_> {
    fn next(&mut self) -> bool {
        let more = self.left > 0;
        self.left -= usize::from(more);
        more
    }

    /// No more than there can be: a length that lies takes no memory.
    fn hint(&self) -> usize {
        self.left.min(self.reader.rest.len())
    }
}

impl<'de> de::SeqAccess<'de> for Counted<'_, 'de> {
    type Error = WireError;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, WireError> {
        self.next().then(|| seed.deserialize(&mut *self.reader)).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.hint())
    }
}

impl<'de> de::MapAccess<'de> for Counted<'_, 'de> {
    type Error = WireError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, WireError> {
        self.next().then(|| seed.deserialize(&mut *self.reader)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, WireError> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.hint())
    }
}

impl<'de> de::EnumAccess<'de> for &mut Reader<'de> {
    type Error = WireError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), WireError> {
        let index = u32::from_le_bytes(self.array()?);
        let index: de::value::U32Deserializer<WireError> = index.into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for &mut Reader<'de> {
    type Error = WireError;

    fn unit_variant(self) -> Result<(), WireError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, WireError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, WireError> {
        self.counted(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, WireError> {
        self.counted(fields.len(), visitor)
    }
}
