//! Commands and reloads: what changes, what lasts, what is shown (admin.md §12, scenarios 29–30, 32–35, 39).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::testing::{Shelf, attempt, code, enter, environment, open, settings};
use super::super::*;
use super::*;
use crate::clock::TestClock;

struct Room {
    auth: Arc<Auth>,
    shelf: Arc<Shelf>,
    clock: Arc<TestClock>,
}

impl Room {
    async fn new(value: Value) -> Self {
        let (shelf, clock) = (Shelf::new(), TestClock::new());
        let auth = open(&shelf, &clock, value).await;
        Self { auth, shelf, clock }
    }

    /// The process ended and started again.
    async fn again(&self, value: Value) -> Self {
        let auth = open(&self.shelf, &self.clock, value).await;
        Self {
            auth,
            shelf: self.shelf.clone(),
            clock: self.clock.clone(),
        }
    }
}

fn realm(name: &str) -> RealmId {
    RealmId::parse(name).unwrap()
}

fn secret(text: &str) -> Secret {
    Secret::parse(text).unwrap()
}

fn token(name: &str, role: Role, client: Option<&str>, text: TokenText) -> NewToken {
    NewToken {
        realm: realm(name),
        role,
        client_id: client.map(Arc::from),
        client_name: None,
        approved_at: None,
        allow: Allow::default(),
        text,
    }
}

fn on() -> Value {
    json!({"enabled": true})
}

#[tokio::test]
async fn every_change_outlives_the_process() {
    let room = Room::new(on()).await;
    let auth = &room.auth;
    let new = NewRealm {
        required: Some(true),
        manager_key: Some(secret("manager")),
        key: Some(secret("preshared")),
        require_acceptance: Some(true),
        e2ee: E2ee::Opportunistic,
        lifetime: Lifetime::Permanent,
    };
    assert_eq!(auth.add_realm(realm("acme"), new).await, Ok(None));
    auth.set_realm_auth(realm("open"), false, true)
        .await
        .unwrap();
    auth.set_realm_acceptance(realm("acme"), false, false)
        .await
        .unwrap();
    auth.set_realm_e2ee(realm("acme"), E2ee::Required, false)
        .await
        .unwrap();
    let url = |path: &str| Some(ValidatorUrl::parse(&format!("https://a.example/{path}")).unwrap());
    for (scope, path) in [
        (ValidatorScope::Realm(realm("acme")), "realm"),
        (ValidatorScope::Prefix("org:".into()), "prefix"),
        (ValidatorScope::Global, "global"),
    ] {
        let change = SecretChange::Set(secret("validators"));
        auth.set_external_auth(scope, url(path), change)
            .await
            .unwrap();
    }
    let management = ManagementToken {
        realm_prefix: "apps:".into(),
        ephemeral_only: true,
        max_ttl: Some(Duration::from_secs(60)),
    };
    auth.add_management_token(secret("management-token"), management)
        .await
        .unwrap();
    let added = auth
        .add_token(token("acme", Role::Both, Some("c"), TokenText::Mint))
        .await
        .unwrap();
    let minted = added.minted.unwrap();
    assert_eq!(minted.expose().len(), 64);

    let again = room.again(on()).await;
    assert_eq!(again.auth.view(), auth.view());
    assert_eq!(
        code(&again.auth, &json!({"token": minted.expose()})).await,
        0
    );
    assert!(again.auth.management_token("management-token").is_some());
    assert_eq!(
        again.auth.manager_key(&realm("acme")),
        Some(secret("manager"))
    );
    // Tokens are nowhere in clear, nor is what only has to be recognised.
    for text in [minted.expose(), "management-token", "preshared"] {
        assert!(!room.shelf.texts().contains(text), "{text}");
    }
}

#[tokio::test]
async fn what_the_store_refuses_has_not_happened() {
    let room = Room::new(on()).await;
    let auth = &room.auth;
    auth.add_realm(realm("acme"), NewRealm::default())
        .await
        .unwrap();
    let before = auth.view();
    let mut changes = auth.changes();
    changes.mark_unchanged();
    room.shelf.fail_after(Some(0));
    let failed = |result: Result<()>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::StoreUnavailable);
    };
    failed(
        auth.add_realm(realm("b"), NewRealm::default())
            .await
            .map(drop),
    );
    failed(auth.set_realm_auth(realm("acme"), false, false).await);
    failed(auth.close_realm(realm("acme")).await);
    failed(auth.rename_realm(realm("acme"), realm("b")).await);
    failed(auth.set_global_auth(false).await);
    failed(
        auth.add_token(token("acme", Role::Both, None, TokenText::Mint))
            .await
            .map(drop),
    );
    failed(
        auth.reload(settings(&json!({"realms": {"new": {}}})))
            .await
            .map(drop),
    );
    assert_eq!(auth.view(), before);
    assert!(!changes.has_changed().unwrap());
}

