//! The names, numbers and types of the fields of TensorFlow's messages, for the text form. Binary reading does not need it.
//!
//! The table is `data/messages.txt`, written by `scripts/record_messages.py`.

use std::collections::HashMap;

const TABLE: &str = include_str!("../data/messages.txt");

/// The contents of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint64,
    Fixed32,
    Fixed64,
    Bool,
    Float,
    Double,
    String,
    Bytes,
    /// An enumerator of [`Schema::enums`].
    Enum(usize),
    /// A message of [`Schema::messages`].
    Message(usize),
}

impl Kind {
    /// Whether a repeated field of this kind is packed.
    pub(crate) fn is_packed(self) -> bool {
        !matches!(self, Kind::String | Kind::Bytes | Kind::Message(_))
    }
}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldType {
    pub number: u32,
    pub name: &'static str,
    pub kind: Kind,
    pub repeated: bool,
}

/// A message.
#[derive(Debug)]
pub(crate) struct MessageType {
    pub name: &'static str,
    pub fields: Vec<FieldType>,
}

impl MessageType {
    /// The field of that name.
    pub(crate) fn named(&self, name: &str) -> Option<&FieldType> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The field of that number.
    pub(crate) fn numbered(&self, number: u32) -> Option<&FieldType> {
        self.fields.iter().find(|field| field.number == number)
    }
}

/// An enum: names with numbers, in the order of their declaration. Of two names for a number the first one is printed.
#[derive(Debug)]
pub(crate) struct EnumType {
    pub name: &'static str,
    pub values: Vec<(&'static str, i32)>,
}

/// All messages and enums.
#[derive(Debug)]
pub(crate) struct Schema {
    pub messages: Vec<MessageType>,
    pub enums: Vec<EnumType>,
    by_name: HashMap<&'static str, usize>,
}

impl Schema {
    /// TensorFlow's messages. Reads the table, which takes a fraction of a millisecond.
    pub(crate) fn tensorflow() -> Schema {
        Schema::read(TABLE).expect("a test reads the same table")
    }

    /// The position of the message of that name.
    pub(crate) fn message(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    fn read(table: &'static str) -> Option<Schema> {
        let split = |line: &'static str| line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, "")));
        let (mut messages, mut enums) = (Vec::new(), Vec::new());
        for line in table.lines() {
            match line.split_once(' ')? {
                ("message", rest) => messages.push(split(rest)?),
                ("enum", rest) => enums.push(split(rest)?),
                _ => return None,
            }
        }
        let by_name = messages.iter().enumerate().map(|(index, (name, _))| (*name, index)).collect();
        let enum_by_name: HashMap<&str, usize> = enums.iter().enumerate().map(|(index, (name, _))| (*name, index)).collect();
        let values = |text: &'static str| {
            text.split(' ').map(|value| value.split_once('=').and_then(|(name, number)| Some((name, number.parse().ok()?))))
        };
        let enums = enums
            .iter()
            .map(|(name, text)| Some(EnumType { name, values: values(text).collect::<Option<_>>()? }))
            .collect::<Option<Vec<_>>>()?;
        let mut schema = Schema { messages: Vec::new(), enums, by_name };
        let mut entries = Vec::new();
        for (name, fields) in &messages {
            let mut read = Vec::new();
            for field in fields.split("; ").filter(|field| !field.is_empty()) {
                let (number, field) = field.split_once(' ')?;
                let (name, kind) = field.split_once(' ')?;
                let number = number.parse().ok()?;
                let (repeated, kind) = if let Some(entry) = kind.strip_prefix("map<").and_then(|kind| kind.strip_suffix('>')) {
                    let (key, value) = entry.split_once(',')?;
                    let part =
                        |number, name, kind| Some(FieldType { number, name, kind: schema.kind(&enum_by_name, kind)?, repeated: false });
                    entries.push(MessageType { name: "map entry", fields: vec![part(1, "key", key)?, part(2, "value", value)?] });
                    (true, Kind::Message(messages.len() + entries.len() - 1))
                } else {
                    let single = kind.strip_prefix('*').unwrap_or(kind);
                    (single != kind, schema.kind(&enum_by_name, single)?)
                };
                read.push(FieldType { number, name, kind, repeated });
            }
            schema.messages.push(MessageType { name, fields: read });
        }
        schema.messages.append(&mut entries);
        Some(schema)
    }

    fn kind(&self, enums: &HashMap<&str, usize>, name: &str) -> Option<Kind> {
        Some(match name {
            "int32" => Kind::Int32,
            "int64" => Kind::Int64,
            "uint32" => Kind::Uint32,
            "uint64" => Kind::Uint64,
            "sint64" => Kind::Sint64,
            "fixed32" => Kind::Fixed32,
            "fixed64" => Kind::Fixed64,
            "bool" => Kind::Bool,
            "float" => Kind::Float,
            "double" => Kind::Double,
            "string" => Kind::String,
            "bytes" => Kind::Bytes,
            _ => match enums.get(name) {
                Some(&index) => Kind::Enum(index),
                None => Kind::Message(self.message(name)?),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let schema = Schema::tensorflow();
        let node = &schema.messages[schema.message("NodeDef").unwrap()];
        let attr = node.named("attr").unwrap();
        assert!(attr.repeated && attr.number == 5);
        let Kind::Message(entry) = attr.kind else { panic!("a map is messages") };
        assert_eq!(schema.messages[entry].named("key").unwrap().kind, Kind::String);
        assert_eq!(schema.messages[entry].named("value").unwrap().kind, Kind::Message(schema.message("AttrValue").unwrap()));
        let Kind::Enum(types) = schema.messages[schema.message("TensorProto").unwrap()].named("dtype").unwrap().kind else {
            panic!("an enum")
        };
        assert!(schema.enums[types].values.contains(&("DT_HALF_REF", 119)));
        for root in ["GraphDef", "ConfigProto", "SavedModel", "CheckpointState", "BundleEntryProto", "TrackableObjectGraph"] {
            assert!(schema.message(root).is_some(), "{root}");
        }
    }
}
