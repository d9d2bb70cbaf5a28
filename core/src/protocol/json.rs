//! JSON text: writing strings and numbers; nesting, placeholders and UTF-16 length of what came.
//!
//! Text that is looked at has been checked as JSON before. Knows no verb.

use super::scan;

/// Appends `text` as a JSON string with its quotes.
pub(super) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    put_escaped(out, text.as_bytes());
    out.push(b'"');
}

/// Appends UTF-8 text escaped, without quotes.
pub(super) fn put_escaped(out: &mut Vec<u8>, text: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    // Most names need no escape.
    if scan::plain_length(text) == text.len() {
        return out.extend_from_slice(text);
    }
    let mut plain = 0;
    for (at, &byte) in text.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text[plain..at]);
        plain = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            other => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(other >> 4)]);
                out.push(HEX[usize::from(other & 15)]);
            }
        }
    }
    out.extend_from_slice(&text[plain..]);
}

/// Appends a number in decimal.
pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// UTF-16 units of UTF-8 text: what JavaScript calls its length.
pub(super) fn utf16_units(text: &[u8]) -> usize {
    text.iter()
        .map(|byte| usize::from(byte & 0xc0 != 0x80) + usize::from(*byte >= 0xf0))
        .sum()
}

/// Whether arrays and objects are nested deeper than `max`.
pub(crate) fn is_deeper_than(json: &str, max: usize) -> bool {
    // Almost no text has that many brackets at all, and counting them is much cheaper.
    if json.len() <= max || memchr::memchr2_iter(b'[', b'{', json.as_bytes()).count() <= max {
        return false;
    }
    let mut depth = 0usize;
    for token in Tokens::new(json) {
        match token {
            Token::Open(_) => depth += 1,
            Token::Close => depth = depth.saturating_sub(1),
            Token::Member(_) | Token::Value(_) => {}
        }
        if depth > max {
            return true;
        }
    }
    false
}

/// Whether every Socket.IO placeholder (`{"_placeholder":true,"num":i}`) has `i < count`. Clients
/// close their connection on any other.
pub(super) fn placeholders_are_within(json: &str, count: usize) -> bool {
    #[derive(Default)]
    struct Level<'a> {
        is_placeholder: bool,
        number: Option<&'a str>,
        member: Member,
    }
    #[derive(Default, Clone, Copy)]
    enum Member {
        #[default]
        Other,
        Placeholder,
        Number,
    }
    let mut levels = vec![Level::default()];
    for token in Tokens::new(json) {
        match token {
            Token::Member(name) => {
                let decoded = name.contains('\\').then(|| serde_json::from_str(name).ok());
                let decoded: Option<String> = decoded.flatten();
                let name = decoded.as_deref().unwrap_or(name.trim_matches('"'));
                if let Some(level) = levels.last_mut() {
                    level.member = match name {
                        "_placeholder" => Member::Placeholder,
                        "num" => Member::Number,
                        _ => Member::Other,
                    };
                }
            }
            Token::Value(value) => put(levels.last_mut(), value),
            Token::Open(bracket) => {
                put(levels.last_mut(), bracket);
                levels.push(Level::default());
            }
            Token::Close => {
                if let Some(level) = levels.pop()
                    && level.is_placeholder
                {
                    let number = level.number.and_then(|number| number.parse::<f64>().ok());
                    // The client indexes an array with it: only whole numbers find anything.
                    let within = number.is_some_and(|number| {
                        number >= 0.0 && number.fract() == 0.0 && number < count as f64
                    });
                    if !within {
                        return false;
                    }
                }
            }
        }
    }
    return true;

    fn put<'a>(level: Option<&mut Level<'a>>, value: &'a str) {
        if let Some(level) = level {
            match level.member {
                Member::Placeholder => level.is_placeholder = value == "true",
                Member::Number => level.number = Some(value),
                Member::Other => {}
            }
            level.member = Member::Other;
        }
    }
}

