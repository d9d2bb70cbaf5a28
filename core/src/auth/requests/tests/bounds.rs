//! How many wait and stay, for how long, and in which order they are listed.

use super::*;

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
    assert_eq!(refused.unwrap_err().error.kind(), ErrorKind::RateLimited);
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
    for n in 0..asked {
        let address = u8::try_from(n / 30).unwrap();
        let ask = Ask {
            token: None,
            address,
            ..ASK
        };
        rig.ask(ask).await.unwrap();
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

#[tokio::test]
async fn a_network_of_64_bits_asks_as_one_address_and_learns_nothing_when_it_has_asked_enough() {
    let rig = Rig::new().await;
    let known = rig.ask(ASK).await.unwrap();
    rig.decide(&known, true, None).await.unwrap();
    let ask = |network: u16, n: u16, token| {
        let client = format!("c{n}");
        let candidate = Candidate::new("acme", None, (&client, "C"), token, None);
        Submission {
            candidate: candidate.unwrap(),
            address: [0x2001, 0xdb8, 0, network, 0, 0, 0, n].into(),
            session: client.into(),
        }
    };
    for n in 0..20 {
        rig.requests.submit(ask(1, n, None), NOW).await.unwrap();
    }
    for token in [None, Some(TOKEN)] {
        let refused = rig.requests.submit(ask(1, 99, token), NOW).await;
        assert_eq!(refused.unwrap_err().error.kind(), ErrorKind::RateLimited);
    }
    rig.requests.submit(ask(2, 1, None), NOW).await.unwrap();
}
