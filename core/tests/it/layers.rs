//! Imports point down: reads the source and compares every crossing between rooms with one table.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Room → rooms it may name. `docs/architecture.md` shows the same as a picture.
const MAY_USE: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("clock", &[]),
    ("env_file", &[]),
    ("metrics", &[]),
    ("model", &["clock", "error"]),
    ("wire", &["error"]),
    ("tls", &["error"]),
    ("protocol", &["model", "wire", "clock", "error"]),
    ("limits", &["model", "clock"]),
    ("store", &["model", "clock", "error"]),
    ("auth", &["model", "store", "env_file", "clock", "error"]),
    ("broker", &["model", "store", "clock", "metrics", "error"]),
    (
        "transport",
        &["wire", "tls", "limits", "clock", "metrics", "error"],
    ),
    (
        "client",
        &["protocol", "wire", "tls", "model", "clock", "error"],
    ),
    (
        "admin",
        &[
            "auth", "broker", "store", "model", "clock", "metrics", "error",
        ],
    ),
    (
        "session",
        &[
            "protocol",
            "transport",
            "broker",
            "auth",
            "limits",
            "admin",
            "model",
            "clock",
            "metrics",
            "error",
        ],
    ),
    (
        "server",
        &[
            "session",
            "env_file",
            "auth",
            "limits",
            "admin",
            "transport",
            "broker",
            "store",
            "tls",
            "protocol",
            "model",
            "clock",
            "metrics",
            "error",
        ],
    ),
    (
        "operator",
        &["client", "admin", "auth", "tls", "model", "clock", "error"],
    ),
    (
        "offline",
        &["server", "store", "protocol", "model", "clock", "error"],
    ),
];

/// A file may be longer than this only with its reason here.
const MAX_LINES: usize = 500;
const LONG_FILES: &[(&str, &str)] = &[];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The room of a file: its first folder, or its own name if it lies at the top.
fn room(path: &Path) -> String {
    let inside = path.strip_prefix(source()).unwrap();
    let first = inside
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// The rooms a text names as `crate::room` or in `crate::{room::…, room}`.
fn named_rooms(text: &str) -> BTreeSet<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut rooms = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(list) = rest.strip_prefix('{') {
            rooms.extend(top_level_names(list));
        } else {
            let name = first_name(rest);
            // A macro is of no room: it stands at the top whatever file it is written in.
            if !rest[name.len()..].starts_with('!') {
                rooms.insert(name);
            }
        }
    }
    // What lib.rs re-exports from `error`.
    for name in ["Error", "ErrorKind", "Result"] {
        if rooms.remove(name) {
            rooms.insert("error".to_owned());
        }
    }
    rooms
}

fn first_name(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

/// The first names of the items of a brace list, nested lists skipped.
fn top_level_names(list: &str) -> Vec<String> {
    let (mut depth, mut names, mut start) = (0, Vec::new(), 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(first_name(list[start..at].trim_start()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn no_room_imports_a_room_above_it() {
    let mut all = Vec::new();
    files(&source(), &mut all);
    assert!(all.len() > 50, "the source was not found");
    let mut wrong = Vec::new();
    for path in all {
        let room = room(&path);
        if room == "lib" || room == "bin" {
            continue;
        }
        let allowed = MAY_USE.iter().find(|(name, _)| *name == room);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("room {room} is not in the table"));
        for named in named_rooms(&fs::read_to_string(&path).unwrap()) {
            if named != room && !allowed.contains(&named.as_str()) {
                wrong.push(format!("{}: {room} may not import {named}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_has_no_cycle() {
    for (position, (room, uses)) in MAY_USE.iter().enumerate() {
        for used in *uses {
            let at = MAY_USE.iter().position(|(name, _)| name == used).unwrap();
            assert!(
                at < position,
                "{room} uses {used}, which stands at or above it"
            );
        }
    }
}

#[test]
fn crossings_are_seen_in_every_spelling() {
    let text = "use crate::{Error, store::{self, Store}, wire};\nfn f() { crate::broker::g(); crate::m!() }\n// crate::session\n";
    let rooms: Vec<String> = named_rooms(text).into_iter().collect();
    assert_eq!(rooms, ["broker", "error", "store", "wire"]);
}

#[test]
fn long_files_have_a_reason() {
    let mut all = Vec::new();
    files(&source(), &mut all);
    for path in all {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        let name = path
            .strip_prefix(source())
            .unwrap()
            .to_string_lossy()
            .replace('\\', "/");
        let is_excused = LONG_FILES.iter().any(|(file, _)| *file == name);
        assert!(lines <= MAX_LINES || is_excused, "{name} has {lines} lines");
    }
}
