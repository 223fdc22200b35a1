//! Wire to text.

use std::fmt::Write;

use crate::flaw::Found;
use crate::schema::{FieldType, Kind, Schema};
use crate::wire::{Field, Payload, Reader, read_varint};

/// The text form of message `root`, encoded.
///
/// # Errors
/// DATA_LOSS where the bytes are not a message.
pub(crate) fn print(schema: &Schema, root: usize, wire: &[u8]) -> Found<String> {
    let mut printer = Printer { schema, out: String::with_capacity(wire.len() * 2) };
    printer.message(root, Reader::of_bytes(wire), 0)?;
    Ok(printer.out)
}

struct Printer<'s> {
    schema: &'s Schema,
    out: String,
}

impl Printer<'_> {
    fn message(&mut self, message: usize, fields: Reader<'_>, indent: usize) -> Found<()> {
        let mut seen = Vec::new();
        for field in fields {
            let field = field?;
            let known = self.schema.messages[message].numbered(field.number);
            let single = known.is_some_and(|known| !known.repeated && !matches!(known.kind, Kind::Message(_)));
            let again = single && seen.contains(&field.number);
            if again || !known.is_some_and(|known| self.known_field(known, &field, indent)) {
                self.by_number(&field, indent);
            } else if single {
                seen.push(field.number);
            }
        }
        Ok(())
    }

    /// Prints a field by name; false (and nothing printed) where its bytes do not fit the schema, or text has no word for its
    /// value.
    fn known_field(&mut self, known: &FieldType, field: &Field<'_>, indent: usize) -> bool {
        let start = self.out.len();
        let printed = match (known.kind, field.payload) {
            (Kind::Message(message), Payload::Bytes(_)) => self.nested(message, known.name, field, indent),
            (Kind::String | Kind::Bytes, Payload::Bytes(bytes)) if known.kind == Kind::Bytes || std::str::from_utf8(bytes).is_ok() => {
                self.name(known.name, indent);
                self.text(bytes);
                true
            }
            (kind, Payload::Bytes(bytes)) if known.repeated && kind.is_packed() => {
                !bytes.is_empty() && self.packed(known, bytes, indent).is_some()
            }
            (kind, Payload::Varint(value)) if is_varint(kind) => self.scalar(known, value, indent).is_some(),
            (Kind::Float | Kind::Fixed32, Payload::Fixed32(bits)) => self.scalar(known, u64::from(bits), indent).is_some(),
            (Kind::Double | Kind::Fixed64, Payload::Fixed64(bits)) => self.scalar(known, bits, indent).is_some(),
            _ => false,
        };
        if !printed {
            self.out.truncate(start);
        }
        printed
    }

    fn nested(&mut self, message: usize, name: &str, field: &Field<'_>, indent: usize) -> bool {
        let Ok(fields) = field.message() else { return false };
        self.indent(indent);
        self.out.push_str(name);
        self.out.push_str(" {\n");
        let printed = self.message(message, fields, indent + 1).is_ok();
        self.indent(indent);
        self.out.push_str("}\n");
        printed
    }

    fn packed(&mut self, known: &FieldType, mut bytes: &[u8], indent: usize) -> Option<()> {
        while !bytes.is_empty() {
            let (value, taken) = match known.kind {
                Kind::Float | Kind::Fixed32 => (u64::from(u32::from_le_bytes(*bytes.first_chunk()?)), 4),
                Kind::Double | Kind::Fixed64 => (u64::from_le_bytes(*bytes.first_chunk()?), 8),
                _ => read_varint(bytes)?,
            };
            if self.scalar(known, value, indent).is_none() {
                // Floats that text cannot say; every reader takes them one by one among packed ones.
                let payload = if taken == 4 { Payload::Fixed32(value as u32) } else { Payload::Fixed64(value) };
                if !matches!(known.kind, Kind::Float | Kind::Double) {
                    return None;
                }
                self.numbered(known.number, payload, indent);
            }
            bytes = &bytes[taken..];
        }
        Some(())
    }

    fn scalar(&mut self, known: &FieldType, value: u64, indent: usize) -> Option<()> {
        let as_i32 = || Some(value as i64).and_then(|value| i32::try_from(value).ok());
        let text = match known.kind {
            Kind::Int32 => as_i32()?.to_string(),
            Kind::Int64 => (value as i64).to_string(),
            Kind::Uint32 => u32::try_from(value).ok()?.to_string(),
            Kind::Uint64 | Kind::Fixed32 | Kind::Fixed64 => value.to_string(),
            Kind::Sint64 => ((value >> 1) as i64 ^ -((value & 1) as i64)).to_string(),
            Kind::Bool => ["false", "true"].get(usize::try_from(value).ok()?)?.to_string(),
            Kind::Enum(index) => {
                let number = as_i32()?;
                let name = self.schema.enums[index].values.iter().find(|(_, value)| *value == number);
                name.map_or_else(|| number.to_string(), |(name, _)| name.to_string())
            }
            Kind::Float => {
                let float = f32::from_bits(value as u32);
                float_text(float, float.is_nan().then_some(value == u64::from(f32::NAN.to_bits())))?
            }
            Kind::Double => {
                let float = f64::from_bits(value);
                float_text(float, float.is_nan().then_some(value == f64::NAN.to_bits()))?
            }
            Kind::String | Kind::Bytes | Kind::Message(_) => return None,
        };
        self.name(known.name, indent);
        self.out.push_str(&text);
        self.out.push('\n');
        Some(())
    }

    fn by_number(&mut self, field: &Field<'_>, indent: usize) {
        self.numbered(field.number, field.payload, indent);
    }

    fn numbered(&mut self, number: u32, payload: Payload<'_>, indent: usize) {
        self.name(&number.to_string(), indent);
        // Writing to a String cannot fail.
        let _ = match payload {
            Payload::Varint(value) => writeln!(self.out, "{value}"),
            Payload::Fixed32(bits) => writeln!(self.out, "{bits:#010x}"),
            Payload::Fixed64(bits) => writeln!(self.out, "{bits:#018x}"),
            Payload::Bytes(bytes) => {
                self.text(bytes);
                Ok(())
            }
        };
    }

    fn name(&mut self, name: &str, indent: usize) {
        self.indent(indent);
        self.out.push_str(name);
        self.out.push_str(": ");
    }

    fn indent(&mut self, indent: usize) {
        self.out.extend(std::iter::repeat_n("  ", indent));
    }

    fn text(&mut self, bytes: &[u8]) {
        self.out.push('"');
        for &byte in bytes {
            match byte {
                b'\n' => self.out.push_str("\\n"),
                b'\r' => self.out.push_str("\\r"),
                b'\t' => self.out.push_str("\\t"),
                b'"' | b'\'' | b'\\' => self.out.extend(['\\', byte as char]),
                b' '..=b'~' => self.out.push(byte as char),
                _ => self.out.extend(['\\', (b'0' + (byte >> 6)) as char, (b'0' + (byte >> 3 & 7)) as char, (b'0' + (byte & 7)) as char]),
            }
        }
        self.out.push_str("\"\n");
    }
}

/// The shortest text that is read as the same float; `plain_nan` says of a NaN whether it is the one that text can say.
fn float_text(float: impl std::fmt::Debug, plain_nan: Option<bool>) -> Option<String> {
    match plain_nan {
        None => Some(format!("{float:?}")),
        Some(true) => Some("nan".to_string()),
        Some(false) => None,
    }
}

fn is_varint(kind: Kind) -> bool {
    !matches!(kind, Kind::Float | Kind::Double | Kind::Fixed32 | Kind::Fixed64 | Kind::String | Kind::Bytes | Kind::Message(_))
}
