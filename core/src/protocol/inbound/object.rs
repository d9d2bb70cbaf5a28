//! The text of an event → the raw text of the members we know, and rules to read those.
//!
//! One pass checks everything as JSON; values stay text until somebody asks. The
//! readers below take `Option<&str>`, and `null` is the same as absent (P14). Knows no verb.

use std::borrow::Cow;
use std::time::Duration;

use crate::model::{duration_from_number, duration_from_text};
use crate::protocol::scan::Scanner;
use crate::{Error, ErrorKind, Result};

use super::{Answer, Refused};

/// A set of known members, each the raw JSON text of its last occurrence.
pub(super) trait Members<'a>: Sized {
    /// Nothing given.
    fn empty() -> Self;
    /// Where the member of this name goes; `None` if it is unknown.
    fn slot(&mut self, name: &[u8]) -> Option<&mut Option<&'a str>>;
}

/// Declares a [`Members`] struct: `field` or `field = "nameOnTheWire"`.
macro_rules! members {
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $text:literal) => { $text };
    ($vis:vis struct $name:ident { $($field:ident $(= $text:literal)?),+ $(,)? }) => {
        #[derive(Default)]
        $vis struct $name<'a> { $($field: Option<&'a str>,)+ }

        impl<'a> $crate::protocol::inbound::object::Members<'a> for $name<'a> {
            fn empty() -> Self {
                Self::default()
            }

            #[inline]
            fn slot(&mut self, name: &[u8]) -> Option<&mut Option<&'a str>> {
                $(
                    if name == members!(@name $field $($text)?).as_bytes() {
                        return Some(&mut self.$field);
                    }
                )+
                None
            }
        }
    };
}
pub(super) use members;

/// What the first argument of an event turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload {
    /// An object, or a string that holds one.
    Object,
    /// A string that holds no JSON.
    Text,
    /// JSON of another type, or a string that holds such.
    Other,
    /// There is no argument.
    Missing,
}

impl Payload {
    /// The refusal that is usual for anything but an object.
    #[inline]
    pub(super) fn object(self, answer: Answer) -> Result<(), Refused> {
        match self {
            Self::Object => Ok(()),
            Self::Text => Err(Refused::new(
                Answer::Ignore,
                ErrorKind::BadCommand,
                "the payload is a string that holds no JSON",
            )),
            Self::Other | Self::Missing => Err(Refused::new(
                answer,
                ErrorKind::BadCommand,
                "the payload must be an object",
            )),
        }
    }
}

/// An event's arguments after its name.
#[derive(Clone)]
pub(super) struct Args<'a>(Scanner<'a>);

impl<'a> Args<'a> {
    /// The event's name, and the rest; `None` if the text does not begin as an array with a string.
    pub(super) fn open(args: &'a str) -> Option<(Cow<'a, str>, Self)> {
        let mut scanner = Scanner::new(args);
        if !scanner.take(b'[') {
            return None;
        }
        let name = text(Some(scanner.string()?), "name").ok().flatten()?;
        Some((name, Self(scanner)))
    }

    /// Reads the first argument into `members`. `scratch` takes the decoded text if it is a string.
    #[inline]
    pub(super) fn read<M: Members<'a>>(
        mut self,
        members: &mut M,
        scratch: &'a mut String,
    ) -> Result<Payload, Refused> {
        if !self.0.take(b',') {
            return self.end().map(|()| Payload::Missing);
        }
        match self.0.peek() {
            Some(b'{') => {
                read_members(&mut self.0, members).ok_or_else(Refused::frame)?;
                self.end().map(|()| Payload::Object)
            }
            Some(b'"') => {
                let raw = self.0.string().ok_or_else(Refused::frame)?;
                self.end()?;
                let Ok(Some(decoded)) = text(Some(raw), "payload") else {
                    return Ok(Payload::Text);
                };
                let Some(json) = decode(decoded, scratch) else {
                    return Ok(Payload::Text);
                };
                let read = read_members(&mut Scanner::new(json), members);
                Ok(read.map_or(Payload::Other, |()| Payload::Object))
            }
            _ => {
                self.0.value().ok_or_else(Refused::frame)?;
                self.end().map(|()| Payload::Other)
            }
        }
    }

    /// Reads the members of an object, or says with `answer` that it is none.
    #[inline]
    pub(super) fn members<M: Members<'a>>(
        self,
        scratch: &'a mut String,
        answer: Answer,
    ) -> Result<M, Refused> {
        let mut members = M::empty();
        self.read(&mut members, scratch)?.object(answer)?;
        Ok(members)
    }

    /// The raw text of the first argument, if there is one.
    pub(super) fn raw(mut self) -> Result<Option<&'a str>, Refused> {
        let mut raw = None;
        if self.0.take(b',') {
            raw = Some(self.0.value().ok_or_else(Refused::frame)?);
        }
        self.end()?;
        Ok(raw)
    }

    /// The first argument as text; anything else is ignored.
    pub(super) fn text(self) -> Result<Cow<'a, str>, Refused> {
        let message = "the payload must be a string";
        text(self.raw()?, "payload")
            .ok()
            .flatten()
            .ok_or_else(|| Refused::new(Answer::Ignore, ErrorKind::BadCommand, message))
    }

    /// The raw text of the first argument if it is an object or a string that holds one.
    pub(super) fn object(self, scratch: &'a mut String) -> Result<Option<&'a str>, Refused> {
        let raw = match self.raw()? {
            Some(raw) if raw.starts_with('"') => text(Some(raw), "payload")
                .ok()
                .flatten()
                .and_then(|decoded| decode(decoded, scratch)),
            other => other,
        };
        Ok(raw.filter(|raw| raw.starts_with('{')))
    }

    /// Further arguments are checked as JSON and ignored.
    #[inline]
    fn end(mut self) -> Result<(), Refused> {
        while self.0.take(b',') {
            self.0.value().ok_or_else(Refused::frame)?;
        }
        if self.0.take(b']') && self.0.is_at_end() {
            Ok(())
        } else {
            Err(Refused::frame())
        }
    }
}

