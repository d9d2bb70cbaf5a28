//! Names as types: whoever holds one knows that it was checked (P19).
//!
//! Outside topic mode a name means nothing but itself: `*`, `a:b`, `__proto__` are plain names.
//! Knows no registry. Called by `protocol` at the door and by whoever reads settings or a store.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

use crate::{Error, ErrorKind, Result};

/// The name that stands for "any producer" in a SUBSCRIBE; no producer or consumer may have it.
pub const ALL_PRODUCERS: &str = "TYO-MQ-ALL";
/// Reserved for the broker itself.
pub const SYSTEM: &str = "TYO-MQ-SYSTEM";
/// The name of a producer or consumer that gave none.
pub const ANONYMOUS: &str = "ANONYMOUS";

const MAX_NAME: usize = 255;
const MAX_EVENT: usize = 1024;

/// Whether a name says that its holder has none: `ANONYMOUS` or `ANONYMOUS-…` (P4).
pub fn is_anonymous(name: &str) -> bool {
    name.strip_prefix(ANONYMOUS)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The form under which event names and patterns are compared: full Unicode lower case, as
/// JavaScript does it. Borrowed when nothing changes.
pub fn fold(name: &str) -> Cow<'_, str> {
    if name
        .bytes()
        .all(|b| b.is_ascii() && !b.is_ascii_uppercase())
    {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(name.to_lowercase())
    }
}

fn check(what: &str, name: &str, max: usize) -> Result<()> {
    let problem = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > max {
        format!("is longer than {max} bytes")
    } else if has_control(name) {
        "holds control characters".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(
        ErrorKind::BadName,
        format!("the {what} {problem}"),
    ))
}

/// ASCII is settled bytewise, so that the common name costs one pass over bytes.
fn has_control(name: &str) -> bool {
    if name.is_ascii() {
        name.bytes().any(|b| b.is_ascii_control())
    } else {
        name.chars().any(char::is_control)
    }
}

fn check_free(what: &str, name: &str) -> Result<()> {
    check(what, name, MAX_NAME)?;
    let http = name
        .strip_prefix("http:")
        .is_some_and(|rest| rest.len() == 8 && rest.bytes().all(|b| b.is_ascii_hexdigit()));
    if name == ALL_PRODUCERS || name == SYSTEM || http {
        return Err(Error::new(
            ErrorKind::BadName,
            format!("the {what} {name:?} is reserved, choose another one"),
        ));
    }
    Ok(())
}

