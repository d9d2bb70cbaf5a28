//! Counts failed attempts to get in by address, so that nobody guesses (admin.md §2.2 iv, F11).
//!
//! Every kind of credential counts: AUTHENTICATION and signed commands alike. Bounded, and an address that
//! fails costs no other anything; of IPv6 a whole /64 is one address. Knows no credential.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::Denied;
use super::generations::Generations;
use crate::ErrorKind;
use crate::clock::Elapsed;

/// Failures of one session before it is closed.
pub const MAX_SESSION_FAILURES: u32 = 10;
/// Failures of one address in [`WINDOW`] before it has to wait.
const MAX_ADDRESS_FAILURES: usize = 30;
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses remembered: twice as many at most.
const ADDRESSES: usize = 8192;

/// See the module.
pub struct Attempts {
    recent: Mutex<Generations<IpAddr, VecDeque<Elapsed>>>,
    failed: AtomicU64,
    refused: AtomicU64,
}

impl Attempts {
    pub(super) fn new() -> Self {
        Self {
            recent: Mutex::new(Generations::new(ADDRESSES)),
            failed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Refuses an address, or a session with so many failures, that has failed too often; to be asked
    /// before anything is compared. A refused attempt does not count again.
    ///
    /// # Errors
    /// `rate_limited` with the time to wait; the session ends.
    pub fn check(&self, address: IpAddr, failures: u32, now: Elapsed) -> Result<(), Denied> {
        let wait = self.wait(address, now);
        if wait.is_none() && failures < MAX_SESSION_FAILURES {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut denied = Denied::new(
            ErrorKind::RateLimited,
            "too many failed attempts to authenticate",
        );
        denied.retry_after = Some(wait.unwrap_or(WINDOW));
        denied.closes = true;
        Err(denied)
    }

    fn wait(&self, address: IpAddr, now: Elapsed) -> Option<Duration> {
        let recent = self.recent.lock();
        let failures = recent.get(&counted(address))?;
        let first = failures.len().checked_sub(MAX_ADDRESS_FAILURES)?;
        let free = failures.get(first)?.saturating_add(WINDOW);
        free.checked_sub(now).filter(|wait| !wait.is_zero())
    }

    /// Counts a failure.
    pub fn failed(&self, address: IpAddr, now: Elapsed) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let address = counted(address);
        let mut recent = self.recent.lock();
        let mut failures = recent.take(&address).unwrap_or_default();
        if failures.len() == MAX_ADDRESS_FAILURES {
            failures.pop_front();
        }
        failures.push_back(now);
        recent.insert(address, failures);
    }

    /// How many attempts have failed, and how many were refused unseen; never falls.
    pub fn counters(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.failed), read(&self.refused))
    }
}

/// What counts as one address: who owns one of IPv6 owns its /64.
pub(super) fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
    }
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, refused) = self.counters();
        write!(f, "Attempts({failed} failed, {refused} refused)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn at(seconds: u64) -> Elapsed {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_31st_attempt_of_an_address_in_a_minute_waits_and_others_do_not() {
        let attempts = Attempts::new();
        let (bad, good) = (address("10.0.0.1"), address("10.0.0.2"));
        for second in 0..30 {
            assert!(attempts.check(bad, 0, at(second)).is_ok());
            attempts.failed(bad, at(second));
        }
        let denied = attempts.check(bad, 0, at(29)).unwrap_err();
        assert_eq!(denied.error.kind(), ErrorKind::RateLimited);
        assert_eq!(denied.retry_after, Some(at(31)));
        assert!(denied.closes);
        assert!(
            attempts
                .check(address("::ffff:10.0.0.1"), 0, at(29))
                .is_err()
        );
        assert!(attempts.check(good, 0, at(29)).is_ok());
        assert!(attempts.check(bad, 0, at(59)).is_err());
        assert!(attempts.check(bad, 0, at(60)).is_ok());
        attempts.failed(bad, at(60));
        assert_eq!(
            attempts.check(bad, 0, at(60)).unwrap_err().retry_after,
            Some(at(1))
        );
        assert_eq!(attempts.counters(), (31, 4));
    }

    #[test]
    fn the_11th_attempt_of_a_session_ends_it() {
        let attempts = Attempts::new();
        assert!(attempts.check(address("::1"), 9, at(0)).is_ok());
        assert!(
            attempts
                .check(address("::1"), 10, at(0))
                .unwrap_err()
                .closes
        );
    }

    #[test]
    fn a_network_of_64_bits_is_one_address() {
        let attempts = Attempts::new();
        for n in 0..30 {
            attempts.failed(address(&format!("2001:db8:1:2::{n:x}")), at(0));
        }
        assert!(
            attempts
                .check(address("2001:db8:1:2:ffff::1"), 0, at(1))
                .is_err()
        );
        assert!(attempts.check(address("2001:db8:1:3::1"), 0, at(1)).is_ok());
    }

    #[test]
    fn ever_new_addresses_do_not_make_it_grow() {
        let attempts = Attempts::new();
        for n in 0..50_000_u32 {
            attempts.failed(IpAddr::from(n.to_be_bytes()), at(0));
        }
        let recent = attempts.recent.lock();
        let held = (0..50_000_u32).filter(|n| recent.get(&IpAddr::from(n.to_be_bytes())).is_some());
        assert!(held.count() <= 2 * ADDRESSES);
    }
}
