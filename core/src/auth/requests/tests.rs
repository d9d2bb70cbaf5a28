//! Authorization requests from asking to being let in, with a store that lasts.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use serde_json::json;

use crate::store::MemoryStore;

use super::super::{Authority, Role, Secret};
use super::*;

const NOW: Timestamp = Timestamp(1_760_000_000_000);
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn later(seconds: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(seconds))
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

use std::net::IpAddr;

#[derive(Default)]
struct Tokens(Mutex<HashMap<TokenHash, Token>>);

impl Grants for Tokens {
    fn is_known(&self, hash: &TokenHash) -> bool {
        self.0.lock().contains_key(hash)
    }

    fn change(&self, hash: &TokenHash, token: &Token) -> Result<DocumentChange> {
        Ok(DocumentChange {
            collection: Collection::Tokens,
            key: hash.to_string().into(),
            text: Some(serde_json::to_string(token).unwrap().into()),
            expires: None,
            only_if: Condition::Absent,
        })
    }

    fn granted(&self, hash: TokenHash, token: Token) {
        self.0.lock().insert(hash, token);
    }
}

struct Rig {
    store: Arc<MemoryStore>,
    tokens: Arc<Tokens>,
    requests: Requests,
}

impl Rig {
    async fn new() -> Self {
        Self::over(Arc::new(MemoryStore::default()), NOW).await
    }

    async fn over(store: Arc<MemoryStore>, now: Timestamp) -> Self {
        let tokens = Arc::new(Tokens::default());
        let opened = Requests::open(store.clone(), tokens.clone(), MOST_PENDING, now).await;
        Self {
            requests: opened.unwrap(),
            store,
            tokens,
        }
    }

    /// What a broker that starts anew sees.
    async fn again(&self, now: Timestamp) -> Self {
        Self::over(self.store.clone(), now).await
    }

    async fn ask(&self, what: Ask<'_>) -> Result<Arc<str>> {
        self.requests.submit(what.submission()?, NOW).await
    }

    async fn decide(&self, id: &str, approved: bool, role: Option<Role>) -> Result<Decided> {
        self.decide_as(id, approved, role, &Authority::Global).await
    }

    async fn decide_as(
        &self,
        id: &str,
        approved: bool,
        role: Option<Role>,
        authority: &Authority,
    ) -> Result<Decided> {
        let decision = Decision {
            request: id.into(),
            approved,
            role,
            reason: Some("because".into()),
        };
        self.requests.decide(&decision, authority, later(60)).await
    }

    fn pending(&self) -> Vec<Arc<str>> {
        let status = Some(Status::Pending);
        let wanted = Wanted {
            status,
            limit: Some(2000),
            ..Wanted::default()
        };
        let (page, _) = self.requests.list(&wanted, NOW);
        page.into_iter().map(|request| request.request_id).collect()
    }
}

#[derive(Clone, Copy)]
struct Ask<'a> {
    realm: &'a str,
    role: Option<&'a str>,
    id: &'a str,
    name: &'a str,
    token: Option<&'a str>,
    challenge: Option<&'a str>,
    session: &'a str,
    address: u8,
}

const ASK: Ask<'static> = Ask {
    realm: "org:acme",
    role: Some("producer"),
    id: "c1",
    name: "Client 1",
    token: Some(TOKEN),
    challenge: None,
    session: "s1",
    address: 1,
};

