//! What clients see, byte for byte.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::clock::{Elapsed, Timestamp};
use crate::model::{Extras, Key, Message, MessageId, ProducerName, SubscriptionDefaults};
use crate::protocol::chunk::{Assembler, Step};
use crate::protocol::inbound::{Answer, Inbound, Produce, Refused};
use crate::{Error, ErrorKind};

const NOW: Timestamp = Timestamp(1_767_225_600_000);
const THRESHOLD: usize = 262_144;

/// The payloads of the frames, text and binary apart.
fn frames(mut bytes: &[u8]) -> Vec<Result<String, Vec<u8>>> {
    let mut frames = Vec::new();
    while let [kind, short, rest @ ..] = bytes {
        let (length, rest) = match short {
            126 => (
                usize::from(u16::from_be_bytes([rest[0], rest[1]])),
                &rest[2..],
            ),
            127 => {
                let length = u64::from_be_bytes(rest[..8].try_into().unwrap());
                (usize::try_from(length).unwrap(), &rest[8..])
            }
            short => (usize::from(*short), rest),
        };
        let (payload, rest) = rest.split_at(length);
        frames.push(match kind {
            0x81 => Ok(String::from_utf8(payload.to_vec()).unwrap()),
            0x82 => Err(payload.to_vec()),
            other => panic!("frame of kind {other:x}"),
        });
        bytes = rest;
    }
    assert!(bytes.is_empty());
    frames
}

fn texts(write: impl FnOnce(&mut Vec<u8>)) -> Vec<String> {
    let mut out = Vec::new();
    write(&mut out);
    frames(&out).into_iter().map(Result::unwrap).collect()
}

fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let [text] = texts(write).try_into().unwrap();
    text
}

fn message(body: &str) -> Message {
    Message {
        id: MessageId(1),
        event: "Paid".into(),
        from: "Orders".into(),
        body: Some(Bytes::copy_from_slice(body.as_bytes())),
        extras: None,
        produced: NOW,
        expires: None,
        guaranteed: false,
        key: None,
    }
}

fn head() -> DeliveryHead {
    DeliveryHead::of_key(&Key::Event {
        producer: ProducerName::parse("Orders").unwrap(),
        event: "paid".into(),
    })
}

fn deliver(message: &Message, stamp: Stamp<'_>) -> String {
    text(|out| {
        assert_eq!(
            head().write(out, &message.into(), stamp, THRESHOLD, || NOW),
            0
        );
    })
}

