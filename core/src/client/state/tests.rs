use super::super::frames::tests::texts;
use super::super::options::Outbound;
use super::super::request::Produce;
use super::super::verbs::Times;
use super::*;

const NOW: Elapsed = Elapsed::ZERO;

fn fixed() -> Fixed {
    let outbound = Outbound {
        high_water: 1000,
        low_water: 200,
        hard_limit: 2000,
    };
    let options = ConnectOptions {
        outbound,
        instance: Some("me".into()),
        ..ConnectOptions::default()
    };
    Fixed::new(options, Identity::default())
}

fn up(fixed: &Fixed) -> State {
    let mut state = State::new(&fixed.options);
    state.link_up("s", NOW, fixed);
    state.take_line(&mut Vec::new(), NOW, fixed);
    state.take_line(&mut Vec::new(), NOW, fixed);
    state
}

fn say(state: &mut State, fixed: &Fixed, bytes: usize) -> Result<()> {
    let text = "x".repeat(bytes);
    let line = state.line(bytes, fixed)?;
    super::super::frames::text(line, &text);
    Ok(())
}

#[test]
fn high_water_is_told_and_drain_comes_once_below_the_low() {
    let fixed = fixed();
    let mut state = up(&fixed);
    say(&mut state, &fixed, 500).unwrap();
    assert!(state.is_below_high_water(&fixed));
    say(&mut state, &fixed, 600).unwrap();
    assert!(!state.is_below_high_water(&fixed));
    let mut out = Vec::new();
    assert!(
        !state.take_line(&mut out, NOW, &fixed).1,
        "it is only being written"
    );
    out.clear();
    assert!(state.take_line(&mut out, NOW, &fixed).1);
    assert!(!state.take_line(&mut out, NOW, &fixed).1);
    assert!(state.is_idle());
}

#[test]
fn the_hard_limit_refuses_but_for_one_message() {
    let fixed = fixed();
    let mut state = up(&fixed);
    say(&mut state, &fixed, 5000).unwrap();
    let error = say(&mut state, &fixed, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QueueFull);
}

#[test]
fn a_server_that_does_not_answer_subscribe_gets_single_acks() {
    let fixed = fixed();
    let mut state = up(&fixed);
    assert!(state.ack("a", None));
    assert!(!state.ack("b", None), "one bell is enough");
    let mut out = Vec::new();
    state.take_line(&mut out, NOW, &fixed);
    let expected = [r#"42["ACK",{"msgId":"a"}]"#, r#"42["ACK",{"msgId":"b"}]"#];
    assert_eq!(texts(&out), expected);
}

#[test]
fn kept_acks_are_bounded() {
    let fixed = fixed();
    let mut state = State::new(&fixed.options);
    for n in 0..20_000 {
        assert!(!state.ack(&n.to_string(), None), "there is no link to wake");
    }
    assert_eq!(state.acks.len(), MAX_ACKS);
}

#[test]
fn a_refused_subscription_is_forgotten_and_a_refused_renewal_is_not() {
    let fixed = fixed();
    let mut state = up(&fixed);
    let subscribe = super::super::request::Subscribe::to("paid");
    let (settle, answer) = super::super::answer::Answer::pair();
    let entry = Entry {
        key: super::super::subscriptions::key_of(&subscribe).unwrap(),
        subscribe,
        waiter: Some(Waiter {
            settle,
            deadline: Elapsed::MAX,
        }),
        was_sent: false,
    };
    let (id, _) = state.subscribe(entry);
    let reply = |state: &mut State, json| {
        let ids: Vec<u64> = state.requests.keys().copied().collect();
        let outcomes = ids.into_iter().map(|id| state.reply(id, json, NOW));
        outcomes.last().unwrap()
    };
    // The first link's PING is among them.
    reply(&mut state, r#"[{"ok":true,"key":"k"}]"#);
    state.link_down();
    let outcomes = state.link_up("t", NOW, &fixed);
    // Told when it is listened to again.
    assert!(outcomes.gap.is_empty());
    let refused = r#"[{"ok":false,"code":403}]"#;
    let outcomes = reply(&mut state, refused);
    assert_eq!(outcomes.gap, ["tyo-mq-all-paid"]);
    assert_eq!(
        outcomes.refused.as_deref(),
        Some(r#"{"ok":false,"code":403}"#)
    );
    assert!(state.subscriptions.entries.contains_key(&id));
    drop(answer);
}

#[test]
fn the_earliest_deadline_is_kept() {
    let fixed = fixed();
    let mut state = up(&fixed);
    let second = Elapsed::from_secs(1);
    assert!(state.note(Some(4 * second)));
    assert!(!state.note(Some(5 * second)));
    assert!(!state.note(None));
    assert!(state.note(Some(3 * second)));
    let (settle, _answer) = super::super::answer::Answer::pair();
    state.await_reply(settle, 5 * second);
    let outcomes = state.expire(3 * second);
    assert!(outcomes.answers.is_empty());
    assert_eq!(state.deadline, Some(5 * second));
    assert_eq!(
        state.expire(6 * second).ready,
        Some(Ok(())),
        "PING is given up too"
    );
    assert_eq!(state.deadline, None);
    assert!(state.requests.is_empty());
}

#[test]
fn nothing_is_kept_after_the_end() {
    let fixed = fixed();
    let mut state = up(&fixed);
    state.shut(super::super::answer::closed());
    let mut head = Vec::new();
    let produce = Produce {
        event: "e",
        ..Produce::default()
    };
    verbs::produce_head(&mut head, &produce, None);
    let outgoing = Outgoing {
        head,
        attachments: vec![],
        times: Times::of(&produce),
        called: NOW,
        deadline: None,
        numbered: true,
        settle: None,
    };
    assert!(state.keep(outgoing, &fixed).is_err());
    assert!(state.line(0, &fixed).is_err());
    state.ack("a", None);
    state.finish();
    assert!(state.is_done());
}