impl Ask<'_> {
    fn submission(&self) -> Result<Submission> {
        let names = (self.id, self.name);
        Ok(Submission {
            candidate: Candidate::new(self.realm, self.role, names, self.token, self.challenge)?,
            address: address(self.address),
            session: self.session.into(),
        })
    }
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    result.map(|_| ()).unwrap_err().kind()
}

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
    assert_eq!(
        rig.requests.next(None, NOW).unwrap().client_token_hash,
        None
    );
    let rig = rig.again(later(1)).await;
    let decided = rig.decide(&id, true, None).await.unwrap();
    let token: Secret = decided.token.unwrap();
    assert_eq!(token.expose().len(), 64);
    assert_eq!(decided.request.client_token_hash, Some(token.hash()));
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
        allow: super::super::Allow::default(),
    };
    let change = rig.tokens.change(&TokenHash::of(TOKEN), &other).unwrap();
    rig.store.change_documents(vec![change], NOW).await.unwrap();
    assert_eq!(
        kind(rig.decide(&id, true, None).await),
        ErrorKind::TokenExists
    );
    assert_eq!(rig.pending(), [id.clone()], "it waits as before");
    rig.decide(&id, false, None).await.unwrap();
}

#[tokio::test]
async fn roles_are_granted_by_who_may() {
    let realm_key = Authority::Realm(RealmId::parse("org:acme").unwrap());
    let other_key = Authority::Realm(RealmId::parse("org:other").unwrap());
    use ErrorKind::{BadCommand, Forbidden, ProofRejected};
    // Realm, role asked for, role said, by whom, what comes of it.
    let cases = [
        ("org:acme", "producer", None, &realm_key, Ok(Role::Producer)),
        (
            "org:acme",
            "producer",
            Some(Role::Manager),
            &realm_key,
            Ok(Role::Manager),
        ),
        ("org:acme", "nonsense", None, &realm_key, Ok(Role::Both)),
        (
            "org:acme",
            "consumer",
            Some(Role::Admin),
            &realm_key,
            Err(Forbidden),
        ),
        (
            "org:acme",
            "admin",
            Some(Role::Both),
            &realm_key,
            Err(Forbidden),
        ),
        ("org:acme", "producer", None, &other_key, Err(ProofRejected)),
        (
            "*",
            "admin",
            Some(Role::Admin),
            &realm_key,
            Err(ProofRejected),
        ),
        (
            "org:acme",
            "admin",
            None,
            &Authority::Global,
            Err(BadCommand),
        ),
        (
            "org:acme",
            "admin",
            Some(Role::Admin),
            &Authority::Global,
            Err(BadCommand),
        ),
        (
            "org:acme",
            "admin",
            Some(Role::Consumer),
            &Authority::Global,
            Ok(Role::Consumer),
        ),
        ("*", "admin", None, &Authority::Global, Err(BadCommand)),
        (
            "*",
            "both",
            Some(Role::Both),
            &Authority::Global,
            Err(BadCommand),
        ),
        (
            "*",
            "both",
            Some(Role::Admin),
            &Authority::Global,
            Ok(Role::Admin),
        ),
    ];
    for (realm, role, said, authority, expected) in cases {
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
    assert_eq!(kind(unknown), ProofRejected);
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

#[tokio::test]
async fn what_waits_is_bounded_by_address_and_in_sum() {
    let rig = Rig::new().await;
    for n in 0..20 {
        let (id, session) = (format!("c{n}"), format!("s{n}"));
        rig.ask(Ask {
            id: &id,
            session: &session,
            token: None,
            ..ASK
        })
        .await
        .unwrap();
    }
    let one_more = Ask {
        id: "more",
        session: "more",
        token: None,
        ..ASK
    };
    assert_eq!(kind(rig.ask(one_more).await), ErrorKind::RateLimited);
    // In the place of its own one there is room.
    rig.ask(Ask {
        id: "c3",
        session: "s3",
        token: None,
        ..ASK
    })
    .await
    .unwrap();
    rig.ask(Ask {
        address: 2,
        ..one_more
    })
    .await
    .unwrap();
    let few = Requests::open(rig.store.clone(), rig.tokens.clone(), 21, NOW)
        .await
        .unwrap();
    let over = Ask {
        address: 3,
        id: "over",
        session: "over",
        token: None,
        ..ASK
    };
    let refused = few.submit(over.submission().unwrap(), NOW).await;
    assert_eq!(kind(refused), ErrorKind::RateLimited);
    // Those whose time is over make room.
    let week = later(7 * 24 * 3600);
    few.submit(over.submission().unwrap(), week).await.unwrap();
}

#[tokio::test]
async fn requests_end_by_age_and_number() {
    let rig = Rig::new().await;
    let id = rig.ask(ASK).await.unwrap();
    let week = Timestamp(NOW.0 + 7 * 24 * 3600 * 1000);
    assert!(rig.requests.next(None, Timestamp(week.0 - 1)).is_some());
    assert!(rig.requests.next(None, week).is_none());
    assert_eq!(rig.requests.pending_realm(&id, week), None);
    rig.decide(&id, false, None).await.unwrap();
    let day = later(60 + 24 * 3600);
    let all = Wanted::default();
    assert_eq!(rig.requests.list(&all, Timestamp(day.0 - 1)).0.len(), 1);
    assert_eq!(rig.requests.list(&all, day).0.len(), 0);
    assert!(rig.again(day).await.requests.kept.lock().is_empty());
    // One session that asks and asks leaves a thousand at most.
    let asked: usize = 1020;
    for _ in 0..asked {
        rig.ask(Ask { token: None, ..ASK }).await.unwrap();
    }
    let wanted = Wanted {
        limit: Some(2000),
        ..Wanted::default()
    };
    assert_eq!(
        rig.requests.list(&wanted, NOW).0.len(),
        1000,
        "no more on a page"
    );
    assert_eq!(rig.requests.kept.lock().len(), MOST_DECIDED + 1);
    assert_eq!(rig.pending().len(), 1);
    assert_eq!(rig.requests.waiting.lock().len(), 1);
}

#[tokio::test]
async fn requests_are_listed_in_pages_by_realm_and_status() {
    let rig = Rig::new().await;
    let mut ids = Vec::new();
    for n in 0..7 {
        let (id, realm) = (format!("c{n}"), if n % 2 == 0 { "a" } else { "b" });
        let ask = Ask {
            id: &id,
            realm,
            token: None,
            ..ASK
        };
        let submission = ask.submission().unwrap();
        ids.push(rig.requests.submit(submission, later(n)).await.unwrap());
    }
    let (mut cursor, mut found) = (None, Vec::new());
    loop {
        let wanted = Wanted {
            cursor,
            limit: Some(3),
            ..Wanted::default()
        };
        let (page, next) = rig.requests.list(&wanted, later(10));
        found.extend(page.into_iter().map(|request| request.request_id));
        let Some(next) = next else { break };
        cursor = Some((*next).into());
    }
    assert_eq!(found, ids, "the oldest first");
    let realm = RealmId::parse("b").unwrap();
    let wanted = Wanted {
        realm: Some(realm.clone()),
        ..Wanted::default()
    };
    assert_eq!(rig.requests.list(&wanted, later(10)).0.len(), 3);
    assert_eq!(
        rig.requests
            .next(Some(&realm), later(10))
            .unwrap()
            .request_id,
        ids[1]
    );
    assert_eq!(
        rig.requests.pending_realm(&ids[1], later(10)),
        Some(realm.clone())
    );
    assert_eq!(rig.requests.drop_realm(&realm, later(10)).await.unwrap(), 3);
    assert!(rig.requests.next(Some(&realm), later(10)).is_none());
    assert!(
        rig.again(later(10))
            .await
            .requests
            .next(Some(&realm), later(10))
            .is_none()
    );
    assert_eq!(rig.pending().len(), 4);
}

#[tokio::test]
async fn a_request_that_cannot_be_read_stops_nobody() {
    let rig = Rig::new().await;
    let change = DocumentChange {
        collection: Collection::Requests,
        key: "authreq-0-0".into(),
        text: Some("{}".into()),
        expires: None,
        only_if: Condition::Always,
    };
    rig.store.change_documents(vec![change], NOW).await.unwrap();
    let rig = rig.again(NOW).await;
    rig.ask(ASK).await.unwrap();
    assert_eq!(rig.pending().len(), 1);
}
