use std::time::Duration;

use super::{Command, RealmChange, StoreWish};
use crate::auth::{E2ee, Lifetime, Role, SecretChange, TokenChoice, TokenText, ValidatorScope};
use crate::model::RealmId;
use crate::{ErrorKind, Result};

fn parse(body: &str) -> Result<Command> {
    Command::parse(&body.replace('\'', "\""))
}

fn kind(body: &str) -> ErrorKind {
    parse(body).unwrap_err().kind()
}

fn realm(name: &str) -> RealmId {
    RealmId::parse(name).unwrap()
}

fn change(body: &str) -> RealmChange {
    match parse(body).unwrap() {
        Command::SetRealm { change, .. } => change,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_realm_with_a_ttl_or_any_truthy_flag_is_disposable() {
    let new = |body: &str| match parse(body).unwrap() {
        Command::AddRealm { new, .. } => new,
        other => panic!("{other:?}"),
    };
    let plain = new("{'command':'add_realm','realm':'org:acme'}");
    assert_eq!(plain.required, Some(true));
    assert_eq!(plain.lifetime, Lifetime::Permanent);
    let by_ttl = new("{'command':'add_realm','realm':'r','ttl':'1.5H'}");
    let ninety_minutes = Some(Duration::from_secs(5_400));
    assert_eq!(by_ttl.lifetime, Lifetime::Ephemeral(ninety_minutes));
    for flag in ["'ephemeral':1", "'temporary':'yes'", "'disposable':true"] {
        let by_flag = new(&format!("{{'command':'add_realm','realm':'r',{flag}}}"));
        assert_eq!(by_flag.lifetime, Lifetime::Ephemeral(None), "{flag}");
    }
    let by_no = new("{'command':'add_realm','realm':'r','ephemeral':false,'ttl':null}");
    assert_eq!(by_no.lifetime, Lifetime::Permanent);
}

#[test]
fn a_lifetime_of_nothing_or_of_nonsense_is_refused() {
    for ttl in ["0", "-1", "'0s'", "'soon'", "''", "true", "[]"] {
        let body = format!("{{'command':'set_realm_lifetime','realm':'r','ttl':{ttl}}}");
        assert_eq!(kind(&body), ErrorKind::BadCommand, "{ttl}");
    }
}

#[test]
fn a_bare_lifetime_call_makes_a_realm_disposable_and_false_makes_it_permanent() {
    let bare = change("{'command':'set_realm_lifetime','realm':'r'}");
    assert_eq!(bare, RealmChange::Lifetime(Lifetime::Ephemeral(None)));
    let permanent = change("{'command':'set_realm_lifetime','realm':'r','temporary':false}");
    assert_eq!(permanent, RealmChange::Lifetime(Lifetime::Permanent));
}

#[test]
fn an_empty_or_absent_key_clears_it() {
    for key in ["", ",'key':''", ",'presharedKey':null"] {
        let body = format!("{{'command':'set_realm_key','realm':'r'{key}}}");
        assert_eq!(change(&body), RealmChange::Key(None, None));
    }
    let set =
        change("{'command':'set_realm_key','realm':'r','preshared_key':'k','requireKey':false}");
    assert!(matches!(set, RealmChange::Key(Some(_), Some(false))));
}

#[test]
fn every_policy_of_encryption_has_a_word_and_others_are_refused() {
    let policy =
        |word: &str| format!("{{'command':'set_realm_e2ee','realm':'r','policy':'{word}'}}");
    assert_eq!(change(&policy("off")), RealmChange::E2ee(E2ee::Off));
    assert_eq!(
        change(&policy("required")),
        RealmChange::E2ee(E2ee::Required)
    );
    assert_eq!(kind(&policy("on")), ErrorKind::BadCommand);
}

#[test]
fn a_token_has_a_role_that_exists() {
    let body = |role: &str| format!("{{'command':'add_token','realm':'r'{role}}}");
    match parse(&body("")).unwrap() {
        Command::AddToken(new) => assert!(new.role == Role::Both && new.text == TokenText::Mint),
        other => panic!("{other:?}"),
    }
    assert_eq!(kind(&body(",'role':'root'")), ErrorKind::BadCommand);
}

#[test]
fn tokens_are_revoked_by_text_by_hash_or_by_client() {
    let which = |body: &str| -> Result<TokenChoice> {
        match parse(body)? {
            Command::RevokeToken { which, .. } => Ok(which),
            other => panic!("{other:?}"),
        }
    };
    let hash = "ab".repeat(32);
    assert!(matches!(
        which(&format!(
            "{{'command':'revoke_token','token_hash':'{hash}'}}"
        )),
        Ok(TokenChoice::Hash(_))
    ));
    assert_eq!(
        which("{'command':'revoke_token','realm':'r','client_id':'c'}").unwrap(),
        TokenChoice::Client {
            realm: realm("r"),
            client_id: "c".into()
        }
    );
    for body in ["", ",'realm':'r'", ",'token_hash':'abc'", ",'token':7"] {
        let body = format!("{{'command':'revoke_token'{body}}}");
        assert_eq!(kind(&body), ErrorKind::BadCommand, "{body}");
    }
}

#[test]
fn a_validator_has_one_scope() {
    let external = |scope: &str| {
        parse(&format!(
            "{{'command':'set_external_auth','auth_url':'https://a'{scope}}}"
        ))
    };
    match external(",'realm_prefix':'org:','auth_secret':''").unwrap() {
        Command::SetExternalAuth { scope, secret, .. } => {
            assert_eq!(scope, ValidatorScope::Prefix("org:".into()));
            assert_eq!(secret, SecretChange::Clear);
        }
        other => panic!("{other:?}"),
    }
    let both = external(",'realm':'r','realm_prefix':'org:'");
    assert_eq!(both.unwrap_err().kind(), ErrorKind::BadCommand);
}

#[test]
fn what_a_person_writes_beside_the_command_is_an_option_of_the_store() {
    let body = "{'command':'set_persistence','backend':'sqlite','path':'b.sqlite',\
                'default_ttl':60,'options':{'synchronous':'normal'}}";
    let Command::SetPersistence(StoreWish(members)) = parse(body).unwrap() else {
        panic!()
    };
    let expected = serde_json::json!({"storage": "sqlite", "storage_options":
        {"filename": "b.sqlite", "default_ttl": 60, "synchronous": "normal"}});
    assert_eq!(serde_json::Value::from(members), expected);
    for name in ["storage", "backend", "store"] {
        let named = |store: &str| {
            parse(&format!(
                "{{'command':'set_persistence','{name}':'{store}'}}"
            ))
        };
        let error = named("papyrus").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadCommand, "{name}");
        assert!(named("memory").is_ok() && named("custom").is_ok(), "{name}");
    }
}

#[test]
fn realm_names_are_checked_wherever_they_stand() {
    for name in ["''", "' x'", "7", "['r']", "'a\\u0000b'"] {
        for body in [
            format!("{{'command':'add_realm','realm':{name}}}"),
            format!("{{'command':'rename_realm','from':'r','to':{name}}}"),
        ] {
            let kind = kind(&body);
            assert!(
                matches!(kind, ErrorKind::BadCommand | ErrorKind::BadName),
                "{body}"
            );
        }
    }
}

#[test]
fn a_manager_key_reaches_its_own_realm_and_nothing_structural() {
    let scope = |body: &str| parse(body).unwrap().realm_scope().cloned();
    let key = |realm: &str, more: &str| {
        scope(&format!(
            "{{'command':'set_realm_key','realm':'{realm}','key':'k'{more}}}"
        ))
    };
    assert_eq!(key("r", ""), Some(realm("r")));
    assert_eq!(key("*", ""), None);
    assert_eq!(key("default", ""), None);
    assert_eq!(key("r", ",'create':true"), None);
    assert_eq!(
        scope("{'command':'set_realm_auth','realm':'r','required':false}"),
        None
    );
    assert_eq!(
        scope("{'command':'set_realm_manager_key','realm':'r','manager_key':'k'}"),
        None
    );
    assert_eq!(
        scope("{'command':'dlq_list','realm':'r'}"),
        Some(realm("r"))
    );
    assert_eq!(scope("{'command':'dlq_list'}"), None);
    assert_eq!(scope("{'command':'remove_realm','realm':'r'}"), None);
}

#[test]
fn what_is_no_command_is_refused_and_no_secret_is_shown() {
    for body in [
        "",
        "[]",
        "null",
        "{}",
        "{'command':7}",
        "{'command':'drop_realm_table'}",
    ] {
        assert_eq!(kind(body), ErrorKind::BadCommand, "{body}");
    }
    let shown = format!(
        "{:?}",
        parse("{'command':'add_realm','realm':'r','key':'hush','manager_key':'hush'}").unwrap()
    );
    assert!(!shown.contains("hush"));
}

#[test]
fn commands_that_carry_a_secret_there_or_back_say_so() {
    for (body, bears_secret) in [
        (r#"{"command":"get"}"#, false),
        (r#"{"command":"add_realm","realm":"a"}"#, false),
        (r#"{"command":"add_realm","realm":"a","key":"k"}"#, true),
        (
            r#"{"command":"add_realm","realm":"a","manager_key":"k"}"#,
            true,
        ),
        (r#"{"command":"add_realm","realm":"a","jwt_key":"k"}"#, true),
        (r#"{"command":"set_realm_key","realm":"a","key":"k"}"#, true),
        (
            r#"{"command":"set_realm_key","realm":"a","key":null}"#,
            false,
        ),
        (
            r#"{"command":"set_realm_manager_key","realm":"a","manager_key":"k"}"#,
            true,
        ),
        (
            r#"{"command":"set_realm_jwt_key","realm":"a","jwt_key":"k"}"#,
            true,
        ),
        (r#"{"command":"add_token","realm":"a"}"#, true),
        (r#"{"command":"revoke_token","token":"t"}"#, true),
        (
            r#"{"command":"revoke_token","realm":"a","client_id":"c"}"#,
            false,
        ),
        (
            r#"{"command":"add_management_token","token":"t","realm_prefix":"o:"}"#,
            true,
        ),
        (
            r#"{"command":"set_external_auth","auth_url":"https://a.example/","auth_secret":"s"}"#,
            true,
        ),
        (
            r#"{"command":"set_external_auth","auth_url":"https://a.example/"}"#,
            false,
        ),
        (
            r#"{"command":"set_external_auth","auth_url":"https://a.example/?key=s"}"#,
            true,
        ),
        (
            r#"{"command":"set_persistence","storage":"redis","url":"redis://:s@a"}"#,
            true,
        ),
        (
            r#"{"command":"set_persistence","storage":"redis","options":{"password":"s"}}"#,
            true,
        ),
        (
            r#"{"command":"set_persistence","storage":"redis","url":"redis://a"}"#,
            false,
        ),
        (
            r#"{"command":"set_persistence","storage":"sqlite","path":"a"}"#,
            false,
        ),
    ] {
        let command = Command::parse(body).unwrap();
        assert_eq!(command.bears_secret(), bears_secret, "{body}");
        let shown = format!("{command:?}");
        assert!(
            !shown.contains("redis://") && !shown.contains("key="),
            "{shown}"
        );
    }
}
