//! Which subscription a key of tyo-mq stands for. The joined text is ambiguous (`a-b`+`c` is `a`+`b-c`);
//! the message under it says which one it is.

use std::sync::Arc;

use crate::model::{Key, ProducerName, Spelling, TopicPattern, fold};

/// The key's text for any producer, and that of all events.
const ANY: &str = "tyo-mq-all-";
const ALL: &str = "tm-all";

/// The key of a message with this event and producer; `None`: they do not fit.
pub(super) fn of(text: &str, event: &str, from: &str) -> Option<Key> {
    let producer = || ProducerName::parse_reserved(from).ok();
    let event = fold(event);
    let own = text.strip_prefix(&format!("{}-", fold(from)));
    if own == Some(&*event) {
        let event = event.into();
        return producer().map(|producer| Key::Event { producer, event });
    }
    let spelling = |rest: &str| match rest {
        "TM-ALL" => Some(Spelling::Scope),
        ALL => Some(Spelling::Plain),
        _ => None,
    };
    if let Some(rest) = text.strip_prefix(ANY) {
        if rest == event {
            let event = event.into();
            return Some(Key::Any { event });
        }
        if let Some(spelling) = spelling(rest) {
            return Some(Key::Everything { spelling });
        }
        return pattern(rest, &event).map(|pattern| Key::Topic {
            producer: None,
            pattern,
        });
    }
    if let Some(spelling) = own.and_then(spelling) {
        return producer().map(|producer| Key::All { producer, spelling });
    }
    if let Some(pattern) = own.and_then(|own| pattern(own, &event)) {
        return producer().map(|producer| Key::Topic {
            producer: Some(producer),
            pattern,
        });
    }
    // There a pattern's producer named the queue and was not compared.
    text.match_indices('-').find_map(|(at, _)| {
        let pattern = pattern(&text[at + 1..], &event)?;
        let producer = ProducerName::parse_reserved(&text[..at]).ok()?;
        Some(Key::Topic {
            producer: Some(producer),
            pattern,
        })
    })
}

fn pattern(text: &str, event: &str) -> Option<Arc<str>> {
    let pattern = TopicPattern::parse(text);
    pattern.matches(event).then(|| pattern.as_str().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_tells_which_subscription_a_key_was() {
        for (text, event, from, encoded) in [
            ("orders-paid", "Paid", "Orders", "e6:Orderspaid"),
            ("a-b-c", "c", "a-b", "e3:a-bc"),
            ("a-b-c", "b-c", "a", "e1:ab-c"),
            ("tyo-mq-all-paid", "Paid", "Orders", "apaid"),
            (
                "tyo-mq-all-fleet/+/cmd",
                "Fleet/7/cmd",
                "x",
                "t*fleet/+/cmd",
            ),
            ("x-fleet/#", "fleet/7", "x", "t1:xfleet/#"),
            ("y-fleet/#", "fleet/7", "x", "t1:yfleet/#"),
            ("orders-TM-ALL", "paid", "Orders", "AsOrders"),
            ("orders-tm-all", "paid", "Orders", "ApOrders"),
            ("tyo-mq-all-TM-ALL", "paid", "Orders", "Es"),
        ] {
            let key = of(text, event, from).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(key.encode(), encoded, "{text}");
        }
    }

    #[test]
    fn a_key_that_does_not_fit_its_message_is_none() {
        assert_eq!(of("orders-paid", "shipped", "orders"), None);
        assert_eq!(of("", "a", "b"), None);
    }
}
