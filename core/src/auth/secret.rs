//! Secrets that have to be kept as they are, because something is signed with them or they are sent on.
//!
//! Never shown: no `Display`, no serialisation but into the store's documents, a `Debug` that says
//! nothing. Compared in constant time, also in their length. What only has to be recognised is kept as a
//! [`TokenHash`]. Called by everything in this room.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::TokenHash;
use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

/// Most bytes of a secret, and of a token that is looked at (admin.md §2.3).
pub const MAX_SECRET: usize = 8 << 10;

/// Fewest characters of a key that signs: it can be tried without asking us (admin.md §6.6).
pub(super) const SHORTEST_SIGNING: usize = 16;
/// Fewest characters of a realm's pre-shared key.
pub(super) const SHORTEST_SHARED: usize = 8;

/// A secret text; dropped from errors, logs and `Debug`.
#[derive(Clone)]
pub struct Secret(Arc<str>);

/// A short key is taken, as existing deployments have them, and told.
pub(super) fn warn_of_short(realm: &RealmId, what: &str, key: Option<&Secret>, shortest: usize) {
    if key.is_some_and(|key| key.is_short(shortest)) {
        tracing::warn!(%realm, "{what} should have at least {shortest} characters");
    }
}

impl Secret {
    /// A secret of at most [`MAX_SECRET`] bytes.
    ///
    /// # Errors
    /// `bad_command` if it is empty or longer; the text is not repeated.
    pub fn parse(text: &str) -> Result<Self> {
        if text.is_empty() || text.len() > MAX_SECRET {
            let message = format!("a secret has 1 to {MAX_SECRET} bytes");
            return Err(Error::new(ErrorKind::BadCommand, message));
        }
        Ok(Self(text.into()))
    }

    /// Whether it is too short to be chosen for what it is.
    pub(super) fn is_short(&self, shortest: usize) -> bool {
        self.0.chars().take(shortest).count() < shortest
    }

    /// A new one: 32 random bytes as 64 hex digits.
    ///
    /// # Errors
    /// `internal` if the machine gives no random bytes.
    pub fn mint() -> Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::new(ErrorKind::Internal, "the machine gives no random bytes")
                .caused_by(error.to_string())
        })?;
        Ok(Self(TokenHash(bytes).to_string().into()))
    }

    /// The text itself, to sign, to send on or to show once.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Its hash.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.hash().is(&other.hash())
    }
}

impl Eq for Secret {}

impl TokenHash {
    /// The hash of a token's or a key's text.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Whether both are the same, in constant time.
    pub fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl FromStr for TokenHash {
    type Err = Error;

    /// Reads 64 hex digits of either case.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::new(ErrorKind::BadCommand, "a token hash has 64 hex digits");
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(wrong());
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or_else(wrong);
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let value = digit(pair[0])? << 4 | digit(pair[1])?;
            *byte = u8::try_from(value).map_err(|_| wrong())?;
        }
        Ok(Self(hash))
    }
}

impl Serialize for TokenHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TokenHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// How a secret stands in a document of the store: `#[serde(with = "secret::stored")]`.
pub(super) mod stored {
    use super::{Deserialize, Deserializer, Secret, Serialize, Serializer};

    pub(in crate::auth) fn serialize<S: Serializer>(
        secret: &Option<Secret>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        secret.as_ref().map(Secret::expose).serialize(serializer)
    }

    pub(in crate::auth) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Secret>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let secret = text.map(|text| Secret::parse(&text)).transpose();
        secret.map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_nothing_of_itself() {
        let secret = Secret::parse("hunter2").unwrap();
        assert!(!format!("{secret:?}").contains("hunter2"));
        let long = "x".repeat(MAX_SECRET + 1);
        assert!(!Secret::parse(&long).unwrap_err().message().contains("xx"));
        assert!(Secret::parse("").is_err());
    }

    #[test]
    fn secrets_are_equal_when_their_texts_are() {
        let parse = |text| Secret::parse(text).unwrap();
        assert_eq!(parse("a"), parse("a"));
        assert_ne!(parse("a"), parse("aa"));
    }

    #[test]
    fn a_minted_secret_is_64_hex_digits_and_never_the_same() {
        let (one, other) = (Secret::mint().unwrap(), Secret::mint().unwrap());
        assert_eq!(one.expose().len(), 64);
        assert!(one.expose().bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one, other);
    }

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let hash = TokenHash::of("abc");
        assert_eq!(
            hash.to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().to_uppercase().parse(), Ok(hash));
        for bad in ["", "ba78", &"g".repeat(64), &"é".repeat(32)] {
            assert!(bad.parse::<TokenHash>().is_err(), "{bad}");
        }
    }
}
