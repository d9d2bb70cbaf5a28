//! Proofs: signatures of management commands and decisions (admin.md §3.2). Whoever knows a secret signs
//! what is to be done, when, and a word that is never used again.
//!
//! The signature is looked at before anything is asked of a store, against every secret that may sign,
//! in constant time. Whatever is wrong is answered `proof_rejected`, without saying what. Knows no
//! command: callers say which secrets may sign it. Called by whoever takes a signed command.

use std::net::IpAddr;
use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};

use crate::clock::Timestamp;
use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

use super::canonical::Value;
use super::nonces::Nonces;
use super::{Denied, Secret, TokenHash};

/// How far a proof's time may be from ours, in milliseconds, either way.
pub(super) const WINDOW: u64 = 300_000;

/// What is signed, by the name of its verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// `AUTHORIZATION_NEXT`.
    Next,
    /// `AUTHORIZATION_DECIDE`.
    Decide,
    /// `AUTH_MANAGEMENT_COMMAND`.
    Command,
}

impl Action {
    /// The name that is signed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Next => "AUTHORIZATION_NEXT",
            Self::Decide => "AUTHORIZATION_DECIDE",
            Self::Command => "AUTH_MANAGEMENT_COMMAND",
        }
    }
}

/// Whose secret it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// A global administrator's: signs everything.
    Global,
    /// A realm's manager key: signs what is about that realm.
    Realm(RealmId),
}

/// A secret that may sign.
#[derive(Debug, Clone, Copy)]
pub struct SigningSecret<'a> {
    /// Whose it is.
    pub authority: &'a Authority,
    /// The secret.
    pub secret: &'a Secret,
}

/// Who has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// With whose secret.
    pub authority: Authority,
    /// Which secret that was, by its hash.
    pub secret: TokenHash,
}

/// A proof as it came, in the right form; nothing of it has been compared yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    timestamp: u64,
    nonce: Box<str>,
    signature: [u8; 32],
}

fn rejected() -> Error {
    Error::new(
        ErrorKind::ProofRejected,
        "the proof is missing, wrong, too old, or was used before",
    )
}

impl Proof {
    /// Reads `{timestamp, nonce, signature}`: an integer or its digits as a text, a text of 16 to 128
    /// characters `A-Z a-z 0-9 _ -`, 64 hex digits. Other members are let be.
    ///
    /// # Errors
    /// `proof_rejected` for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        let read = || {
            let proof = Value::parse(text).ok()?;
            let timestamp = match proof.member("timestamp")? {
                Value::Number(number) => integer(*number)?,
                other => digits(&other.as_text()?)?,
            };
            let nonce = proof.member("nonce")?.as_text()?;
            let is_nonce = (16..=128).contains(&nonce.len())
                && nonce
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
            let signature = proof.member("signature")?.as_text()?;
            Some(Self {
                timestamp,
                nonce: is_nonce.then_some(nonce)?.into(),
                signature: hex(&signature)?,
            })
        };
        read().ok_or_else(rejected)
    }

    /// The word that may be used once.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// When it was signed.
    pub fn timestamp(&self) -> Timestamp {
        Timestamp(self.timestamp)
    }

    /// Whether one of these secrets has signed this body for this action, at about `now`. `body` is its
    /// JSON text as it came. Says nothing of whether the proof was used before.
    ///
    /// # Errors
    /// `proof_rejected`.
    pub fn verify(
        &self,
        action: Action,
        body: Option<&str>,
        secrets: &[SigningSecret<'_>],
        now: Timestamp,
    ) -> Result<Signer> {
        self.verify_for(action, body, secrets, None, now)
    }

    /// The same; a member `aud` of the body must be `audience`, if there is one.
    fn verify_for(
        &self,
        action: Action,
        body: Option<&str>,
        secrets: &[SigningSecret<'_>],
        audience: Option<&str>,
        now: Timestamp,
    ) -> Result<Signer> {
        let empty = || Value::Object(std::collections::BTreeMap::new());
        let body = match body {
            Some(text) => Value::parse(text).map_err(|_| rejected())?,
            None => empty(),
        };
        let body = if body.is_falsy() { empty() } else { body };
        let (timestamp, nonce) = (self.timestamp, &self.nonce);
        let base = format!(
            "{}\n{timestamp}\n{nonce}\n{}",
            action.as_str(),
            body.canonical()
        );
        let signer = self.signer(base.as_bytes(), secrets);
        let is_in_time = now.0.abs_diff(timestamp) <= WINDOW;
        let is_ours = match (body.member("aud"), audience) {
            (None, _) => true,
            (Some(aud), Some(audience)) => aud.as_text().as_deref() == Some(audience),
            (Some(_), None) => false,
        };
        signer
            .filter(|_| is_in_time && is_ours)
            .ok_or_else(rejected)
    }

    /// Whose signature this is. Takes as long whichever it is.
    fn signer(&self, base: &[u8], secrets: &[SigningSecret<'_>]) -> Option<Signer> {
        let mut found = u32::MAX;
        for (at, secret) in (0_u32..).zip(secrets) {
            // Keys of any length are fine.
            let key = secret.secret.expose().as_bytes();
            let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
                continue;
            };
            mac.update(base);
            let is_it = self.signature[..].ct_eq(&mac.finalize().into_bytes());
            found.conditional_assign(&at, is_it);
        }
        let signed = secrets.get(usize::try_from(found).ok()?)?;
        Some(Signer {
            authority: signed.authority.clone(),
            secret: signed.secret.hash(),
        })
    }
}

fn integer(number: f64) -> Option<u64> {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    let is_integer = number.fract() == 0.0 && (0.0..=LARGEST).contains(&number);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is an integer that both can hold"
    )]
    is_integer.then_some(number as u64)
}

