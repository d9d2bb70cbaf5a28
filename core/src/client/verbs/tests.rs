use serde_json::{Value, json};

use super::super::frames::tests::texts;
use super::*;

fn payloads(out: &[u8]) -> Vec<Value> {
    let args = |text: &String| {
        let start = text.find('[').unwrap();
        let mut args: Vec<Value> = serde_json::from_str(&text[start..]).unwrap();
        args.remove(1)
    };
    texts(out).iter().map(args).collect()
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_small_message_is_the_same_by_either_way() {
    let message = Produce {
        event: "Paid \u{1F600}",
        message: Some(r#"{"z":1,"a":1.0,"s":"\ud83d"}"#),
        to: Some("you"),
        ttl: Some(millis(1500)),
        headers: Some(r#"{"h":"1"}"#),
        key: Some("k"),
        id: Some("mine"),
        broadcast: Some(Broadcast::Group("g")),
        ..Produce::default()
    };
    let (mut small, mut head, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    produce_small(&mut small, &message, Some("\"orders\""));
    produce_head(&mut head, &message, Some("\"orders\""));
    produce(&mut kept, &head, Times::of(&message), None, &[], None);
    assert_eq!(texts(&small), texts(&kept));
    let expected = r#"42["PRODUCE",{"event":"Paid 😀","message":{"z":1,"a":1.0,"s":"\ud83d"},"from":"orders","to":"you","method":"broadcast","broadcast":"group","group":"g","msg_uid":"mine","headers":{"h":"1"},"key":"k","ttl":1.500}]"#;
    assert_eq!(texts(&small), [expected]);
}

#[test]
fn chunks_begin_above_the_threshold_in_utf16_units() {
    for (character, units) in [("x", 1), ("\u{20ac}", 1), ("\u{1F600}", 2)] {
        for target in [
            CHUNK_UNITS - 1,
            CHUNK_UNITS,
            CHUNK_UNITS + 1,
            2 * CHUNK_UNITS,
            2 * CHUNK_UNITS + 1,
        ] {
            let around = r#"{"event":"e","message":""}"#.len();
            let count = (target - around) / units;
            let fill = (target - around) % units;
            let body = character.repeat(count) + &"y".repeat(fill);
            let text = format!("{{\"event\":\"e\",\"message\":\"{body}\"");
            let mut out = Vec::new();
            produce(
                &mut out,
                text.as_bytes(),
                Times::default(),
                None,
                &[],
                Some(4),
            );
            let frames = texts(&out);
            if target <= CHUNK_UNITS {
                assert_eq!(frames.len(), 1);
                assert!(frames[0].starts_with("424[\"PRODUCE\","));
                continue;
            }
            let pieces = payloads(&out);
            assert!(pieces.len() >= target.div_ceil(CHUNK_UNITS));
            let joined: String = pieces.iter().map(|p| p["data"].as_str().unwrap()).collect();
            assert_eq!(joined, text + "}");
            for piece in &pieces {
                let units = piece["data"].as_str().unwrap().encode_utf16().count();
                assert!(units <= CHUNK_UNITS && piece["total"] == json!(pieces.len()));
                assert_eq!(piece["transferId"], pieces[0]["transferId"]);
            }
            let asks = frames.iter().filter(|frame| frame.starts_with("424["));
            assert_eq!(asks.count(), 1);
            assert!(frames.last().unwrap().starts_with("424["));
        }
    }
}

#[test]
fn a_ttl_counts_from_the_call_or_from_when_it_is_due() {
    let times = |ttl, lifespan, delay| {
        Times::of(&Produce {
            ttl,
            lifespan,
            delay,
            ..Produce::default()
        })
    };
    let plain = times(Some(millis(300)), None, None);
    assert_eq!(
        plain.after(millis(100)),
        Some(times(Some(millis(200)), None, None))
    );
    assert_eq!(plain.after(millis(301)), None);
    assert_eq!(plain.expiry(millis(50)), Some(millis(350)));
    let delayed = times(Some(millis(300)), None, Some(millis(200)));
    let left = times(Some(millis(250)), None, Some(millis(0)));
    assert_eq!(delayed.after(millis(250)), Some(left));
    assert_eq!(delayed.expiry(millis(50)), Some(millis(550)));
    let beaten = times(Some(millis(300)), Some(millis(100)), None);
    assert_eq!(
        beaten.after(millis(200)),
        Some(times(Some(millis(100)), None, None))
    );
    assert_eq!(
        times(None, Some(millis(100)), None).after(millis(200)),
        None
    );
    let online_only = times(Some(Duration::ZERO), None, None);
    assert_eq!(online_only.after(millis(10)), Some(online_only));
    assert_eq!(online_only.expiry(millis(50)), None);
    assert_eq!(Times::default().expiry(millis(1)), None);
    let held = Times::of(&Produce {
        ttl: Some(millis(1)),
        deliver_at: Some("1767225600000"),
        ..Produce::default()
    });
    assert_eq!(held.after(millis(500)), Some(held));
    assert_eq!(held.expiry(millis(0)), None);
}

#[test]
fn a_subscription_says_all_its_options() {
    let retry = RetryPolicy::new(Some(4), Some(millis(2000)), Backoff::Exponential, None);
    let options = Subscribe {
        consumer: Some("billing".into()),
        consumer_id: Some("b1".into()),
        ack_timeout: Some(millis(100)),
        retry: Some(retry.unwrap()),
        prefetch: Some(10),
        ..Subscribe::to_topic("a/+").durable().acked().group("g")
    };
    let mut out = Vec::new();
    subscribe(&mut out, &options, 3);
    unsubscribe(&mut out, &Subscribe::to_all_of("orders"), true, 5);
    let expected = json!({"event": "a/+", "producer": "TYO-MQ-ALL", "consumer": "billing",
        "consumer_id": "b1", "scope": "default", "mode": "topic", "durable": true, "ack": true,
        "manual_ack": false, "ack_timeout": 0.1, "group": "g", "prefetch": 10,
        "retry": {"max_attempts": 4, "delay": 2, "backoff": "exponential", "max_delay": 3600}});
    let all = json!({"event": "TM-ALL", "producer": "orders", "scope": "all", "purge": true});
    assert_eq!(payloads(&out), [expected, all]);
}

#[test]
fn a_nack_says_what_was_given() {
    let mut out = Vec::new();
    nack(&mut out, "m", Some(2), Nack::default());
    let all = Nack {
        delay: Some(millis(1500)),
        bury: true,
        reason: Some("no"),
    };
    nack(&mut out, "m", None, all);
    let plain = json!({"msgId": "m", "delivery_attempt": 2});
    let full = json!({"msgId": "m", "requeue": false, "delay": 1.5, "reason": "no"});
    assert_eq!(payloads(&out), [plain, full]);
}
