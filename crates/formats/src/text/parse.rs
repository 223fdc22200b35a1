//! Text to wire.

use super::lexer::{Lexer, Token};
use crate::flaw::Found;
use crate::schema::{FieldType, Kind, Schema};
use crate::wire::{MAX_DEPTH, put_bytes, put_fixed32, put_fixed64, put_varint, write_varint};

/// The wire form of a text that spells message `root`.
///
/// # Errors
/// INVALID_ARGUMENT with line and column.
pub(crate) fn parse(schema: &Schema, root: usize, text: &str) -> Found<Vec<u8>> {
    let mut parser = Parser { schema, lexer: Lexer::new(text)? };
    let mut out = Vec::new();
    parser.fields(Some(root), None, 0, &mut out)?;
    Ok(out)
}

struct Parser<'a, 's> {
    schema: &'s Schema,
    lexer: Lexer<'a>,
}

/// Numbers of a repeated field that follow each other are packed together.
#[derive(Default)]
struct Packed {
    number: u32,
    bytes: Vec<u8>,
}

impl Packed {
    fn flush(&mut self, out: &mut Vec<u8>) {
        if !self.bytes.is_empty() {
            put_bytes(out, self.number, &self.bytes);
            self.bytes.clear();
        }
    }
}

impl Parser<'_, '_> {
    /// Fields of a message (of none that is known, where `message` is none), up to the closing symbol.
    fn fields(&mut self, message: Option<usize>, close: Option<char>, depth: u32, out: &mut Vec<u8>) -> Found<()> {
        let mut packed = Packed::default();
        let mut seen = Vec::new();
        loop {
            match self.lexer.peek() {
                Token::End if close.is_none() => break,
                Token::Symbol(symbol) if close == Some(*symbol) => break,
                Token::Name(_) => self.named_field(message, depth, &mut seen, &mut packed, out)?,
                Token::Number(_) => {
                    packed.flush(out);
                    self.numbered_field(depth, out)?;
                }
                Token::Symbol('[') => return Err(self.lexer.flaw("extensions and Any in brackets are not read here")),
                Token::End => return Err(self.lexer.flaw(format!("a closing '{}' is missing", close.unwrap_or('}')))),
                _ => return Err(self.lexer.flaw(format!("{} stands where a field's name should", self.lexer.shown()))),
            }
            if !self.lexer.eat(';')? {
                self.lexer.eat(',')?;
            }
        }
        packed.flush(out);
        if close.is_some() {
            self.lexer.bump()?;
        }
        Ok(())
    }

    fn named_field(
        &mut self,
        message: Option<usize>,
        depth: u32,
        seen: &mut Vec<u32>,
        packed: &mut Packed,
        out: &mut Vec<u8>,
    ) -> Found<()> {
        let schema = self.schema;
        let Token::Name(name) = self.lexer.peek() else { return Ok(()) };
        let message = message.map(|message| &schema.messages[message]);
        let field = message.and_then(|message| message.named(name));
        let Some(field) = field else {
            return Err(self.lexer.flaw(format!("{} has no field '{name}'", message.map_or("an unknown message", |message| message.name))));
        };
        if !field.repeated && !matches!(field.kind, Kind::Message(_)) {
            if seen.contains(&field.number) {
                return Err(self.lexer.flaw(format!("'{name}' stands there twice")));
            }
            seen.push(field.number);
        }
        if packed.number != field.number {
            packed.flush(out);
            packed.number = field.number;
        }
        self.lexer.bump()?;
        let colon = self.lexer.eat(':')?;
        let needs_no_colon = matches!(field.kind, Kind::Message(_)) && matches!(self.lexer.peek(), Token::Symbol('{' | '<' | '['));
        if !(colon || needs_no_colon) {
            return Err(self.lexer.flaw(format!("':' is missing after '{}'", field.name)));
        }
        if !(field.repeated && self.lexer.eat('[')?) {
            return self.value(field, depth, packed, out);
        }
        if self.lexer.eat(']')? {
            return Ok(());
        }
        loop {
            self.value(field, depth, packed, out)?;
            if self.lexer.eat(']')? {
                return Ok(());
            }
            if !self.lexer.eat(',')? {
                return Err(self.lexer.flaw(format!("{} stands where ',' or ']' should", self.lexer.shown())));
            }
        }
    }

