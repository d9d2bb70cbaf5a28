//! Options over options: objects are merged, everything else is replaced, null is absent. Both
//! spellings and all names of an option are one option. Knows the names that options share, not
//! what they mean.

use serde_json::{Map, Value, json};

use super::super::options::camel;

/// Options of several names.
const ALIASES: &[&[&str]] = &[
    &["storage", "store"],
    &["max_message_bytes", "max_http_buffer_size"],
    &["fallback_filename", "fallback_path"],
    &["origin", "origins"],
];
/// Whose members are names that users chose: they are compared to the letter.
const BY_NAME: &[&str] = &["realms"];
/// Options where `true` and `false` are short for `{enabled}`: a switch that one source has thrown stays so
/// when another only adds to it.
const SWITCHES: &[&str] = &["auth", "limits"];
/// What belongs to one store and says nothing of another.
const OF_STORE: &[&str] = &["storage_options", "storage_module"];

/// Whether two names are spellings or names of one option.
pub(in crate::server) fn same_option(one: &str, other: &str) -> bool {
    if one == other || camel(one) == other || one == camel(other) {
        return true;
    }
    let names = |name: &str| {
        let mut lists = ALIASES.iter();
        let is_one = |known: &&str| *known == name || camel(known) == name;
        lists.find(|list| list.iter().any(is_one))
    };
    match (names(one), names(other)) {
        (Some(one), Some(other)) => std::ptr::eq(*one, *other),
        _ => false,
    }
}

/// The value of an option under whatever name it has.
pub(super) fn find<'a>(options: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let mut members = options.iter();
    let found = members.find(|(key, value)| same_option(key, name) && !value.is_null());
    found.map(|(_, value)| value)
}

/// Lets `over` count over `base`.
pub(in crate::server) fn merge(base: &mut Map<String, Value>, over: &Map<String, Value>) {
    if let Some(new) = find(over, "storage")
        && find(base, "storage").is_none_or(|old| !is_same_store(old, new))
    {
        base.retain(|key, _| !OF_STORE.iter().any(|name| same_option(key, name)));
    }
    members(base, over, false);
}

fn is_same_store(one: &Value, other: &Value) -> bool {
    match (one.as_str(), other.as_str()) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        _ => one == other,
    }
}

fn members(base: &mut Map<String, Value>, over: &Map<String, Value>, is_by_name: bool) {
    for (name, value) in over {
        if value.is_null() {
            continue;
        }
        let is_it = |key: &String| match is_by_name {
            true => key == name,
            false => same_option(key, name),
        };
        let spelt: Vec<String> = base.keys().filter(|key| is_it(key)).cloned().collect();
        let mut old = None;
        for key in spelt {
            old = base.remove(&key).or(old);
        }
        let is_switch = !is_by_name && SWITCHES.contains(&name.as_str());
        let (old, value) = match (old, value) {
            (Some(old), value) if is_switch => (Some(in_full(old)), in_full(value.clone())),
            (old, value) => (old, value.clone()),
        };
        let merged = match (old, &value) {
            (Some(Value::Object(mut inner)), Value::Object(more)) => {
                members(&mut inner, more, BY_NAME.contains(&name.as_str()));
                Value::Object(inner)
            }
            _ => value,
        };
        base.insert(name.clone(), merged);
    }
}

/// A switch as the object that it is short for.
fn in_full(value: Value) -> Value {
    match value {
        Value::Bool(is_on) => json!({ "enabled": is_on }),
        other => other,
    }
}
