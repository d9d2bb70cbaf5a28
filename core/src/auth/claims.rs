//! What somebody who vouches for a session says of it: the claims of a JWT, the reply of an external
//! validator, the answer of the embedding program's. Read once, the same way for all three (admin.md
//! §2.3). Knows no key and no signature.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::reader::Reader;
use super::{Allow, EVERY_REALM, Role};
use crate::clock::Timestamp;
use crate::model::RealmId;

/// Clocks may differ so much where a token begins; where it ends they may not.
const SKEW: Duration = Duration::from_secs(30);

/// Who a session is, as somebody says who may say so.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claims {
    /// The realm it is let into.
    pub realm: RealmId,
    /// As what.
    pub role: Role,
    /// Who it is to them; queues belong to it (P30).
    pub sub: Option<Arc<str>>,
    /// What is narrowed.
    pub allow: Allow,
    /// When it ends.
    pub expires: Option<Timestamp>,
}

impl Claims {
    /// Reads claims at a time; `None`: something is missing or wrong, has ended or not begun, or says no
    /// (`ok` or `valid` false).
    pub fn parse(members: &Map<String, Value>, now: Timestamp) -> Option<Self> {
        let says_no = |name: &str| members.get(name) == Some(&Value::Bool(false));
        if says_no("ok") || says_no("valid") {
            return None;
        }
        let mut reader = Reader::over("", members);
        let realm = RealmId::parse(reader.text(&["realm"]).ok()??).ok()?;
        let role = Role::parse(reader.text(&["role"]).ok()??)?;
        let sub = reader.name(&["sub"]).ok()?.map(Arc::from);
        let allow = Allow::read(&mut reader).ok()?;
        let expires = time(members, "exp")?;
        if expires.is_some_and(|end| end <= now) {
            return None;
        }
        if time(members, "nbf")?.is_some_and(|start| start > now.plus(SKEW)) {
            return None;
        }
        time(members, "iat")?;
        Some(Self {
            realm,
            role,
            sub,
            allow,
            expires,
        })
    }

    /// The same from JSON text, as an external validator replies.
    pub fn from_json(text: &[u8], now: Timestamp) -> Option<Self> {
        Self::parse(&serde_json::from_slice(text).ok()?, now)
    }

    /// Whether the realm and the role go together: `*` and `admin` only with each other, and only if the
    /// operator allows it (admin.md §1.4).
    pub fn is_permitted(&self, superadmin: bool) -> bool {
        let is_every = self.realm.as_str() == EVERY_REALM;
        let is_admin = self.role == Role::Admin;
        is_every == is_admin && (superadmin || !is_every)
    }

    /// Whose queues it may use (P30).
    pub fn owner(&self) -> Arc<str> {
        match &self.sub {
            Some(sub) => format!("sub:{sub}").into(),
            None => format!("realm:{}", self.realm).into(),
        }
    }
}

/// A time in seconds; absent is fine, anything but a finite number is not (F13).
#[expect(clippy::option_option, reason = "absent and wrong are two things")]
fn time(members: &Map<String, Value>, name: &str) -> Option<Option<Timestamp>> {
    match members.get(name) {
        None => Some(None),
        Some(Value::Number(number)) => {
            let seconds = number.as_f64().filter(|seconds| seconds.is_finite())?;
            let span = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
            Some(Some(Timestamp(0).plus(span)))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn read(value: &Value) -> Option<Claims> {
        Claims::parse(value.as_object().unwrap(), NOW)
    }

    #[test]
    fn claims_need_a_realm_and_a_role_and_times_that_are_numbers() {
        let good = json!({"realm": "a", "role": "both", "sub": "s", "exp": 1_800_000_001.5, "nbf": 1_800_000_030,
            "iat": 1, "aud": {}, "names": ["x*"], "allow": {"consume": []}});
        let claims = read(&good).unwrap();
        assert_eq!(claims.expires, Some(Timestamp(1_800_000_001_500)));
        assert_eq!(&*claims.owner(), "sub:s");
        assert!(!claims.allow.may_consume("a"));
        assert_eq!(
            &*read(&json!({"realm": "a", "role": "both"}))
                .unwrap()
                .owner(),
            "realm:a"
        );
        for (name, value) in [
            ("realm", json!("")),
            ("realm", json!(5)),
            ("realm", json!(null)),
            ("realm", json!("a\n")),
            ("role", json!("")),
            ("role", json!("root")),
            ("exp", json!(1_800_000_000)),
            ("exp", json!("1900000000")),
            ("exp", json!(null)),
            ("exp", json!(-5)),
            ("nbf", json!(1_800_000_031)),
            ("nbf", json!("1")),
            ("iat", json!([])),
            ("sub", json!({})),
            ("sub", json!("x".repeat(256))),
            ("allow", json!("all")),
            ("names", json!([1])),
            ("ok", json!(false)),
            ("valid", json!(false)),
        ] {
            let mut bad = good.clone();
            bad[name] = value.clone();
            assert_eq!(read(&bad), None, "{name} {value}");
        }
    }

    #[test]
    fn the_realm_of_all_and_the_role_of_admins_go_together_and_only_when_allowed() {
        for (realm, role, plain, superadmin) in [
            ("a", "both", true, true),
            ("a", "manager", true, true),
            ("a", "admin", false, false),
            ("*", "both", false, false),
            ("*", "admin", false, true),
        ] {
            let claims = read(&json!({"realm": realm, "role": role})).unwrap();
            assert_eq!(claims.is_permitted(false), plain, "{realm} {role}");
            assert_eq!(claims.is_permitted(true), superadmin, "{realm} {role}");
        }
    }
}