#[tokio::test]
async fn realms_are_added_once_and_changed_only_where_they_are() {
    let room = Room::new(on()).await;
    let auth = &room.auth;
    let kind = |result: Result<()>| result.unwrap_err().kind();
    auth.add_realm(realm("acme"), NewRealm::default())
        .await
        .unwrap();
    let twice = auth.add_realm(realm("acme"), NewRealm::default()).await;
    assert_eq!(twice.unwrap_err().kind(), ErrorKind::RealmExists);
    let none = realm("none");
    assert_eq!(
        kind(auth.set_realm_auth(none.clone(), true, false).await),
        ErrorKind::RealmUnknown
    );
    assert_eq!(
        kind(auth.set_realm_key(none.clone(), None, None).await),
        ErrorKind::RealmUnknown
    );
    assert_eq!(
        kind(auth.set_realm_manager_key(none.clone(), None).await),
        ErrorKind::RealmUnknown
    );
    assert_eq!(
        kind(auth.remove_realm(none.clone()).await.map(drop)),
        ErrorKind::RealmUnknown
    );
    assert_eq!(
        kind(auth.close_realm(none.clone()).await),
        ErrorKind::RealmUnknown
    );
    assert_eq!(
        kind(auth.rename_realm(none, realm("x")).await),
        ErrorKind::RealmUnknown
    );
    auth.add_realm(realm("b"), NewRealm::default())
        .await
        .unwrap();
    assert_eq!(
        kind(auth.rename_realm(realm("acme"), realm("b")).await),
        ErrorKind::RealmExists
    );
    for name in ["default", "*"] {
        let lifetime = Lifetime::Ephemeral(None);
        let new = NewRealm {
            lifetime,
            ..NewRealm::default()
        };
        for result in [
            auth.add_realm(realm(name), new).await.map(drop),
            auth.remove_realm(realm(name)).await.map(drop),
            auth.close_realm(realm(name)).await,
            auth.rename_realm(realm(name), realm("x")).await,
            auth.rename_realm(realm("acme"), realm(name)).await,
            auth.set_realm_lifetime(realm(name), lifetime, Caller::Administrator)
                .await
                .map(drop),
        ] {
            assert_eq!(kind(result), ErrorKind::BadCommand, "{name}");
        }
    }
    assert_eq!(
        kind(auth.set_realm_auth(realm("*"), false, true).await),
        ErrorKind::BadCommand
    );
    auth.set_realm_auth(RealmId::default(), false, false)
        .await
        .unwrap();
    assert_eq!(code(auth, &json!({"realm": "default"})).await, 0);
}

#[tokio::test]
async fn a_removed_realm_takes_its_tokens_with_it() {
    let room = Room::new(on()).await;
    let auth = &room.auth;
    auth.add_realm(realm("acme"), NewRealm::default())
        .await
        .unwrap();
    let text = |text: &str| TokenText::Given(secret(text));
    for (name, one) in [
        ("acme", "acme-token-no-1!"),
        ("acme", "acme-token-no-2!"),
        ("b", "a-token-of-realm-b"),
    ] {
        auth.add_token(token(name, Role::Both, None, text(one)))
            .await
            .unwrap();
    }
    auth.close_realm(realm("acme")).await.unwrap();
    assert_eq!(auth.ended_realms(), [realm("acme")]);
    let again = room.again(on()).await;
    assert_eq!(
        again.auth.ended_realms(),
        [realm("acme")],
        "a crash in between is seen"
    );
    assert_eq!(auth.remove_realm(realm("acme")).await.unwrap().len(), 2);
    assert_eq!(code(auth, &json!({"token": "acme-token-no-1!"})).await, 401);
    assert_eq!(code(auth, &json!({"token": "a-token-of-realm-b"})).await, 0);
    assert!(auth.ended_realms().is_empty());
    assert_eq!(room.again(on()).await.auth.view(), auth.view());
}