/// Only the one spelling: what was signed has the text.
fn digits(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
    }
    Some(bytes)
}

/// Who counts what failed, by address (admin.md §2.2 iv).
pub trait Failures: Send + Sync + 'static {
    /// Whether another try is looked at.
    ///
    /// # Errors
    /// `rate_limited`, with the time to wait.
    fn may_try(&self, address: IpAddr) -> Result<(), Denied>;

    /// One has failed.
    fn failed(&self, address: IpAddr);
}

/// A signed order as it came.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// What it is.
    pub action: Action,
    /// The JSON text of its body, if it has one.
    pub body: Option<&'a str>,
    /// The JSON text of its proof, if it has one.
    pub proof: Option<&'a str>,
    /// Where it comes from.
    pub address: IpAddr,
}

/// Lets signed orders through, each once.
pub struct Proofs {
    nonces: Nonces,
    failures: Arc<dyn Failures>,
    audience: Option<Box<str>>,
}

impl Proofs {
    /// With a keeper of used nonces and a counter of failures. `audience` is the name of this server or
    /// cluster, which a member `aud` of a body must be (AF58).
    pub fn new(nonces: Nonces, failures: Arc<dyn Failures>, audience: Option<&str>) -> Self {
        Self {
            nonces,
            failures,
            audience: audience.map(Box::from),
        }
    }

    /// Who has signed it; it is used up then.
    ///
    /// # Errors
    /// `rate_limited` after too many failures of this address; `proof_rejected` whatever is wrong with
    /// the proof, which counts as one; what the store says if it cannot be asked whether the proof was
    /// used before: then nothing is let through.
    pub async fn admit(
        &self,
        signed: Signed<'_>,
        secrets: &[SigningSecret<'_>],
        now: Timestamp,
    ) -> Result<Signer, Denied> {
        self.failures.may_try(signed.address)?;
        let (signer, proof) = self.counted(signed, self.verified(signed, secrets, now))?;
        let used = match self.nonces.use_up(&signer.secret, &proof, now).await {
            Ok(true) => Ok(signer),
            Ok(false) => Err(rejected()),
            Err(error) => Err(error),
        };
        self.counted(signed, used)
    }

    /// Whether it is signed as it should be, for orders that cannot be done: nothing is used up.
    ///
    /// # Errors
    /// As [`Proofs::admit`], but for the store's.
    pub fn look(
        &self,
        signed: Signed<'_>,
        secrets: &[SigningSecret<'_>],
        now: Timestamp,
    ) -> Result<(), Denied> {
        self.failures.may_try(signed.address)?;
        self.counted(signed, self.verified(signed, secrets, now))
            .map(drop)
    }

    fn verified(
        &self,
        signed: Signed<'_>,
        secrets: &[SigningSecret<'_>],
        now: Timestamp,
    ) -> Result<(Signer, Proof)> {
        let proof = Proof::parse(signed.proof.ok_or_else(rejected)?)?;
        let audience = self.audience.as_deref();
        let signer = proof.verify_for(signed.action, signed.body, secrets, audience, now)?;
        Ok((signer, proof))
    }

    /// A rejected proof counts as a failure of its address.
    fn counted<T>(&self, signed: Signed<'_>, looked: Result<T>) -> Result<T, Denied> {
        looked.map_err(|error| {
            if error.kind() == ErrorKind::ProofRejected {
                self.failures.failed(signed.address);
            }
            error.into()
        })
    }
}

impl std::fmt::Debug for Proofs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proofs")
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
