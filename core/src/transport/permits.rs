//! Permits for large frames and transfers: how many bytes may be under way into the process (P25).
//!
//! A permit is taken before the bytes are read and given back when it is dropped. Knows no sockets:
//! the reader takes permits for frames, the room above for chunk transfers.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// Frames and transfers up to this many bytes need no permit.
pub(super) const FREE: usize = 64 << 10;

/// The pool; cheap to clone.
#[derive(Debug, Clone)]
pub struct Permits(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    limit: usize,
    per_address: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    sum: usize,
    by_address: HashMap<IpAddr, usize>,
    waiting: Vec<Waker>,
}

/// Bytes that may be held; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    pool: Arc<Pool>,
    address: Option<IpAddr>,
    bytes: usize,
}

impl Permits {
    /// A pool of `limit` bytes, of which one address without credential gets `per_address`.
    pub fn new(limit: usize, per_address: usize) -> Self {
        Self(Arc::new(Pool {
            limit,
            per_address,
            taken: Mutex::default(),
        }))
    }

    /// A permit for `bytes`, unless that would take the pool over its limit. `address` is the peer
    /// without credential that they are charged to.
    ///
    /// A single permit larger than the limit is given when nothing else is out, so that a small
    /// limit slows large messages down but never shuts them out.
    pub fn try_take(&self, address: Option<IpAddr>, bytes: usize) -> Option<Permit> {
        let mut permit = Permit {
            pool: self.0.clone(),
            address,
            bytes: 0,
        };
        permit.grow(bytes).then_some(permit)
    }

    /// Waits until `permit` stands for at least `bytes`.
    pub(super) async fn ensure(
        &self,
        permit: &mut Option<Permit>,
        address: Option<IpAddr>,
        bytes: usize,
    ) {
        poll_fn(|cx| {
            // First to the queue, then look: what comes back in between is not missed.
            self.wake_on_return(cx.waker());
            let enough = match permit {
                Some(permit) => permit.grow(bytes),
                None => {
                    *permit = self.try_take(address, bytes);
                    permit.is_some()
                }
            };
            if enough {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Bytes that are out.
    pub fn taken(&self) -> usize {
        self.0.taken.lock().sum
    }

    /// Wakes `waker` when a permit comes back.
    pub(super) fn wake_on_return(&self, waker: &Waker) {
        let mut taken = self.0.taken.lock();
        if !taken.waiting.iter().any(|known| known.will_wake(waker)) {
            taken.waiting.push(waker.clone());
        }
    }
}

impl Permit {
    /// Bytes it stands for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes it stand for at least `bytes`; false, and unchanged, if the pool has not that much.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let mut taken = self.pool.taken.lock();
        let fits =
            |taken: usize, limit: usize| taken == self.bytes || taken.saturating_add(more) <= limit;
        if !fits(taken.sum, self.pool.limit) {
            return false;
        }
        if let Some(address) = self.address {
            let of_address = taken.by_address.get(&address).copied().unwrap_or_default();
            if !fits(of_address, self.pool.per_address) {
                return false;
            }
            taken.by_address.insert(address, of_address + more);
        }
        taken.sum += more;
        self.bytes += more;
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes == 0 {
            // One that was never given: nothing comes back, so nobody is woken.
            return;
        }
        let waiting = {
            let mut taken = self.pool.taken.lock();
            taken.sum -= self.bytes;
            if let Some(address) = self.address
                && let Some(of_address) = taken.by_address.get_mut(&address)
            {
                *of_address -= self.bytes;
                if *of_address == 0 {
                    taken.by_address.remove(&address);
                }
            }
            std::mem::take(&mut taken.waiting)
        };
        for waker in waiting {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn the_sum_is_bounded_and_comes_back() {
        let pool = Permits::new(100, 50);
        let first = pool.try_take(None, 60).unwrap();
        assert!(pool.try_take(None, 60).is_none());
        drop(first);
        assert!(pool.try_take(None, 60).is_some());
        assert_eq!(pool.taken(), 0);
    }

    #[test]
    fn an_address_without_credential_has_a_smaller_share() {
        let pool = Permits::new(100, 50);
        let _first = pool.try_take(Some(HERE), 30).unwrap();
        assert!(pool.try_take(Some(HERE), 30).is_none());
        assert!(pool.try_take(None, 30).is_some());
    }

    #[test]
    fn a_permit_larger_than_the_pool_is_given_alone() {
        let pool = Permits::new(100, 50);
        let mut large = pool.try_take(Some(HERE), 200).unwrap();
        assert!(large.grow(300));
        assert!(pool.try_take(None, 1).is_none());
        drop(large);
        let _small = pool.try_take(None, 1).unwrap();
        assert!(pool.try_take(None, 200).is_none());
    }
}
