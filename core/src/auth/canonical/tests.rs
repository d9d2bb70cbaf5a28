//! The canonical text against its specification, a slow reference, and JavaScript itself.

use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::*;

fn canonical(text: &str) -> String {
    Value::parse(text).unwrap().canonical()
}

#[test]
fn numbers_look_as_in_ecmascript() {
    let pairs = [
        ("1.0", "1"),
        ("-0", "0"),
        ("-0.0e5", "0"),
        ("1e21", "1e+21"),
        ("1e20", "100000000000000000000"),
        ("123456789012345678901234", "1.2345678901234569e+23"),
        ("1e-6", "0.000001"),
        ("1E-7", "1e-7"),
        ("0.1", "0.1"),
        ("5e-324", "5e-324"),
        ("1e-400", "0"),
        ("9007199254740993", "9007199254740992"),
        ("-1.7976931348623157e308", "-1.7976931348623157e+308"),
    ];
    for (text, expected) in pairs {
        assert_eq!(canonical(text), expected, "{text}");
    }
}

#[test]
fn keys_stand_in_the_order_of_their_utf16_units() {
    let text = "{\"B\":4,\"a\":3,\"\u{1f600}\":2,\"\u{fb33}\":1,\"9\":6,\"10\":5}";
    let expected = "{\"10\":5,\"9\":6,\"B\":4,\"a\":3,\"\u{1f600}\":2,\"\u{fb33}\":1}";
    assert_eq!(canonical(text), expected);
}

#[test]
fn texts_are_escaped_as_in_ecmascript() {
    let text =
        r#" [ "\u00e9\/<>&\u007f\u2028\u2029\u0001\u000B\b\f\n\r\t\"\\" , "\ud83d\ude00" ] "#;
    let expected =
        "[\"é/<>&\u{7f}\u{2028}\u{2029}\\u0001\\u000b\\b\\f\\n\\r\\t\\\"\\\\\",\"\u{1f600}\"]";
    assert_eq!(canonical(text), expected);
}

#[test]
fn a_lone_surrogate_stays_what_it_is() {
    assert_eq!(
        canonical(r#"["\uD800","a\udfffb","\ude00\ud83d"]"#),
        r#"["\ud800","a\udfffb","\ude00\ud83d"]"#
    );
    // Two escapes that make one character are one character.
    assert_eq!(
        canonical(r#"{"\ud83d\ude00":"\ud83dx"}"#),
        "{\"\u{1f600}\":\"\\ud83dx\"}"
    );
}

#[test]
fn of_two_members_of_one_name_the_last_counts() {
    assert_eq!(
        canonical(r#"{"a":1,"b":2,"\u0061":{"c":3}}"#),
        r#"{"a":{"c":3},"b":2}"#
    );
}

#[test]
fn what_is_no_json_is_refused() {
    let wrong = [
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "nul",
        "nulll",
        "01",
        "-",
        "1.",
        ".1",
        "1e",
        "+1",
        "1 2",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\n\"",
        "\"\u{1}\"",
        "1e400",
        "NaN",
        "Infinity",
        "'a'",
        "[1]]",
        "\u{feff}1",
        "--1",
        "\"\\u+123\"",
    ];
    for text in wrong {
        let error = Value::parse(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadCommand, "{text}");
    }
}

#[test]
fn depth_and_length_are_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(Value::parse(&nested(MAX_DEPTH)).is_ok());
    assert!(Value::parse(&nested(MAX_DEPTH + 2)).is_err());
    assert!(Value::parse(&"[".repeat(MAX_BODY)).is_err());
    assert!(Value::parse(&" ".repeat(MAX_BODY + 1)).is_err());
}

/// A value, and one of the ways to write it.
#[derive(Debug, Clone)]
enum Written {
    Plain(&'static str, &'static str),
    Number(i64),
    Text(Vec<(u16, u8)>),
    List(Vec<Written>),
    Object(Vec<(Vec<(u16, u8)>, Written)>),
}

fn units() -> impl Strategy<Value = Vec<(u16, u8)>> {
    let unit = prop_oneof![
        0_u16..0x80,
        any::<u16>(),
        0xd7f0_u16..0xe010,
        Just(0x2028),
        Just(u16::from(b'"')),
    ];
    vec((unit, any::<u8>()), 0..6)
}

fn written() -> impl Strategy<Value = Written> {
    let words = [
        ("null", "null"),
        ("true", "true"),
        ("1.50e1", "15"),
        ("1e21", "1e+21"),
        ("-0", "0"),
    ];
    let leaf = prop_oneof![
        proptest::sample::select(words.to_vec())
            .prop_map(|(said, read)| Written::Plain(said, read)),
        (-(1_i64 << 53)..(1 << 53)).prop_map(Written::Number),
        units().prop_map(Written::Text),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Written::List),
            vec((units(), inner), 0..6).prop_map(Written::Object),
        ]
    })
}

