//! Ends sessions that have lost their right to be there (F08): after each change of who may what, and
//! when a credential ends by itself.
//!
//! One task per server; nothing on the way of a message waits for it. Asks `auth`, and decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::auth::{Auth, Principal};
use crate::broker::{Broker, Member, SessionId};
use crate::clock::{Clock, Timestamp};

use super::links::Links;

/// Sessions asked about in one go.
const BITE: usize = 256;
/// The wall clock may be set: whoever ends at an instant is looked at this often.
const LOOK: Duration = Duration::from_secs(1);
/// With nobody who ends.
const IDLE: Duration = Duration::from_secs(60);

/// A session and what let it in.
pub(super) type Inside = (Arc<Principal>, Arc<Member>);

/// Sessions that end at an instant, the next one first.
#[derive(Default)]
pub(super) struct Roll {
    ends: Mutex<BTreeMap<(Timestamp, SessionId), Inside>>,
    bell: Notify,
}

impl Roll {
    /// Notes when a session's credential ends, if it does.
    pub(super) fn add(&self, principal: &Arc<Principal>, member: &Arc<Member>) {
        if let Some(end) = principal.expires {
            let inside = (principal.clone(), member.clone());
            self.ends.lock().insert((end, member.session()), inside);
            self.bell.notify_one();
        }
    }

    /// The session has ended otherwise.
    pub(super) fn remove(&self, principal: &Principal, member: &Member) {
        if let Some(end) = principal.expires {
            self.ends.lock().remove(&(end, member.session()));
        }
    }

    fn wait(&self, now: Timestamp) -> Duration {
        let next = self.ends.lock().keys().next().map(|(end, _)| *end);
        next.map_or(IDLE, |end| {
            end.since(now).clamp(Duration::from_millis(1), LOOK)
        })
    }

    /// Those that end by now.
    fn due(&self, now: Timestamp) -> Vec<Inside> {
        let mut ends = self.ends.lock();
        let after = ends.split_off(&(Timestamp(now.0.saturating_add(1)), SessionId(0)));
        std::mem::replace(&mut *ends, after).into_values().collect()
    }
}

/// Runs as long as the server does.
pub(super) async fn watch(
    roll: Arc<Roll>,
    links: Arc<Links>,
    auth: Arc<Auth>,
    mut changes: watch::Receiver<u64>,
    broker: Arc<Broker>,
    clock: Arc<dyn Clock>,
) {
    loop {
        let wait = roll.wait(clock.now());
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
                check(&auth, &broker, links.inside()).await;
            }
            () = roll.bell.notified() => {}
            () = clock.sleep_until(clock.elapsed() + wait) => {}
        }
        check(&auth, &broker, roll.due(clock.now())).await;
    }
}

async fn check(auth: &Auth, broker: &Arc<Broker>, sessions: Vec<Inside>) {
    for bite in sessions.chunks(BITE) {
        end_unfounded(auth, broker, bite);
        tokio::task::yield_now().await;
    }
}

/// Ends those of these sessions that have lost their right to be there; how many, whoever has ended them.
pub(super) fn end_unfounded(auth: &Auth, broker: &Arc<Broker>, sessions: &[Inside]) -> usize {
    let mut count = 0;
    for (principal, member) in sessions {
        let Err(denied) = auth.check(principal) else {
            continue;
        };
        count += 1;
        tracing::info!(
            socket = &**member.socket_id(),
            realm = %member.realm(),
            "a session has lost its right to be here: {}",
            denied.error
        );
        broker.expel(member, Some(&denied.error));
    }
    count
}
