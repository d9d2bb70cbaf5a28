//! Walks JSON text and checks it on the way: raw values out, nothing built.
//!
//! Faster than a general parser where all that is wanted is where a value ends, and complete: what
//! it takes is JSON, since consumers' parsers must take it too. Nothing recurses. Tested against
//! `serde_json` byte by byte. Knows no verb.

/// A place in JSON text. Every method skips blanks first and gives `None` or `false` at whatever
/// is not as asked for; after that the place means nothing any more.
#[derive(Debug, Clone)]
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next byte, not taken.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Takes the next byte if it is `wanted`.
    #[inline]
    pub(super) fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    /// Whether nothing is left.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// A string, raw, with its quotes.
    #[inline]
    pub(super) fn string(&mut self) -> Option<&'a str> {
        self.peek()?;
        let start = self.at;
        self.skip_string()?;
        self.text.get(start..self.at)
    }

    /// Any value, raw.
    #[inline]
    pub(super) fn value(&mut self) -> Option<&'a str> {
        let byte = self.peek()?;
        let start = self.at;
        match byte {
            b'{' | b'[' => self.skip_nested()?,
            _ => self.skip_scalar(byte)?,
        }
        self.text.get(start..self.at)
    }

    /// An object: `each` gets the raw names, with quotes, and the raw values.
    #[inline]
    pub(super) fn object(&mut self, mut each: impl FnMut(&'a str, &'a str)) -> Option<()> {
        if !self.take(b'{') {
            return None;
        }
        if self.take(b'}') {
            return Some(());
        }
        loop {
            let name = self.string()?;
            if !self.take(b':') {
                return None;
            }
            each(name, self.value()?);
            if !self.take(b',') {
                return self.take(b'}').then_some(());
            }
        }
    }

    /// An array: `each` gets the raw elements until it says `false`, which gives `None`.
    pub(super) fn array(&mut self, mut each: impl FnMut(&'a str) -> bool) -> Option<()> {
        if !self.take(b'[') {
            return None;
        }
        if self.take(b']') {
            return Some(());
        }
        loop {
            if !each(self.value()?) {
                return None;
            }
            if !self.take(b',') {
                return self.take(b']').then_some(());
            }
        }
    }

    /// An object or array. What is open is kept as bits, not on the stack of calls.
    fn skip_nested(&mut self) -> Option<()> {
        let mut open = Nesting::default();
        loop {
            let byte = self.peek()?;
            match byte {
                b'{' | b'[' => {
                    let is_object = byte == b'{';
                    self.at += 1;
                    if !self.take(if is_object { b'}' } else { b']' }) {
                        open.push(is_object);
                        if is_object {
                            self.skip_name()?;
                        }
                        continue;
                    }
                }
                _ => self.skip_scalar(byte)?,
            }
            // A value has ended: so may what it stands in.
            loop {
                let Some(is_object) = open.is_object() else {
                    return Some(());
                };
                if self.take(b',') {
                    if is_object {
                        self.skip_name()?;
                    }
                    break;
                }
                if !self.take(if is_object { b'}' } else { b']' }) {
                    return None;
                }
                open.pop();
            }
        }
    }

    fn skip_name(&mut self) -> Option<()> {
        self.peek()?;
        self.skip_string()?;
        self.take(b':').then_some(())
    }

    #[inline]
    fn skip_scalar(&mut self, byte: u8) -> Option<()> {
        match byte {
            b'"' => self.skip_string(),
            b'-' | b'0'..=b'9' => self.skip_number(),
            b't' => self.skip_word("true"),
            b'f' => self.skip_word("false"),
            b'n' => self.skip_word("null"),
            _ => None,
        }
    }

    fn skip_word(&mut self, word: &str) -> Option<()> {
        let found = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += word.len();
        found.then_some(())
    }

    fn skip_number(&mut self) -> Option<()> {
        self.skip_one(b"-");
        if !self.skip_one(b"0") {
            self.skip_digits()?;
        }
        if self.skip_one(b".") {
            self.skip_digits()?;
        }
        if self.skip_one(b"eE") {
            self.skip_one(b"+-");
            self.skip_digits()?;
        }
        Some(())
    }

    fn skip_one(&mut self, of: &[u8]) -> bool {
        let byte = self.text.as_bytes().get(self.at);
        let found = byte.is_some_and(|byte| of.contains(byte));
        self.at += usize::from(found);
        found
    }

    fn skip_digits(&mut self) -> Option<()> {
        let rest = &self.text.as_bytes()[self.at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        (digits > 0).then_some(())
    }

    #[inline]
    fn skip_string(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        if bytes.get(self.at) != Some(&b'"') {
            return None;
        }
        self.at += 1;
        loop {
            self.at += plain_length(&bytes[self.at..]);
            match bytes.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.skip_escape()?,
                // A control character must be escaped.
                _ => return None,
            }
        }
    }

    fn skip_escape(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        match bytes.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
            b'u' => {
                let digits = bytes.get(self.at + 2..self.at + 6)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                self.at += 6;
            }
            _ => return None,
        }
        Some(())
    }
}

/// How many bytes there are before a quote, a backslash or a control character.
#[inline]
pub(super) fn plain_length(bytes: &[u8]) -> usize {
    // Names end within a word or two …
    let (words, _) = bytes.as_chunks::<8>();
    let mut length = 0;
    for word in words.iter().take(2) {
        if let Some(plain) = plain_in_word(*word) {
            return length + plain;
        }
        length += 8;
    }
    // … long texts go by what the processor has: to the end of the text first, then back over it.
    let rest = &bytes[length..];
    let end = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
    let text = &rest[..end];
    if text.iter().fold(u8::MAX, |least, byte| least.min(*byte)) >= CONTROL {
        return length + end;
    }
    length + text.iter().take_while(|byte| **byte >= CONTROL).count()
}