/// The JSON that a decoded payload string holds, kept in `scratch`; `None` if it holds none.
fn decode<'a>(decoded: Cow<'_, str>, scratch: &'a mut String) -> Option<&'a str> {
    scratch.clear();
    scratch.push_str(&decoded);
    let mut scanner = Scanner::new(scratch);
    let json = scanner.value()?;
    scanner.is_at_end().then_some(json)
}

#[inline]
fn read_members<'a, M: Members<'a>>(scanner: &mut Scanner<'a>, members: &mut M) -> Option<()> {
    scanner.object(|name, value| {
        let plain = name.get(1..name.len() - 1).unwrap_or_default();
        if let Some(slot) = members.slot(plain.as_bytes()) {
            *slot = Some(value);
        } else if plain.contains('\\') {
            // A name that cannot be decoded holds half a surrogate pair: none of ours.
            let decoded = text(Some(name), "name").ok().flatten().unwrap_or_default();
            if let Some(slot) = members.slot(decoded.as_bytes()) {
                *slot = Some(value);
            }
        }
    })
}

/// The members of an object that stands alone or inside another; `None` if it is anything else.
pub(super) fn nested<'a, M: Members<'a>>(raw: Option<&'a str>) -> Option<M> {
    let mut scanner = Scanner::new(raw?);
    let mut members = M::empty();
    read_members(&mut scanner, &mut members)?;
    scanner.is_at_end().then_some(members)
}

/// The raw text, `null` being absent.
pub(super) fn present(raw: Option<&str>) -> Option<&str> {
    raw.filter(|raw| *raw != "null")
}

/// Whether there is a value, `null` being none.
pub(super) fn is_present(raw: Option<&str>) -> bool {
    present(raw).is_some()
}

fn bad(what: &str, must: &str) -> Error {
    Error::new(ErrorKind::BadCommand, format!("{what} must be {must}"))
}

/// A string.
pub(super) fn text<'a>(raw: Option<&'a str>, what: &str) -> Result<Option<Cow<'a, str>>> {
    let Some(raw) = present(raw) else {
        return Ok(None);
    };
    let inner = raw
        .strip_prefix('"')
        .and_then(|raw| raw.strip_suffix('"'))
        .ok_or_else(|| bad(what, "a text"))?;
    if !inner.contains('\\') {
        return Ok(Some(Cow::Borrowed(inner)));
    }
    match serde_json::from_str(raw) {
        Ok(text) => Ok(Some(Cow::Owned(text))),
        Err(_) => Err(bad(what, "a text without halves of surrogate pairs")),
    }
}

/// Whether JavaScript takes the value for true.
pub(super) fn truthy(raw: Option<&str>) -> bool {
    match raw {
        None | Some("null" | "false" | "\"\"") => false,
        Some("true") => true,
        Some(raw) => raw.parse() != Ok(0.0),
    }
}

/// A whole number from 0.
pub(super) fn unsigned(raw: Option<&str>, what: &str) -> Result<Option<u64>> {
    let Some(raw) = present(raw) else {
        return Ok(None);
    };
    if let Ok(number) = raw.parse() {
        return Ok(Some(number));
    }
    // `3.0` and `1e3` are whole numbers too.
    match raw.parse::<f64>() {
        Ok(number)
            if number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number) =>
        {
            Ok(Some(number as u64))
        }
        _ => Err(bad(what, "a whole number from 0")),
    }
}

/// A duration (P14).
pub(super) fn duration(raw: Option<&str>, option: &str) -> Result<Option<Duration>> {
    let Some(raw) = present(raw) else {
        return Ok(None);
    };
    if raw.starts_with('"') {
        let text = text(Some(raw), option)?.unwrap_or_default();
        return duration_from_text(option, &text).map(Some);
    }
    if let Ok(seconds) = raw.parse() {
        return Ok(Some(Duration::from_secs(seconds)));
    }
    // What is neither number nor string is refused with the same words as a bad number.
    duration_from_number(option, raw.parse().unwrap_or(f64::NAN)).map(Some)
}

/// The raw elements of an array of at most `max`.
pub(super) fn list<'a>(raw: Option<&'a str>, what: &str, max: usize) -> Result<Vec<&'a str>> {
    let mut elements = Vec::new();
    Scanner::new(raw.unwrap_or_default())
        .array(|element| {
            elements.push(element);
            elements.len() <= max
        })
        .ok_or_else(|| bad(what, &format!("a list of at most {max}")))?;
    Ok(elements)
}

/// Whether it is an object whose values are all strings.
pub(super) fn strings(raw: &str) -> bool {
    let mut strings = true;
    let walked = Scanner::new(raw).object(|_, value| strings &= value.starts_with('"'));
    walked.is_some() && strings
}
