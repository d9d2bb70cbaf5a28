use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::Value;

use super::super::frames::tests::texts;
use super::super::request::Produce;
use super::*;

/// Produces, and the numbers that went out.
struct Bench {
    produces: Produces,
    now: Elapsed,
    told: Arc<Mutex<Vec<Result<(), ErrorKind>>>>,
}

impl Bench {
    fn new() -> Self {
        Self {
            produces: Produces::new(1 << 20),
            now: Duration::ZERO,
            told: Arc::default(),
        }
    }

    fn outgoing(&self, numbered: bool) -> Outgoing {
        let told = self.told.clone();
        let settle = Settle::callback(move |result: Result<Confirmed>| {
            told.lock()
                .push(result.map(drop).map_err(|error| error.kind()));
        });
        Outgoing {
            head: b"{\"event\":\"e\"".to_vec(),
            attachments: vec![],
            times: Times::default(),
            called: self.now,
            deadline: Some(self.now + Duration::from_secs(10)),
            numbered,
            settle: numbered.then_some(settle),
        }
    }

    fn push(&mut self, count: usize) {
        for _ in 0..count {
            let outgoing = self.outgoing(true);
            self.produces.push(outgoing);
        }
    }

    fn with(
        &mut self,
        work: impl FnOnce(&mut Produces, &mut Wire<'_>, &mut Vec<Ended>),
    ) -> Vec<u64> {
        let (mut out, mut ended) = (Vec::new(), Vec::new());
        let mut wire = Wire {
            out: &mut out,
            instance: "\"me\"",
            now: self.now,
            due: None,
        };
        work(&mut self.produces, &mut wire, &mut ended);
        for ended in ended {
            ended.tell();
        }
        let number = |text: &String| {
            let start = text.find('[').unwrap();
            let args: Value = serde_json::from_str(&text[start..]).unwrap();
            args[1]["instance_seq"][1].as_u64().unwrap_or_default()
        };
        texts(&out).iter().map(number).collect()
    }

    fn pump(&mut self) -> Vec<u64> {
        self.with(Produces::pump)
    }

    fn resend(&mut self) -> Vec<u64> {
        self.with(Produces::resend)
    }

    fn answer(&mut self, number: u64) {
        if let Some(ended) = self.produces.answer(number, Ok(Confirmed::default())) {
            ended.tell();
        }
    }

    fn expire(&mut self) {
        let mut ended = Vec::new();
        self.produces.expire(self.now, &mut ended);
        for ended in ended {
            ended.tell();
        }
    }
}

#[test]
fn the_window_is_a_range_of_numbers_not_a_count() {
    let mut bench = Bench::new();
    bench.push(3000);
    assert_eq!(bench.pump(), (1..=1024).collect::<Vec<_>>());
    for number in 2..=1024 {
        bench.answer(number);
    }
    assert_eq!(bench.pump(), [0; 0], "number 1 is still open");
    bench.answer(1);
    assert_eq!(bench.pump(), (1025..=2048).collect::<Vec<_>>());
}

#[test]
fn a_new_link_gets_the_unanswered_again_under_their_numbers_and_then_the_rest() {
    let mut bench = Bench::new();
    bench.push(5);
    bench.pump();
    bench.answer(2);
    bench.answer(4);
    bench.produces.link_down();
    bench.push(1);
    assert_eq!(bench.resend(), [1, 3, 5]);
    assert_eq!(bench.pump(), [6]);
    for number in [1, 1, 2, 3, 5, 6, 7, 0] {
        bench.answer(number);
    }
    assert_eq!(*bench.told.lock(), [Ok(()); 6], "each is told once");
    assert!(bench.produces.is_empty());
}

#[test]
fn plain_messages_queue_behind_and_end_with_the_link() {
    let mut bench = Bench::new();
    bench.push(1025);
    for _ in 0..2 {
        let plain = bench.outgoing(false);
        bench.produces.push(plain);
    }
    assert_eq!(bench.pump().len(), 1024);
    bench.answer(1);
    assert_eq!(bench.pump(), [1025, 0, 0], "in the order of the calls");
    let plain = bench.outgoing(false);
    bench.produces.push(plain);
    bench.produces.link_down();
    assert_eq!(bench.produces.waiting(), 0);
    assert_eq!(bench.produces.waiting_bytes(), 0);
}

#[test]
fn deadlines_end_what_waits_and_what_is_out() {
    let mut bench = Bench::new();
    bench.push(1025);
    bench.pump();
    assert_eq!(bench.produces.next_due(), Some(Duration::from_secs(10)));
    bench.now = Duration::from_secs(10);
    bench.expire();
    assert_eq!(bench.told.lock().len(), 1025);
    assert!(
        bench
            .told
            .lock()
            .iter()
            .all(|told| *told == Err(ErrorKind::Timeout))
    );
    assert!(bench.produces.is_empty());
    assert_eq!(bench.produces.next_due(), None);
    bench.push(1);
    assert_eq!(bench.pump(), [1025], "numbers are never used twice");
}

#[test]
fn what_expires_is_never_sent_and_takes_no_number() {
    let mut bench = Bench::new();
    let times = Times::of(&Produce {
        ttl: Some(Duration::from_secs(3)),
        ..Produce::default()
    });
    let mut short = bench.outgoing(true);
    short.times = times;
    bench.produces.push(short);
    bench.push(1);
    bench.now = Duration::from_secs(4);
    assert_eq!(bench.pump(), [1]);
    assert_eq!(*bench.told.lock(), [Err(ErrorKind::Expired)]);
}

#[test]
fn an_unconfirmed_message_waits_for_a_link_as_long_as_it_lives() {
    let mut bench = Bench::new();
    let mut guaranteed = bench.outgoing(true);
    (guaranteed.settle, guaranteed.deadline) = (None, None);
    bench.produces.push(guaranteed);
    assert_eq!(bench.produces.next_due(), None);
    bench.pump();
    assert_eq!(bench.produces.next_due(), Some(DEFAULT_TIMEOUT));
    bench.produces.link_down();
    assert_eq!(bench.produces.next_due(), None);
    bench.now = Duration::from_secs(100);
    assert_eq!(bench.resend(), [1]);
    assert_eq!(bench.produces.next_due(), Some(bench.now + DEFAULT_TIMEOUT));
}

#[test]
fn unanswered_bytes_are_bounded_but_for_one_message() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        let mut large = bench.outgoing(true);
        large.attachments = vec![vec![0; 700 << 10].into()];
        bench.produces.push(large);
    }
    assert_eq!(bench.pump(), [1]);
    bench.answer(1);
    assert_eq!(bench.pump(), [2]);
}

proptest! {
    #[test]
    fn every_message_is_told_exactly_once(steps in prop::collection::vec(0u64..40, 0..200)) {
        let mut bench = Bench::new();
        let mut pushed = 0;
        for step in steps {
            match step {
                0..10 => {
                    bench.push(1);
                    pushed += 1;
                }
                10..14 => drop(bench.pump()),
                14..16 => {
                    bench.produces.link_down();
                    bench.resend();
                }
                16..18 => {
                    bench.now += Duration::from_secs(3);
                    bench.expire();
                }
                number => bench.answer(number - 17),
            }
            prop_assert_eq!(bench.produces.waiting_bytes() == 0, bench.produces.waiting() == 0);
        }
        for outgoing in bench.produces.take() {
            outgoing.end(Err(expired())).tell();
        }
        prop_assert_eq!(bench.told.lock().len(), pushed);
        prop_assert!(bench.produces.is_empty());
    }
}