/// A string with some units escaped and others not, as the second numbers say.
fn spell(units: &[(u16, u8)], out: &mut String) {
    out.push('"');
    let plain: Vec<u16> = units.iter().map(|(unit, _)| *unit).collect();
    let mut at = 0;
    for unit in char::decode_utf16(plain.iter().copied()) {
        let how = units[at].1;
        match unit {
            Ok(c) if how.is_multiple_of(2) && !matches!(c, '"' | '\\' | '\0'..='\u{1f}') => {
                out.push(c);
                at += c.len_utf16();
            }
            Ok(c) => {
                for _ in 0..c.len_utf16() {
                    match how % 4 {
                        1 => out.push_str(&format!("\\u{:04x}", plain[at])),
                        _ => out.push_str(&format!("\\u{:04X}", plain[at])),
                    }
                    at += 1;
                }
            }
            Err(_) => {
                out.push_str(&format!("\\u{:04x}", plain[at]));
                at += 1;
            }
        }
    }
    out.push('"');
}

fn write_any(value: &Written, out: &mut String) {
    match value {
        Written::Plain(said, _) => out.push_str(said),
        Written::Number(number) => out.push_str(&number.to_string()),
        Written::Text(units) => spell(units, out),
        Written::List(list) => {
            out.push_str("[ ");
            for (at, value) in list.iter().enumerate() {
                out.push_str(if at > 0 { "\n," } else { "" });
                write_any(value, out);
            }
            out.push(']');
        }
        Written::Object(members) => {
            out.push('{');
            for (at, (key, value)) in members.iter().enumerate() {
                out.push_str(if at > 0 { " , " } else { "\t" });
                spell(key, out);
                out.push_str(" :\r");
                write_any(value, out);
            }
            out.push('}');
        }
    }
}

