//! PRODUCE and PRODUCE_CHUNK at the door.

use super::*;

fn produce<T>(payload: &str, look: impl FnOnce(Produce<'_>) -> T) -> T {
    with(
        &format!(r#"["PRODUCE",{payload}]"#),
        |inbound| match inbound {
            Ok(Inbound::Produce(produce)) => look(produce),
            other => panic!("{payload}: {other:?}"),
        },
    )
}

#[test]
fn a_message_is_read_without_touching_its_body() {
    let body = r#"{"b":129.0, "a":12345678901234567890123,"s":"\ud83d","__proto__":null}"#;
    produce(
        &format!(r#"{{"event":"Paid","message":{body},"from":"orders","ttl":90,"x":[1]}}"#),
        |produce| {
            assert_eq!(produce.event, "Paid");
            assert_eq!(produce.from.as_deref(), Some("orders"));
            assert_eq!(produce.message, Some(body));
            assert_eq!(produce.ttl, Some(Duration::from_secs(90)));
            assert!(!produce.guaranteed);
            assert!(matches!(produce.event, Cow::Borrowed(_)));
        },
    );
}

#[test]
fn a_payload_may_be_a_string_that_holds_the_object() {
    let args = r#"["PRODUCE","{\"event\":\"paid\",\"message\":\"\\ud83d\"}"]"#;
    with(args, |inbound| match inbound {
        Ok(Inbound::Produce(produce)) => {
            assert_eq!(produce.event, "paid");
            assert_eq!(produce.message, Some(r#""\ud83d""#));
        }
        other => panic!("{other:?}"),
    });
}

#[test]
fn of_duplicate_members_the_last_wins() {
    produce(
        r#"{"event":"a","message":1,"event":"b","message":2}"#,
        |produce| {
            assert_eq!(produce.event, "b");
            assert_eq!(produce.message, Some("2"));
        },
    );
}

#[test]
fn escapes_in_names_and_values_are_read() {
    produce(
        r#"{"\u0065vent":"a\"b","from":"\ud83d\ude00","\ud800":1}"#,
        |produce| {
            assert_eq!(produce.event, "a\"b");
            assert_eq!(produce.from.as_deref(), Some("😀"));
            assert_eq!(produce.message, None);
        },
    );
}

#[test]
fn null_is_absent_but_is_a_message() {
    produce(
        r#"{"event":"a","message":null,"from":null,"ttl":null,"enc":null,"to":null}"#,
        |p| {
            assert_eq!(p.message, Some("null"));
            assert_eq!((p.from, p.ttl, p.enc, p.to), (None, None, None, None));
        },
    );
}

#[test]
fn every_spelling_of_guaranteed_counts_when_truthy() {
    for member in [
        r#""guaranteed":true"#,
        r#""guaranteed_delivery":1"#,
        r#""guaranteedDelivery":"yes""#,
        r#""durable":{}"#,
        r#""delivery":"guaranteed""#,
        r#""delivery_mode":"guaranteed""#,
    ] {
        let payload = format!(r#"{{"event":"a",{member}}}"#);
        assert!(produce(&payload, |produce| produce.guaranteed), "{member}");
    }
    for member in [
        r#""guaranteed":false"#,
        r#""durable":0"#,
        r#""durable":"""#,
        r#""guaranteed":null"#,
        r#""guaranteed":-0.0"#,
        r#""delivery":"other""#,
    ] {
        let payload = format!(r#"{{"event":"a",{member}}}"#);
        assert!(!produce(&payload, |produce| produce.guaranteed), "{member}");
    }
}

#[test]
fn ttl_beats_lifespan_and_lifespan_minus_one_is_absent() {
    let ttl = |members: &str| {
        produce(&format!(r#"{{"event":"a",{members}}}"#), |produce| {
            produce.ttl.map(|ttl| ttl.as_secs())
        })
    };
    assert_eq!(ttl(r#""ttl":"1h","lifespan":5"#), Some(3600));
    assert_eq!(ttl(r#""ttl":null,"lifespan":5"#), Some(5));
    assert_eq!(ttl(r#""lifespan":-1"#), None);
    assert_eq!(ttl(r#""ttl":0"#), Some(0));
    assert_eq!(ttl(r#""ttl":"3600""#), Some(3600));
    for bad in ["-1", "\"soon\"", "{}", "true", "\"\""] {
        let args = format!(r#"["PRODUCE",{{"event":"a","ttl":{bad}}}]"#);
        assert_eq!(refusal(&args), BAD, "{bad}");
    }
    assert_eq!(refusal(r#"["PRODUCE",{"event":"a","lifespan":-2}]"#), BAD);
}

#[test]
fn broadcasts_go_to_the_realm_or_to_a_named_group() {
    let to = |members: &str| {
        produce(&format!(r#"{{"event":"a",{members}}}"#), |produce| {
            produce.broadcast
        })
    };
    assert_eq!(to(r#""method":"unicast","broadcast":"realm""#), None);
    assert_eq!(to(r#""method":"broadcast""#), Some(Broadcast::Realm));
    let group = Broadcast::Group(GroupName::parse("g").unwrap());
    assert_eq!(
        to(r#""method":"broadcast","broadcast":"group","group":"g""#),
        Some(group)
    );
    let args = r#"["PRODUCE",{"event":"a","method":"broadcast","broadcast":"group"}]"#;
    assert_eq!(refusal(args), BAD);
}

#[test]
fn a_message_may_be_held_back() {
    let hold = |members: &str| {
        produce(&format!(r#"{{"event":"a",{members}}}"#), |produce| {
            produce.hold
        })
    };
    assert_eq!(
        hold(r#""delay":"15m""#),
        Some(Hold::For(Duration::from_secs(900)))
    );
    assert_eq!(hold(r#""deliver_at":5"#), Some(Hold::Until(Timestamp(5))));
    let date = hold(r#""deliver_at":"1970-01-01T00:00:01Z""#);
    assert_eq!(date, Some(Hold::Until(Timestamp(1000))));
    for bad in [
        r#""delay":1,"deliver_at":5"#,
        r#""deliver_at":"soon""#,
        r#""deliver_at":-1"#,
    ] {
        assert_eq!(
            refusal(&format!(r#"["PRODUCE",{{"event":"a",{bad}}}]"#)),
            BAD,
            "{bad}"
        );
    }
}

#[test]
fn our_own_members_are_checked() {
    produce(
        r#"{"event":"a","msg_uid":"u","instance_seq":["i,1",7],"key":"k","headers":{"h":"v"}}"#,
        |produce| {
            assert_eq!(produce.msg_uid.as_deref(), Some("u"));
            assert_eq!(produce.instance_seq, Some(("i,1".into(), 7)));
            assert_eq!(produce.key.as_deref(), Some("k"));
            assert_eq!(produce.headers, Some(r#"{"h":"v"}"#));
        },
    );
    let large = format!(r#""headers":{{"h":"{}"}}"#, "x".repeat(8192));
    for bad in [
        r#""msg_uid":"""#,
        r#""msg_uid":5"#,
        r#""instance_seq":["i"]"#,
        r#""instance_seq":["i",1,2]"#,
        r#""instance_seq":["i",-1]"#,
        r#""instance_seq":"i""#,
        r#""key":"""#,
        r#""headers":{"h":1}"#,
        r#""headers":[]"#,
        &large,
    ] {
        assert_eq!(
            refusal(&format!(r#"["PRODUCE",{{"event":"a",{bad}}}]"#)),
            BAD,
            "{bad}"
        );
    }
}

#[test]
fn bad_produces_are_answered_and_never_throw() {
    let long = format!(r#"{{"event":"{}"}}"#, "x".repeat(1025));
    for payload in [
        "null",
        "5",
        "[]",
        "true",
        "1e999",
        "{}",
        r#"{"event":""}"#,
        r#"{"event":5}"#,
        r#"{"event":null}"#,
        r#"{"event":{"x":1}}"#,
        r#"{"event":"a","from":5}"#,
        r#"{"event":"a","from":"TYO-MQ-ALL"}"#,
        r#"{"event":"a\n"}"#,
        r#"{"event":"\ud83d"}"#,
        r#"{"event":"a","from":"\ud83d"}"#,
        &long,
    ] {
        assert_eq!(
            refusal(&format!(r#"["PRODUCE",{payload}]"#)),
            BAD,
            "{payload}"
        );
    }
    assert_eq!(refusal(r#"["PRODUCE"]"#), BAD);
    assert_eq!(
        produce(r#"{"event":{"event":"a"}}"#, |p| p.event.into_owned()),
        "a"
    );
}

#[test]
fn deep_nesting_is_not_carriable() {
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let args = |member: &str, n| format!(r#"["PRODUCE",{{"event":"a","{member}":{}}}]"#, deep(n));
    with(&args("message", 512), |inbound| assert!(inbound.is_ok()));
    for member in ["message", "enc", "to"] {
        let refused = refusal(&args(member, 513));
        assert_eq!(refused, (Answer::Error, ErrorKind::NotCarriable));
    }
    // Nothing recurses, so neither does this overflow the stack.
    assert_eq!(
        refusal(&args("message", 200_000)).1,
        ErrorKind::NotCarriable
    );
    with(&args("unknown", 200_000), |inbound| {
        assert!(inbound.is_ok())
    });
}

#[test]
fn placeholders_need_their_attachment() {
    let parse = |num: u8| {
        let message = format!(r#"{{"a":{{"_placeholder":true,"num":{num}}}}}"#);
        let args = format!(r#"["PRODUCE",{{"event":"a","message":{message}}}]"#);
        let attachments = [Bytes::from_static(b"x")];
        let defaults = SubscriptionDefaults::default();
        let mut scratch = String::new();
        match Inbound::parse(&args, &attachments, &mut scratch, &defaults) {
            Ok(Inbound::Produce(produce)) => {
                let kept = produce.to_message("p".into(), Timestamp(1), None);
                assert_eq!(kept.body.as_deref(), Some(message.as_bytes()));
                Ok(kept.attachments().to_vec())
            }
            Ok(other) => panic!("{other:?}"),
            Err(refused) => Err((refused.answer, refused.error.kind())),
        }
    };
    assert_eq!(parse(0), Ok(vec![Bytes::from_static(b"x")]));
    assert_eq!(parse(1), Err(BAD));
}

#[test]
fn chunks_leave_their_numbers_to_the_assembler() {
    let chunk = |payload: &str| {
        with(
            &format!(r#"["PRODUCE_CHUNK",{payload}]"#),
            |inbound| match inbound {
                Ok(Inbound::ProduceChunk(c)) => (c.index, c.total, c.data.map(str::to_owned)),
                other => panic!("{other:?}"),
            },
        )
    };
    let good = chunk(r#"{"transferId":"x","index":0,"total":3,"data":"\ud83d"}"#);
    assert_eq!(good, (Some(0), Some(3), Some(r#""\ud83d""#.into())));
    let bad = chunk(r#"{"transferId":"x","index":-1,"total":1.5,"data":5}"#);
    assert_eq!(bad, (None, None, None));
    assert_eq!(refusal(r#"["PRODUCE_CHUNK",{"index":0}]"#), BAD);
    assert_eq!(refusal(r#"["PRODUCE_CHUNK",null]"#), BAD);
}

#[test]
fn joined_text_is_read_like_one_frame() {
    let produce = Produce::parse_joined(r#"{"event":"a","message":[1]}"#).unwrap();
    assert_eq!(produce.message, Some("[1]"));
    for bad in ["", "{", "5", r#""a""#] {
        let error = Produce::parse_joined(bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ChunkDropped, "{bad}");
    }
    let error = Produce::parse_joined("{}").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadCommand);
}
