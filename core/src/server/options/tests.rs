//! What options are read as, and which are refused.

use std::time::Duration;

use super::super::config::Storage;
use super::*;
#[cfg(feature = "redis")]
use crate::store::RedisOptions;
#[cfg(feature = "sqlite")]
use crate::store::{SqliteOptions, Synchronous};

fn read(json: &str) -> ServerConfig {
    ServerConfig::from_options(json).unwrap().0
}

#[test]
fn both_spellings_of_an_option_work() {
    assert_eq!(
        read(r#"{"ack_timeout":"2m"}"#)
            .defaults
            .ack_timeout
            .as_secs(),
        120
    );
    assert_eq!(
        read(r#"{"ackTimeout":2}"#).defaults.ack_timeout.as_secs(),
        2
    );
    assert_eq!(
        read(r#"{"pingInterval":500}"#)
            .transport
            .ping_interval
            .as_millis(),
        500
    );
    assert_eq!(
        read(r#"{"maxHttpBufferSize":2048}"#)
            .transport
            .max_message_bytes,
        2048
    );
}

#[cfg(feature = "sqlite")]
#[test]
fn options_of_a_sqlite_store_are_read_in_both_spellings() {
    let read = |options: &str| {
        let json = format!(r#"{{"storage":"sqlite","storageOptions":{options}}}"#);
        match read(&json).storage {
            Storage::Sqlite(options) => options,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read("{}"), SqliteOptions::default());
    let all = r#"{"filename":"x/y.db","synchronous":"normal","busyTimeout":50}"#;
    let expected = SqliteOptions {
        path: Some("x/y.db".into()),
        synchronous: Synchronous::Normal,
        busy_timeout: Duration::from_millis(50),
        force: false,
    };
    assert_eq!(read(all), expected);
    assert_eq!(read(r#"{"filename":":memory:"}"#).path, None);
}

#[cfg(feature = "redis")]
#[test]
fn options_of_a_redis_store_are_read() {
    let read = |options: &str| {
        let json = format!(r#"{{"storage":"redis","storageOptions":{options}}}"#);
        match read(&json).storage {
            Storage::Redis(options) => options,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read("{}"), RedisOptions::default());
    let all =
        r#"{"url":["rediss://a:1","rediss://b:2"],"prefix":"p","cluster":true,"strict":true}"#;
    let all = read(all);
    assert_eq!(
        (&*all.url, &*all.prefix, all.cluster, all.strict),
        ("rediss://a:1,rediss://b:2", "p", true, true)
    );
    assert_eq!(read(r#"{"sentinel":"m"}"#).sentinel.as_deref(), Some("m"));
}

#[cfg(feature = "redis")]
#[test]
fn a_fallback_is_a_database_with_a_name_of_its_own() {
    let read = |options: &str| {
        let json = format!(r#"{{"storage":"redis","storage_options":{options}}}"#);
        ServerConfig::from_options(&json).map(|(config, _)| match config.storage {
            Storage::Redis(options) => (options.fallback, options.probe_timeout),
            other => panic!("{other:?}"),
        })
    };
    let named = |path: &str, millis| (Some(path.into()), Duration::from_millis(millis));
    let default = named("restante.fallback.sqlite", 5000);
    assert_eq!(read(r#"{"fallback":"sqlite"}"#).unwrap(), default);
    for name in ["fallback_filename", "fallback_path", "fallbackFilename"] {
        let options = format!(r#"{{"fallback":"SQLite","{name}":"a","probe_timeout":70}}"#);
        assert_eq!(read(&options).unwrap(), named("a", 70));
    }
    assert_eq!(read(r#"{"fallback":false}"#).unwrap().0, None);
    let refused = read(r#"{"fallback":"memory"}"#).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_wrong_value_names_its_option() {
    for (json, option) in [
        (r#"{"ack_timeout":"5 minutes"}"#, "ack_timeout"),
        (r#"{"port":70000}"#, "port"),
        (r#"{"prefetch":0}"#, "prefetch"),
        (r#"{"overflow":"oops"}"#, "overflow"),
        (r#"{"transports":[]}"#, "transports"),
        (r#"{"store_timeout":-1}"#, "store_timeout"),
        #[cfg(feature = "redis")]
        (
            r#"{"storage":"redis","storage_options":{"url":"http://x"}}"#,
            "url",
        ),
        #[cfg(feature = "redis")]
        (
            r#"{"storage":"redis","storage_options":{"prefix":"{"}}"#,
            "prefix",
        ),
        (
            r#"{"storage":"sqlite","storage_options":{"synchronous":"off"}}"#,
            "synchronous",
        ),
        (
            r#"{"storage":"sqlite","storage_options":{"busyTimeout":"2s"}}"#,
            "busy_timeout",
        ),
    ] {
        let error = ServerConfig::from_options(json).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Config, "{json}");
        assert!(error.message().contains(option), "{error}");
    }
}

#[test]
fn unknown_and_ignored_options_are_warnings() {
    let (_, warnings) =
        ServerConfig::from_options(r#"{"perMessageDeflate":true,"colour":1}"#).unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
}

#[test]
fn parts_of_later_versions_are_refused_unless_off() {
    let kind = |json| {
        ServerConfig::from_options(json)
            .err()
            .map(|error| error.kind())
    };
    assert_eq!(
        kind(r#"{"storage":"custom"}"#),
        Some(ErrorKind::Unsupported)
    );
    assert_eq!(
        kind(r#"{"cluster":{"enabled":true}}"#),
        Some(ErrorKind::Unsupported)
    );
    assert_eq!(
        kind(r#"{"auth":{"enabled":false},"cluster":false,"httpApi":{}}"#),
        None
    );
}
