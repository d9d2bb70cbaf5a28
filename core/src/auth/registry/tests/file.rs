//! The settings file and commands about the same things.

use super::*;

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
    auth.set_realm_manager_key(realm("acme"), Some(secret("by a command, m2")))
        .await
        .unwrap();
    auth.set_realm_e2ee(realm("acme"), E2ee::Required, false)
        .await
        .unwrap();
    auth.reload(settings(&file(false, "m1"))).await.unwrap();
    assert_eq!(
        auth.manager_key(&realm("acme")),
        Some(secret("by a command, m2"))
    );
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
async fn who_is_known_by_a_hash_alone_is_no_administrator_that_could_sign() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("restante.env");
    let file = settings(&json!({"enabled": true, "env_file": path.to_str()}));
    let (shelf, clock) = (Shelf::new(), TestClock::new());
    let again = || {
        Auth::open_with(
            shelf.clone(),
            file.clone(),
            clock.clone(),
            environment(None),
        )
    };
    let auth = again().await.unwrap();
    let admin = token("*", Role::Admin, None, TokenText::Mint);
    auth.add_token(admin).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    let auth = again().await.unwrap();
    assert_eq!(auth.admin_secrets().len(), 1);
    assert_eq!(read_env_file(&path).unwrap()[0].0, ADMIN_TOKEN);
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
