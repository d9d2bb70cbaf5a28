//! Tokens end, and with them the sessions that they let in (scenario 35; F08).

use restante::auth::TokenHash;
use serde_json::json;

use super::{ADMIN, Managed, assert_refused, shown};
use crate::harness::On;

#[tokio::test]
async fn a_revoked_token_drops_its_live_session_and_is_counted() {
    let managed = Managed::start(On::Memory).await;
    for (token, by) in [
        (
            "acme-token",
            json!({ "token_hash": TokenHash::of("acme-token").to_string() }),
        ),
        (
            "beta-token",
            json!({ "realm": "beta", "client_id": "beta-client" }),
        ),
        ("default-token", json!({ "token": "default-token" })),
    ] {
        let mut client = managed.client(token, "c").await;
        let mut order = by;
        order["command"] = json!("revoke_token");
        let answer = managed.order(order).await;
        assert_eq!(answer["disconnected_sockets"], 1, "{answer}");
        assert_eq!(answer["revoked"].as_array().unwrap().len(), 1, "{answer}");
        assert_eq!(
            answer["revoked"][0]["token_hash"],
            TokenHash::of(token).to_string()
        );
        let told = client.event("AUTH_FAIL").await.expect("why");
        assert_eq!(told["code"], 401);
        client.ended().await;
        assert_eq!(shown(&mut managed.stranger().await, token).await, 401);
    }
    managed.house.close().await;
}

#[tokio::test]
async fn an_administrators_token_is_revoked_only_if_that_is_said() {
    let managed = Managed::start(On::Memory).await;
    let add = json!({ "command": "add_token", "realm": "*", "role": "admin" });
    let added = managed.order(add).await;
    let hash = added["token_hash"].clone();
    let mut order = json!({ "command": "revoke_token", "token_hash": hash });
    assert_refused(&managed.order(order.clone()).await, 404, "token_unknown");
    order["allow_admin"] = json!(true);
    assert_eq!(managed.order(order).await["ok"], true);
    let token = added["token"].as_str().unwrap();
    assert_eq!(shown(&mut managed.stranger().await, token).await, 401);
    assert_eq!(shown(&mut managed.stranger().await, ADMIN).await, "*");
    managed.house.close().await;
}
