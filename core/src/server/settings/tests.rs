//! Which source of an option counts, and which files are refused.

use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use super::*;

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other}"),
    }
}

fn merged(base: Value, over: Value) -> Value {
    let mut base = object(base);
    merge(&mut base, &object(over));
    Value::Object(base)
}

fn settings(folder: &TempDir, text: &str, base: Value) -> Settings {
    let path = folder.path().join("settings.json");
    fs::write(&path, text).unwrap();
    let mut options = object(base);
    options.insert("settings_file".to_owned(), path.to_str().unwrap().into());
    Settings::from_options(&Value::Object(options).to_string()).unwrap()
}

#[test]
fn a_switch_is_said_by_the_usual_words_in_any_case_and_by_nothing_else() {
    for (words, is_on) in [
        (["1", "true", "yes", "on"], true),
        (["0", "false", "no", "off"], false),
    ] {
        for word in words {
            for spelt in [word.to_owned(), word.to_uppercase(), format!(" {word} ")] {
                assert_eq!(parse_switch("X", &spelt), Ok(is_on), "{spelt:?}");
            }
        }
    }
    for wrong in ["", "2", "y", "enabled", "tru", "hush-hush"] {
        let error = parse_switch("X", wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().starts_with("X must be") && !error.message().contains("hush"));
    }
}

#[test]
fn objects_are_merged_and_everything_else_is_replaced() {
    let base = json!({"limits": {"a": 1, "b": 2}, "transports": ["polling"], "port": 1});
    let over = json!({"limits": {"b": 3}, "transports": ["websocket"], "port": null});
    let both = json!({"limits": {"a": 1, "b": 3}, "transports": ["websocket"], "port": 1});
    assert_eq!(merged(base, over), both);
}

#[test]
fn a_switch_that_is_thrown_stays_so_when_another_source_adds_to_it() {
    let more = json!({"auth": {"realms": {"acme": {}}}});
    let on = json!({"auth": {"enabled": true, "realms": {"acme": {}}}});
    assert_eq!(merged(json!({"auth": true}), more.clone()), on);
    assert_eq!(merged(more, json!({"auth": true})), on);
    let limits = json!({"limits": {"enabled": false, "message_burst": 1}});
    let said = json!({"limits": {"message_burst": 1}});
    assert_eq!(merged(said, json!({"limits": false})), limits);
}

#[test]
fn two_spellings_are_one_option_and_two_realms_are_two() {
    let base = json!({"ackTimeout": 1, "store": "memory", "limits": {"realms": {"a_b": {"x": 1}}}});
    let over =
        json!({"ack_timeout": 2, "storage": "memory", "limits": {"realms": {"aB": {"x": 2}}}});
    let both = json!({"ack_timeout": 2, "storage": "memory",
        "limits": {"realms": {"a_b": {"x": 1}, "aB": {"x": 2}}}});
    assert_eq!(merged(base, over), both);
}

#[test]
fn options_of_one_store_say_nothing_of_another() {
    let base =
        json!({"storage": "sqlite", "storageOptions": {"filename": "a", "synchronous": "full"}});
    let other = json!({"storage": "redis", "storage_options": {"url": "redis://x"}});
    assert_eq!(merged(base.clone(), other.clone()), other);
    let same = json!({"storage": "SQLite", "storage_options": {"filename": "b"}});
    let both =
        json!({"storage": "SQLite", "storage_options": {"filename": "b", "synchronous": "full"}});
    assert_eq!(merged(base, same), both);
}

