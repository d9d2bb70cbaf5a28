//! Proofs against the vectors of their specification, Python's signatures, and whoever plays tricks.

mod once;

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command as Process, Stdio};

use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(1_760_000_000_000);
const NONCE: &str = "00112233445566778899aabbccddeeff";
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn mac(secret: &str, base: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(base.as_bytes());
    let bytes = mac.finalize().into_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A proof of a body whose canonical text this is.
fn sign(secret: &str, action: Action, at: u64, nonce: &str, canonical: &str) -> String {
    let base = format!("{}\n{at}\n{nonce}\n{canonical}", action.as_str());
    let signature = mac(secret, &base);
    format!(r#"{{"timestamp":{at},"nonce":"{nonce}","signature":"{signature}"}}"#)
}

/// Secrets of tests live as long as those.
fn secret(text: &str) -> &'static Secret {
    Box::leak(Box::new(Secret::parse(text).unwrap()))
}

fn global(text: &str) -> SigningSecret<'static> {
    SigningSecret {
        authority: &Authority::Global,
        secret: secret(text),
    }
}

fn kind(result: Result<Signer>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn signatures_are_those_of_the_vectors() {
    let next = format!("AUTHORIZATION_NEXT\n1760000000000\n{NONCE}\n{{}}");
    assert_eq!(
        mac("adm-token", &next),
        "8eb4ea20af8588a610a8d580a8f275cfee9e68aaee7b491aaa5f49d6808fa624"
    );
    let body = r#"{ "realm":"org:acme", "ttl":null, "required":true, "command":"add_realm" }"#;
    let command = format!(
        "AUTH_MANAGEMENT_COMMAND\n1760000000000\n{NONCE}\n{}",
        Value::parse(body).unwrap().canonical()
    );
    assert_eq!(
        mac("adm-token", &command),
        "1e96c5046911fc6496fb48e5fb4e7a0ab0a8f02a63f03f4e299d4e8f1412c122"
    );
    let body = "{\"request_id\":\"r1\",\"approved\":false,\"reason\":\"caf\\u00e9 <b>&\\\"\\\\\\/\\u2028\\u0001\\n\",\
                \"n\":[1,1.0,1e21,-0,0.1,1e-7]}";
    let canonical = Value::parse(body).unwrap().canonical();
    let decide = format!("AUTHORIZATION_DECIDE\n1760000000001\nn\n{canonical}");
    assert_eq!(
        mac("rk", &decide),
        "795b769dcc8f8ef2be10488d472decea656bf7dbe0bc13bdd81eea02ef8e8767"
    );
    let body = "{\"a\":3,\"\u{1f600}\":2,\"\u{fb33}\":1,\"B\":4,\"10\":5,\"9\":6}";
    let any = format!("X\n1\nn\n{}", Value::parse(body).unwrap().canonical());
    assert_eq!(
        mac("rk", &any),
        "40f2e544ff9e81ff62fe349af29987956e5ef80424a070de14b5424daef321e1"
    );
}

#[test]
fn a_proof_says_with_whose_secret_it_was_signed() {
    let realm = Authority::Realm(RealmId::parse("org:acme").unwrap());
    let secrets = [
        global("first"),
        SigningSecret {
            authority: &realm,
            secret: secret("rk"),
        },
        global("adm-token"),
    ];
    let body = r#"{ "b": 1.0, "a": "x" }"#;
    for (secret, authority) in [
        ("first", &Authority::Global),
        ("rk", &realm),
        ("adm-token", &Authority::Global),
    ] {
        let text = sign(secret, Action::Command, NOW.0, NONCE, r#"{"a":"x","b":1}"#);
        let proof = Proof::parse(&text).unwrap();
        let signer = proof
            .verify(Action::Command, Some(body), &secrets, NOW)
            .unwrap();
        assert_eq!(signer.authority, *authority);
        assert_eq!(signer.secret, TokenHash::of(secret));
        // Neither another verb nor another body.
        assert_eq!(
            kind(proof.verify(Action::Next, Some(body), &secrets, NOW)),
            ErrorKind::ProofRejected
        );
        assert_eq!(
            kind(proof.verify(Action::Command, Some("{}"), &secrets, NOW)),
            ErrorKind::ProofRejected
        );
        assert_eq!(
            kind(proof.verify(Action::Command, Some(body), &[], NOW)),
            ErrorKind::ProofRejected
        );
    }
}

#[test]
fn an_absent_body_and_a_falsy_one_are_an_empty_one() {
    let text = sign("s", Action::Next, NOW.0, NONCE, "{}");
    let proof = Proof::parse(&text).unwrap();
    for body in [
        None,
        Some("{}"),
        Some("null"),
        Some("false"),
        Some("0"),
        Some("\"\""),
        Some(" -0.0 "),
    ] {
        proof
            .verify(Action::Next, body, &[global("s")], NOW)
            .unwrap();
    }
    assert!(
        proof
            .verify(Action::Next, Some("[]"), &[global("s")], NOW)
            .is_err()
    );
}

#[test]
fn a_proof_holds_for_five_minutes_either_way() {
    let secrets = [global("s")];
    for (at, is_good) in [
        (NOW.0 - WINDOW, true),
        (NOW.0 + WINDOW, true),
        (NOW.0 - WINDOW - 1, false),
        (NOW.0 + WINDOW + 1, false),
        (0, false),
        (9_007_199_254_740_991, false),
    ] {
        let proof = Proof::parse(&sign("s", Action::Next, at, NONCE, "{}")).unwrap();
        let verified = proof.verify(Action::Next, None, &secrets, NOW);
        assert_eq!(verified.is_ok(), is_good, "{at}");
    }
}

#[test]
fn a_timestamp_may_be_an_integer_or_its_digits() {
    let text = sign("s", Action::Next, NOW.0, NONCE, "{}");
    let said = NOW.0.to_string();
    for other in ["\"1760000000000\"", "1.76e12", "1760000000000.0"] {
        let proof = Proof::parse(&text.replace(&said, other)).unwrap();
        proof
            .verify(Action::Next, None, &[global("s")], NOW)
            .unwrap();
    }
    let wrong = [
        "\"01760000000000\"",
        "\"+1760000000000\"",
        "\" 1760000000000\"",
        "1760000000000.5",
        "-1",
        "null",
        "true",
        "[1760000000000]",
        "\"\"",
        "1e300",
        "9007199254740992",
    ];
    for other in wrong {
        let error = Proof::parse(&text.replace(&said, other)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ProofRejected, "{other}");
    }
}

#[test]
fn a_proof_of_another_form_is_rejected() {
    let right = sign("s", Action::Next, NOW.0, NONCE, "{}");
    let nonce = format!("\"{NONCE}\"");
    let with = |nonce: &str| right.replace(&format!("\"{NONCE}\""), nonce);
    Proof::parse(&with(&format!("\"{}\"", "a_-Z0".repeat(25) + "xyz"))).unwrap();
    // The list is the reference's hole: a captured nonce in a list was another one each time (AF02).
    for wrong in [
        format!("[{nonce}]"),
        "\"short\"".into(),
        format!("\"{}\"", "a".repeat(15)),
        format!("\"{}\"", "a".repeat(129)),
        "\"0011223344556677 899aabb\"".into(),
        "\"00112233445566é7\"".into(),
        "\"00112233445566778899\\n\"".into(),
        "\"\\ud8000011223344556677\"".into(),
        "112233445566778899".into(),
        "null".into(),
        "{}".into(),
    ] {
        assert!(Proof::parse(&with(&wrong)).is_err(), "{wrong}");
    }
    let start = right.find("signature\":\"").unwrap() + 12;
    let signature = &right[start..start + 64];
    assert!(Proof::parse(&right.replace(signature, &signature.to_uppercase())).is_ok());
    for wrong in [
        &signature[1..],
        "",
        &format!("{signature}0"),
        &signature.replace(&signature[..1], "g"),
    ] {
        assert!(
            Proof::parse(&right.replace(signature, wrong)).is_err(),
            "{wrong}"
        );
    }
    for wrong in [
        "",
        "null",
        "[]",
        "\"x\"",
        "{}",
        "{\"timestamp\":1}",
        &right[1..],
    ] {
        assert_eq!(
            Proof::parse(wrong).unwrap_err().kind(),
            ErrorKind::ProofRejected
        );
    }
}

fn signed(proof: Option<&str>) -> Signed<'_> {
    Signed {
        action: Action::Command,
        body: Some(r#"{"command":"get"}"#),
        proof,
        address: HERE,
    }
}

fn command(secret: &str, at: u64, nonce: &str) -> String {
    sign(secret, Action::Command, at, nonce, r#"{"command":"get"}"#)
}

#[test]
fn debug_texts_show_no_secret() {
    assert!(!format!("{:?}", global("hunter2")).contains("hunter2"));
}

/// How the Python client signs.
const SCRIPT: &str = "
import hashlib, hmac, json, sys
for line in sys.stdin:
    secret, action, at, nonce, body = json.loads(line)
    text = json.dumps(body, sort_keys=True, separators=(',', ':'), ensure_ascii=False)
    base = '\\n'.join([action, str(at), nonce, text]).encode()
    print(json.dumps(hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()))
";

#[test]
fn what_python_signs_is_verified() {
    let bodies = [
        r#"{}"#,
        r#"{"command":"add_realm","realm":"org:acme","required":true,"ttl":null}"#,
        r#"{"request_id":"authreq-x-1","approved":false,"reason":"caf\u00e9 <b>&\"\\/\u2028\u0001\n"}"#,
        r#"{"z":[1,-7,9007199254740991,[],{}],"a":{"é":"😀","B":null,"10":"9"},"realm":"*"}"#,
    ];
    let secrets = ["adm-token", "ключ", "k"];
    let mut lines = String::new();
    let mut cases = Vec::new();
    for secret in secrets {
        for body in bodies {
            for action in [Action::Next, Action::Decide, Action::Command] {
                let line = format!(
                    "[{},\"{}\",{},\"{NONCE}\",{body}]\n",
                    serde_json::to_string(secret).unwrap(),
                    action.as_str(),
                    NOW.0
                );
                lines.push_str(&line);
                cases.push((secret, body, action));
            }
        }
    }
    let mut python = Process::new("python3")
        .args(["-c", SCRIPT])
        .env("PYTHONIOENCODING", "utf-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let output = python.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let said: Vec<String> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(said.len(), cases.len());
    for ((key, body, action), signature) in cases.into_iter().zip(said) {
        let text = format!(
            r#"{{"timestamp":{},"nonce":"{NONCE}","signature":"{signature}"}}"#,
            NOW.0
        );
        let proof = Proof::parse(&text).unwrap();
        proof
            .verify(action, Some(body), &[global("other"), global(key)], NOW)
            .unwrap();
    }
}

proptest! {
    #[test]
    fn whatever_comes_is_rejected_and_no_more(proof in ".{0,200}", body in ".{0,80}") {
        if let Ok(proof) = Proof::parse(&proof) {
            prop_assert!(proof.verify(Action::Command, Some(&body), &[global("s")], NOW).is_err());
        }
    }

    #[test]
    fn a_bit_of_the_signature_matters(at in 0_usize..256) {
        let mut proof = Proof::parse(&command("s", NOW.0, NONCE)).unwrap();
        proof.signature[at / 8] ^= 1 << (at % 8);
        let body = Some(r#"{"command":"get"}"#);
        prop_assert!(proof.verify(Action::Command, body, &[global("s")], NOW).is_err());
    }
}