fn check_realm(name: &str) -> Result<()> {
    check("realm", name, MAX_NAME)?;
    if name.trim() != name {
        return Err(Error::new(
            ErrorKind::BadName,
            "the realm has blanks at its edges",
        ));
    }
    if matches!(name, "." | "..") {
        let text = "the realm is \".\" or \"..\", choose another name";
        return Err(Error::new(ErrorKind::BadName, text));
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `name` without keeping it.
            ///
            /// # Errors
            /// [`ErrorKind::BadName`] (P19).
            pub fn check(name: &str) -> Result<()> {
                let check: fn(&str) -> Result<()> = $check;
                check(name)
            }

            /// Checks `name` and keeps it.
            ///
            /// # Errors
            /// [`ErrorKind::BadName`] (P19).
            pub fn parse(name: &str) -> Result<Self> {
                Self::check(name)?;
                Ok(Self(name.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The name as shared text.
            pub fn shared(&self) -> &Arc<str> {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

name! {
    /// The wall nothing crosses: 1–255 bytes, no control characters, no blanks at the edges.
    RealmId, check_realm
}
name! {
    /// Who publishes: 1–255 bytes, exact, not reserved.
    ProducerName, |name| check_free("producer name", name)
}
name! {
    /// Who receives: 1–255 bytes, exact, not reserved.
    ConsumerName, |name| check_free("consumer name", name)
}
name! {
    /// Whose queue it is; outlives sessions and names. 1–255 bytes.
    ConsumerId, |name| check("consumer id", name, MAX_NAME)
}
name! {
    /// Consumers of which each message reaches one: 1–255 bytes.
    GroupName, |name| check("group", name, MAX_NAME)
}
name! {
    /// What a message is published under, in the producer's case: 1–1024 bytes.
    EventName, |name| check("event", name, MAX_EVENT)
}

impl Default for RealmId {
    /// The realm of everybody who names none.
    fn default() -> Self {
        Self("default".into())
    }
}

impl ProducerName {
    /// Like [`ProducerName::parse`], but reserved names pass: a subscription may name the broker
    /// or an HTTP producer.
    ///
    /// # Errors
    /// [`ErrorKind::BadName`] (P19).
    pub fn parse_reserved(name: &str) -> Result<Self> {
        check("producer name", name, MAX_NAME)?;
        Ok(Self(name.into()))
    }

    /// The producer that gave no name.
    pub fn anonymous() -> Self {
        Self(ANONYMOUS.into())
    }

    /// See [`is_anonymous`].
    pub fn is_anonymous(&self) -> bool {
        is_anonymous(&self.0)
    }
}

impl ConsumerName {
    /// The consumer that gave no name.
    pub fn anonymous() -> Self {
        Self(ANONYMOUS.into())
    }

    /// See [`is_anonymous`].
    pub fn is_anonymous(&self) -> bool {
        is_anonymous(&self.0)
    }
}

impl From<&ConsumerName> for ConsumerId {
    /// A consumer that gave no id is known by its name.
    fn from(name: &ConsumerName) -> Self {
        Self(name.0.clone())
    }
}

impl EventName {
    /// The form events are compared in, see [`fold`].
    pub fn folded(&self) -> Arc<str> {
        match fold(&self.0) {
            Cow::Borrowed(_) => self.0.clone(),
            Cow::Owned(folded) => folded.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strange_names_are_taken_literally() {
        for name in [
            "__proto__",
            "a%b",
            "a:b",
            "*",
            "group:x",
            "🦀",
            "http:12",
            "http:1234567z",
        ] {
            assert_eq!(ProducerName::parse(name).unwrap().as_str(), name);
            assert_eq!(ConsumerName::parse(name).unwrap().as_str(), name);
            assert_eq!(EventName::parse(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn reserved_names_are_refused_for_producers_and_consumers_only() {
        for name in [ALL_PRODUCERS, SYSTEM, "http:0123abCD"] {
            assert_eq!(
                ProducerName::parse(name).unwrap_err().kind(),
                ErrorKind::BadName
            );
            assert_eq!(
                ConsumerName::parse(name).unwrap_err().kind(),
                ErrorKind::BadName
            );
            assert!(ConsumerId::parse(name).is_ok());
            assert!(GroupName::parse(name).is_ok());
        }
    }

    #[test]
    fn lengths_are_counted_in_bytes() {
        assert!(ConsumerName::parse(&"x".repeat(255)).is_ok());
        assert!(ConsumerName::parse(&"ü".repeat(128)).is_err());
        assert!(EventName::parse(&"x".repeat(1024)).is_ok());
        assert!(EventName::parse(&"x".repeat(1025)).is_err());
        assert!(EventName::parse("").is_err());
    }

    #[test]
    fn control_characters_are_refused() {
        for name in ["a\nb", "\0", "\u{7f}", "é\u{85}"] {
            assert!(GroupName::parse(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_realm_has_no_blanks_at_its_edges_and_is_no_dots() {
        assert!(RealmId::parse(" a").is_err());
        assert!(RealmId::parse("a ").is_err());
        assert!(RealmId::parse("a b").is_ok());
        for good in ["org:acme", "*", "__proto__", "a.b", "...", &"x".repeat(255)] {
            assert!(RealmId::parse(good).is_ok(), "{good:?}");
        }
        for bad in ["", ".", "..", "a\n", &"x".repeat(256)] {
            assert!(RealmId::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(RealmId::default().as_str(), "default");
    }

    #[test]
    fn anonymous_is_the_word_alone_or_with_a_dash() {
        assert!(is_anonymous("ANONYMOUS"));
        assert!(is_anonymous("ANONYMOUS-1"));
        assert!(!is_anonymous("ANONYMOUSLY"));
        assert!(!is_anonymous("anonymous"));
    }

    #[test]
    fn folding_is_javascripts_lower_case() {
        assert_eq!(fold("ΟΔΟΣ"), "οδος");
        assert_eq!(fold("İ"), "i\u{307}");
        assert!(matches!(fold("paid/now"), Cow::Borrowed(_)));
        assert_eq!(&*EventName::parse("Paid").unwrap().folded(), "paid");
    }
}
