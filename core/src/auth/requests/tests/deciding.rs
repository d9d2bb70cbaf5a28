//! Deciding: who is told, who may grant what, and that it happens once.

use super::super::super::{Allow, Secret};
use super::*;

#[tokio::test]
async fn a_request_outlives_its_broker_and_its_token_is_in_no_document() {
    let rig = Rig::new().await;
    let id = rig.ask(ASK).await.unwrap();
    let documents = rig
        .store
        .documents(Collection::Requests, None, 10, NOW)
        .await
        .unwrap();
    assert_eq!(documents.len(), 1);
    assert!(!documents[0].text.contains(TOKEN) && !documents[0].text.contains("\"s1\""));
    let rig = rig.again(later(5)).await;
    let decided = rig.decide(&id, true, None).await.unwrap();
    assert_eq!(decided.tell, None, "who asked is gone");
    assert_eq!(decided.request.status, Status::Approved);
    assert!(decided.token.is_none());
    assert_eq!(
        decided.request.decided_at.as_deref(),
        Some("2025-10-09T08:54:20.000Z")
    );
    let token = rig.tokens.0.lock()[&TokenHash::of(TOKEN)].clone();
    assert_eq!(
        (token.realm.as_str(), token.role),
        ("org:acme", Role::Producer)
    );
    assert_eq!(token.client_id.as_deref(), Some("c1"));
    let stored = rig
        .store
        .documents(Collection::Tokens, None, 10, NOW)
        .await
        .unwrap();
    assert_eq!(*stored[0].key, TokenHash::of(TOKEN).to_string());
    assert!(rig.requests.next(None, NOW).is_none());
    assert_eq!(
        kind(rig.decide(&id, true, None).await),
        ErrorKind::RequestUnknown
    );
}

#[tokio::test]
async fn a_token_that_the_broker_makes_is_told_once() {
    let rig = Rig::new().await;
    let id = rig.ask(Ask { token: None, ..ASK }).await.unwrap();
    let shown = rig.requests.next(None, NOW).unwrap().client_token_hash;
    let decided = rig.decide(&id, true, None).await.unwrap();
    let token: Secret = decided.token.unwrap();
    assert_eq!(token.expose().len(), 64);
    assert_eq!(decided.request.client_token_hash, token.hash());
    assert_eq!(shown, token.hash());
    assert!(rig.tokens.is_known(&token.hash()));
    for collection in Collection::ALL {
        let all = rig
            .store
            .documents(*collection, None, 100, NOW)
            .await
            .unwrap();
        assert!(
            all.iter()
                .all(|document| !document.text.contains(token.expose()))
        );
    }
    let shown = serde_json::to_string(&decided.request).unwrap();
    assert!(!shown.contains(token.expose()));
}

#[tokio::test]
async fn the_session_that_asked_is_told_and_no_other() {
    let rig = Rig::new().await;
    let first = rig.ask(ASK).await.unwrap();
    let other = Ask {
        id: "c2",
        token: None,
        session: "s2",
        ..ASK
    };
    let second = rig.ask(other).await.unwrap();
    assert!(rig.requests.is_waiting("s1") && rig.requests.is_waiting("s2"));
    let decided = rig.decide(&first, false, None).await.unwrap();
    assert_eq!(decided.tell.as_deref(), Some("s1"));
    assert_eq!(decided.request.status, Status::Rejected);
    assert_eq!(decided.request.decision_reason.as_deref(), Some("because"));
    assert!(!rig.requests.is_waiting("s1"));
    rig.requests.session_ended("s2");
    assert_eq!(rig.decide(&second, true, None).await.unwrap().tell, None);
}