    fn value(&mut self, field: &FieldType, depth: u32, packed: &mut Packed, out: &mut Vec<u8>) -> Found<()> {
        let number = field.number;
        match field.kind {
            Kind::Message(message) => return self.message(Some(message), number, depth, out),
            Kind::String | Kind::Bytes => {
                let text = self.text()?;
                if field.kind == Kind::String && std::str::from_utf8(&text).is_err() {
                    return Err(self.lexer.flaw(format!("the text of '{}' is not UTF-8", field.name)));
                }
                put_bytes(out, number, &text);
                return Ok(());
            }
            _ => {}
        }
        if field.repeated && field.kind.is_packed() {
            return self.scalar(field.kind, &mut packed.bytes, |out, wire| match wire {
                Wire::Varint(value) => write_varint(out, value),
                Wire::Fixed32(bits) => out.extend(bits.to_le_bytes()),
                Wire::Fixed64(bits) => out.extend(bits.to_le_bytes()),
            });
        }
        self.scalar(field.kind, out, |out, wire| match wire {
            Wire::Varint(value) => put_varint(out, number, value),
            Wire::Fixed32(bits) => put_fixed32(out, number, bits),
            Wire::Fixed64(bits) => put_fixed64(out, number, bits),
        })
    }

    fn message(&mut self, message: Option<usize>, number: u32, depth: u32, out: &mut Vec<u8>) -> Found<()> {
        if depth >= MAX_DEPTH {
            return Err(self.lexer.flaw(format!("messages lie more than {MAX_DEPTH} deep in each other")));
        }
        let close = match self.lexer.peek() {
            Token::Symbol('{') => '}',
            Token::Symbol('<') => '>',
            _ => return Err(self.lexer.flaw(format!("{} stands where a message's '{{' should", self.lexer.shown()))),
        };
        self.lexer.bump()?;
        let mut inner = Vec::new();
        self.fields(message, Some(close), depth + 1, &mut inner)?;
        put_bytes(out, number, &inner);
        Ok(())
    }

    fn text(&mut self) -> Found<Vec<u8>> {
        let mut text = match self.lexer.peek() {
            Token::Text(_) => Vec::new(),
            _ => return Err(self.lexer.flaw(format!("{} stands where a text in quotes should", self.lexer.shown()))),
        };
        while let Token::Text(part) = self.lexer.peek() {
            text.extend_from_slice(part);
            self.lexer.bump()?;
        }
        Ok(text)
    }

