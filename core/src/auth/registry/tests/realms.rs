//! Commands about realms and who is asked about their tokens.

use super::*;

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
            manager_key: Some(secret("signs for manager")),
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
        if fails_after.is_some() {
            // The name is free again when all have followed.
            let again = auth.add_realm(realm("old"), NewRealm::default()).await;
            assert_eq!(again.unwrap_err().kind(), ErrorKind::Conflict);
        }
        let again = room.again(on()).await;
        assert!(!room.shelf.texts().contains("moved_to"));
        for auth in [auth, &again.auth] {
            assert_eq!(
                auth.manager_key(&realm("new")),
                Some(secret("signs for manager"))
            );
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
