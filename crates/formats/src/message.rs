//! Messages as Rust structs: a field table makes the reading and the writing.
//!
//! Unknown fields are kept, encoded, in `carried`. Fields with their default value are not written, as in proto3.

use std::collections::BTreeMap;

use plimsoll_graph::Attrs;

use crate::flaw::Found;
use crate::wire::{Field, Reader, put_bytes, put_fixed32, put_fixed64, put_message, put_varint, write_varint};

/// A struct that is a message.
pub(crate) trait Message: Default + PartialEq {
    /// Takes in fields; later ones replace or extend earlier ones, as protobuf merges.
    fn merge(&mut self, fields: Reader<'_>) -> Found<()>;
    /// Writes every field that is not at its default.
    fn write(&self, out: &mut Vec<u8>);
}

/// The message that these fields make.
pub(crate) fn decode<M: Message>(fields: Reader<'_>) -> Found<M> {
    let mut message = M::default();
    message.merge(fields)?;
    Ok(message)
}

/// The message on the wire.
pub(crate) fn encode<M: Message>(message: &M) -> Vec<u8> {
    let mut out = Vec::new();
    message.write(&mut out);
    out
}

/// The types that a field of a struct can have.
pub(crate) trait Value: Sized {
    /// The value of a field that is absent.
    fn blank() -> Self;
    /// Takes in an occurrence of the field.
    fn absorb(&mut self, field: &Field<'_>) -> Found<()>;
    /// Whether the field can stay off the wire.
    fn is_blank(&self) -> bool;
    /// Writes the field, even if it is blank.
    fn put(&self, out: &mut Vec<u8>, number: u32);
}

macro_rules! scalars {
    ($($type:ty: $field:ident => $take:expr, $put:ident($value:ident) = $wire:expr;)*) => {
        $(impl Value for $type {
            fn blank() -> Self {
                Self::default()
            }
            fn absorb(&mut self, $field: &Field<'_>) -> Found<()> {
                *self = $take;
                Ok(())
            }
            fn is_blank(&self) -> bool {
                let $value = self;
                scalars!(@blank $type, $value)
            }
            fn put(&self, out: &mut Vec<u8>, number: u32) {
                let $value = self;
                $put(out, number, $wire);
            }
        })*
    };
    (@blank f32, $value:ident) => { $value.to_bits() == 0 };
    (@blank f64, $value:ident) => { $value.to_bits() == 0 };
    (@blank $type:ty, $value:ident) => { *$value == <$type>::default() };
}

scalars! {
    bool: field => field.varint()? != 0, put_varint(value) = u64::from(*value);
    i32: field => field.varint()? as i32, put_varint(value) = i64::from(*value) as u64;
    i64: field => field.varint()? as i64, put_varint(value) = *value as u64;
    u32: field => field.varint()? as u32, put_varint(value) = u64::from(*value);
    u64: field => field.varint()?, put_varint(value) = *value;
    f32: field => f32::from_bits(field.fixed32()?), put_fixed32(value) = value.to_bits();
    f64: field => f64::from_bits(field.fixed64()?), put_fixed64(value) = value.to_bits();
    String: field => field.text()?.to_string(), put_bytes(value) = value.as_bytes();
    Vec<u8>: field => field.bytes()?.to_vec(), put_bytes(value) = value;
}

/// A number that takes four bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fixed32(pub u32);

impl Value for Fixed32 {
    fn blank() -> Self {
        Fixed32(0)
    }
    fn absorb(&mut self, field: &Field<'_>) -> Found<()> {
        self.0 = field.fixed32()?;
        Ok(())
    }
    fn is_blank(&self) -> bool {
        self.0 == 0
    }
    fn put(&self, out: &mut Vec<u8>, number: u32) {
        put_fixed32(out, number, self.0);
    }
}

impl<M: Message> Value for M {
    fn blank() -> Self {
        M::default()
    }
    fn absorb(&mut self, field: &Field<'_>) -> Found<()> {
        self.merge(field.message()?)
    }
    fn is_blank(&self) -> bool {
        *self == M::default()
    }
    fn put(&self, out: &mut Vec<u8>, number: u32) {
        put_message(out, number, |out| self.write(out));
    }
}

impl<V: Value> Value for Option<V> {
    fn blank() -> Self {
        None
    }
    fn absorb(&mut self, field: &Field<'_>) -> Found<()> {
        self.get_or_insert_with(V::blank).absorb(field)
    }
    fn is_blank(&self) -> bool {
        self.is_none()
    }
    fn put(&self, out: &mut Vec<u8>, number: u32) {
        if let Some(value) = self {
            value.put(out, number);
        }
    }
}

/// A value that a repeated field repeats one by one (numbers are packed instead).
pub(crate) trait Item: Value {}
impl Item for String {}
impl Item for Vec<u8> {}
impl<M: Message> Item for M {}

impl<I: Item> Value for Vec<I> {
    fn blank() -> Self {
        Vec::new()
    }
    fn absorb(&mut self, field: &Field<'_>) -> Found<()> {
        let mut item = I::blank();
        item.absorb(field).map_err(|flaw| flaw.within(&format!("[{}]", self.len())))?;
        self.push(item);
        Ok(())
    }
    fn is_blank(&self) -> bool {
        self.is_empty()
    }
    fn put(&self, out: &mut Vec<u8>, number: u32) {
        self.iter().for_each(|item| item.put(out, number));
    }
}

macro_rules! packed {
    ($($type:ty: $take:expr, $write:expr;)*) => {
        $(impl Value for Vec<$type> {
            fn blank() -> Self {
                Vec::new()
            }
            fn absorb(&mut self, field: &Field<'_>) -> Found<()> {
                let take: fn(&mut Self, &Field<'_>) -> Found<()> = $take;
                take(self, field)
            }
            fn is_blank(&self) -> bool {
                self.is_empty()
            }
            fn put(&self, out: &mut Vec<u8>, number: u32) {
                let write: fn(&mut Vec<u8>, $type) = $write;
                put_message(out, number, |out| self.iter().for_each(|value| write(out, *value)));
            }
        })*
    };
}

packed! {
    i32: |list, field| field.varints(|value| list.push(value as i32)), |out, value| write_varint(out, i64::from(value) as u64);
    i64: |list, field| field.varints(|value| list.push(value as i64)), |out, value| write_varint(out, value as u64);
    bool: |list, field| field.varints(|value| list.push(value != 0)), |out, value| out.push(u8::from(value));
    f32: |list, field| {
        let mut bytes = Vec::new();
        field.fixed32s(&mut bytes)?;
        list.extend(bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes"))));
        Ok(())
    }, |out, value| out.extend(value.to_le_bytes());
}

/// An entry of a map.
fn entry<K: Value + std::fmt::Debug, V: Value>(field: &Field<'_>) -> Found<(K, V)> {
    let (mut key, mut value) = (K::blank(), V::blank());
    for entry in field.message()? {
        let entry = entry?;
        match entry.number {
            1 => key.absorb(&entry).map_err(|flaw| flaw.within("key"))?,
            2 => value.absorb(&entry).map_err(|flaw| flaw.within(&format!("[{key:?}]")))?,
            _ => {}
        }
    }
    Ok((key, value))
}

fn put_entry(out: &mut Vec<u8>, number: u32, key: &impl Value, value: &impl Value) {
    put_message(out, number, |out| {
        key.put(out, 1);
        value.put(out, 2);
    });
}

impl<K: Value + Ord + std::fmt::Debug, V: Value> Value for BTreeMap<K, V> {
    fn blank() -> Self {
        BTreeMap::new()
    }
    fn absorb(&mut self, field: &Field<'_>) -> Found<()> {
        let (key, value) = entry(field)?;
        self.insert(key, value);
        Ok(())
    }
    fn is_blank(&self) -> bool {
        self.is_empty()
    }
    fn put(&self, out: &mut Vec<u8>, number: u32) {
        self.iter().for_each(|(key, value)| put_entry(out, number, key, value));
    }
}

impl Value for Attrs {
    fn blank() -> Self {
        Attrs::new()
    }
    fn absorb(&mut self, field: &Field<'_>) -> Found<()> {
        let (name, value) = entry(field)?;
        self.insert(name, value);
        Ok(())
    }
    fn is_blank(&self) -> bool {
        self.is_empty()
    }
    fn put(&self, out: &mut Vec<u8>, number: u32) {
        self.iter().for_each(|(name, value)| put_entry(out, number, name, value));
    }
}

/// Makes messages of structs: `message! { pub struct Name { 1 field: type, … } }` declares one that carries unknown fields;
/// `message! { impl Name { 1 field "proto_name", … } carried }` is for a struct that exists already.
macro_rules! message {
    ($($(#[$doc:meta])* pub struct $name:ident { $($(#[$field_doc:meta])* $number:literal $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, Default, PartialEq)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
                /// Encoded fields that have no place above; only carried along.
                pub carried: Vec<u8>,
            }
            $crate::message::message! { impl $name { $($number $field stringify!($field),)* } carried }
        )*
    };
    (impl $name:ty { $($number:literal $field:tt $label:expr,)* } $($carried:ident)?) => {
        impl $crate::message::Message for $name {
            fn merge(&mut self, fields: $crate::wire::Reader<'_>) -> $crate::flaw::Found<()> {
                for field in fields {
                    let field = field?;
                    match field.number {
                        $($number => $crate::message::Value::absorb(&mut self.$field, &field).map_err(|flaw| flaw.within($label))?,)*
                        _ => { $(field.put(&mut self.$carried);)? }
                    }
                }
                Ok(())
            }
            fn write(&self, out: &mut Vec<u8>) {
                $(if !$crate::message::Value::is_blank(&self.$field) {
                    $crate::message::Value::put(&self.$field, out, $number);
                })*
                $(out.extend_from_slice(&self.$carried);)?
            }
        }
    };
}
pub(crate) use message;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Reader;

    message! {
        /// Every kind of field.
        pub struct Sample {
            /// A number.
            1 number: i32,
            /// Numbers.
            2 numbers: Vec<i64>,
            /// A message.
            3 inner: Option<Inner>,
            /// A map.
            4 map: BTreeMap<String, Inner>,
            /// A float.
            5 float: f32,
        }
        /// A message in a message.
        pub struct Inner {
            /// A text.
            1 text: String,
        }
    }

    #[test]
    fn keeps_every_field_and_what_it_does_not_know() {
        let inner = Inner { text: "x".into(), carried: vec![0x10, 0x07] };
        let sample = Sample {
            number: -1,
            numbers: vec![1, -2, i64::MAX],
            inner: Some(Inner::default()),
            map: BTreeMap::from([("k".to_string(), inner)]),
            float: -0.0,
            carried: vec![0x7a, 0x01, 0x00],
        };
        assert_eq!(decode::<Sample>(Reader::of_bytes(&encode(&sample))).unwrap(), sample);
        assert_eq!(encode(&Sample::default()), [0u8; 0]);
    }

    #[test]
    fn takes_packed_and_unpacked_and_merges() {
        let bytes = [0x12, 0x02, 0x01, 0x02, 0x10, 0x03, 0x08, 0x05, 0x08, 0x06, 0x1a, 0x03, 0x0a, 0x01, b'a', 0x1a, 0x02, 0x10, 0x01];
        let sample: Sample = decode(Reader::of_bytes(&bytes)).unwrap();
        assert_eq!((sample.number, &sample.numbers[..]), (6, &[1, 2, 3][..]));
        assert_eq!(sample.inner.unwrap(), Inner { text: "a".into(), carried: vec![0x10, 0x01] });
    }

    #[test]
    fn names_the_path_to_a_flaw() {
        let bytes = [0x22, 0x08, 0x0a, 0x01, b'k', 0x12, 0x03, 0x0a, 0x01, 0xff];
        let error = plimsoll_base::Error::from(decode::<Sample>(Reader::of_file(&bytes)).unwrap_err());
        assert_eq!(error.to_string(), "DATA_LOSS: map[\"k\"].text, at byte 7: a text is not UTF-8");
    }
}