#[tokio::test]
async fn a_renamed_realm_keeps_its_settings_and_tokens_even_if_the_store_fails_in_between() {
    for fails_after in [None, Some(1), Some(2)] {
        let room = Room::new(on()).await;
        let auth = &room.auth;
        let new = NewRealm {
            manager_key: Some(secret("m")),
            ..NewRealm::default()
        };
        auth.add_realm(realm("old"), new).await.unwrap();
        for n in 0..3 {
            let text = TokenText::Given(secret(&format!("a-token-with-number-{n}")));
            auth.add_token(token("old", Role::Both, None, text))
                .await
                .unwrap();
        }
        room.shelf.fail_after(fails_after);
        let renamed = auth.rename_realm(realm("old"), realm("new")).await;
        assert_eq!(renamed.is_ok(), fails_after.is_none());
        room.shelf.fail_after(None);
        let again = room.again(on()).await;
        for auth in [auth, &again.auth] {
            assert_eq!(auth.manager_key(&realm("new")), Some(secret("m")));
            assert_eq!(auth.manager_key(&realm("old")), None);
            for n in 0..3 {
                let sent = json!({"token": format!("a-token-with-number-{n}")});
                let principal = enter(auth, &attempt(&sent)).await.unwrap();
                assert_eq!(principal.realm.as_str(), "new", "{fails_after:?}");
            }
        }
    }
}

#[tokio::test]
async fn tokens_are_added_once_with_a_role_that_goes_with_their_realm() {
    let room = Room::new(json!({"enabled": true, "monitor_tokens": ["a-monitor-token!"]})).await;
    let auth = &room.auth;
    let given = |text: &str| TokenText::Given(secret(text));
    let add = async |name: &str, role, text| auth.add_token(token(name, role, None, text)).await;
    assert!(
        add("acme", Role::Both, given("a-token-of-acme!"))
            .await
            .is_ok()
    );
    for text in [
        given("a-token-of-acme!"),
        TokenText::Hash(TokenHash::of("a-token-of-acme!")),
        given("a-monitor-token!"),
    ] {
        let error = add("b", Role::Both, text).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TokenExists);
    }
    for (name, role, text) in [
        ("acme", Role::Admin, TokenText::Mint),
        ("*", Role::Both, TokenText::Mint),
        ("acme", Role::Both, given("short")),
    ] {
        let error = add(name, role, text).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadCommand);
    }
    let long = NewToken {
        client_id: Some("x".repeat(256).into()),
        ..token("a", Role::Both, None, TokenText::Mint)
    };
    assert_eq!(
        auth.add_token(long).await.unwrap_err().kind(),
        ErrorKind::BadCommand
    );
}

#[tokio::test]
async fn tokens_are_revoked_by_hash_or_client_and_super_admins_only_when_that_is_said() {
    let room = Room::new(json!({"enabled": true, "tokens": [
        {"token": "root", "realm": "*", "role": "admin", "client_id": "r"},
        {"token": "one", "realm": "acme", "client_id": "c"},
        {"token": "two", "realm": "acme", "client_id": "c"},
        {"token": "three", "realm": "acme", "client_id": "d"}]}))
    .await;
    let auth = &room.auth;
    let client = |name: &str, id: &str| TokenChoice::Client {
        realm: realm(name),
        client_id: id.into(),
    };
    assert_eq!(
        auth.revoke_token(client("acme", "c"), false)
            .await
            .unwrap()
            .len(),
        2
    );
    let gone = auth.revoke_token(client("acme", "c"), false).await;
    assert_eq!(gone.unwrap_err().kind(), ErrorKind::TokenUnknown);
    let root = TokenChoice::Hash(TokenHash::of("root"));
    let spared = auth.revoke_token(root.clone(), false).await;
    assert_eq!(spared.unwrap_err().kind(), ErrorKind::TokenUnknown);
    assert_eq!(auth.admin_secrets(), [secret("root")]);
    assert_eq!(auth.revoke_token(root, true).await.unwrap().len(), 1);
    assert!(auth.admin_secrets().is_empty());
    assert_eq!(code(auth, &json!({"token": "three"})).await, 0);
}

#[tokio::test]
async fn what_was_revoked_or_removed_stays_so_though_the_file_has_it_until_the_file_changes() {
    let file = |note: &str| {
        json!({"enabled": true,
        "realms": {"acme": {"require_acceptance": false}, "b": {}},
        "tokens": [{"token": "t", "realm": "b", "client_name": note}]})
    };
    let room = Room::new(file("1")).await;
    room.auth
        .revoke_token(TokenChoice::Hash(TokenHash::of("t")), false)
        .await
        .unwrap();
    room.auth.remove_realm(realm("acme")).await.unwrap();
    let again = room.again(file("1")).await;
    assert_eq!(code(&again.auth, &json!({"token": "t"})).await, 401);
    assert_eq!(again.auth.realm_view(&realm("acme")), json!({"realms": {}}));
    again.auth.reload(settings(&file("2"))).await.unwrap();
    assert_eq!(code(&again.auth, &json!({"token": "t"})).await, 0);
    assert_eq!(again.auth.realm_view(&realm("acme")), json!({"realms": {}}));
}

