//! What the `auth` settings may say, and where they are refused.

use serde_json::json;

use super::super::{E2ee, Role};
use super::*;
use crate::ErrorKind;
use crate::clock::Timestamp;

fn parse(value: &Value) -> AuthSettings {
    AuthSettings::parse(value).unwrap()
}

#[test]
fn nothing_said_is_authentication_off() {
    assert_eq!(parse(&Value::Null), AuthSettings::default());
    assert_eq!(parse(&json!({})), AuthSettings::default());
    assert!(parse(&json!(true)).enabled);
    assert!(parse(&json!({"enabled": true})).warnings.is_empty());
}

#[test]
fn every_member_is_read_in_both_spellings() {
    let snake = json!({
        "enabled": true,
        "tokens": [{"token": "t", "realm": "acme", "role": "producer", "client_id": "c",
            "client_name": "n", "allow": {"produce": ["a/+"]}, "names": ["x*"]}],
        "realms": {"acme": {"required": true, "manager_key": "m", "jwt_key": "j", "preshared_key": "k",
            "require_key": false, "require_acceptance": false, "allow_anonymous": true,
            "e2ee": "required", "auth_url": "https://a.example/", "auth_secret": "s"}},
        "jwt_secret": "g", "jwt_max_ttl": "1h", "allow_superadmin_jwt": true, "enforce_expiry": false,
        "auth_url": "http://127.0.0.1:1/", "auth_secret": "s",
        "external_validators": [{"realm_prefix": "org:", "auth_url": "https://b.example/"}],
        "management_tokens": [{"token": "mt", "realm_prefix": "apps:", "ephemeral_only": true, "max_ttl": 60}],
        "monitor_tokens": ["look"], "ephemeral_realm_ttl": "2d", "keyless_consumers": "deny",
        "timeout": 5000, "env_file": "x.env", "admin_token_env": "TOKEN", "auto_admin_token": false,
    });
    let camel = json!({
        "enabled": true,
        "tokens": [{"token": "t", "realm": "acme", "role": "producer", "clientId": "c",
            "clientName": "n", "allow": {"produce": ["a/+"]}, "names": ["x*"]}],
        "realms": {"acme": {"required": true, "managerKey": "m", "jwtKey": "j", "presharedKey": "k",
            "requireKey": false, "requireAcceptance": false, "allowAnonymous": true,
            "e2ee": "required", "authUrl": "https://a.example/", "authSecret": "s"}},
        "jwtSecret": "g", "jwtMaxTtl": "1h", "allowSuperadminJwt": true, "enforceExpiry": false,
        "authUrl": "http://127.0.0.1:1/", "authSecret": "s",
        "externalValidators": [{"realmPrefix": "org:", "authUrl": "https://b.example/"}],
        "managementTokens": [{"token": "mt", "realmPrefix": "apps:", "ephemeralOnly": true, "maxTtl": 60}],
        "monitorTokens": ["look"], "temporaryRealmTtl": "2d", "keylessConsumers": "deny",
        "timeout": 5000, "envFile": "x.env", "adminTokenEnv": "TOKEN", "autoAdminToken": false,
    });
    let settings = parse(&snake);
    assert_eq!(settings, parse(&camel));
    // Short keys work in a file, and are told.
    let short = [
        "jwt_secret",
        "realms.acme.manager_key",
        "realms.acme.jwt_key",
        "realms.acme.key",
    ];
    for key in short {
        let text = format!("auth.{key} should have at least");
        assert!(
            settings.warnings.iter().any(|told| told.starts_with(&text)),
            "{key}"
        );
    }
    assert_eq!(settings.warnings.len(), 5, "{:?}", settings.warnings);
    let token = &settings.tokens[0];
    assert_eq!(token.hash, TokenHash::of("t"));
    assert_eq!(
        (token.entry.role, token.entry.realm.as_str()),
        (Role::Producer, "acme")
    );
    let realm = &settings.realms[&token.entry.realm];
    assert_eq!(realm.key, Some(TokenHash::of("k")));
    assert_eq!(realm.e2ee, E2ee::Required);
    assert_eq!(settings.monitor_tokens, [TokenHash::of("look")]);
    assert_eq!(settings.ephemeral_realm_ttl, Duration::from_secs(172_800));
    assert_eq!(settings.keyless_consumers, KeylessConsumers::Deny);
    assert_eq!(settings.timeout, Duration::from_secs(5));
}

