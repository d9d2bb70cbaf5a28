//! The connected sessions by socket id: for what the program around the broker says to them itself, and
//! for asking whether they may stay.
//!
//! Knows no verb: what it is given are whole frames.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::transport::Link;

use super::roll::Inside;

/// A link that is known by its socket id, and who came in by it.
struct Named(Link, Option<Inside>);

impl Borrow<str> for Named {
    fn borrow(&self) -> &str {
        self.0.socket_id()
    }
}

impl Hash for Named {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.socket_id().hash(state);
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.0.socket_id() == other.0.socket_id()
    }
}

impl Eq for Named {}

/// See the module.
#[derive(Default)]
pub(crate) struct Links(Mutex<HashSet<Named>>);

impl Links {
    /// A link, or who has come in by one that is known.
    pub(super) fn add(&self, link: &Link, inside: Option<Inside>) {
        self.0.lock().replace(Named(link.clone(), inside));
    }

    /// Everybody who is in.
    pub(super) fn inside(&self) -> Vec<Inside> {
        let links = self.0.lock();
        links.iter().filter_map(|named| named.1.clone()).collect()
    }

    pub(super) fn remove(&self, link: &Link) {
        let mut links = self.0.lock();
        links.remove(link.socket_id());
        if links.is_empty() {
            // A server that had many sessions once does not keep their memory.
            *links = HashSet::new();
        }
    }

    /// Offers frames to one session, or to all; `is_volatile`: not to those for which something
    /// waits already. How many have taken them (P23).
    pub(crate) fn offer(&self, to: Option<&str>, frames: &Bytes, is_volatile: bool) -> usize {
        let links: Vec<Link> = {
            let links = self.0.lock();
            match to {
                Some(id) => links
                    .get(id)
                    .map(|named| named.0.clone())
                    .into_iter()
                    .collect(),
                None => links.iter().map(|named| named.0.clone()).collect(),
            }
        };
        let takes = |link: &&Link| {
            let is_free = !is_volatile || link.waiting() == 0;
            is_free && link.offer(frames.clone()).is_some()
        };
        links.iter().filter(takes).count()
    }
}