    fn scalar(&mut self, kind: Kind, out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>, Wire)) -> Found<()> {
        let negative = self.lexer.eat('-')?;
        let read = match self.lexer.peek() {
            Token::Name(word) | Token::Number(word) => self.read_scalar(kind, negative, word),
            _ => None,
        };
        let Some(wire) = read else {
            let sign = if negative { "-" } else { "" };
            return Err(self.lexer.flaw(format!("{sign}{} is not of type {}", self.lexer.shown(), self.name_of(kind))));
        };
        self.lexer.bump()?;
        put(out, wire);
        Ok(())
    }

    fn read_scalar(&self, kind: Kind, negative: bool, word: &str) -> Option<Wire> {
        let integer = || {
            let magnitude = i128::from(read_unsigned(word)?);
            Some(if negative { -magnitude } else { magnitude })
        };
        let signed = |value: i64| Wire::Varint(value as u64);
        Some(match kind {
            Kind::Int32 => signed(i64::from(i32::try_from(integer()?).ok()?)),
            Kind::Int64 => signed(i64::try_from(integer()?).ok()?),
            Kind::Uint32 => Wire::Varint(u64::from(u32::try_from(integer()?).ok()?)),
            Kind::Uint64 => Wire::Varint(u64::try_from(integer()?).ok()?),
            Kind::Sint64 => {
                let value = i64::try_from(integer()?).ok()?;
                signed((value << 1) ^ (value >> 63))
            }
            Kind::Fixed32 => Wire::Fixed32(u32::try_from(integer()?).ok()?),
            Kind::Fixed64 => Wire::Fixed64(u64::try_from(integer()?).ok()?),
            Kind::Bool if negative => return None,
            Kind::Bool => match word {
                "true" | "True" | "t" | "1" => Wire::Varint(1),
                "false" | "False" | "f" | "0" => Wire::Varint(0),
                _ => return None,
            },
            Kind::Float => {
                let value: f32 = read_float(word)?;
                Wire::Fixed32(if negative { -value } else { value }.to_bits())
            }
            Kind::Double => {
                let value: f64 = read_float(word)?;
                Wire::Fixed64(if negative { -value } else { value }.to_bits())
            }
            Kind::Enum(index) => match self.schema.enums[index].values.iter().find(|(name, _)| *name == word) {
                Some((_, number)) if !negative => signed(i64::from(*number)),
                _ => signed(i64::from(i32::try_from(integer()?).ok()?)),
            },
            Kind::String | Kind::Bytes | Kind::Message(_) => return None,
        })
    }

    fn name_of(&self, kind: Kind) -> &'static str {
        match kind {
            Kind::Int32 => "int32",
            Kind::Int64 | Kind::Sint64 => "int64",
            Kind::Uint32 | Kind::Fixed32 => "uint32",
            Kind::Uint64 | Kind::Fixed64 => "uint64",
            Kind::Bool => "bool",
            Kind::Float => "float",
            Kind::Double => "double",
            Kind::String | Kind::Bytes => "text",
            Kind::Enum(index) => self.schema.enums[index].name,
            Kind::Message(index) => self.schema.messages[index].name,
        }
    }

    /// `7: 3` is a varint, `7: 0x00000003` four bytes, sixteen digits eight bytes, a text or `{ … }` bytes.
    fn numbered_field(&mut self, depth: u32, out: &mut Vec<u8>) -> Found<()> {
        let Token::Number(word) = self.lexer.peek() else { return Ok(()) };
        let number = word.parse().ok().filter(|number| (1..1 << 29).contains(number));
        let Some(number) = number else {
            return Err(self.lexer.flaw(format!("'{word}' is not a field number")));
        };
        self.lexer.bump()?;
        self.lexer.eat(':')?;
        match self.lexer.peek() {
            Token::Symbol('{' | '<') => return self.message(None, number, depth, out),
            Token::Text(_) => {
                let text = self.text()?;
                put_bytes(out, number, &text);
                return Ok(());
            }
            Token::Number(word) => {
                let Some(value) = read_unsigned(word) else {
                    return Err(self.lexer.flaw(format!("'{word}' is not a 64-bit number")));
                };
                match (word.starts_with("0x"), word.len()) {
                    (true, 10) => put_fixed32(out, number, value as u32),
                    (true, 18) => put_fixed64(out, number, value),
                    _ => put_varint(out, number, value),
                }
            }
            _ => return Err(self.lexer.flaw(format!("{} stands where a value should", self.lexer.shown()))),
        }
        self.lexer.bump().map(drop)
    }
}

/// A number as it goes on the wire.
#[derive(Clone, Copy)]
enum Wire {
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
}

/// Decimal, octal with a leading 0, or hexadecimal with 0x.
fn read_unsigned(word: &str) -> Option<u64> {
    let digits =
        |text: &str, radix| text.bytes().all(|byte| byte.is_ascii_alphanumeric()).then(|| u64::from_str_radix(text, radix).ok())?;
    if let Some(hexadecimal) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        return digits(hexadecimal, 16);
    }
    match word.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => digits(octal, 8),
        _ => digits(word, 10),
    }
}

/// Decimal with an optional `f` behind it, or `inf`, `infinity`, `nan` in any case.
fn read_float<F: std::str::FromStr>(word: &str) -> Option<F> {
    match word.to_ascii_lowercase().as_str() {
        lower @ ("inf" | "infinity" | "nan") => lower.parse().ok(),
        lower if lower.starts_with(|first: char| first.is_ascii_digit() || first == '.') => {
            lower.strip_suffix('f').unwrap_or(lower).parse().ok()
        }
        _ => None,
    }
}
