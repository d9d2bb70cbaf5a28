//! The start of an Engine.IO session: the query string and the open packet.

use std::time::Duration;

/// What the query string of an Engine.IO request says; parts that are absent are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Query<'a> {
    /// `EIO`: the protocol version, `4` for us.
    pub version: &'a str,
    /// `transport`: `polling` or `websocket`.
    pub transport: &'a str,
    /// `sid`: the session, absent at the start.
    pub sid: Option<&'a str>,
}

impl<'a> Query<'a> {
    /// Reads a query string; unknown parts are passed over, of duplicates the last wins.
    pub fn parse(query: &'a str) -> Self {
        let mut found = Self::default();
        for part in query.split('&') {
            match part.split_once('=') {
                Some(("EIO", version)) => found.version = version,
                Some(("transport", transport)) => found.transport = transport,
                Some(("sid", sid)) => found.sid = Some(sid),
                _ => {}
            }
        }
        found
    }
}

/// The open packet `0{…}`.
pub fn open_packet(
    sid: &str,
    may_upgrade: bool,
    ping_interval: Duration,
    ping_timeout: Duration,
    max_payload: u64,
) -> String {
    let upgrades = if may_upgrade { r#""websocket""# } else { "" };
    format!(
        r#"0{{"sid":"{sid}","upgrades":[{upgrades}],"pingInterval":{},"pingTimeout":{},"maxPayload":{max_payload}}}"#,
        ping_interval.as_millis(),
        ping_timeout.as_millis(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_may_come_in_any_order_and_with_strangers() {
        let query = Query::parse("t=abc&sid=x-_1&transport=polling&EIO=4&b64");
        assert_eq!(
            (query.version, query.transport, query.sid),
            ("4", "polling", Some("x-_1"))
        );
        assert_eq!(Query::parse(""), Query::default());
    }

    #[test]
    fn the_open_packet_is_what_clients_parse() {
        let seconds = Duration::from_secs;
        let packet = open_packet("abc", true, seconds(25), seconds(20), 52_428_800);
        assert_eq!(
            packet,
            r#"0{"sid":"abc","upgrades":["websocket"],"pingInterval":25000,"pingTimeout":20000,"maxPayload":52428800}"#
        );
        let plain = open_packet("abc", false, seconds(1), seconds(1), 1);
        assert!(plain.contains(r#""upgrades":[]"#));
    }
}