/// A piece of checked JSON text.
enum Token<'a> {
    Open(&'a str),
    Close,
    /// An object member's name, with its quotes.
    Member(&'a str),
    /// A string, number, `true`, `false` or `null`.
    Value(&'a str),
}

struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The end of the string that begins at `start`.
    fn string_end(&self, start: usize) -> usize {
        let bytes = self.text.as_bytes();
        let mut at = start + 1;
        while let Some(found) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
            at += found;
            if bytes[at] == b'"' {
                return at + 1;
            }
            at += 2;
        }
        bytes.len()
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.text.as_bytes();
        let skip = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':');
        while bytes.get(self.at).is_some_and(skip) {
            self.at += 1;
        }
        let start = self.at;
        match bytes.get(start)? {
            b'{' | b'[' => {
                self.at += 1;
                Some(Token::Open(&self.text[start..self.at]))
            }
            b'}' | b']' => {
                self.at += 1;
                Some(Token::Close)
            }
            b'"' => {
                self.at = self.string_end(start);
                let text = &self.text[start..self.at];
                let next = bytes[self.at..]
                    .iter()
                    .find(|byte| !byte.is_ascii_whitespace());
                Some(match next {
                    Some(b':') => Token::Member(text),
                    _ => Token::Value(text),
                })
            }
            _ => {
                let ends = |byte: &u8| skip(byte) || matches!(byte, b']' | b'}');
                let length = bytes[start..].iter().position(ends);
                self.at = length.map_or(bytes.len(), |length| start + length);
                Some(Token::Value(&self.text[start..self.at]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nesting_is_counted_outside_strings_only() {
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(!is_deeper_than(&deep(512), 512));
        assert!(is_deeper_than(&deep(513), 512));
        let flat = format!("[{}1]", "[],".repeat(2000));
        assert!(!is_deeper_than(&flat, 512));
        let text = format!("[\"\\\"{}\"]", "[".repeat(2000));
        assert!(!is_deeper_than(&text, 512));
    }

    #[test]
    fn placeholders_must_name_an_attachment_that_is_there() {
        let within = |json: &str| placeholders_are_within(json, 2);
        assert!(within(r#"{"_placeholder":true,"num":1}"#));
        assert!(within(r#"{"a":[{"_placeholder":true,"num":0},{"num":9}]}"#));
        assert!(within(r#"{"_placeholder":false,"num":9}"#));
        assert!(within(
            r#"{"_placeholder":{"_placeholder":true,"num":0},"num":9}"#
        ));
        assert!(within(r#"["_placeholder",true,"num",7]"#));
        assert!(!within(r#"{"_placeholder":true,"num":2}"#));
        assert!(!within(r#"{"_placeholder":true,"num":-1}"#));
        assert!(!within(r#"{"_placeholder":true,"num":"0"}"#));
        assert!(!within(r#"{"_placeholder":true}"#));
        assert!(!within(r#"{"\u005fplaceholder" : true, "num": 2}"#));
        assert!(!within(
            r#"{"_placeholder":false,"_placeholder":true,"num":2}"#
        ));
        assert!(!within(r#"[[{"x":{"num":5,"_placeholder":true}}]]"#));
    }

    proptest! {
        #[test]
        fn a_written_string_is_read_back(text in any::<String>()) {
            let mut out = Vec::new();
            put_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn a_number_is_written_in_decimal(number in any::<u64>()) {
            let mut out = Vec::new();
            put_number(&mut out, number);
            prop_assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }

        #[test]
        fn units_are_those_of_utf16(text in any::<String>()) {
            prop_assert_eq!(utf16_units(text.as_bytes()), text.encode_utf16().count());
        }

        #[test]
        fn looking_at_any_text_never_panics(text in r#"[\[\]{}":,\\ a1é_]{0,40}"#) {
            is_deeper_than(&text, 3);
            placeholders_are_within(&text, 1);
        }
    }
}
