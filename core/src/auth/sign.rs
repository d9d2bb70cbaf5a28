//! The other side of a proof (admin.md §3.2): whoever orders something signs it here. Knows no socket.
//! Called by the tools of operators.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;

use super::canonical::Value;
use super::proof::Action;
use crate::clock::Timestamp;
use crate::{Error, ErrorKind, Result};

/// The proof that goes beside `body`, its JSON text: `{timestamp, nonce, signature}`.
///
/// # Errors
/// `bad_command` for a body that is no JSON; what stands in it is not repeated.
pub fn sign(
    action: Action,
    body: &str,
    secret: &str,
    now: Timestamp,
    nonce: &str,
) -> Result<serde_json::Value> {
    let signature = signature(action.as_str(), body, secret, now, nonce)?;
    Ok(json!({ "timestamp": now.0, "nonce": nonce, "signature": signature }))
}

/// A word that was never used: 32 hex digits.
///
/// # Errors
/// `internal` if the machine gives no random bytes.
pub fn new_nonce() -> Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| {
        let text = format!("the machine gives no random bytes: {error}");
        Error::new(ErrorKind::Internal, text)
    })?;
    Ok(hex(&random))
}

fn signature(
    action: &str,
    body: &str,
    secret: &str,
    now: Timestamp,
    nonce: &str,
) -> Result<String> {
    let body = Value::parse(body)?;
    let base = format!("{action}\n{}\n{nonce}\n{}", now.0, body.canonical());
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes());
    let mut mac = mac.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    mac.update(base.as_bytes());
    Ok(hex(&mac.finalize().into_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Authority, Proof, Secret, SigningSecret};

    /// Secret, action, timestamp, nonce, body, signature (admin.md §3.2).
    const VECTORS: &[(&str, &str, u64, &str, &str, &str)] = &[
        (
            "adm-token",
            "AUTHORIZATION_NEXT",
            1_760_000_000_000,
            "00112233445566778899aabbccddeeff",
            "{}",
            "8eb4ea20af8588a610a8d580a8f275cfee9e68aaee7b491aaa5f49d6808fa624",
        ),
        (
            "adm-token",
            "AUTH_MANAGEMENT_COMMAND",
            1_760_000_000_000,
            "00112233445566778899aabbccddeeff",
            r#"{"ttl":null,"required":true,"realm":"org:acme","command":"add_realm"}"#,
            "1e96c5046911fc6496fb48e5fb4e7a0ab0a8f02a63f03f4e299d4e8f1412c122",
        ),
        (
            "rk",
            "AUTHORIZATION_DECIDE",
            1_760_000_000_001,
            "n",
            "{\"request_id\":\"r1\",\"approved\":false,\"reason\":\"café <b>&\\\"\\\\/\u{2028}\\u0001\\n\",\"n\":[1,1.0,1e21,-0,0.1,1e-7]}",
            "795b769dcc8f8ef2be10488d472decea656bf7dbe0bc13bdd81eea02ef8e8767",
        ),
        (
            "rk",
            "X",
            1,
            "n",
            "{\"a\":3,\"\u{fb33}\":1,\"10\":5,\"\u{1f600}\":2,\"9\":6,\"B\":4}",
            "40f2e544ff9e81ff62fe349af29987956e5ef80424a070de14b5424daef321e1",
        ),
    ];

    #[test]
    fn the_signatures_of_the_specification_come_out() {
        for (secret, action, at, nonce, body, wanted) in VECTORS {
            let made = signature(action, body, secret, Timestamp(*at), nonce);
            assert_eq!(made.unwrap(), *wanted, "{body}");
        }
    }

    #[test]
    fn what_is_signed_here_is_accepted_by_whoever_knows_the_secret() {
        let (now, body) = (Timestamp(5_000), r#"{"command":"get"}"#);
        let nonce = new_nonce().unwrap();
        let proof = sign(Action::Command, body, "s", now, &nonce).unwrap();
        let proof = Proof::parse(&proof.to_string()).unwrap();
        let verify = |text| {
            let secret = &Secret::parse(text).unwrap();
            let secret = SigningSecret {
                authority: &Authority::Global,
                secret,
            };
            proof.verify(Action::Command, Some(body), &[secret], now)
        };
        assert!(verify("s").is_ok() && verify("t").is_err());
        assert_ne!(new_nonce().unwrap(), nonce);
    }

    #[test]
    fn what_is_no_json_is_refused_without_being_repeated() {
        let refused = sign(Action::Next, "hush-hush", "s", Timestamp(0), "n").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadCommand);
        assert!(!refused.message().contains("hush"));
    }
}
