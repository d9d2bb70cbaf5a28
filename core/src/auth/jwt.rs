//! JSON Web Tokens: HS256 and nothing else, checked by the `jsonwebtoken` crate; what they say is read by
//! `claims` with our clock and our rules. Knows no realm's configuration. Called by `identify`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde_json::{Map, Value};

use super::Secret;
use super::claims::Claims;
use super::secret::MAX_SECRET;
use crate::clock::Timestamp;
use crate::model::RealmId;

type Members = Map<String, Value>;

/// The realm that a token names, however it is signed; nothing of it is verified yet.
pub(super) fn peek_realm(token: &str) -> Option<RealmId> {
    if token.len() > MAX_SECRET {
        return None;
    }
    let parts: Vec<&str> = token.split('.').collect();
    let [_, claims, _] = parts[..] else {
        return None;
    };
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Members = serde_json::from_slice(&claims).ok()?;
    RealmId::parse(claims.get("realm")?.as_str()?).ok()
}

/// What a token says, if this key has signed it and it is in force.
pub(super) fn verify(
    token: &str,
    key: &Secret,
    max_ttl: Option<Duration>,
    now: Timestamp,
) -> Option<Claims> {
    if token.len() > MAX_SECRET {
        return None;
    }
    let key = DecodingKey::from_secret(key.expose().as_bytes()).ok()?;
    let mut validation = Validation::new(Algorithm::HS256);
    // Times are ours to judge: the crate reads the machine's clock and lets wrong types pass.
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    let claims = decode::<Members>(token, &key, &validation).ok()?.claims;
    let claims = Claims::parse(&claims, now)?;
    match (max_ttl, claims.expires) {
        (None, _) => Some(claims),
        (Some(most), Some(end)) if end.since(now) <= most => Some(claims),
        (Some(_), _) => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use hmac::{Hmac, KeyInit, Mac};
    use proptest::prelude::*;
    use serde_json::json;
    use sha2::Sha256;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    /// Signs by hand, so that what is tested is not tested with itself.
    pub(in crate::auth) fn sign(header: &str, claims: &str, key: &str) -> String {
        let body = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
        mac.update(body.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
        format!("{body}.{signature}")
    }

    pub(in crate::auth) fn hs256(claims: &Value, key: &str) -> String {
        sign(r#"{"alg":"HS256","typ":"JWT"}"#, &claims.to_string(), key)
    }

    fn check(token: &str) -> Option<Claims> {
        verify(token, &Secret::parse("k").unwrap(), None, NOW)
    }

    #[test]
    fn only_hs256_spelt_so_and_signed_with_the_key_is_taken() {
        let claims = r#"{"realm":"a","role":"both"}"#;
        assert!(check(&sign(r#"{"alg":"HS256"}"#, claims, "k")).is_some());
        for header in [
            r#"{"alg":"none"}"#,
            r#"{"alg":"hs256"}"#,
            r#"{"alg":"HS384"}"#,
            r#"{"alg":"RS256"}"#,
            r#"{"alg":["HS256"]}"#,
            r#"{"alg":"HS256","crit":["exp"]}"#,
            r#"{"alg":"HS256","alg":"none"}"#,
            r#"{"typ":"JWT"}"#,
            "[]",
        ] {
            assert_eq!(check(&sign(header, claims, "k")), None, "{header}");
        }
        let token = sign(r#"{"alg":"HS256"}"#, claims, "k");
        let (unsigned, _) = token.rsplit_once('.').unwrap();
        for bad in [
            sign(r#"{"alg":"HS256"}"#, claims, "other"),
            format!("{unsigned}."),
            unsigned.to_owned(),
            format!("{token}.x"),
            format!("{token}="),
            String::new(),
            "..".to_owned(),
        ] {
            assert_eq!(check(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_token_may_be_8_kib_and_no_longer() {
        let sized = |fill: usize| {
            hs256(
                &json!({"realm": "a", "role": "both", "x": "y".repeat(fill)}),
                "k",
            )
        };
        let fits = (5900..6200)
            .map(sized)
            .rfind(|token| token.len() <= MAX_SECRET);
        assert!(check(&fits.unwrap()).is_some());
        assert_eq!(check(&sized(6200)), None);
        assert_eq!(peek_realm(&sized(6200)), None);
    }

    #[test]
    fn a_lifetime_that_is_bounded_needs_an_end_within_it() {
        let hour = Some(Duration::from_secs(3600));
        let key = Secret::parse("k").unwrap();
        let ends = |exp: Value| {
            let token = hs256(&json!({"realm": "a", "role": "both", "exp": exp}), "k");
            verify(&token, &key, hour, NOW).is_some()
        };
        assert!(ends(json!(1_800_003_600)));
        assert!(!ends(json!(1_800_003_601)));
        let endless = hs256(&json!({"realm": "a", "role": "both"}), "k");
        assert_eq!(verify(&endless, &key, hour, NOW), None);
    }

    #[test]
    fn the_realm_that_a_token_names_is_known_however_it_is_signed() {
        let token = hs256(&json!({"realm": "a"}), "whatever");
        assert_eq!(peek_realm(&token).unwrap().as_str(), "a");
        for alg in ["none", "RS256", "ES256", "EdDSA", "of tomorrow"] {
            let header = json!({ "alg": alg }).to_string();
            let token = sign(&header, r#"{"realm":"a"}"#, "k");
            assert_eq!(peek_realm(&token).unwrap().as_str(), "a", "{alg}");
        }
        assert_eq!(peek_realm(&hs256(&json!({"realm": ["a"]}), "k")), None);
        assert_eq!(peek_realm("abc"), None);
    }

    proptest! {
        #[test]
        fn no_text_is_taken_and_none_panics(text in ".{0,60}", header in ".{0,30}", claims in ".{0,30}") {
            prop_assert_eq!(check(&text), None);
            let _ = peek_realm(&text);
            prop_assert_eq!(check(&sign(&header, &claims, "k")), None);
        }

        #[test]
        fn a_token_with_one_byte_changed_is_not_taken(at in 0usize..120, to in "[A-Za-z0-9_.-]") {
            let token = hs256(&json!({"realm": "a", "role": "both", "exp": 1_900_000_000}), "k");
            let at = at % token.len();
            let mut changed = token.clone();
            changed.replace_range(at..=at, &to);
            prop_assert_eq!(check(&changed).is_some(), changed == token);
        }
    }
}