/// Bytes below are control characters.
const CONTROL: u8 = 0x20;

/// How many of eight bytes come before the first special one; `None` if none is special.
#[inline]
fn plain_in_word(word: [u8; 8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES * 0x80;
    let word = u64::from_le_bytes(word);
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    // Sets the high bit of each byte that is zero (or, in the last term, below 0x20). A borrow may
    // mark bytes above a marked one wrongly, never the lowest, and only that is asked for.
    let marks = (quote.wrapping_sub(ONES) & !quote)
        | (backslash.wrapping_sub(ONES) & !backslash)
        | (word.wrapping_sub(ONES * 0x20) & !word);
    let marks = marks & HIGH;
    (marks != 0).then(|| (marks.trailing_zeros() / 8) as usize)
}

/// The kinds of what is open, one bit each; above 64 levels the older ones are set aside.
#[derive(Default)]
struct Nesting {
    bits: u64,
    depth: usize,
    older: Vec<u64>,
}

impl Nesting {
    fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.older.push(self.bits);
        }
        self.bits = self.bits << 1 | u64::from(is_object);
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.bits >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.bits = self.older.pop().unwrap_or_default();
        }
    }

    /// Whether the innermost is an object; `None` if nothing is open.
    fn is_object(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.bits & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    use super::*;

    fn is_json(text: &str) -> bool {
        let mut scanner = Scanner::new(text);
        scanner.value().is_some() && scanner.is_at_end()
    }

    fn agree(text: &str) {
        let expected = serde_json::from_str::<IgnoredAny>(text).is_ok();
        assert_eq!(is_json(text), expected, "{text:?}");
    }

    const SAMPLE: &str =
        r#" {"a":[1,-2.5e+3,0,true,false,null,{}],"\u00e9\n":"é😀\\\"x","b":{"c":[[],[{}]]}} "#;

    #[test]
    fn every_byte_at_every_place_is_judged_as_serde_json_does() {
        agree(SAMPLE);
        let places: Vec<usize> = SAMPLE.char_indices().map(|(at, _)| at).collect();
        for at in places {
            agree(&SAMPLE[..at]);
            let (before, after) = SAMPLE.split_at(at);
            let next = after.chars().next().map_or(0, char::len_utf8);
            for byte in 0..=0x7fu8 {
                let byte = char::from(byte);
                agree(&format!("{before}{byte}{after}"));
                agree(&format!("{before}{byte}{}", &after[next..]));
            }
            agree(&format!("{before}{}", &after[next..]));
        }
    }

    #[test]
    fn levels_beyond_sixty_four_are_closed_by_their_own_kind() {
        for depth in [1, 63, 64, 65, 127, 128, 129, 300] {
            let kinds: Vec<bool> = (0..depth).map(|n| n % 3 == 0).collect();
            let open: String = kinds
                .iter()
                .map(|k| if *k { "{\"a\":" } else { "[" })
                .collect();
            let close: String = kinds
                .iter()
                .rev()
                .map(|k| if *k { '}' } else { ']' })
                .collect();
            assert!(is_json(&format!("{open}1{close}")), "{depth}");
            let at = close.len() / 2;
            let other = if &close[at..=at] == "}" { "]" } else { "}" };
            assert!(!is_json(&format!(
                "{open}1{}{other}{}",
                &close[..at],
                &close[at + 1..]
            )));
        }
        let deep = 1_000_000;
        assert!(is_json(&format!(
            "{}{}",
            "[".repeat(deep),
            "]".repeat(deep)
        )));
    }

    #[test]
    fn a_special_byte_is_found_at_every_place_of_a_long_string() {
        for length in 0..200 {
            for special in ['"', '\\', '\u{1f}', '\0'] {
                let text = format!("{}{special}{}", "é".repeat(length), "x".repeat(140));
                assert_eq!(plain_length(text.as_bytes()), 2 * length);
            }
        }
        let plain = "\u{7f}\u{80}é !#[]".repeat(40);
        assert_eq!(plain_length(plain.as_bytes()), plain.len());
    }

    proptest! {
        #[test]
        fn any_text_is_judged_as_serde_json_does(text in r#"[\[\]{}":,\\truefalsn0-9eE+. \n-]{0,24}"#) {
            agree(&text);
        }

        #[test]
        fn any_string_is_judged_as_serde_json_does(text in r#"[ -~é😀\x00-\x20\\"]{0,200}"#) {
            agree(&format!("\"{text}\""));
        }

        #[test]
        fn members_and_elements_come_raw_and_in_order(
            values in prop::collection::vec(r#"[0-9]|"[a-z]{0,3}"|\[\]|\{"a": 1\}"#, 0..6),
        ) {
            let mut found = Vec::new();
            let array = format!("[ {} ]", values.join(" , "));
            let walked = Scanner::new(&array).array(|value| {
                found.push(value);
                true
            });
            prop_assert!(walked.is_some());
            prop_assert_eq!(&found, &values);
            let members: Vec<String> = values.iter().map(|value| format!("\"k\" : {value}")).collect();
            let object = format!("{{{}}}", members.join(","));
            let mut found = Vec::new();
            let walked = Scanner::new(&object).object(|name, value| found.push((name, value)));
            prop_assert!(walked.is_some());
            prop_assert!(found.iter().all(|(name, _)| *name == "\"k\""));
            prop_assert!(found.iter().map(|(_, value)| *value).eq(values.iter().map(String::as_str)));
        }
    }
}