#[test]
fn a_wrong_value_stops_with_its_path_and_without_its_text() {
    for (value, path) in [
        (json!([]), "auth"),
        (json!({"enabled": "hunter2"}), "auth.enabled"),
        (json!({"realms": []}), "auth.realms"),
        (json!({"realms": {"": {}}}), "auth.realms."),
        (
            json!({"realms": {"a": {"ttl": "hunter2"}}}),
            "auth.realms.a.ttl",
        ),
        (json!({"realms": {"a": {"ttl": 0}}}), "auth.realms.a.ttl"),
        (
            json!({"realms": {"a": {"e2ee": "hunter2"}}}),
            "auth.realms.a.e2ee",
        ),
        (json!({"realms": {"a": {"key": 5}}}), "auth.realms.a.key"),
        (
            json!({"realms": {"a": {"auth_url": "http://hunter2.example"}}}),
            "auth.realms.a.auth_url",
        ),
        (
            json!({"realms": {"default": {"ttl": 5}}}),
            "auth.realms.default.ephemeral",
        ),
        (json!({"tokens": {}}), "auth.tokens"),
        (json!({"tokens": [{"realm": "a"}]}), "auth.tokens[0].token"),
        (
            json!({"tokens": [{"token": "a"}, {"token": "hunter2", "role": "hunter2"}]}),
            "auth.tokens[1].role",
        ),
        (
            json!({"tokens": [{"token": "a", "role": "admin"}]}),
            "auth.tokens[0].role",
        ),
        (
            json!({"tokens": [{"token": "a", "realm": "*"}]}),
            "auth.tokens[0].role",
        ),
        (
            json!({"tokens": [{"token": "a"}, {"token": "a"}]}),
            "auth.tokens[1]",
        ),
        (
            json!({"tokens": [{"token": "a", "client_id": "a\nb"}]}),
            "auth.tokens[0].client_id",
        ),
        (
            json!({"tokens": [{"token_hash": "hunter2"}]}),
            "auth.tokens[0].token_hash",
        ),
        (json!({"jwt_secret": {"x": "hunter2"}}), "auth.jwt_secret"),
        (json!({"jwt_max_ttl": "1 week"}), "auth.jwt_max_ttl"),
        (
            json!({"keyless_consumers": "hunter2"}),
            "auth.keyless_consumers",
        ),
        (
            json!({"external_validators": [{"auth_url": "https://a.example"}]}),
            "auth.external_validators[0].realm_prefix",
        ),
        (
            json!({"management_tokens": [{"token": "a", "realm_prefix": "*"}]}),
            "auth.management_tokens[0].realm_prefix",
        ),
        (json!({"admin_token_env": "A B"}), "auth.admin_token_env"),
    ] {
        let error = AuthSettings::parse(&value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{value}");
        assert!(error.message().contains(path), "{path}: {error}");
        assert!(!error.message().contains("hunter2"), "{error}");
    }
}

#[test]
fn what_is_unknown_is_a_warning_with_its_path() {
    let settings = parse(&json!({
        "enbled": true,
        "realms": {"a": {"requred": true}},
        "tokens": [{"token": "t", "rol": "both"}],
    }));
    for path in ["auth.enbled", "auth.realms.a.requred", "auth.tokens[0].rol"] {
        let mut warnings = settings.warnings.iter();
        assert!(warnings.any(|text| text.contains(path)), "{path}");
    }
}

#[test]
fn a_realm_lives_as_long_as_it_says_in_one_of_several_ways() {
    let settings = parse(&json!({"realms": {
        "ttl": {"ttl": "10m"},
        "flag": {"temporary": true},
        "end": {"ephemeral": true, "expires_at": 5},
        "stays": {"ephemeral": false, "ttl": "10m"},
    }}));
    let realm = |name: &str| settings.realms[&RealmId::parse(name).unwrap()].clone();
    assert_eq!(realm("ttl").ttl, Some(Duration::from_secs(600)));
    assert_eq!(realm("flag").ttl, Some(settings.ephemeral_realm_ttl));
    assert_eq!(realm("end").expires_at, Some(Timestamp(5)));
    assert!(realm("end").is_expired(Timestamp(5)));
    assert!(!realm("end").is_expired(Timestamp(4)));
    assert!(!realm("stays").ephemeral);
}

#[test]
fn settings_show_no_secret() {
    let settings = parse(&json!({
        "tokens": [{"token": "hunter2", "realm": "*", "role": "admin"}],
        "realms": {"a": {"manager_key": "hunter2", "jwt_key": "hunter2", "key": "hunter2",
            "auth_url": "https://a.example", "auth_secret": "hunter2"}},
        "jwt_secret": "hunter2", "auth_secret": "hunter2", "monitor_tokens": ["hunter2"],
        "management_tokens": [{"token": "hunter2", "realm_prefix": "a"}],
    }));
    assert!(!format!("{settings:?}").contains("hunter2"));
}
