//! What a subscription listens to.
//!
//! A [`Key`] is compared by its parts; the joined names of the wire are ambiguous (`a-b`+`c` is
//! `a`+`b-c`) and serve as names only. Called by every room above.

use std::fmt::Write as _;
use std::sync::Arc;

use super::names::{ALL_PRODUCERS, ProducerName, fold};

/// Which of its two spellings an all-events subscription is delivered under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spelling {
    /// Asked for by `scope: "all"`: delivered as `…-TM-ALL`.
    Scope,
    /// Asked for by the event `TM-ALL`: delivered as `…-tm-all`.
    Plain,
}

impl Spelling {
    fn suffix(self) -> &'static str {
        match self {
            Self::Scope => "-TM-ALL",
            Self::Plain => "-tm-all",
        }
    }

    fn mark(self) -> char {
        match self {
            Self::Scope => 's',
            Self::Plain => 'p',
        }
    }

    fn unmark(text: &str) -> Option<(Self, &str)> {
        if let Some(rest) = text.strip_prefix('s') {
            return Some((Self::Scope, rest));
        }
        text.strip_prefix('p').map(|rest| (Self::Plain, rest))
    }
}

/// What a subscription listens to. Events and patterns are kept folded ([`fold`]); producers are
/// exact.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// One event of one producer.
    Event {
        /// The producer.
        producer: ProducerName,
        /// The event, folded.
        event: Arc<str>,
    },
    /// One event of any producer.
    Any {
        /// The event, folded.
        event: Arc<str>,
    },
    /// Every event of one producer.
    All {
        /// The producer.
        producer: ProducerName,
        /// The name it is delivered under.
        spelling: Spelling,
    },
    /// Everything in the realm.
    Everything {
        /// The name it is delivered under.
        spelling: Spelling,
    },
    /// Every event a topic pattern matches.
    Topic {
        /// Only from this producer, if given.
        producer: Option<ProducerName>,
        /// The pattern, folded.
        pattern: Arc<str>,
    },
}

impl Key {
    /// The name on the wire after `CONSUME-`, which is also the `event` of custom stores.
    pub fn wire_name(&self) -> String {
        let (producer, event) = match self {
            Self::Event { producer, event } => (producer.as_str(), &**event),
            Self::Any { event } => (ALL_PRODUCERS, &**event),
            Self::Topic { producer, pattern } => {
                let producer = producer
                    .as_ref()
                    .map_or(ALL_PRODUCERS, |name| name.as_str());
                (producer, &**pattern)
            }
            Self::All { producer, spelling } => {
                return format!("{}{}", fold(producer.as_str()), spelling.suffix());
            }
            Self::Everything { spelling } => {
                return format!("{}{}", fold(ALL_PRODUCERS), spelling.suffix());
            }
        };
        format!("{}-{event}", fold(producer))
    }

    /// The producer it is limited to, if any.
    pub fn producer(&self) -> Option<&ProducerName> {
        match self {
            Self::Event { producer, .. } | Self::All { producer, .. } => Some(producer),
            Self::Topic { producer, .. } => producer.as_ref(),
            Self::Any { .. } | Self::Everything { .. } => None,
        }
    }