#[test]
fn a_plain_delivery_is_event_message_from_and_nothing_else() {
    let expected =
        r#"42["CONSUME-orders-paid",{"event":"Paid","message":{"id": 7.0},"from":"Orders"}]"#;
    assert_eq!(deliver(&message(r#"{"id": 7.0}"#), Stamp::Plain), expected);
}

#[test]
fn a_tracked_delivery_says_its_id_twice_and_its_attempt() {
    let stamp = Stamp::Tracked {
        msg_id: "m-1",
        attempt: 12,
    };
    let expected = r#"42["CONSUME-orders-paid",{"event":"Paid","message":1,"from":"Orders","msgId":"m-1","msg_id":"m-1","delivery_attempt":12}]"#;
    assert_eq!(deliver(&message("1"), stamp), expected);
}

#[test]
fn a_repeat_without_ack_is_marked() {
    let frame = deliver(&message("1"), Stamp::Redelivered);
    assert!(
        frame.ends_with(r#""from":"Orders","redelivered":true}]"#),
        "{frame}"
    );
    assert!(!frame.contains("msgId"));
}

#[test]
fn what_few_messages_have_follows() {
    let raw = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    let mut message = message("1");
    message.body = None;
    message.extras = Some(Box::new(Extras {
        enc: raw(r#"{"v":1}"#),
        to: raw(r#""x""#),
        content_type: raw(r#""text/plain""#),
        headers: raw(r#"{"h":"v"}"#),
        attachments: Vec::new(),
    }));
    let expected = r#"42["CONSUME-orders-paid",{"event":"Paid","from":"Orders","enc":{"v":1},"to":"x","content_type":"text/plain","headers":{"h":"v"}}]"#;
    assert_eq!(deliver(&message, Stamp::Plain), expected);
}

#[test]
fn attachments_make_a_binary_event_and_are_never_chunked() {
    let mut message = message(r#"{"_placeholder":true,"num":0}"#);
    message.extras = Some(Box::new(Extras {
        attachments: vec![Bytes::from_static(&[1, 2]), Bytes::from(vec![3; 200])],
        ..Extras::default()
    }));
    let mut out = Vec::new();
    let chunks = head().write(&mut out, &(&message).into(), Stamp::Plain, 10, || NOW);
    assert_eq!(chunks, 0);
    let expected = r#"452-["CONSUME-orders-paid",{"event":"Paid","message":{"_placeholder":true,"num":0},"from":"Orders"}]"#;
    let expected = [Ok(expected.to_owned()), Err(vec![1, 2]), Err(vec![3; 200])];
    assert_eq!(frames(&out), expected);
}

#[test]
fn live_and_kept_messages_give_the_same_bytes() {
    let args = r#"["PRODUCE",{"event":"Paid","message":"\ud83d","from":"x","enc":{},"headers":{"a":"b"}}]"#;
    let mut scratch = String::new();
    let defaults = SubscriptionDefaults::default();
    let Ok(Inbound::Produce(produce)) = Inbound::parse(args, &[], &mut scratch, &defaults) else {
        panic!("not a PRODUCE");
    };
    let kept = produce.to_message("Orders".into(), NOW, None);
    let (mut live, mut stored) = (Vec::new(), Vec::new());
    let content = Content::of_produce(&produce, "Orders");
    head().write(&mut live, &content, Stamp::Plain, THRESHOLD, || NOW);
    head().write(
        &mut stored,
        &(&kept).into(),
        Stamp::Plain,
        THRESHOLD,
        || NOW,
    );
    assert_eq!(live, stored);
}

/// Joins the chunks as a client does and returns the event and the text.
fn join(texts: &[String], threshold: usize) -> (String, String) {
    let mut joined = String::new();
    let mut event = String::new();
    for (index, text) in texts.iter().enumerate() {
        let packet: Value = serde_json::from_str(text.strip_prefix("42").unwrap()).unwrap();
        assert_eq!(packet[0], "CONSUME_CHUNK");
        assert_eq!(packet[1]["index"], index);
        assert_eq!(packet[1]["total"], texts.len());
        let data = packet[1]["data"].as_str().unwrap();
        assert!(data.encode_utf16().count() <= threshold);
        joined.push_str(data);
        event = packet[1]["event"].as_str().unwrap().to_owned();
    }
    (event, joined)
}

#[test]
fn text_above_the_threshold_is_chunked_and_at_it_is_not() {
    let message = message(&format!("\"{}\"", "é😀\\\"".repeat(100)));
    let content = Content::from(&message);
    let whole = deliver(&message, Stamp::Plain);
    let object = &whole[r#"42["CONSUME-orders-paid","#.len()..whole.len() - 1];
    let units = object.encode_utf16().count();
    let at = texts(|out| {
        assert_eq!(head().write(out, &content, Stamp::Plain, units, || NOW), 0);
    });
    assert_eq!(at.concat(), whole);
    let below = texts(|out| {
        assert_eq!(
            head().write(out, &content, Stamp::Plain, units - 1, || NOW),
            2
        );
    });
    let (event, joined) = join(&below, units - 1);
    assert_eq!(event, "CONSUME-orders-paid");
    assert_eq!(joined, object);
}

#[test]
fn names_with_quotes_are_escaped() {
    let head = DeliveryHead::new("CONSUME-a\"b");
    let mut message = message("1");
    message.event = "x\"\\".into();
    let frame = text(|out| {
        head.write(out, &(&message).into(), Stamp::Plain, THRESHOLD, || NOW);
    });
    let packet: Value = serde_json::from_str(&frame[2..]).unwrap();
    assert_eq!(packet[0], "CONSUME-a\"b");
    assert_eq!(packet[1]["event"], "x\"\\");
}

#[test]
fn errors_carry_number_and_name() {
    let fault = Error::new(ErrorKind::DuplicateConsumer, "duplicate consumer");
    let expected =
        r#"42["ERROR",{"message":"duplicate consumer","code":-3,"error":"duplicate_consumer"}]"#;
    assert_eq!(text(|out| error(out, &fault)), expected);
    let expected = r#"437[{"ok":false,"code":-3,"error":"duplicate_consumer","message":"duplicate consumer"}]"#;
    assert_eq!(text(|out| reply_error(out, 7, &fault)), expected);
}

#[test]
fn refusals_are_answered_as_their_verb_wants() {
    let answer = |answer, id| {
        let error = Error::new(ErrorKind::BadCommand, "no");
        texts(|out| refused(out, id, &Refused { answer, error }))
    };
    assert!(answer(Answer::Close, Some(1)).is_empty());
    assert!(answer(Answer::Ignore, None).is_empty());
    assert_eq!(answer(Answer::BareError, None), [r#"42["ERROR","no"]"#]);
    let object = r#"42["ERROR",{"message":"no","code":-5,"error":"bad_command"}]"#;
    assert_eq!(answer(Answer::Error, None), [object]);
    let reply = r#"431[{"ok":false,"code":-5,"error":"bad_command","message":"no"}]"#;
    for kind in [Answer::Ignore, Answer::Error, Answer::BareError] {
        assert_eq!(answer(kind, Some(1)), [reply]);
    }
    let fail = r#"42["ACK_FAIL",{"ok":false,"code":400,"error":"bad_command","message":"no"}]"#;
    assert_eq!(answer(Answer::AckFail, None), [fail]);
    assert_eq!(answer(Answer::NackFail, Some(1)).len(), 2);
    assert_eq!(answer(Answer::WorkingFail, Some(1)).len(), 2);
    let auth = r#"42["AUTH_FAIL",{"code":400,"error":"bad_command","message":"no"}]"#;
    assert_eq!(answer(Answer::AuthFail, None), [auth]);
    let reply = r#"431[{"ok":false,"code":400,"error":"bad_command","message":"no"}]"#;
    assert_eq!(answer(Answer::AuthFail, Some(1)), [auth, reply]);
}

#[test]
fn settlements_are_said_as_event_and_reply() {
    let both = texts(|out| settle_ok(out, Some(3), Settle::Ack, "m", true));
    let object = r#"{"ok":true,"msgId":"m","duplicate":true}"#;
    assert_eq!(
        both,
        [
            format!(r#"42["ACK_OK",{object}]"#),
            format!("433[{object}]")
        ]
    );
    let one = text(|out| settle_ok(out, None, Settle::Nack, "m", false));
    assert_eq!(one, r#"42["NACK_OK",{"ok":true,"msgId":"m"}]"#);
    for (kind, code) in [
        (ErrorKind::DeliveryUnknown, 404),
        (ErrorKind::Forbidden, 403),
        (ErrorKind::StaleAck, 409),
        (ErrorKind::StoreUnavailable, 503),
        (ErrorKind::StoreTimeout, 503),
        (ErrorKind::BadCommand, 400),
    ] {
        let fault = Error::new(kind, "no");
        let fail = text(|out| settle_fail(out, None, Settle::Working, Some("m"), &fault));
        let packet: Value = serde_json::from_str(&fail[2..]).unwrap();
        let object = json!({
            "ok": false, "code": code, "error": kind.code(), "message": "no", "msgId": "m",
        });
        assert_eq!(packet, json!(["WORKING_FAIL", object]));
    }
    let failed = [("c", Error::new(ErrorKind::DeliveryUnknown, "no"))];
    let batch = text(|out| ack_many(out, None, &["a", "b"], &["b"], &failed));
    let expected = r#"42["ACK_OK",{"ok":true,"msgIds":["a","b"],"duplicate":["b"],"failed":[{"msgId":"c","code":404,"error":"delivery_unknown","message":"no"}]}]"#;
    assert_eq!(batch, expected);
}

#[test]
fn replies_have_the_members_of_the_specification() {
    let outcome = Produced {
        id: "1",
        queued: 2,
        delivered: 3,
        ..Produced::default()
    };
    assert_eq!(
        text(|out| produced(out, 9, &outcome)),
        r#"439[{"ok":true,"id":"1","queued":2,"delivered":3,"refused":0,"duplicate":false,"delayed":false}]"#
    );
    assert_eq!(
        text(|out| subscribed(out, 0, "orders-paid", 4)),
        r#"430[{"ok":true,"key":"orders-paid","consume_event":"CONSUME-orders-paid","queued":4}]"#
    );
    assert_eq!(
        text(|out| unsubscribed(out, 1, 1, 5)),
        r#"431[{"ok":true,"removed":1,"left":5}]"#
    );
    assert_eq!(
        texts(|out| auth_ok(out, Some(4), "default", "both")),
        [
            r#"42["AUTH_OK",{"realm":"default","role":"both"}]"#,
            r#"434[{"ok":true,"realm":"default","role":"both"}]"#,
        ]
    );
    assert_eq!(
        text(|out| gap(out, &["a-b"], 3)),
        r#"42["GAP",{"keys":["a-b"],"dropped":3}]"#
    );
    assert_eq!(
        text(|out| rate_limited(out, "messages_per_second", Some(1))),
        r#"42["RATE_LIMITED",{"code":429,"error":"rate_limited","message":"too much in too short a time","reason":"messages_per_second","retry_after":1}]"#
    );
    let raw = text(|out| raw_event(out, "X", "[1]", &[]));
    assert_eq!(raw, r#"42["X",[1]]"#);
    let mut out = Vec::new();
    raw_event(&mut out, "X", "[1]", &[Bytes::from_static(b"ab")]);
    assert_eq!(out, b"\x81\x0d451-[\"X\",[1]]\x82\x02ab");
    assert_eq!(text(|out| raw_reply(out, 2, "[1]")), "432[[1]]");
    assert_eq!(
        text(|out| event_text(out, "ERROR", "a\nb")),
        r#"42["ERROR","a\nb"]"#
    );
}

#[test]
fn a_pong_is_a_json_string_with_what_was_sent() {
    for (sent, expected) in [
        (
            Some(r#"{"a":"x"}"#),
            json!({"a": "x", "pong": "PONG", "timestamp": "2026-01-01T00:00:00.000Z"}),
        ),
        (
            Some("{ }"),
            json!({"pong": "PONG", "timestamp": "2026-01-01T00:00:00.000Z"}),
        ),
        (
            None,
            json!({"pong": "PONG", "timestamp": "2026-01-01T00:00:00.000Z"}),
        ),
    ] {
        let frame = text(|out| pong(out, 5, sent, NOW));
        let args: Vec<String> = serde_json::from_str(frame.strip_prefix("435").unwrap()).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&args[0]).unwrap(), expected);
    }
}

#[test]
fn awareness_has_the_names_and_members_clients_wait_for() {
    let events = ["orders-paid".to_owned()];
    let mut subscriber = Subscriber {
        name: "billing",
        id: "b",
        socket: Some("s9"),
        events: &events,
        online: Some(true),
    };
    assert_eq!(
        text(|out| subscribe_to(out, Some("p"), &subscriber)),
        r#"42["SUBSCRIBE-TO-p",{"name":"billing","id":"b","socket":"s9","events":["orders-paid"],"online":true}]"#
    );
    let ended = texts(|out| unsubscribed_from(out, "p", "paid", &subscriber));
    assert!(ended[0].starts_with(r#"42["UNSUBSCRIBE-p",{"name":"billing""#));
    assert!(ended[1].starts_with(r#"42["UNSUBSCRIBE-paid-p",{"name":"billing""#));
    assert!(ended[1].ends_with(r#""event":"UNSUBSCRIBE","consumer":"billing"}]"#));
    subscriber.socket = None;
    subscriber.online = None;
    assert_eq!(
        text(|out| subscribe_to(out, None, &subscriber)),
        r#"42["SUBSCRIBE-TO",{"name":"billing","id":"b","socket":null,"events":["orders-paid"]}]"#
    );
    assert_eq!(
        text(|out| consumer_connected(out, "p", "s9", "b", "billing")),
        r#"42["CONNECT-p",{"event":"CONNECT","socket":"s9","id":"b","consumer":"billing"}]"#
    );
    assert_eq!(
        text(|out| consumer_disconnected(out, "p", "s9", "b", "billing")),
        r#"42["DISCONNECT-p",{"event":"DISCONNECT","socket":"s9","id":"b","consumer":"billing"}]"#
    );
    assert_eq!(
        text(|out| producer_connected(out, "b", "s2", "orders")),
        r#"42["CONNECT-b",{"event":"CONNECT","socket":"s2","producer":"orders"}]"#
    );
    assert_eq!(
        text(|out| producer_disconnected(out, "b", "s2", "orders")),
        r#"42["DISCONNECT-b",{"event":"DISCONNECT","socket":"s2","producer":"orders"}]"#
    );
    assert_eq!(
        text(|out| producer_online(out, "s2", "orders")),
        r#"42["orders-ONLINE",{"event":"CONNECT","socket":"s2","producer":"orders"}]"#
    );
}

fn any_body() -> impl Strategy<Value = String> {
    // Any text as a JSON string, with lone escapes and blanks between.
    (any::<String>(), any::<bool>(), "[ \n\t]{0,3}").prop_map(|(text, lone, blank)| {
        let text = serde_json::to_string(&text).unwrap();
        let lone = if lone { r#","\ud83d""# } else { "" };
        format!("[{blank}{text}{lone}]")
    })
}

proptest! {
    /// Cut by us, read by us: the whole object comes back byte for byte.
    #[test]
    fn chunks_join_to_what_was_delivered(body in any_body(), threshold in 2usize..60) {
        let message = message(&body);
        let whole = deliver(&message, Stamp::Redelivered);
        let object = &whole[r#"42["CONSUME-orders-paid","#.len()..whole.len() - 1];
        let chunks = texts(|out| {
            head().write(out, &(&message).into(), Stamp::Redelivered, threshold, || NOW);
        });
        prop_assert!(chunks.len() > 1);
        let mut assembler = Assembler::new(1 << 20);
        let mut last = Step::Repeated;
        for chunk in &chunks {
            let args = chunk[2..].replacen("CONSUME_CHUNK", "PRODUCE_CHUNK", 1);
            let mut scratch = String::new();
            let defaults = SubscriptionDefaults::default();
            match Inbound::parse(&args, &[], &mut scratch, &defaults) {
                Ok(Inbound::ProduceChunk(chunk)) => {
                    last = assembler.add(&chunk, Elapsed::ZERO).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        prop_assert_eq!(&last, &Step::Complete(object.to_owned()));
        let produce = Produce::parse_joined(object).unwrap();
        prop_assert_eq!(produce.message, Some(&*body));
    }

    #[test]
    fn every_delivery_is_one_well_formed_packet(
        event in any::<String>(), from in any::<String>(), body in any_body(),
        msg_id in "[a-z\"]{1,9}", attempt in any::<u32>(),
    ) {
        let mut message = message(&body);
        message.event = event.as_str().into();
        message.from = from.as_str().into();
        let stamp = Stamp::Tracked { msg_id: &msg_id, attempt };
        let frame = deliver(&message, stamp);
        let object: std::collections::HashMap<String, Box<serde_json::value::RawValue>> =
            serde_json::from_str::<(String, _)>(&frame[2..]).unwrap().1;
        prop_assert_eq!(object["message"].get(), body);
        for (name, value) in [("event", &event), ("from", &from), ("msgId", &msg_id)] {
            prop_assert_eq!(&serde_json::from_str::<String>(object[name].get()).unwrap(), value);
        }
        prop_assert_eq!(object["delivery_attempt"].get(), attempt.to_string());
    }
}