#[tokio::test]
async fn a_token_added_to_the_file_by_hand_takes_no_other_away() {
    let room =
        Room::new(json!({"enabled": true, "tokens": [{"token": "one", "realm": "a"}]})).await;
    let added = room
        .auth
        .add_token(token("b", Role::Both, None, TokenText::Mint))
        .await
        .unwrap();
    let minted = added.minted.unwrap();
    let file = json!({"enabled": true, "tokens": [{"token": "two", "realm": "c"}]});
    assert_eq!(room.auth.reload(settings(&file)).await, Ok(Vec::new()));
    for text in ["one", "two", minted.expose()] {
        assert_eq!(code(&room.auth, &json!({"token": text})).await, 0, "{text}");
    }
}

#[tokio::test]
async fn of_a_realm_what_is_edited_in_the_file_changes_and_the_rest_stays_as_commands_made_it() {
    let file = |required: bool, key: &str| {
        json!({"enabled": true,
        "realms": {"acme": {"required": required, "manager_key": key, "allow_anonymous": true}}})
    };
    let room = Room::new(file(true, "m1")).await;
    let auth = &room.auth;
    auth.set_realm_manager_key(realm("acme"), Some(secret("m2")))
        .await
        .unwrap();
    auth.set_realm_e2ee(realm("acme"), E2ee::Required, false)
        .await
        .unwrap();
    auth.reload(settings(&file(false, "m1"))).await.unwrap();
    assert_eq!(auth.manager_key(&realm("acme")), Some(secret("m2")));
    assert!(auth.needs_e2ee(&realm("acme")));
    assert_eq!(code(auth, &json!({"realm": "acme"})).await, 0);
    auth.reload(settings(&file(false, "m3"))).await.unwrap();
    assert_eq!(auth.manager_key(&realm("acme")), Some(secret("m3")));
    assert!(auth.needs_e2ee(&realm("acme")));
}

#[tokio::test]
async fn the_switch_and_the_global_validator_are_the_files_again_when_the_file_changes_them() {
    let room = Room::new(json!({})).await;
    let auth = &room.auth;
    auth.set_global_auth(true).await.unwrap();
    let url = ValidatorUrl::parse("https://a.example/x").unwrap();
    let set = auth.set_external_auth(
        ValidatorScope::Global,
        Some(url),
        SecretChange::Set(secret("s")),
    );
    set.await.unwrap();
    let again = room.again(json!({})).await;
    assert!(again.auth.is_enabled());
    assert_eq!(again.auth.view()["auth_url"], "https://a.example/x");
    let auth = &again.auth;
    auth.reload(settings(
        &json!({"enabled": true, "auth_url": "https://b.example/"}),
    ))
    .await
    .unwrap();
    assert_eq!(auth.view()["auth_url"], "https://b.example/");
    auth.reload(settings(&json!({}))).await.unwrap();
    assert!(!auth.is_enabled());
    assert_eq!(auth.view().get("auth_url"), None);
    assert!(!room.again(json!({})).await.auth.is_enabled());
}

#[tokio::test]
async fn a_validators_secret_stays_is_cleared_or_is_set() {
    let room = Room::new(json!({"enabled": true, "realms": {"acme": {}}})).await;
    let url = || Some(ValidatorUrl::parse("https://a.example/x").unwrap());
    let scopes = || {
        [
            (
                ValidatorScope::Realm(realm("acme")),
                "/realms/acme/auth_secret_configured",
            ),
            (
                ValidatorScope::Prefix("org:".into()),
                "/external_validators/0/auth_secret_configured",
            ),
            (ValidatorScope::Global, "/auth_secret"),
        ]
    };
    for (change, is_set) in [
        (SecretChange::Set(secret("s3cret")), true),
        (SecretChange::Keep, true),
        (SecretChange::Clear, false),
    ] {
        for (scope, pointer) in scopes() {
            room.auth
                .set_external_auth(scope, url(), change.clone())
                .await
                .unwrap();
            let view = room.auth.view();
            let shown = view.pointer(pointer).is_some_and(|shown| *shown != false);
            assert_eq!(shown, is_set, "{pointer} {change:?}");
        }
    }
    for (scope, _) in scopes() {
        room.auth
            .set_external_auth(scope, None, SecretChange::Keep)
            .await
            .unwrap();
    }
    let view = room.auth.view();
    assert_eq!(view["external_validators"], json!([]));
    assert_eq!(view["realms"]["acme"].get("auth_url"), None);
    let unknown = ValidatorScope::Realm(realm("none"));
    let error = room
        .auth
        .set_external_auth(unknown, url(), SecretChange::Keep)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RealmUnknown);
}

