//! The `limits` block (P25): numbers for every realm, and what realms have of their own.
//!
//! 0 and less mean unlimited, as in existing settings files. Counts nothing.

use serde_json::Value;

use super::Options;
use crate::limits::{AddressCaps, Cap, Caps, Limits, Proxies};
use crate::model::RealmId;
use crate::{Error, Result};

impl Options {
    /// The limits; without a block the default.
    pub(super) fn limits(&mut self) -> Result<Limits> {
        let mut limits = Limits::default();
        match self.get(&["limits"]) {
            None | Some(Value::Bool(true)) => return Ok(limits),
            Some(Value::Bool(false)) => {
                limits.enabled = false;
                return Ok(limits);
            }
            Some(_) => {}
        }
        let Some(mut inner) = self.object(&["limits"])? else {
            return Ok(limits);
        };
        inner.flag(&["enabled"], &mut limits.enabled)?;
        limits.base = inner.caps()?;
        limits.address = AddressCaps {
            max_connections: inner.cap_of_address("max_connections_per_ip")?,
            connections_per_minute: inner.cap_of_address("connections_per_minute_per_ip")?,
        };
        let pending = "max_pending_authorization_requests";
        if let Some(most) = inner.count(pending)? {
            limits.max_pending_authorization_requests = whole(most);
        }
        if let Some(most) = inner.count("max_transfers_per_socket")? {
            limits.max_transfers_per_socket = whole(most);
        }
        limits.trust_proxy = inner.proxies()?;
        inner.realms(&mut limits)?;
        self.absorb(inner);
        Ok(limits)
    }

    fn realms(&mut self, limits: &mut Limits) -> Result<()> {
        let Some(mut realms) = self.object(&["realms"])? else {
            return Ok(());
        };
        for name in realms.names() {
            let realm = RealmId::parse(&name);
            let realm = realm.map_err(|_| realms.wrong(&name, "under the name of a realm"))?;
            let Some(mut inner) = realms.object(&[&name])? else {
                continue;
            };
            limits.realms.insert(realm, inner.caps()?);
            realms.absorb(inner);
        }
        Ok(())
    }

    fn caps(&mut self) -> Result<Caps> {
        Ok(Caps {
            messages_per_second: self.rate("messages_per_second")?,
            message_burst: self.rate("message_burst")?,
            bytes_per_second: self.rate("bytes_per_second")?,
            bytes_burst: self.rate("bytes_burst")?,
            max_registrations_per_socket: self.count("max_registrations_per_socket")?,
            max_registrations_per_realm: self.count("max_registrations_per_realm")?,
            max_subscriptions_per_socket: self.count("max_subscriptions_per_socket")?,
            max_subscriptions_per_realm: self.count("max_subscriptions_per_realm")?,
            max_queued: self.count("max_queued")?,
            max_queued_per_realm: self.count("max_queued_per_realm")?,
            max_queued_bytes_per_realm: self.count("max_queued_bytes_per_realm")?,
        })
    }

    fn rate(&mut self, name: &str) -> Result<Option<Cap>> {
        let Some(value) = self.get(&[name]) else {
            return Ok(None);
        };
        match value.as_f64().filter(|number| number.is_finite()) {
            Some(number) if number > 0.0 => Ok(Some(Cap::At(number))),
            Some(_) => Ok(Some(Cap::Unlimited)),
            None => Err(self.wrong(name, "a number; 0: unlimited")),
        }
    }

    fn count(&mut self, name: &str) -> Result<Option<Cap>> {
        let cap = self.rate(name)?;
        match cap {
            Some(Cap::At(number)) if number.fract() != 0.0 => {
                Err(self.wrong(name, "a whole number; 0: unlimited"))
            }
            cap => Ok(cap),
        }
    }

    fn cap_of_address(&mut self, name: &str) -> Result<Option<u32>> {
        Ok(match self.count(name)? {
            // Saturates.
            Some(Cap::At(most)) => Some(most as u32),
            Some(Cap::Unlimited) | None => None,
        })
    }

    fn proxies(&mut self) -> Result<Proxies> {
        const WANTED: &str = "a list of networks and addresses of proxies, such as \"10.0.0.0/8\"";
        let name = "trust_proxy";
        let list = match self.get(&[name]) {
            None | Some(Value::Bool(false)) => return Ok(Proxies::default()),
            Some(Value::Array(list)) => list,
            Some(text @ Value::String(_)) => vec![text],
            // `true` would believe what every client writes itself.
            Some(_) => return Err(self.wrong(name, WANTED)),
        };
        let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
        let texts = texts.ok_or_else(|| self.wrong(name, WANTED))?;
        let refused =
            |text: &str| -> Error { self.wrong(name, &format!("{WANTED}, not {text:?}")) };
        Proxies::parse(texts).map_err(refused)
    }
}

fn whole(cap: Cap) -> usize {
    match cap {
        // Saturates.
        Cap::At(most) => most as usize,
        Cap::Unlimited => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn read(json: &str) -> Result<Limits> {
        Options::read(json)?.limits()
    }

    #[test]
    fn zero_and_less_are_unlimited_and_realms_have_their_own() {
        let limits = read(
            r#"{"limits": {"messagesPerSecond": 2.5, "bytes_per_second": 0, "max_connections_per_ip": -1,
                "connections_per_minute_per_ip": 7, "trust_proxy": "10.0.0.0/8",
                "maxQueued": 3, "maxQueuedBytesPerRealm": 1000,
                "realms": {"acme": {"messages_per_second": 9, "max_queued": 0,
                    "max_queued_per_realm": 5}}}}"#,
        )
        .unwrap();
        let acme = limits.caps(&RealmId::parse("acme").unwrap(), false);
        assert_eq!(acme.messages().map(|rate| rate.burst), Some(27.0));
        let queued = |caps: Caps| {
            let caps = [
                caps.max_queued,
                caps.max_queued_per_realm,
                caps.max_queued_bytes_per_realm,
            ];
            caps.map(|cap| cap.map(Cap::most))
        };
        assert_eq!(queued(acme), [Some(u64::MAX), Some(5), Some(1000)]);
        let base = limits.caps(&RealmId::default(), false);
        assert_eq!(base.messages().map(|rate| rate.per_second), Some(2.5));
        assert_eq!(base.bytes(), None);
        assert_eq!(queued(base), [Some(3), None, Some(1000)]);
        let address = limits.address();
        assert_eq!(address.max_connections, None);
        assert_eq!(address.connections_per_minute, Some(7));
        let proxy: IpAddr = "10.9.9.9".parse().unwrap();
        assert!(limits.trust_proxy.trusts(proxy));
        assert!(!read(r#"{"limits": false}"#).unwrap().enabled);
    }

    #[test]
    fn a_wrong_limit_names_its_path() {
        for (json, path) in [
            (r#"{"limits": 1}"#, "limits"),
            (r#"{"limits": {"trust_proxy": true}}"#, "limits.trust_proxy"),
            (
                r#"{"limits": {"max_connections_per_ip": 1.5}}"#,
                "limits.max_connections_per_ip",
            ),
            (r#"{"limits": {"realms": {" x": {}}}}"#, "limits.realms. x"),
            (r#"{"limits": {"realms": {"x": 1}}}"#, "limits.realms.x"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.message().contains(path), "{json}: {error}");
        }
    }
}
