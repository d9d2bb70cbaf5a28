//! PRODUCEs that differ in their body alone, as those of a burst do.
//!
//! What stands before and behind the body is remembered with what was read from it; while it comes
//! again to the byte, only the body is checked. Takes exactly what [`Produce`] takes, tested
//! against it. Knows no routing. One is kept per session.

use std::borrow::Cow;
use std::time::Duration;

use super::produce::Produce;
use crate::protocol::scan::Scanner;

/// Larger envelopes are not remembered.
const MAX_ENVELOPE: usize = 1_024;

/// The envelope of the last simple PRODUCE of a session.
#[derive(Debug, Default)]
pub struct Envelope {
    before: String,
    behind: String,
    event: String,
    from: Option<String>,
    ttl: Option<Duration>,
    guaranteed: bool,
}

impl Envelope {
    /// Remembers the envelope of `args`, from which `produce` was read, if it is a simple one: with
    /// names, ttl and guarantee at most beside its body.
    pub fn learn(&mut self, args: &str, produce: &Produce<'_>) {
        self.before.clear();
        if !produce.is_simple() {
            return;
        }
        let Some((start, end)) = produce.message.and_then(|body| place(args, body)) else {
            return;
        };
        if args.len() - (end - start) > MAX_ENVELOPE {
            return;
        }
        self.before.push_str(&args[..start]);
        self.behind.clear();
        self.behind.push_str(&args[end..]);
        self.event.clear();
        self.event.push_str(&produce.event);
        self.from = produce.from.as_deref().map(str::to_owned);
        self.ttl = produce.ttl;
        self.guaranteed = produce.guaranteed;
    }

    /// Reads a PRODUCE in the same envelope; `None`: another envelope, or a body to be refused.
    pub fn read<'a>(&'a self, args: &'a str) -> Option<Produce<'a>> {
        if self.before.is_empty() {
            return None;
        }
        let body = args
            .strip_prefix(self.before.as_str())?
            .strip_suffix(self.behind.as_str())?;
        let mut scanner = Scanner::new(body);
        // Blanks around it belong to the envelope.
        if scanner.value()? != body {
            return None;
        }
        let produce = Produce {
            event: Cow::Borrowed(&self.event),
            from: self.from.as_deref().map(Cow::Borrowed),
            message: Some(body),
            ttl: self.ttl,
            guaranteed: self.guaranteed,
            ..Produce::default()
        };
        produce.check_raw().ok()?;
        Some(produce)
    }
}

/// Where `part` lies in `whole`, if it is a piece of it rather than of a decoded payload.
fn place(whole: &str, part: &str) -> Option<(usize, usize)> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::SubscriptionDefaults;
    use crate::protocol::inbound::Inbound;

    /// What the general way reads, if it is a PRODUCE.
    fn parse<'a>(args: &'a str, scratch: &'a mut String) -> Option<Produce<'a>> {
        match Inbound::parse(args, &[], scratch, &SubscriptionDefaults::default()) {
            Ok(Inbound::Produce(produce)) => Some(produce),
            _ => None,
        }
    }

    fn learned(args: &str) -> Envelope {
        let mut envelope = Envelope::default();
        envelope.learn(args, &parse(args, &mut String::new()).unwrap());
        envelope
    }

    const FIRST: &str =
        r#"["PRODUCE",{"event":"paid","message": {"n":1} ,"from":"orders","ttl":"2h"}]"#;

    #[test]
    fn the_next_body_in_the_same_envelope_is_read_as_the_general_way_reads_it() {
        let envelope = learned(FIRST);
        for body in ["2", r#"{"n":2}"#, "[]", r#""a\"b""#, "null", "-1.5e3"] {
            let args = FIRST.replace(r#"{"n":1}"#, body);
            assert_eq!(
                envelope.read(&args),
                parse(&args, &mut String::new()),
                "{body}"
            );
            assert_eq!(envelope.read(&args).unwrap().message, Some(body));
        }
    }

    #[test]
    fn a_body_that_is_no_value_or_more_than_one_is_left_to_the_general_way() {
        let envelope = learned(FIRST);
        for body in [
            "",
            " 1",
            "1 ",
            "tru",
            "1,2",
            r#"1,"event":"x""#,
            r#"{"n":1"#,
            "\u{1}",
        ] {
            let args = FIRST.replace(r#"{"n":1}"#, body);
            assert_eq!(envelope.read(&args), None, "{body}");
        }
    }

    #[test]
    fn envelopes_with_more_than_names_are_not_remembered() {
        for more in [
            r#""key":"k""#,
            r#""msg_uid":"u""#,
            r#""instance_seq":["i",1]"#,
            r#""enc":{}"#,
            r#""headers":{}"#,
            r#""delay":1"#,
            r#""id":"x""#,
            r#""method":"broadcast""#,
        ] {
            let args = FIRST.replace(r#""ttl":"2h""#, more);
            assert_eq!(learned(&args).read(&args), None, "{more}");
        }
        let as_text = r#"["PRODUCE","{\"event\":\"paid\",\"message\":1}"]"#;
        assert_eq!(learned(as_text).read(as_text), None);
    }

    proptest! {
        #[test]
        fn whatever_is_read_the_general_way_reads_too(
            body in prop_oneof![
                "[\\[\\]{},:\"0-9a-z\\\\ .-]{0,24}",
                "\\PC{0,12}",
            ],
            cut in 0usize..90,
        ) {
            let envelope = learned(FIRST);
            let args = FIRST.replace(r#"{"n":1}"#, &body);
            let cut: String = args.chars().take(cut).collect();
            for args in [args, cut] {
                if let Some(read) = envelope.read(&args) {
                    let mut scratch = String::new();
                    prop_assert_eq!(Some(read), parse(&args, &mut scratch));
                }
            }
        }
    }
}