    /// One unambiguous string for stores; [`Key::decode`] undoes it.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = match self {
            Self::Event { producer, event } => {
                let name = producer.as_str();
                write!(out, "e{}:{name}{event}", name.len())
            }
            Self::Any { event } => write!(out, "a{event}"),
            Self::All { producer, spelling } => write!(out, "A{}{producer}", spelling.mark()),
            Self::Everything { spelling } => write!(out, "E{}", spelling.mark()),
            Self::Topic {
                producer: None,
                pattern,
            } => write!(out, "t*{pattern}"),
            Self::Topic {
                producer: Some(producer),
                pattern,
            } => {
                let name = producer.as_str();
                write!(out, "t{}:{name}{pattern}", name.len())
            }
        };
        out
    }

    /// Reads what [`Key::encode`] wrote; `None` if it is anything else.
    pub fn decode(text: &str) -> Option<Self> {
        let mut chars = text.chars();
        let kind = chars.next()?;
        let rest = chars.as_str();
        Some(match kind {
            'e' => {
                let (producer, event) = split_sized(rest)?;
                Self::Event {
                    producer,
                    event: event.into(),
                }
            }
            'a' => Self::Any { event: rest.into() },
            'A' => {
                let (spelling, name) = Spelling::unmark(rest)?;
                Self::All {
                    producer: ProducerName::parse_reserved(name).ok()?,
                    spelling,
                }
            }
            'E' => match Spelling::unmark(rest)? {
                (spelling, "") => Self::Everything { spelling },
                _ => return None,
            },
            't' => match rest.strip_prefix('*') {
                Some(pattern) => Self::Topic {
                    producer: None,
                    pattern: pattern.into(),
                },
                None => {
                    let (producer, pattern) = split_sized(rest)?;
                    Self::Topic {
                        producer: Some(producer),
                        pattern: pattern.into(),
                    }
                }
            },
            _ => return None,
        })
    }
}

/// `5:abcdefg` → (`abcde`, `fg`).
fn split_sized(text: &str) -> Option<(ProducerName, &str)> {
    let (size, rest) = text.split_once(':')?;
    let (name, rest) = rest.split_at_checked(size.parse().ok()?)?;
    Some((ProducerName::parse_reserved(name).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn producer(name: &str) -> ProducerName {
        ProducerName::parse(name).unwrap()
    }

    #[test]
    fn wire_names_are_those_existing_clients_listen_on() {
        let orders = producer("Orders");
        let event = |producer, event: &str| Key::Event {
            producer,
            event: event.into(),
        };
        assert_eq!(event(orders.clone(), "paid").wire_name(), "orders-paid");
        let any = Key::Any {
            event: "paid".into(),
        };
        assert_eq!(any.wire_name(), "tyo-mq-all-paid");
        let all = |spelling| Key::All {
            producer: orders.clone(),
            spelling,
        };
        assert_eq!(all(Spelling::Scope).wire_name(), "orders-TM-ALL");
        assert_eq!(all(Spelling::Plain).wire_name(), "orders-tm-all");
        let everything = Key::Everything {
            spelling: Spelling::Scope,
        };
        assert_eq!(everything.wire_name(), "tyo-mq-all-TM-ALL");
        let topic = Key::Topic {
            producer: None,
            pattern: "fleet/+/cmd".into(),
        };
        assert_eq!(topic.wire_name(), "tyo-mq-all-fleet/+/cmd");
    }

    #[test]
    fn keys_that_join_to_one_name_stay_apart() {
        let one = Key::Event {
            producer: producer("a"),
            event: "b-c".into(),
        };
        let other = Key::Event {
            producer: producer("a-b"),
            event: "c".into(),
        };
        assert_eq!(one.wire_name(), other.wire_name());
        assert_ne!(one, other);
        assert_ne!(one.encode(), other.encode());
    }

    fn any_key() -> impl Strategy<Value = Key> {
        let name = "[a-zA-Z0-9:*é-]{1,12}";
        let spelling = prop_oneof![Just(Spelling::Scope), Just(Spelling::Plain)];
        (0..6u8, name, "[a-z0-9:*/+#é]{1,12}", spelling).prop_map(
            |(kind, name, event, spelling)| {
                let producer = producer(&name);
                let event: Arc<str> = event.into();
                match kind {
                    0 => Key::Event { producer, event },
                    1 => Key::Any { event },
                    2 => Key::All { producer, spelling },
                    3 => Key::Everything { spelling },
                    4 => Key::Topic {
                        producer: Some(producer),
                        pattern: event,
                    },
                    _ => Key::Topic {
                        producer: None,
                        pattern: event,
                    },
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_key_survives_encoding(key in any_key()) {
            prop_assert_eq!(Key::decode(&key.encode()), Some(key));
        }

        #[test]
        fn decoding_anything_never_panics(text in ".{0,40}") {
            if let Some(key) = Key::decode(&text) {
                prop_assert_eq!(Key::decode(&key.encode()), Some(key));
            }
        }
    }
}
