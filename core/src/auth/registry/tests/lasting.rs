//! That changes last, on every road out of a process, and that what is shown holds no secret.

use super::*;

#[tokio::test]
async fn every_change_outlives_the_process() {
    let room = Room::new(on()).await;
    let auth = &room.auth;
    let new = NewRealm {
        required: Some(true),
        manager_key: Some(secret("signs for manager")),
        key: Some(secret("preshared")),
        require_acceptance: Some(true),
        e2ee: E2ee::Opportunistic,
        ..NewRealm::default()
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
        Some(secret("signs for manager"))
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
        .set_realm_manager_key(realm("acme"), Some(secret("signs for manager")))
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

#[tokio::test]
async fn views_show_everything_but_secrets() {
    let room = Room::new(json!({"enabled": true, "jwt_secret": "hunter2", "auth_url": "https://g.example/",
        "auth_secret": "hunter2", "monitor_tokens": ["hunter2"],
        "tokens": [{"token": "hunter2", "realm": "acme", "client_id": "c", "allow": {"produce": ["a"]}, "names": ["n"]}],
        "management_tokens": [{"token": "hunter2-m", "realm_prefix": "apps:", "max_ttl": "1m"}],
        "external_validators": [{"realm_prefix": "p", "auth_url": "https://p.example/", "auth_secret": "hunter2"}],
        "realms": {
            "acme": {"manager_key": "hunter2", "jwt_key": "hunter2", "key": "hunter2",
                "auth_url": "https://a.example/", "auth_secret": "hunter2"},
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
        "key_configured": true, "auth_secret_configured": true, "auth_url": "https://a.example/"})
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
