//! Whatever is sent: no panic, and nobody in who should not be (P26).

use proptest::prelude::*;
use serde_json::json;

use super::super::testing::{Shelf, enter, nothing, open};
use super::super::*;
use crate::clock::TestClock;

fn sent() -> impl Strategy<Value = Option<String>> {
    let token = prop_oneof![
        Just("root".to_owned()),
        Just("rooT".to_owned()),
        Just("*".to_owned()),
        Just("admin".to_owned()),
        Just("default".to_owned()),
        Just("acme".to_owned()),
        Just("consumer".to_owned()),
        Just("__proto__".to_owned()),
        "[A-Za-z0-9_=-]{0,20}\\.[A-Za-z0-9_=-]{0,20}\\.[A-Za-z0-9_=-]{0,20}",
        ".{0,30}",
        "[\0-\u{1f}]{1,3}",
    ];
    proptest::option::of(token)
}

proptest! {
    #[test]
    fn nothing_that_is_sent_lets_a_stranger_in(
        token in sent(), realm in sent(), role in sent(), key in sent(), n in any::<u32>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let auth = open(&Shelf::new(), &TestClock::new(), json!({
                "enabled": true, "jwt_secret": "only-we-know", "keyless_consumers": "deny",
                "tokens": [{"token": "a-token-nobody-guesses", "realm": "*", "role": "admin"}],
                "realms": {"acme": {"key": "a-key-nobody-guesses", "manager_key": "m-nobody-guesses"}},
            })).await;
            let attempt = Attempt { token, realm, role, key, failures: n % 12, ..nothing() };
            let result = enter(&auth, &attempt).await;
            assert!(result.is_err(), "{attempt:?} {result:?}");
        });
    }
}

#[test]
fn an_attempt_shows_no_secret() {
    let attempt = Attempt {
        token: Some("hunter2".into()),
        key: Some("hunter2".into()),
        ..nothing()
    };
    assert!(!format!("{attempt:?}").contains("hunter2"));
}
