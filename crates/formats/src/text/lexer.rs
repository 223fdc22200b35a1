//! The words of the text form.

use crate::flaw::{Flaw, Found};

/// A word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A name, `true`, `inf`, an enumerator.
    Name(&'a str),
    /// A text that begins with a digit or a point.
    Number(&'a str),
    /// A text in quotes, its escapes resolved.
    Text(Vec<u8>),
    /// Any other character.
    Symbol(char),
    /// The end of the text.
    End,
}

/// Words one after the other, with one of them ahead.
pub(super) struct Lexer<'a> {
    text: &'a str,
    next: usize,
    /// Where `ahead` begins.
    start: usize,
    ahead: Token<'a>,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Found<Lexer<'a>> {
        let mut lexer = Lexer { text, next: 0, start: 0, ahead: Token::End };
        lexer.bump()?;
        Ok(lexer)
    }

    /// The word ahead.
    pub(super) fn peek(&self) -> &Token<'a> {
        &self.ahead
    }

    /// Takes the word ahead.
    pub(super) fn bump(&mut self) -> Found<Token<'a>> {
        self.skip_blanks();
        let start = self.next;
        let token = self.read()?;
        self.start = start;
        Ok(std::mem::replace(&mut self.ahead, token))
    }

    /// Takes the word ahead if it is this symbol.
    pub(super) fn eat(&mut self, symbol: char) -> Found<bool> {
        let found = self.ahead == Token::Symbol(symbol);
        if found {
            self.bump()?;
        }
        Ok(found)
    }

    /// A flaw of the word ahead.
    pub(super) fn flaw(&self, message: impl std::fmt::Display) -> Flaw {
        self.flaw_at(self.start, message)
    }

    /// How the word ahead is shown in a flaw.
    pub(super) fn shown(&self) -> String {
        match &self.ahead {
            Token::Name(text) | Token::Number(text) => format!("'{text}'"),
            Token::Text(_) => "a text".to_string(),
            Token::Symbol(symbol) => format!("'{}'", symbol.escape_debug()),
            Token::End => "the end".to_string(),
        }
    }

    fn flaw_at(&self, position: usize, message: impl std::fmt::Display) -> Flaw {
        let before = &self.text.as_bytes()[..position.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.len() - before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1) + 1;
        Flaw::invalid(format!("line {line}, column {column}: {message}"))
    }

    fn skip_blanks(&mut self) {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.next) {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => self.next += 1,
                b'#' => self.next += bytes[self.next..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - self.next),
                _ => break,
            }
        }
    }

    fn read(&mut self) -> Found<Token<'a>> {
        let rest = &self.text[self.next..];
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        let word = |accept: fn(u8) -> bool| rest.bytes().position(|byte| !accept(byte)).unwrap_or(rest.len());
        match first {
            'a'..='z' | 'A'..='Z' | '_' => {
                let length = word(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                self.next += length;
                Ok(Token::Name(&rest[..length]))
            }
            '0'..='9' | '.' => {
                let length = number_length(rest.as_bytes());
                self.next += length;
                Ok(Token::Number(&rest[..length]))
            }
            '"' | '\'' => self.read_text(first as u8).map(Token::Text),
            symbol => {
                self.next += symbol.len_utf8();
                Ok(Token::Symbol(symbol))
            }
        }
    }

    fn read_text(&mut self, quote: u8) -> Found<Vec<u8>> {
        let bytes = self.text.as_bytes();
        let start = self.next;
        let mut at = start + 1;
        let mut out = Vec::new();
        loop {
            let Some(&byte) = bytes.get(at).filter(|byte| **byte != b'\n') else {
                return Err(self.flaw_at(start, "a text is not closed on its line"));
            };
            at += 1;
            if byte == quote {
                self.next = at;
                return Ok(out);
            }
            if byte != b'\\' {
                out.push(byte);
                continue;
            }
            let taken = unescape(&bytes[at..], &mut out).ok_or_else(|| self.flaw_at(at - 1, "this escape means nothing"))?;
            at += taken;
        }
    }
}

/// Digits, letters and points, and a sign after an exponent's letter (not in hexadecimal).
fn number_length(bytes: &[u8]) -> usize {
    let hexadecimal = bytes.len() > 1 && bytes[0] == b'0' && bytes[1] | 0x20 == b'x';
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let sign = matches!(byte, b'+' | b'-') && !hexadecimal && at > 0 && bytes[at - 1] | 0x20 == b'e';
        if !(byte.is_ascii_alphanumeric() || *byte == b'.' || sign) {
            break;
        }
        at += 1;
    }
    at
}

/// Resolves the escape that follows a backslash; how many bytes it takes.
fn unescape(bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let simple = match bytes.first()? {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'v' => 0x0b,
        b'\\' => b'\\',
        b'\'' => b'\'',
        b'"' => b'"',
        b'?' => b'?',
        b'x' | b'X' => return radix(&bytes[1..], 16, 2).and_then(|(value, taken)| out_byte(value, out).map(|()| taken + 1)),
        b'u' => return code_point(bytes, 4, out),
        b'U' => return code_point(bytes, 8, out),
        b'0'..=b'7' => return radix(bytes, 8, 3).and_then(|(value, taken)| out_byte(value, out).map(|()| taken)),
        _ => return None,
    };
    out.push(simple);
    Some(1)
}

fn out_byte(value: u32, out: &mut Vec<u8>) -> Option<()> {
    out.push(u8::try_from(value).ok()?);
    Some(())
}

fn code_point(bytes: &[u8], digits: usize, out: &mut Vec<u8>) -> Option<usize> {
    let (value, taken) = radix(&bytes[1..], 16, digits)?;
    let point = char::from_u32(value).filter(|_| taken == digits)?;
    out.extend_from_slice(point.encode_utf8(&mut [0; 4]).as_bytes());
    Some(taken + 1)
}

/// The number that up to `most` digits at the start make, at least one.
fn radix(bytes: &[u8], radix: u32, most: usize) -> Option<(u32, usize)> {
    let (mut value, mut taken) = (0u32, 0);
    while let Some(digit) = bytes.get(taken).filter(|_| taken < most).and_then(|byte| (*byte as char).to_digit(radix)) {
        value = value.checked_mul(radix)?.checked_add(digit)?;
        taken += 1;
    }
    (taken > 0).then_some((value, taken))
}
