//! Answers as lines: JSON for scripts, columns and sentences for people.

use serde_json::{Map, Value, json};

use super::orders::{List, Step, View};
use super::table::{cell, lines, named_rows, outline, tame};

/// What to print of an answer. A secret that was minted is in it once.
pub(super) fn answer(step: &Step, answer: &Value, as_json: bool) -> Vec<String> {
    if as_json {
        return vec![in_json(step, answer).to_string()];
    }
    let mut out = for_people(&step.view, answer);
    for (name, secret) in &step.minted {
        out.push(once(name, secret));
    }
    if let (View::Said(_), Some(hash)) = (&step.view, answer["token_hash"].as_str()) {
        out.push(format!("hash: {}", tame(hash)));
    }
    if step.minted.is_empty()
        && let Some(token) = answer["token"].as_str()
    {
        out.push(once("token", &tame(token)));
    }
    out
}

/// A secret that was minted.
pub(super) fn once(name: &str, secret: &str) -> String {
    format!("{name} (shown this once): {secret}")
}

fn in_json(step: &Step, answer: &Value) -> Value {
    let mut whole = match &step.view {
        View::Listed(list, realm) => {
            let (name, value) = listed(*list, realm.as_deref(), answer);
            json!({ "ok": true, name: value })
        }
        _ => answer.clone(),
    };
    if let Value::Object(members) = &mut whole {
        for (name, secret) in &step.minted {
            members.insert((*name).to_owned(), secret.as_str().into());
        }
    }
    whole
}

fn for_people(view: &View, answer: &Value) -> Vec<String> {
    match view {
        View::Said(sentence) => vec![format!("{}{}", tame(sentence), counts(answer))],
        View::Moved(storage) => vec![moved(storage, answer)],
        View::Rows { member, columns } => {
            let rows = answer[*member].as_array().cloned().unwrap_or_default();
            let mut out = table(columns, &rows);
            if let Some(cursor) = answer["cursor"].as_str() {
                out.push(format!("more: --cursor {}", tame(cursor)));
            }
            out
        }
        View::Listed(list, realm) => {
            let (_, value) = listed(*list, realm.as_deref(), answer);
            match (list, &value) {
                (List::Persistence, value) => outline(value),
                (List::Realms, Value::Object(realms)) => table(REALMS, &named_rows(realms)),
                (List::Tokens, Value::Array(rows)) => table(&columns_of(rows), rows),
                (_, Value::Array(rows)) => table(MANAGEMENT_TOKENS, rows),
                (_, other) => outline(other),
            }
        }
        View::Outline(member) => outline(member.map_or(answer, |member| &answer[member])),
        View::Request => match &answer["request"] {
            Value::Null => vec!["no request waits".to_owned()],
            request => outline(request),
        },
        View::Verified => {
            let (realm, role) = (cell(answer.get("realm")), cell(answer.get("role")));
            vec![format!("AUTH_OK realm {realm}, role {role}")]
        }
    }
}

const REALMS: &[&str] = &[
    "name",
    "required",
    "require_acceptance",
    "key_configured",
    "manager_key_configured",
    "allow_anonymous",
    "e2ee",
    "ephemeral",
    "expires_at",
];
const TOKENS: &[&str] = &["realm", "role", "client_id", "client_name", "token_hash"];
const MANAGEMENT_TOKENS: &[&str] = &["realm_prefix", "ephemeral_only", "max_ttl", "token_hash"];

/// The columns of tokens: what only some have is there if one has it.
fn columns_of(rows: &[Value]) -> Vec<&'static str> {
    let is_said = |name: &&&str| rows.iter().any(|row| !row[**name].is_null());
    let more = ["allow", "names"];
    let more = more.iter().filter(is_said);
    TOKENS.iter().chain(more).copied().collect()
}

/// Where messages wait now, what that survives, and what went along.
fn moved(storage: &str, answer: &Value) -> String {
    let mut said = format!("messages wait in {} now", tame(storage));
    let levels = &answer["levels"];
    if let (Some(before), Some(after)) = (levels["before"].as_str(), levels["after"].as_str()) {
        let (before, after) = (tame(before), tame(after));
        said += &match before == after {
            true => format!("; level {after}, as before"),
            false => format!("; level {after}, before {before}"),
        };
    }
    let what = [
        ("messages", "messages"),
        ("dlq", "dead letters"),
        ("subscriptions", "subscriptions"),
    ];
    let counts = what.iter().filter_map(|(member, what)| {
        let count = answer["migrated"][*member].as_u64()?;
        Some(format!("{what}: {count}"))
    });
    let counts: Vec<_> = counts.collect();
    if !counts.is_empty() {
        said += &format!(" (moved: {})", counts.join(", "));
    }
    said
}

fn table(columns: &[&str], rows: &[Value]) -> Vec<String> {
    match rows.is_empty() {
        true => vec!["none".to_owned()],
        false => lines(columns, rows),
    }
}

/// A part of the settings, of one realm if one is named.
fn listed(list: List, realm: Option<&str>, answer: &Value) -> (&'static str, Value) {
    let settings = &answer["settings"];
    let is_of = |row: &&Value| realm.is_none_or(|realm| row["realm"].as_str() == Some(realm));
    let rows = |name: &str| {
        let rows = settings[name].as_array().into_iter().flatten();
        Value::Array(rows.filter(is_of).cloned().collect())
    };
    match list {
        List::Tokens => ("tokens", rows("tokens")),
        List::ManagementTokens => ("management_tokens", rows("management_tokens")),
        List::Realms => match &settings["realms"] {
            Value::Object(realms) => ("realms", realms.clone().into()),
            _ => ("realms", Map::new().into()),
        },
        List::Persistence => ("persistence", settings["persistence"].clone()),
    }
}

/// What an answer counts, as the end of a sentence.
fn counts(answer: &Value) -> String {
    let revoked = answer["revoked"].as_array().map(|list| list.len().into());
    let counted = [
        ("tokens revoked", revoked.unwrap_or(Value::Null)),
        ("tokens removed", answer["removed_tokens"].clone()),
        ("sessions closed", answer["disconnected_sockets"].clone()),
        ("dead letters dropped", answer["purged"].clone()),
    ];
    let counted: Vec<_> = counted
        .iter()
        .filter(|(_, count)| count.is_number())
        .map(|(what, count)| format!("{what}: {count}"))
        .collect();
    match counted.is_empty() {
        true => String::new(),
        false => format!(" ({})", counted.join(", ")),
    }
}

/// A no of the broker for people.
pub(super) fn refusal(answer: &Value) -> String {
    let message = answer["message"].as_str().unwrap_or("the broker said no");
    let code = match (answer["error"].as_str(), answer["code"].as_i64()) {
        (Some(code), _) => code.to_owned(),
        (None, Some(number)) => number.to_string(),
        _ => "no code".to_owned(),
    };
    let reason = match answer["reason"].as_str() {
        Some(reason) => format!(": {reason}"),
        None => String::new(),
    };
    let message = message.replace("`force: true`", "--force");
    let after = match answer["retry_after"].as_u64() {
        Some(seconds) => format!(", again in {seconds} s"),
        None => String::new(),
    };
    tame(&format!("refused: {message}{reason} ({code}){after}"))
}