/// The same unit by unit, members by looking for the least each time.
fn slowly(value: &Written) -> String {
    let text = |units: &[(u16, u8)]| {
        let units: Vec<u16> = units.iter().map(|(unit, _)| *unit).collect();
        let mut out = String::from("\"");
        let mut at = 0;
        while at < units.len() {
            let (unit, next) = (units[at], units.get(at + 1).copied().unwrap_or(0));
            let is_pair = (0xd800..0xdc00).contains(&unit) && (0xdc00..0xe000).contains(&next);
            if is_pair {
                let high = u32::from(unit - 0xd800) * 0x400;
                out.push(char::from_u32(0x10000 + high + u32::from(next - 0xdc00)).unwrap());
                at += 1;
            } else if let Some(short) = "\"\"\\\\\u{8}b\u{c}f\nn\rr\tt"
                .chars()
                .collect::<Vec<_>>()
                .chunks(2)
                .find(|pair| u32::from(pair[0]) == u32::from(unit))
            {
                out.push('\\');
                out.push(short[1]);
            } else if unit < 0x20 || (0xd800..0xe000).contains(&unit) {
                out.push_str(&format!("\\u{unit:04x}"));
            } else {
                out.push(char::from_u32(u32::from(unit)).unwrap());
            }
            at += 1;
        }
        out + "\""
    };
    match value {
        Written::Plain(_, read) => (*read).to_owned(),
        // As a double: 2^53 is the largest there is.
        Written::Number(number) => number.to_string(),
        Written::Text(units) => text(units),
        Written::List(list) => {
            let list: Vec<String> = list.iter().map(slowly).collect();
            format!("[{}]", list.join(","))
        }
        Written::Object(members) => {
            let plain = |key: &[(u16, u8)]| key.iter().map(|(unit, _)| *unit).collect::<Vec<_>>();
            let mut left: Vec<_> = members
                .iter()
                .map(|(key, value)| (plain(key), key, value))
                .collect();
            let mut done = Vec::new();
            while let Some(least) = left.iter().map(|(key, ..)| key.clone()).min() {
                let last = left.iter().rev().find(|(key, ..)| *key == least).unwrap();
                done.push(format!("{}:{}", text(last.1), slowly(last.2)));
                left.retain(|(key, ..)| *key != least);
            }
            format!("{{{}}}", done.join(","))
        }
    }
}

proptest! {
    #[test]
    fn whatever_the_spelling_the_canonical_text_is_that_of_the_reference(value in written()) {
        let mut text = String::new();
        write_any(&value, &mut text);
        let read = Value::parse(&text).unwrap();
        let canonical = read.canonical();
        prop_assert_eq!(&canonical, &slowly(&value));
        prop_assert_eq!(Value::parse(&canonical).unwrap().canonical(), canonical);
    }

    #[test]
    fn no_text_is_more_than_refused(text in ".{0,40}") {
        let _ = Value::parse(&text);
    }

    #[test]
    fn every_double_is_read_back(bits in any::<u64>()) {
        let number = f64::from_bits(bits);
        prop_assume!(number.is_finite());
        let text = canonical(&format!("{number:e}"));
        prop_assert_eq!(text.parse::<f64>().unwrap(), number);
    }
}

/// JavaScript as it is, which every client's canonical text is compared with.
const SCRIPT: &str = "
const canonical = (v) => Array.isArray(v) ? '[' + v.map(canonical).join(',') + ']'
  : v && typeof v === 'object'
    ? '{' + Object.keys(v).sort().map((k) => JSON.stringify(k) + ':' + canonical(v[k])).join(',') + '}'
    : JSON.stringify(v);
const lines = require('fs').readFileSync(0, 'utf8').split('\\n').filter(Boolean);
for (const line of lines) console.log(Buffer.from(canonical(JSON.parse(JSON.parse(line)))).toString('hex'));
";

#[test]
fn the_canonical_text_is_that_of_javascript() {
    let mut runner = TestRunner::deterministic();
    let mut texts = vec![
        "1e-7".to_owned(),
        "0.000001".to_owned(),
        "123e45".to_owned(),
    ];
    for _ in 0..500 {
        let value = written().new_tree(&mut runner).unwrap().current();
        let mut text = String::new();
        write_any(&value, &mut text);
        texts.push(text);
        let number = f64::from_bits(any::<u64>().new_tree(&mut runner).unwrap().current());
        if number.is_finite() {
            texts.push(format!("{number:e}"));
        }
    }
    // `__proto__` is a name like any other here, and no member of a JavaScript object that is written so.
    let mut node = Command::new("node")
        .args(["-e", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: Vec<String> = texts
        .iter()
        .map(|text| serde_json::to_string(text).unwrap())
        .collect();
    let mut stdin = node.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(lines.join("\n").as_bytes()));
    let output = node.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said.len(), texts.len());
    for (text, expected) in texts.iter().zip(said) {
        let hex: String = canonical(text)
            .bytes()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, expected, "{text}");
    }
}
