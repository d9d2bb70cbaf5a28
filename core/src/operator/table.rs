//! Answers for people: columns and sentences from what the broker answered.
//!
//! Names in it were chosen by strangers: what could steer a terminal is shown, not obeyed.

use serde_json::{Map, Value};

use crate::clock::Timestamp;
use crate::model::instant;

/// A text without what a terminal would obey.
pub(super) fn tame(text: &str) -> String {
    let mut tame = String::with_capacity(text.len());
    for c in text.chars() {
        // Also what turns the direction of a line around.
        let steers = c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match steers {
            true => tame.extend(c.escape_unicode()),
            false => tame.push(c),
        }
    }
    tame
}

/// One value as a cell.
pub(super) fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "\"\"".to_owned(),
        Some(Value::String(text)) => tame(text),
        Some(Value::Bool(true)) => "yes".to_owned(),
        Some(Value::Bool(false)) => "no".to_owned(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Array(items)) if items.iter().all(|item| !item.is_object()) => {
            let items: Vec<_> = items.iter().map(|item| cell(Some(item))).collect();
            match items.is_empty() {
                true => "-".to_owned(),
                false => items.join(","),
            }
        }
        Some(other) => tame(&other.to_string()),
    }
}

/// The member of a row or an object: numbers that are times and spans are shown as such.
fn named_cell(name: &str, value: Option<&Value>) -> String {
    let is_time = name.ends_with("_at") || name == "since";
    if let Some(ms) = value.and_then(Value::as_u64).filter(|_| is_time) {
        return instant::format(Timestamp(ms));
    }
    let is_span = name.ends_with("ttl") || name == "oldest";
    match value.and_then(Value::as_f64).filter(|_| is_span) {
        Some(seconds) => span(seconds),
        None => cell(value),
    }
}

/// Seconds as options take them: the largest unit that leaves no rest.
fn span(seconds: f64) -> String {
    let units = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "m")];
    let fits = |unit: &&(f64, &str)| seconds >= unit.0 && seconds % unit.0 == 0.0;
    match units.iter().find(fits) {
        Some((size, name)) => format!("{}{name}", seconds / size),
        None => format!("{seconds}s"),
    }
}

/// Rows under a head, blanks between. `columns` are the members of a row, in order.
pub(super) fn lines(columns: &[&str], rows: &[Value]) -> Vec<String> {
    let head: Vec<_> = columns.iter().map(|name| name.replace('_', " ")).collect();
    let mut cells = vec![head];
    cells.extend(rows.iter().map(|row| {
        let row = columns.iter().map(|name| named_cell(name, row.get(*name)));
        row.collect::<Vec<_>>()
    }));
    let width = |at: usize| cells.iter().map(|row| row[at].chars().count()).max();
    let widths: Vec<_> = (0..columns.len()).filter_map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths);
        let text: Vec<_> = padded
            .map(|(text, &width)| format!("{text:width$}"))
            .collect();
        text.join("  ").trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}

/// The members of a map as rows, each with its name as `name`.
pub(super) fn named_rows(map: &Map<String, Value>) -> Vec<Value> {
    let rows = map.iter().map(|(name, members)| {
        let mut row = members.as_object().cloned().unwrap_or_default();
        row.insert("name".to_owned(), name.as_str().into());
        Value::Object(row)
    });
    rows.collect()
}

/// A value as `member: value` lines, nested ones indented.
pub(super) fn outline(value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    put_outline(value, 0, &mut out);
    out
}

fn put_outline(value: &Value, depth: usize, out: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let name = tame(name);
                match value {
                    Value::Object(inner) if !inner.is_empty() => {
                        out.push(format!("{indent}{name}:"));
                        put_outline(value, depth + 1, out);
                    }
                    Value::Array(items) if items.iter().any(Value::is_object) => {
                        out.push(format!("{indent}{name}:"));
                        put_outline(value, depth + 1, out);
                    }
                    Value::Object(_) => out.push(format!("{indent}{name}: -")),
                    _ => out.push(format!(
                        "{indent}{name}: {}",
                        named_cell(&name, Some(value))
                    )),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let at = out.len();
                put_outline(item, depth + 1, out);
                if let Some(first) = out.get_mut(at) {
                    first.replace_range(indent.len()..indent.len() + 2, "- ");
                }
            }
        }
        _ => out.push(format!("{indent}{}", cell(Some(value)))),
    }
}
