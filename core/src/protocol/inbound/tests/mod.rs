//! Verbs at the door: registration, settling, small talk, and text that is none.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::Timestamp;
use crate::model::{
    Backoff, ConsumerId, ConsumerName, GroupName, Key, ProducerName, RetryPolicy, Spelling,
};

mod produce;
mod subscribe;

/// Parses and hands the verb to `look`, since it borrows from the text.
fn with<T>(args: &str, look: impl FnOnce(Result<Inbound<'_>, Refused>) -> T) -> T {
    let mut scratch = String::new();
    let defaults = SubscriptionDefaults::default();
    look(Inbound::parse(args, &[], &mut scratch, &defaults))
}

fn refusal(args: &str) -> (Answer, ErrorKind) {
    with(args, |inbound| {
        let refused = inbound.expect_err(args);
        (refused.answer, refused.error.kind())
    })
}

const BAD: (Answer, ErrorKind) = (Answer::Error, ErrorKind::BadCommand);

#[test]
fn strings_without_json_are_ignored_but_for_settling_and_logging_in() {
    let ignored = (Answer::Ignore, ErrorKind::BadCommand);
    for name in ["PRODUCE", "SUBSCRIBE", "CONSUMER", "PRODUCER"] {
        assert_eq!(
            refusal(&format!(r#"["{name}","no json"]"#)),
            ignored,
            "{name}"
        );
        assert_eq!(
            refusal(&format!(r#"["{name}","\ud83d"]"#)),
            ignored,
            "{name}"
        );
    }
    let login = refusal(r#"["AUTHENTICATION","no json"]"#);
    assert_eq!(login, (Answer::AuthFail, ErrorKind::BadCommand));
    for (name, answer) in [
        ("ACK", Answer::AckFail),
        ("NACK", Answer::NackFail),
        ("WORKING", Answer::WorkingFail),
    ] {
        for payload in [
            "\"no json\"",
            "null",
            "{}",
            r#"{"msgId":5}"#,
            r#"{"msgId":""}"#,
        ] {
            let refused = refusal(&format!(r#"["{name}",{payload}]"#));
            assert_eq!(refused, (answer, ErrorKind::BadCommand), "{name} {payload}");
        }
    }
}

#[test]
fn a_frame_that_is_no_json_ends_the_session() {
    for args in [
        "",
        "{}",
        "[]",
        "[5]",
        "[\"PRODUCE",
        r#"["PRODUCE",{"event":"a"}"#,
        r#"["PRODUCE",{"event":"a"}]x"#,
        r#"["PRODUCE",{"event":"a","message":tru}]"#,
        r#"["PRODUCE",{"event":"a","message":"\x"}]"#,
        r#"["PRODUCE",{"event":"a"},]"#,
        "[\"PRODUCE\",{\"event\":\"a\",\"message\":\"\n\"}]",
    ] {
        assert_eq!(
            refusal(args),
            (Answer::Close, ErrorKind::BadFrame),
            "{args}"
        );
    }
}

#[test]
fn blanks_and_further_arguments_do_no_harm() {
    with(" [ \"\\u0041CK\" , {\"id\":\"m\"} , 5, [] ] ", |inbound| {
        let id = "m".into();
        assert!(matches!(inbound, Ok(Inbound::Ack(ack)) if ack == Ack::One { id, attempt: None }));
    });
}

#[test]
fn registrations_need_a_name_that_may_be_had() {
    with(
        r#"["CONSUMER",{"name":"b","id":"i","consumer_id":5,"instance":"x","gap":true}]"#,
        |c| {
            let expected = Consumer {
                name: ConsumerName::parse("b").unwrap(),
                id: Some("i".into()),
                instance: Some("x".into()),
                gap: true,
            };
            assert!(matches!(c, Ok(Inbound::Consumer(c)) if c == expected));
        },
    );
    with(
        r#"["PRODUCER",{"name":"p","default_ttl":600}]"#,
        |producer| {
            let expected = Producer {
                name: ProducerName::parse("p").unwrap(),
                id: None,
                default_ttl: Some(Duration::from_secs(600)),
                instance: None,
            };
            assert!(matches!(producer, Ok(Inbound::Producer(p)) if p == expected));
        },
    );
    for name in ["CONSUMER", "PRODUCER"] {
        for payload in [
            r#"{"name":5}"#,
            "{}",
            r#"{"name":""}"#,
            r#"{"name":"TYO-MQ-ALL"}"#,
        ] {
            let refused = refusal(&format!(r#"["{name}",{payload}]"#));
            assert_eq!(
                refused,
                (Answer::Error, ErrorKind::BadName),
                "{name} {payload}"
            );
        }
        assert_eq!(refusal(&format!(r#"["{name}",null]"#)), BAD);
    }
    assert_eq!(
        refusal(r#"["PRODUCER",{"name":"p","default_ttl":"x"}]"#),
        BAD
    );
}

#[test]
fn settling_verbs_take_all_spellings_of_the_id() {
    for member in ["msgId", "msg_id", "id"] {
        with(
            &format!(r#"["ACK",{{"{member}":"m","delivery_attempt":2}}]"#),
            |inbound| {
                let id = "m".into();
                let expected = Ack::One {
                    id,
                    attempt: Some(2),
                };
                assert!(matches!(inbound, Ok(Inbound::Ack(ack)) if ack == expected));
            },
        );
    }
    with(r#"["ACK",{"msgIds":["a","b"]}]"#, |inbound| {
        let expected = Ack::Many(vec!["a".into(), "b".into()]);
        assert!(matches!(inbound, Ok(Inbound::Ack(ack)) if ack == expected));
    });
    with(
        r#"["NACK",{"msgId":"m","requeue":false,"delay":"1s","reason":"r"}]"#,
        |inbound| {
            let expected = Nack {
                id: "m".into(),
                attempt: None,
                requeue: false,
                delay: Some(Duration::from_secs(1)),
                reason: Some("r".into()),
            };
            assert!(matches!(inbound, Ok(Inbound::Nack(nack)) if nack == expected));
        },
    );
    with(r#"["NACK",{"msgId":"m"}]"#, |inbound| {
        assert!(matches!(inbound, Ok(Inbound::Nack(nack)) if nack.requeue));
    });
    with(r#"["WORKING",{"msgId":"m"}]"#, |inbound| {
        assert!(matches!(inbound, Ok(Inbound::Working(working)) if working.id == "m"));
    });
}

#[test]
fn a_batch_of_acks_is_bounded() {
    let ids = vec!["\"a\""; 16_385].join(",");
    let refused = refusal(&format!(r#"["ACK",{{"msgIds":[{ids}]}}]"#));
    assert_eq!(refused, (Answer::AckFail, ErrorKind::BadCommand));
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let reason = "é".repeat(1000);
    with(
        &format!(r#"["NACK",{{"msgId":"m","reason":"x{reason}"}}]"#),
        |inbound| {
            assert!(
                matches!(inbound, Ok(Inbound::Nack(nack)) if nack.reason.as_ref().unwrap().len() == 1023)
            );
        },
    );
}

#[test]
fn small_verbs_and_strangers_are_recognised() {
    with(r#"["HELLO",null]"#, |inbound| {
        assert!(matches!(inbound, Ok(Inbound::Hello)))
    });
    with(r#"["DEBUG"]"#, |inbound| {
        assert!(matches!(inbound, Ok(Inbound::Debug)))
    });
    with(r#"["QUIT","sid"]"#, |inbound| {
        assert!(matches!(inbound, Ok(Inbound::Quit(id)) if id == "sid"));
    });
    for (args, object) in [
        (r#"["PING",{"a":1}]"#, Some(r#"{"a":1}"#)),
        (r#"["PING","{\"a\":1}"]"#, Some(r#"{"a":1}"#)),
        (r#"["PING"]"#, None),
        (r#"["PING",5]"#, None),
    ] {
        with(args, |inbound| {
            assert!(
                matches!(inbound, Ok(Inbound::Ping(ping)) if ping == object),
                "{args}"
            );
        });
    }
    with(
        r#"["AUTHENTICATION",{"token":"t","realm":null}]"#,
        |inbound| {
            let expected = Authentication {
                token: Some("t".into()),
                ..Authentication::default()
            };
            assert!(matches!(inbound, Ok(Inbound::Authentication(auth)) if auth == expected));
        },
    );
    let refused = refusal(r#"["AUTHENTICATION",{"token":5}]"#);
    assert_eq!(refused, (Answer::AuthFail, ErrorKind::BadCommand));
    with(
        r#"["AUTH_MANAGEMENT_COMMAND",{"body":{}}]"#,
        |inbound| match inbound {
            Ok(Inbound::Other { name, payload }) => {
                assert_eq!(name, "AUTH_MANAGEMENT_COMMAND");
                assert_eq!(payload, Some(r#"{"body":{}}"#));
            }
            other => panic!("{other:?}"),
        },
    );
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(args in r#"\[?"?[A-Z_]{0,8}"?[\[\]{}":,\\a-z0-9 ]{0,60}"#) {
        with(&args, |_| ());
    }

    #[test]
    fn no_member_of_any_verb_makes_a_parser_panic(
        verb in prop::sample::select(vec![
            "CONSUMER", "PRODUCER", "SUBSCRIBE", "UNSUBSCRIBE", "PRODUCE", "PRODUCE_CHUNK", "ACK",
            "NACK", "WORKING", "PING", "QUIT", "AUTHENTICATION", "OTHER",
        ]),
        members in prop::collection::vec((
            prop::sample::select(vec![
                "event", "message", "from", "ttl", "lifespan", "name", "id", "consumer", "producer",
                "options", "retry", "ack_timeout", "prefetch", "group", "scope", "mode", "msgId",
                "msgIds", "delay", "deliver_at", "headers", "instance_seq", "transferId", "index",
                "total", "data", "reason", "token", "method", "broadcast", "__proto__",
            ]),
            prop::sample::select(vec![
                "null", "true", "0", "-1", "1e999", "12.5", "99999999999999999999", "[]", "{}",
                "\"\"", "\"a\"", "\"all\"", "\"topic\"", "\"broadcast\"", "\"\\ud83d\"", "\"1h\"",
                "[\"a\",1]", "{\"a\":\"b\"}", "{\"event\":\"x\"}", "{\"delay\":\"1s\"}",
                "\"2026-01-01\"", "[[[]]]", "\"TM-ALL\"",
            ]),
        ), 0..8),
        as_text in any::<bool>(),
    ) {
        let members: Vec<String> =
            members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let object = format!("{{{}}}", members.join(","));
        let payload = if as_text { serde_json::to_string(&object).unwrap() } else { object };
        with(&format!("[\"{verb}\",{payload}]"), |inbound| {
            // It is JSON, so it never ends the session.
            if let Err(refused) = inbound {
                prop_assert_ne!(refused.answer, Answer::Close);
            }
            Ok(())
        })?;
    }

    /// Whatever serde_json takes as JSON arrives as it was, and nothing else is taken.
    #[test]
    fn a_body_is_json_or_the_frame_is_refused(body in r#"[\[\]{}":,\\tru1e.nl -]{1,12}"#) {
        let is_json = serde_json::from_str::<&serde_json::value::RawValue>(&body).is_ok();
        let args = format!("[\"PRODUCE\",{{\"event\":\"a\",\"message\":[{body}]}}]");
        let is_json_list = serde_json::from_str::<serde::de::IgnoredAny>(&args).is_ok();
        with(&args, |inbound| {
            prop_assert_eq!(inbound.is_ok(), is_json_list);
            if let (true, Ok(Inbound::Produce(produce))) = (is_json, inbound) {
                prop_assert_eq!(produce.message, Some(&*format!("[{body}]")));
            }
            Ok(())
        })?;
    }
}