#[test]
fn the_file_counts_over_the_program_and_the_environment_over_both() {
    let folder = TempDir::new().unwrap();
    let base =
        json!({"ack_timeout": 1, "prefetch": 1, "max_queued": 1, "overrides": {"max_queued": 3}});
    let settings = settings(&folder, r#"{"prefetch": 2, "max_queued": 2}"#, base);
    let (config, warnings) = settings.read().unwrap();
    assert_eq!(config.defaults.ack_timeout.as_secs(), 1);
    assert_eq!((config.defaults.prefetch, config.bounds.max_queued), (2, 3));
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn a_file_that_is_not_there_is_made_for_its_owner_and_read() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("new.json");
    let options = json!({"settings_file": path.to_str().unwrap()}).to_string();
    let settings = Settings::from_options(&options).unwrap();
    assert_eq!(settings.read_again().unwrap_err().kind(), ErrorKind::Config);
    assert!(settings.read().unwrap().1.is_empty());
    let text = fs::read_to_string(&path).unwrap();
    let made: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        made,
        json!({"auth": {"realms": {"default": {"required": false}}}})
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    fs::write(&path, "{}").unwrap();
    settings.read().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
}

#[test]
fn a_wrong_file_is_refused_with_its_name_and_the_path_of_the_value() {
    let folder = TempDir::new().unwrap();
    for (text, path) in [
        ("{", "settings.json"),
        ("[]", "settings.json"),
        ("", "settings.json"),
        (r#"{"port": "many"}"#, "port"),
        (
            r#"{"storage": "sqlite", "storage_options": {"synchronous": 1}}"#,
            "storage_options.synchronous",
        ),
        (
            r#"{"limits": {"messages_per_second": "x"}}"#,
            "limits.messages_per_second",
        ),
        (
            r#"{"limits": {"realms": {"acme": {"bytesPerSecond": {}}}}}"#,
            "limits.realms.acme.bytes_per_second",
        ),
        (
            r#"{"limits": {"trust_proxy": ["10.0.0.0/99"]}}"#,
            "limits.trust_proxy",
        ),
        (
            r#"{"idle_eviction": {"ttl_ms": -1}}"#,
            "idle_eviction.ttl_ms",
        ),
        (r#"{"settings_file": "other"}"#, "settings_file"),
    ] {
        let error = settings(&folder, text, json!({})).read().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{text}");
        for part in ["settings.json", path] {
            assert!(error.message().contains(part), "{text}: {error}");
        }
    }
    fs::write(folder.path().join("settings.json"), [0xff, 0xfe]).unwrap();
    let path = folder.path().join("settings.json");
    let options = json!({"settings_file": path.to_str().unwrap()}).to_string();
    let error = Settings::from_options(&options)
        .unwrap()
        .read()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[test]
fn unknown_options_of_a_file_are_warned_of() {
    let folder = TempDir::new().unwrap();
    let text = r#"{"colour": 1, "limits": {"speed": 1}}"#;
    let (_, warnings) = settings(&folder, text, json!({})).read().unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let said = warnings.join(" ");
    assert!(
        said.contains("colour") && said.contains("limits.speed"),
        "{said}"
    );
}

#[test]
fn an_environment_file_is_read_as_it_was_written() {
    let text = "# a comment\n\nA=1\n export B = two words \nC='a\\n'\nD=\"x\\\"y\\\\\"\r\nE=\n";
    let read = parse_env_file(text).unwrap();
    let read: Vec<(&str, &str)> = read.iter().map(|(a, b)| (&**a, &**b)).collect();
    let expected = [
        ("A", "1"),
        ("B", "two words"),
        ("C", "a\\n"),
        ("D", "x\"y\\"),
        ("E", ""),
    ];
    assert_eq!(read, expected);
    assert_eq!(parse_env_file("A=1\nwhat\n"), Err(2));
    assert_eq!(parse_env_file("A=\"1\n"), Err(1));
    assert_eq!(parse_env_file("A='\n"), Err(1));
}

proptest! {
    #[test]
    fn any_value_survives_an_environment_file(value in any::<String>()) {
        let text = format!("KEY={}\n", quote_env_value(&value));
        prop_assert_eq!(parse_env_file(&text), Ok(vec![("KEY".to_owned(), value)]));
    }

    #[test]
    fn no_environment_file_panics(text in any::<String>()) {
        let _ = parse_env_file(&text);
    }
}
