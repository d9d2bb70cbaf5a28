//! Commands about tokens.

use super::*;

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
