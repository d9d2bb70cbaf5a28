//! Whose connection it is, and who may listen to it. Knows no header and no socket.

use std::net::SocketAddr;

/// Whose connection it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    /// The client's address, perhaps behind a proxy.
    pub remote: SocketAddr,
    /// Nobody on the way can read along.
    pub is_secure: bool,
    /// The connection itself comes from this machine, whoever is behind it.
    pub is_local: bool,
}

impl Caller {
    /// Whether nobody else can listen: over TLS, or within this machine. What a proxy says of the
    /// client's address makes no network private (AF59).
    pub(super) fn is_private(self) -> bool {
        self.is_secure || (self.is_local && self.remote.ip().to_canonical().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_and_tls_are_private_whatever_a_proxy_says_of_the_client() {
        for (address, is_alone) in [
            ("127.0.0.1", true),
            ("127.8.9.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.1", false),
            ("192.168.1.5", false),
            ("169.254.0.1", false),
            ("fe80::1", false),
            ("fd00::1", false),
            ("::ffff:10.0.0.1", false),
            ("0.0.0.0", false),
            ("203.0.113.5", false),
        ] {
            let caller = |is_local, is_secure| Caller {
                remote: SocketAddr::new(address.parse().unwrap(), 1),
                is_secure,
                is_local,
            };
            assert_eq!(caller(true, false).is_private(), is_alone, "{address}");
            assert!(!caller(false, false).is_private(), "{address} by a proxy");
            assert!(caller(false, true).is_private(), "{address}");
        }
    }
}