#[tokio::test]
async fn two_brokers_over_one_keeper_lose_nothing_of_each_other() {
    let one = Room::new(on()).await;
    let other = one.again(on()).await;
    one.auth
        .add_realm(realm("acme"), NewRealm::default())
        .await
        .unwrap();
    // The other has not heard of it, and its change builds on what is there.
    other
        .auth
        .set_realm_auth(realm("acme"), false, false)
        .await
        .unwrap();
    let twice = other
        .auth
        .add_realm(realm("acme"), NewRealm::default())
        .await;
    assert_eq!(twice.unwrap_err().kind(), ErrorKind::RealmExists);
    one.auth
        .set_realm_manager_key(realm("acme"), Some(secret("m")))
        .await
        .unwrap();
    other.auth.reload_documents().await.unwrap();
    assert_eq!(one.auth.view(), other.auth.view());
    assert_eq!(other.auth.view()["realms"]["acme"]["required"], false);
    one.auth.remove_realm(realm("acme")).await.unwrap();
    assert_eq!(other.auth.reload_documents().await, Ok(vec![realm("acme")]));
}

#[tokio::test]
async fn a_change_whose_caller_went_away_is_finished() {
    let room = Room::new(on()).await;
    let auth = room.auth.clone();
    let mut changes = auth.changes();
    changes.mark_unchanged();
    let mut adding = Box::pin(auth.add_realm(realm("acme"), NewRealm::default()));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let polled = adding.as_mut().poll(&mut context);
    assert!(polled.is_pending());
    drop(adding);
    changes.changed().await.unwrap();
    assert_eq!(room.auth.view()["realms"].as_object().unwrap().len(), 1);
}

#[test]
fn a_realms_own_key_is_held_to_what_its_management_tokens_say() {
    let owner = |ephemeral_only, max_ttl: Option<f64>| ManagementToken {
        realm_prefix: "apps:".into(),
        ephemeral_only,
        max_ttl: max_ttl.map(Duration::from_secs_f64),
    };
    let day = Duration::from_secs(86_400);
    let ends = |seconds| Lifetime::Ephemeral(Some(Duration::from_secs(seconds)));
    for (wished, owners, wanted) in [
        (Lifetime::Permanent, vec![], Lifetime::Permanent),
        (
            Lifetime::Permanent,
            vec![owner(false, None)],
            Lifetime::Permanent,
        ),
        (Lifetime::Permanent, vec![owner(true, None)], ends(86_400)),
        (
            Lifetime::Permanent,
            vec![owner(false, Some(60.0))],
            ends(60),
        ),
        (Lifetime::Ephemeral(None), vec![], ends(86_400)),
        (ends(30), vec![owner(true, Some(60.0))], ends(30)),
        (
            ends(90),
            vec![owner(true, Some(60.2)), owner(false, Some(70.0))],
            ends(61),
        ),
    ] {
        assert_eq!(clamp(wished, &owners, day), wanted, "{wished:?} {owners:?}");
    }
    let token = owner(true, None);
    assert!(
        token.owns(&realm("apps:x")) && !token.owns(&realm("apps:")) && !token.owns(&realm("b"))
    );
}