#[tokio::test]
async fn what_another_broker_decided_is_told_here() {
    let here = Rig::new().await;
    let id = here.ask(ASK).await.unwrap();
    let there = here.again(NOW).await;
    there.decide(&id, true, None).await.unwrap();
    let told = here.requests.reload(later(60)).await.unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(
        (&*told[0].request.request_id, told[0].tell.as_deref()),
        (&*id, Some("s1"))
    );
    assert_eq!(told[0].request.status, Status::Approved);
    assert!(here.requests.reload(later(60)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_token_that_is_made_here_is_told_here_once_approved_wherever_that_was() {
    for approved in [true, false] {
        let here = Rig::new().await;
        let id = here.ask(Ask { token: None, ..ASK }).await.unwrap();
        let there = here.again(NOW).await;
        let decided = there.decide(&id, approved, None).await.unwrap();
        assert!(decided.token.is_none() && decided.tell.is_none());
        let mut told = here.requests.reload(later(60)).await.unwrap();
        let told = told.remove(0);
        assert_eq!(told.token.is_some(), approved);
        if let Some(token) = told.token {
            assert!(there.tokens.is_known(&token.hash()));
        }
    }
}

#[tokio::test]
async fn what_waits_in_a_realm_follows_it_to_its_new_name() {
    let here = Rig::new().await;
    for n in 0..15_u8 {
        let id = format!("c{n}");
        let ask = Ask {
            token: None,
            id: &id,
            address: n,
            ..ASK
        };
        here.ask(ask).await.unwrap();
    }
    let other = Ask {
        realm: "other",
        token: None,
        ..ASK
    };
    let other = here.ask(other).await.unwrap();
    let there = here.again(NOW).await;
    // Which comes first of those asked at one moment is chance.
    let one = here.pending().into_iter().find(|id| *id != other).unwrap();
    // Another broker has decided one of them without this one's knowing.
    there.decide(&one, false, None).await.unwrap();
    let (from, to) = ("org:acme", "org:new");
    let realm = |name: &str| crate::model::RealmId::parse(name).unwrap();
    let (old, new) = (realm(from), realm(to));
    let moved = here.requests.rename_realm(&old, &new, NOW).await;
    assert_eq!(moved.unwrap(), 15);
    for rig in [&here, &here.again(NOW).await] {
        let count = |name: &str| {
            let wanted = Wanted {
                realm: Some(realm(name)),
                ..Wanted::default()
            };
            rig.requests.list(&wanted, NOW).0.len()
        };
        assert_eq!((count(from), count(to), count("other")), (0, 15, 1));
        assert_eq!(rig.pending().len(), 15);
        assert!(rig.pending().contains(&other));
    }
}

#[tokio::test]
async fn of_two_brokers_that_decide_one_does() {
    let here = Rig::new().await;
    let id = here.ask(ASK).await.unwrap();
    let there = here.again(NOW).await;
    there.decide(&id, false, None).await.unwrap();
    // It has not heard of it yet.
    assert_eq!(
        kind(here.decide(&id, true, None).await),
        ErrorKind::RequestUnknown
    );
    assert!(here.tokens.0.lock().is_empty());
    assert!(
        here.store
            .documents(Collection::Tokens, None, 1, NOW)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn an_approval_of_a_token_that_has_become_known_grants_nothing_and_says_so() {
    let rig = Rig::new().await;
    let id = rig.ask(ASK).await.unwrap();
    let other = Token {
        realm: RealmId::parse("x").unwrap(),
        role: Role::Both,
        client_id: None,
        client_name: None,
        approved_at: None,
        allow: Allow::default(),
    };
    let change = rig.tokens.change(&TokenHash::of(TOKEN), &other).unwrap();
    rig.store.change_documents(vec![change], NOW).await.unwrap();
    assert_eq!(
        kind(rig.decide(&id, true, None).await),
        ErrorKind::TokenExists
    );
    assert_eq!(
        rig.pending(),
        std::slice::from_ref(&id),
        "it waits as before"
    );
    rig.decide(&id, false, None).await.unwrap();
}

/// Who decides.
#[derive(Debug, Clone, Copy)]
enum By {
    Acme,
    Other,
    Administrator,
}
use By::{Acme, Administrator, Other};
use ErrorKind::{BadCommand, Forbidden, ProofRejected};

/// Realm, role asked for, role said, by whom, what comes of it.
type Grant = (
    &'static str,
    &'static str,
    Option<Role>,
    By,
    Result<Role, ErrorKind>,
);
const GRANTS: &[Grant] = &[
    ("org:acme", "producer", None, Acme, Ok(Role::Producer)),
    (
        "org:acme",
        "producer",
        Some(Role::Manager),
        Acme,
        Ok(Role::Manager),
    ),
    ("org:acme", "nonsense", None, Acme, Ok(Role::Both)),
    (
        "org:acme",
        "consumer",
        Some(Role::Admin),
        Acme,
        Err(Forbidden),
    ),
    ("org:acme", "admin", Some(Role::Both), Acme, Err(Forbidden)),
    ("org:acme", "producer", None, Other, Err(ProofRejected)),
    ("*", "admin", Some(Role::Admin), Acme, Err(ProofRejected)),
    ("org:acme", "admin", None, Administrator, Err(BadCommand)),
    (
        "org:acme",
        "admin",
        Some(Role::Admin),
        Administrator,
        Err(BadCommand),
    ),
    (
        "org:acme",
        "admin",
        Some(Role::Consumer),
        Administrator,
        Ok(Role::Consumer),
    ),
    ("*", "admin", None, Administrator, Err(BadCommand)),
    (
        "*",
        "both",
        Some(Role::Both),
        Administrator,
        Err(BadCommand),
    ),
    (
        "*",
        "both",
        Some(Role::Admin),
        Administrator,
        Ok(Role::Admin),
    ),
];

#[tokio::test]
async fn roles_are_granted_by_who_may() {
    let realm_key = Authority::Realm(RealmId::parse("org:acme").unwrap());
    let other_key = Authority::Realm(RealmId::parse("org:other").unwrap());
    for (realm, role, said, who, expected) in GRANTS.iter().copied() {
        let authority = match who {
            By::Acme => &realm_key,
            By::Other => &other_key,
            By::Administrator => &Authority::Global,
        };
        let rig = Rig::new().await;
        let id = rig
            .ask(Ask {
                realm,
                role: Some(role),
                ..ASK
            })
            .await
            .unwrap();
        let decided = rig.decide_as(&id, true, said, authority).await;
        let granted = decided.map(|_| rig.tokens.0.lock()[&TokenHash::of(TOKEN)].role);
        assert_eq!(
            granted.map_err(|error| error.kind()),
            expected,
            "{realm} {role} {said:?}"
        );
        if expected.is_err() {
            assert_eq!(rig.pending().len(), 1, "it waits as before");
        }
    }
    let rig = Rig::new().await;
    assert_eq!(
        kind(rig.decide("authreq-0-0", true, None).await),
        ErrorKind::RequestUnknown
    );
    let unknown = rig.decide_as("authreq-0-0", true, None, &realm_key).await;
    assert_eq!(kind(unknown), ErrorKind::ProofRejected);
}
