//! Asking: what managers see, what supersedes what, what is refused.

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_request_is_seen_by_managers_as_specified() {
    let rig = Rig::new().await;
    let challenge = r#"{"b":1.0,"a":"\ud800"}"#;
    let id = rig
        .ask(Ask {
            challenge: Some(challenge),
            ..ASK
        })
        .await
        .unwrap();
    let rest = id.strip_prefix("authreq-").unwrap();
    let (millis, random) = rest.split_once('-').unwrap();
    assert_eq!(u64::from_str_radix(millis, 36).unwrap(), NOW.0);
    assert_eq!(random.len(), 12);
    let seen = rig.requests.next(None, NOW).unwrap();
    let text = serde_json::to_string(&seen).unwrap();
    assert!(text.contains(challenge), "as it came: {text}");
    assert!(!text.contains(TOKEN));
    let text = text.replace(challenge, "null");
    let seen: serde_json::Value = serde_json::from_str(&text).unwrap();
    let expected = json!({
        "request_id": &*id,
        "status": "pending",
        "realm": "org:acme",
        "role": "producer",
        "client_id": "c1",
        "client_name": "Client 1",
        "client_token_hash": TokenHash::of(TOKEN).to_string(),
        "challenge_response": null,
        "created_at": "2025-10-09T08:53:20.000Z",
        "decided_at": null,
        "decision_reason": null,
    });
    assert_eq!(seen, expected);
    // Looking takes nothing away.
    assert_eq!(rig.requests.next(None, NOW).unwrap().request_id, id);
}

#[tokio::test]
async fn a_newer_request_supersedes_only_its_own_older_one() {
    let rig = Rig::new().await;
    let first = rig.ask(Ask { token: None, ..ASK }).await.unwrap();
    // A stranger who knows realm and client id (AF10): both wait.
    let stranger = Ask {
        token: Some("ffffffffffffffffffffffffffffffff"),
        session: "evil",
        ..ASK
    };
    let evil = rig.ask(stranger).await.unwrap();
    assert_eq!(rig.pending().len(), 2);
    // The same session.
    let second = rig.ask(ASK).await.unwrap();
    assert_eq!(
        kind(rig.decide(&first, true, None).await),
        ErrorKind::RequestUnknown
    );
    // The same token from another session, after a restart.
    let rig = rig.again(NOW).await;
    let third = rig
        .ask(Ask {
            session: "s9",
            ..ASK
        })
        .await
        .unwrap();
    let mut left = rig.pending();
    left.sort_unstable();
    let mut expected = [evil, third];
    expected.sort_unstable();
    assert_eq!(left, expected);
    let wanted = Wanted {
        status: Some(Status::Superseded),
        ..Wanted::default()
    };
    let (superseded, _) = rig.requests.list(&wanted, NOW);
    let mut superseded: Vec<_> = superseded
        .into_iter()
        .map(|request| request.request_id)
        .collect();
    superseded.sort_unstable();
    let mut expected = [first, second];
    expected.sort_unstable();
    assert_eq!(superseded, expected);
}

#[tokio::test]
async fn a_token_that_exists_anywhere_is_refused() {
    let rig = Rig::new().await;
    let id = rig.ask(ASK).await.unwrap();
    // In another request that waits.
    assert_eq!(
        kind(rig.ask(Ask { id: "c2", ..ASK }).await),
        ErrorKind::TokenExists
    );
    assert_eq!(
        kind(
            rig.ask(Ask {
                realm: "other",
                ..ASK
            })
            .await
        ),
        ErrorKind::TokenExists
    );
    rig.decide(&id, true, None).await.unwrap();
    // And among those that hold.
    assert_eq!(kind(rig.ask(ASK).await), ErrorKind::TokenExists);
    // One that was rejected may be shown again.
    let other = Ask {
        token: Some("gggggggggggggggggggggggggggggggg"),
        id: "c3",
        ..ASK
    };
    let id = rig.ask(other).await.unwrap();
    rig.decide(&id, false, None).await.unwrap();
    rig.ask(other).await.unwrap();
}

#[test]
fn fields_out_of_bounds_are_refused_without_the_token() {
    let long = "x".repeat(256);
    let (few, many, large) = (
        "x".repeat(31),
        "x".repeat(513),
        format!("\"{}\"", "y".repeat(4095)),
    );
    let wrong = [
        Ask { realm: "", ..ASK },
        Ask { realm: " a", ..ASK },
        Ask { realm: "..", ..ASK },
        Ask {
            realm: &long,
            ..ASK
        },
        Ask { id: "", ..ASK },
        Ask { id: &long, ..ASK },
        Ask { id: "a\nb", ..ASK },
        Ask { name: "", ..ASK },
        Ask { name: &long, ..ASK },
        Ask {
            token: Some("x"),
            ..ASK
        },
        Ask {
            token: Some(&few),
            ..ASK
        },
        Ask {
            token: Some(&many),
            ..ASK
        },
        Ask {
            challenge: Some("{"),
            ..ASK
        },
        Ask {
            challenge: Some(""),
            ..ASK
        },
        Ask {
            challenge: Some(&large),
            ..ASK
        },
    ];
    for ask in wrong {
        let Err(error) = ask.submission() else {
            panic!("{} {} {}", ask.realm, ask.id, ask.name);
        };
        assert!(
            matches!(error.kind(), ErrorKind::BadCommand | ErrorKind::BadName),
            "{error}"
        );
        assert!(!error.to_string().contains("xxx"), "{error}");
    }
    let most = "é".repeat(512);
    Ask {
        token: Some(&most),
        id: &long[1..],
        challenge: Some("null"),
        ..ASK
    }
    .submission()
    .unwrap();
}