#[tokio::test]
async fn a_lifetime_counts_from_the_command_and_may_be_taken_back() {
    let room = Room::new(json!({"enabled": true, "ephemeral_realm_ttl": "1h",
        "management_tokens": [{"token": "mt", "realm_prefix": "apps:", "max_ttl": "10m"}]}))
    .await;
    let auth = &room.auth;
    let lifetime = Lifetime::Ephemeral(Some(Duration::from_secs(60)));
    let new = NewRealm {
        lifetime,
        ..NewRealm::default()
    };
    let end = auth.add_realm(realm("apps:x"), new).await.unwrap().unwrap();
    room.clock.advance(Duration::from_secs(30));
    let set = async |lifetime, caller| {
        let end = auth
            .set_realm_lifetime(realm("apps:x"), lifetime, caller)
            .await
            .unwrap();
        end.map(|end| end.since(room.clock.now()).as_secs())
    };
    assert_eq!(end.since(room.clock.now()).as_secs(), 30);
    assert_eq!(set(Lifetime::Permanent, Caller::RealmKey).await, Some(600));
    assert_eq!(set(lifetime, Caller::RealmKey).await, Some(60));
    assert_eq!(
        set(Lifetime::Ephemeral(None), Caller::Administrator).await,
        Some(3600)
    );
    assert_eq!(set(Lifetime::Permanent, Caller::Administrator).await, None);
    room.clock.advance(Duration::from_secs(7200));
    assert!(auth.ended_realms().is_empty());
}

#[tokio::test]
async fn a_file_realm_that_ended_does_not_begin_anew_with_every_start() {
    let file = json!({"enabled": true, "realms": {"acme": {"ttl": "10s"}}});
    let room = Room::new(file.clone()).await;
    room.clock.advance(Duration::from_secs(5));
    let again = room.again(file.clone()).await;
    room.clock.advance(Duration::from_secs(5));
    assert_eq!(again.auth.ended_realms(), [realm("acme")]);
    again.auth.remove_realm(realm("acme")).await.unwrap();
    let again = again.again(file).await;
    assert!(again.auth.ended_realms().is_empty());
    assert_eq!(again.auth.realm_view(&realm("acme")), json!({"realms": {}}));
}

#[tokio::test]
async fn an_administrator_is_made_when_authentication_is_switched_on_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("restante.env");
    let file = settings(&json!({"env_file": path.to_str()}));
    let opened = Auth::open_with(Shelf::new(), file, TestClock::new(), environment(None));
    let auth = opened.await.unwrap();
    assert!(auth.admin_secrets().is_empty() && !path.exists());
    auth.set_global_auth(true).await.unwrap();
    let secrets = auth.admin_secrets();
    let written = read_env_file(&path).unwrap();
    assert_eq!(
        written[0],
        (ADMIN_TOKEN.to_owned(), secrets[0].expose().to_owned())
    );
    assert!(auth.is_token_known(&secrets[0].hash()));
}

#[tokio::test]
async fn views_show_everything_but_secrets() {
    let room = Room::new(json!({"enabled": true, "jwt_secret": "hunter2", "auth_url": "https://g.example/",
        "auth_secret": "hunter2", "monitor_tokens": ["hunter2"],
        "tokens": [{"token": "hunter2", "realm": "acme", "client_id": "c", "allow": {"produce": ["a"]}, "names": ["n"]}],
        "management_tokens": [{"token": "hunter2-m", "realm_prefix": "apps:", "max_ttl": "1m"}],
        "external_validators": [{"realm_prefix": "p", "auth_url": "https://p.example/", "auth_secret": "hunter2"}],
        "realms": {
            "acme": {"manager_key": "hunter2", "jwt_key": "hunter2", "key": "hunter2",
                "auth_url": "https://a.example/", "auth_secret": "hunter2", "limits": {"a": 1}},
            "other": {"required": false, "ttl": 5}}})).await;
    let view = room.auth.view();
    assert!(!view.to_string().contains("hunter2"));
    assert_eq!(view["jwt_secret"], "<configured>");
    assert_eq!(view["auth_secret"], "<configured>");
    assert_eq!(
        view["tokens"],
        json!([{"realm": "acme", "role": "both", "client_id": "c", "client_name": null,
        "token_hash": TokenHash::of("hunter2").to_string(), "allow": {"produce": ["a"]}, "names": ["n"]}])
    );
    assert_eq!(
        view["realms"]["acme"],
        json!({"manager_key_configured": true, "jwt_key_configured": true,
        "key_configured": true, "auth_secret_configured": true, "auth_url": "https://a.example/",
        "limits": {"a": 1}})
    );
    assert_eq!(view["realms"]["other"]["ephemeral"], true);
    assert_eq!(view["management_tokens"][0]["max_ttl"], 60.0);
    let own = room.auth.realm_view(&realm("acme"));
    assert_eq!(own["realms"].as_object().unwrap().len(), 1);
    assert!(
        !own.to_string().contains("hunter2") && !format!("{:?}", room.auth).contains("hunter2")
    );
}

#[tokio::test]
async fn without_a_keeper_nothing_can_be_changed() {
    let error = Auth::off().set_global_auth(true).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
