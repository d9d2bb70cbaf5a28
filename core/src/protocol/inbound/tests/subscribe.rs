//! SUBSCRIBE and UNSUBSCRIBE at the door.

use super::*;

fn subscribe(payload: &str) -> Subscribe {
    with(
        &format!(r#"["SUBSCRIBE",{payload}]"#),
        |inbound| match inbound {
            Ok(Inbound::Subscribe(subscribe)) => *subscribe,
            other => panic!("{payload}: {other:?}"),
        },
    )
}

#[test]
fn subscribe_has_the_defaults_of_the_server() {
    let subscribe = subscribe(r#"{"event":"Paid","producer":"Orders"}"#);
    let key = Key::Event {
        producer: ProducerName::parse("Orders").unwrap(),
        event: "paid".into(),
    };
    assert_eq!(subscribe.key, key);
    assert_eq!(subscribe.consumer, ConsumerName::anonymous());
    assert_eq!((subscribe.id, subscribe.consumer_id), (None, None));
    assert_eq!(subscribe.options, Default::default());
    assert!(!subscribe.never_matches);
}

#[test]
fn options_may_stand_inside_options_under_any_spelling() {
    let full = subscribe(
        r#"{"event":"paid","producer":"orders","consumer":"billing","consumerId":"b","id":"i",
            "durable":false,"ack_timeout":null,"group":null,
            "options":{"durable":true,"manualAck":1,"ackTimeout":"20s","group":"g",
                "max_in_flight":7,"retry":{"maxAttempts":4,"delay":"2s","backoff":"exponential"}}}"#,
    );
    assert_eq!(full.consumer_id, Some(ConsumerId::parse("b").unwrap()));
    assert_eq!(full.id.as_deref(), Some("i"));
    let options = full.options;
    assert!(options.durable && options.ack && options.retry_given);
    assert_eq!(options.ack_timeout, Duration::from_secs(20));
    assert_eq!(options.prefetch, 7);
    assert_eq!(options.group, Some(GroupName::parse("g").unwrap()));
    let delay = Some(Duration::from_secs(2));
    let retry = RetryPolicy::new(Some(4), delay, Backoff::Exponential, None).unwrap();
    assert_eq!(options.retry, retry);
    for ack in [
        "ack",
        "require_ack",
        "requireAck",
        "manual_ack",
        "manualAck",
    ] {
        assert!(
            subscribe(&format!(r#"{{"event":"a","{ack}":true}}"#))
                .options
                .ack,
            "{ack}"
        );
    }
}

#[test]
fn an_ack_timeout_of_zero_is_the_default() {
    let timeout = subscribe(r#"{"event":"a","ack_timeout":0}"#)
        .options
        .ack_timeout;
    assert_eq!(timeout, Duration::from_secs(30));
}

#[test]
fn all_events_have_two_spellings_and_need_no_event() {
    let key = |payload: &str| subscribe(payload).key;
    let all = |spelling| Key::All {
        producer: ProducerName::parse("p").unwrap(),
        spelling,
    };
    assert_eq!(
        key(r#"{"producer":"p","scope":"all"}"#),
        all(Spelling::Scope)
    );
    let go = key(r#"{"producer":"p","scope":"all","event":"whatever"}"#);
    assert_eq!(go, all(Spelling::Scope));
    let java = key(r#"{"producer":"p","scope":"default","event":"tm-All"}"#);
    assert_eq!(java, all(Spelling::Plain));
    let everything = key(r#"{"producer":"TYO-MQ-ALL","event":"TM-ALL","scope":"all"}"#);
    let spelling = Spelling::Scope;
    assert_eq!(everything, Key::Everything { spelling });
    let any = key(r#"{"producer":"TYO-MQ-ALL","event":{"event":"Paid"}}"#);
    assert_eq!(
        any,
        Key::Any {
            event: "paid".into()
        }
    );
    // Whoever listens to HTTP producers names them, though nobody may register such a name.
    assert!(matches!(
        key(r#"{"producer":"http:0123abcd","event":"a"}"#),
        Key::Event { .. }
    ));
}

#[test]
fn topics_keep_their_producer_and_tell_if_they_never_match() {
    let topic = subscribe(r#"{"event":"Fleet/+/#","producer":"p","mode":"topic"}"#);
    let key = Key::Topic {
        producer: Some(ProducerName::parse("p").unwrap()),
        pattern: "fleet/+/#".into(),
    };
    assert_eq!(topic.key, key);
    assert!(!topic.never_matches);
    let never =
        subscribe(r#"{"event":"a/#/b","producer":"TYO-MQ-ALL","options":{"mode":"topic"}}"#);
    assert!(never.never_matches);
    assert!(matches!(never.key, Key::Topic { producer: None, .. }));
}

#[test]
fn malformed_subscribes_get_the_bare_string_and_bad_options_an_object() {
    for payload in [
        "null",
        "5",
        "{}",
        r#"{"event":""}"#,
        r#"{"event":null}"#,
        r#""5""#,
    ] {
        let refused = refusal(&format!(r#"["SUBSCRIBE",{payload}]"#));
        assert_eq!(
            refused,
            (Answer::BareError, ErrorKind::BadCommand),
            "{payload}"
        );
    }
    for option in [
        r#""ack_timeout":"soon""#,
        r#""ack_timeout":"25h""#,
        r#""ack_timeout":-1"#,
        r#""prefetch":0"#,
        r#""prefetch":1.5"#,
        r#""retry":"twice""#,
        r#""retry":{"max_attempts":0}"#,
        r#""retry":{"max_attempts":1001}"#,
        r#""retry":{"delay":{}}"#,
        r#""retry":{"backoff":"quick"}"#,
        r#""group":5"#,
        r#""consumer":5"#,
    ] {
        let refused = refusal(&format!(r#"["SUBSCRIBE",{{"event":"a",{option}}}]"#));
        assert_eq!(refused, BAD, "{option}");
    }
    let reserved = refusal(r#"["SUBSCRIBE",{"event":"a","consumer":"TYO-MQ-SYSTEM"}]"#);
    assert_eq!(reserved, (Answer::Error, ErrorKind::BadName));
}

#[test]
fn unsubscribe_takes_a_key_name_or_an_object() {
    let parse = |payload: &str| {
        with(
            &format!(r#"["UNSUBSCRIBE",{payload}]"#),
            |inbound| match inbound {
                Ok(Inbound::Unsubscribe(unsubscribe)) => unsubscribe,
                other => panic!("{other:?}"),
            },
        )
    };
    let by_name = parse(r#""orders-paid""#);
    assert_eq!(by_name.target, Target::Name("orders-paid".into()));
    assert!(!by_name.purge);
    for payload in [
        r#"{"event":"Paid","producer":"TYO-MQ-ALL","consumer":"c","purge":true}"#,
        r#""{\"event\":\"Paid\",\"producer\":\"TYO-MQ-ALL\",\"consumer\":\"c\",\"purge\":1}""#,
    ] {
        let by_key = parse(payload);
        assert_eq!(
            by_key.target,
            Target::Key(Key::Any {
                event: "paid".into()
            })
        );
        assert_eq!(by_key.consumer, Some(ConsumerName::parse("c").unwrap()));
        assert!(by_key.purge);
    }
    assert_eq!(refusal(r#"["UNSUBSCRIBE",{}]"#), BAD);
    assert_eq!(refusal(r#"["UNSUBSCRIBE",null]"#), BAD);
}
