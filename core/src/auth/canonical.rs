//! The one text of a JSON value that both sides of a proof sign (admin.md §3.2).
//!
//! JSON without whitespace, members by the UTF-16 code units of their keys, numbers and escapes as
//! ECMAScript writes them. Bodies are read here from their raw text, because lone surrogates must stay
//! what they are and Rust's strings cannot hold them. Knows no command. Called by `proof` alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::{Error, ErrorKind, Result};

/// Most bytes of a body that is signed.
pub(super) const MAX_BODY: usize = 1 << 20;
/// Deeper nesting is refused (P20).
const MAX_DEPTH: usize = 512;

/// A JSON value. Texts are UTF-16: their order is the order of keys, and lone surrogates fit in.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(Vec<u16>),
    List(Vec<Value>),
    /// Of members that stand there twice the last.
    Object(BTreeMap<Vec<u16>, Value>),
}

impl Value {
    /// Reads a whole text.
    ///
    /// # Errors
    /// `bad_command` for what is no JSON, nested too deeply, longer than [`MAX_BODY`], or a number that
    /// no double can hold; what stands in it is not repeated.
    pub(super) fn parse(text: &str) -> Result<Self> {
        if text.len() > MAX_BODY {
            return Err(refused("it is too long"));
        }
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.blank();
        match reader.at == text.len() {
            true => Ok(value),
            false => Err(refused("something comes behind its end")),
        }
    }

    /// What JavaScript takes for false.
    pub(super) fn is_falsy(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Number(number) => *number == 0.0,
            Self::Text(text) => text.is_empty(),
            Self::List(_) | Self::Object(_) => false,
        }
    }

    /// A member of an object; `None` for anything else too.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.get(&name.encode_utf16().collect::<Vec<u16>>()),
            _ => None,
        }
    }

    /// A text without lone surrogates; `None` for anything else.
    pub(super) fn as_text(&self) -> Option<String> {
        match self {
            Self::Text(text) => String::from_utf16(text).ok(),
            _ => None,
        }
    }

    /// The text that is signed.
    pub(super) fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            // Minus zero is 0 in ECMAScript.
            Self::Number(number) if *number == 0.0 => out.push('0'),
            Self::Number(number) => out.push_str(ryu_js::Buffer::new().format_finite(*number)),
            Self::Text(text) => write_text(text, out),
            Self::List(list) => {
                out.push('[');
                for (at, value) in list.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    value.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    write_text(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

fn write_text(text: &[u16], out: &mut String) {
    out.push('"');
    for unit in char::decode_utf16(text.iter().copied()) {
        match unit {
            Ok('"') => out.push_str("\\\""),
            Ok('\\') => out.push_str("\\\\"),
            Ok('\u{8}') => out.push_str("\\b"),
            Ok('\u{c}') => out.push_str("\\f"),
            Ok('\n') => out.push_str("\\n"),
            Ok('\r') => out.push_str("\\r"),
            Ok('\t') => out.push_str("\\t"),
            Ok(control @ '\0'..='\u{1f}') => {
                // Writing to a text cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            Ok(other) => out.push(other),
            Err(lone) => {
                let _ = write!(out, "\\u{:04x}", lone.unpaired_surrogate());
            }
        }
    }
    out.push('"');
}

fn refused(why: &str) -> Error {
    Error::new(ErrorKind::BadCommand, format!("no JSON: {why}"))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Whether this byte comes next, which is passed then.
    fn passes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        match self.passes(byte) {
            true => Ok(()),
            false => Err(refused("something is missing")),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value> {
        match self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            true => {
                self.at += word.len();
                Ok(value)
            }
            false => Err(refused("a word that it does not know")),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > MAX_DEPTH {
            return Err(refused("it is nested too deeply"));
        }
        self.blank();
        match self.peek() {
            Some(b'n') => self.word("null", Value::Null),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'"') => Ok(Value::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'[') => self.list(depth),
            Some(b'{') => self.object(depth),
            _ => Err(refused("a value is missing")),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value> {
        let mut list = Vec::new();
        self.at += 1;
        self.blank();
        if self.passes(b']') {
            return Ok(Value::List(list));
        }
        loop {
            list.push(self.value(depth + 1)?);
            self.blank();
            if self.passes(b']') {
                return Ok(Value::List(list));
            }
            self.expect(b',')?;
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value> {
        let mut members = BTreeMap::new();
        self.at += 1;
        self.blank();
        if self.passes(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.blank();
            let key = match self.peek() {
                Some(b'"') => self.string()?,
                _ => return Err(refused("a key is missing")),
            };
            self.blank();
            self.expect(b':')?;
            members.insert(key, self.value(depth + 1)?);
            self.blank();
            if self.passes(b'}') {
                return Ok(Value::Object(members));
            }
            self.expect(b',')?;
        }
    }

    /// The digits that come next; how many.
    fn digits(&mut self) -> usize {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Value> {
        let start = self.at;
        self.passes(b'-');
        let is_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        let mut is_right = whole == 1 || (whole > 1 && !is_zero);
        if self.passes(b'.') {
            is_right &= self.digits() > 0;
        }
        if self.passes(b'e') || self.passes(b'E') {
            let _sign = self.passes(b'+') || self.passes(b'-');
            is_right &= self.digits() > 0;
        }
        let number = self.text[start..self.at].parse::<f64>();
        match number {
            Ok(number) if is_right && number.is_finite() => Ok(Value::Number(number)),
            _ => Err(refused("a number that none can hold")),
        }
    }

    fn string(&mut self) -> Result<Vec<u16>> {
        let mut units = Vec::new();
        self.at += 1;
        loop {
            let start = self.at;
            while self
                .peek()
                .is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1f))
            {
                self.at += 1;
            }
            units.extend(self.text[start..self.at].encode_utf16());
            if self.passes(b'"') {
                return Ok(units);
            }
            if !self.passes(b'\\') {
                return Err(refused("a text without its end"));
            }
            units.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<u16> {
        let escape = self
            .peek()
            .ok_or_else(|| refused("a text without its end"))?;
        self.at += 1;
        Ok(u16::from(match escape {
            b'"' | b'\\' | b'/' => escape,
            b'b' => 8,
            b'f' => 0xc,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let digits = self.text.as_bytes().get(self.at..self.at + 4);
                let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
                let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
                let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
                self.at += 4;
                return unit.ok_or_else(|| refused("a wrong escape"));
            }
            _ => return Err(refused("a wrong escape")),
        }))
    }
}

#[cfg(test)]
mod tests;
