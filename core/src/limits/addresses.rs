//! Connections by address. An entry is there while a connection is, or while its rate is not whole
//! again, so the table is bounded by what is open and what came in the last minute.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use super::bucket::{Bucket, Rate, Short};
use super::{AddressCaps, CONNECTION_RETRY, Exceeded};
use crate::clock::Elapsed;

/// Entries at which the table is looked through for such that say nothing any more; doubled while
/// they all do.
const SWEEP: usize = 1_024;

/// The addresses of a server's sessions.
#[derive(Debug, Clone, Default)]
pub struct Addresses(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<IpAddr, Entry>,
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct Entry {
    open: u32,
    rate: Option<(Rate, Bucket)>,
}

/// A connection that counts for its address until this is dropped.
#[derive(Debug)]
pub struct Ticket {
    addresses: Addresses,
    address: IpAddr,
}

/// What counts as one address: an IPv6 host has a whole network of 64 bits.
fn block(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = v6.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        v4 => v4,
    }
}

impl Addresses {
    /// Counts one more connection of an address.
    ///
    /// # Errors
    /// [`Exceeded`]: nothing was counted.
    pub fn admit(
        &self,
        address: IpAddr,
        caps: &AddressCaps,
        now: Elapsed,
    ) -> Result<Ticket, Exceeded> {
        let address = block(address);
        let mut table = self.0.lock();
        table.sweep(now);
        let open = table.entries.get(&address).map_or(0, |entry| entry.open);
        if caps.max_connections.is_some_and(|most| open >= most) {
            return Err(Exceeded {
                reason: "max_connections_per_ip",
                retry_after: Some(CONNECTION_RETRY),
            });
        }
        let entry = table.entries.entry(address).or_default();
        if let Some(most) = caps.connections_per_minute {
            let rate = Rate {
                per_second: f64::from(most) / 60.0,
                burst: f64::from(most),
            };
            let bucket = match entry.rate {
                Some((_, bucket)) => bucket,
                None => Bucket::full(rate, now),
            };
            let (_, bucket) = entry.rate.insert((rate, bucket));
            if let Err(short) = bucket.check(rate, 1.0, now) {
                return Err(Exceeded {
                    reason: "connections_per_minute_per_ip",
                    retry_after: match short {
                        Short::After(seconds) => Some(seconds),
                        Short::Never => None,
                    },
                });
            }
            bucket.take(1.0);
        }
        entry.open += 1;
        Ok(Ticket {
            addresses: self.clone(),
            address,
        })
    }

    /// Addresses that are kept count of.
    pub fn len(&self) -> usize {
        self.0.lock().entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Table {
    fn sweep(&mut self, now: Elapsed) {
        if self.entries.len() < self.sweep_at.max(SWEEP) {
            return;
        }
        self.entries.retain(|_, entry| {
            let is_used_up = |(rate, bucket): (Rate, Bucket)| !bucket.is_full(rate, now);
            entry.open > 0 || entry.rate.is_some_and(is_used_up)
        });
        self.sweep_at = self.entries.len() * 2;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut table = self.addresses.0.lock();
        let Some(entry) = table.entries.get_mut(&self.address) else {
            return;
        };
        entry.open = entry.open.saturating_sub(1);
        if entry.open == 0 && entry.rate.is_none() {
            table.entries.remove(&self.address);
        }
    }
}
