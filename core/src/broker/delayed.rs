//! Publishes delayed messages when they are due (P17): routes and rights are those of that moment.
//!
//! One task per broker. A message leaves the store in the commit that publishes it, so a crash
//! neither loses nor doubles it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use super::batch::Batch;
use super::matches::Matches;
use super::member::Member;
use super::ports::Nobody;
use super::publish;
use super::{Broker, Published};
use crate::Result;
use crate::model::{ProducerName, RealmId};
use crate::store::Delayed;

/// Messages published in one go.
const PAGE: usize = 256;
/// Of messages that cannot be published now, so many are passed over to reach others.
const PASSED: usize = 4_096;
/// After trouble, and at most between two looks without a due message.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Runs until the broker is gone or closing.
pub(super) async fn run(broker: Weak<Broker>) {
    let mut members = HashMap::new();
    let mut passed = 0;
    loop {
        let Some(broker) = broker.upgrade().filter(|broker| !broker.is_closing()) else {
            return;
        };
        let now = broker.clock().now();
        let wait = match broker.store().delayed(PAGE + passed, now).await {
            Ok((due, next)) if due.is_empty() => {
                passed = 0;
                next.map_or(LONGEST, |next| {
                    next.since(now).clamp(Duration::from_millis(1), LONGEST)
                })
            }
            Ok((due, _)) => {
                let failed = publish_all(&broker, &mut members, due).await;
                passed = failed.min(PASSED);
                if failed == 0 { Duration::ZERO } else { RETRY }
            }
            Err(error) => {
                tracing::warn!(%error, "delayed messages cannot be read, trying again");
                RETRY
            }
        };
        if wait.is_zero() {
            continue;
        }
        let clock = broker.clock().clone();
        let bell = broker.delayed_bell();
        // Not kept alive by who waits.
        drop(broker);
        tokio::select! {
            () = clock.sleep_until(clock.elapsed() + wait) => {}
            () = bell.notified() => {}
        }
    }
}

/// Publishes what is due, in its order; how many could not be published now.
async fn publish_all(
    broker: &Arc<Broker>,
    members: &mut HashMap<RealmId, (Arc<Member>, Batch)>,
    due: Vec<Delayed>,
) -> usize {
    let mut replies = Vec::new();
    let mut done = Vec::new();
    let mut failed = 0;
    for delayed in due {
        if broker.is_shut(&delayed.realm) {
            // Who is to get it is not known while its realm is renamed.
            failed += 1;
            continue;
        }
        let inner = || {
            let member = broker.inner_member(&delayed.realm, Arc::new(Nobody));
            (member, Batch::new())
        };
        let known = members.entry(delayed.realm.clone()).or_insert_with(inner);
        if known.0.realm_state().is_gone() {
            // The realm was removed, and is there again.
            *known = inner();
        }
        let (member, batch) = known;
        match publish_one(broker, member, batch, &delayed) {
            Some(reply) => replies.push(reply),
            None => done.push(delayed.message.id),
        }
    }
    for (member, batch) in members.values_mut() {
        publish::flush(broker, member, batch);
    }
    if !done.is_empty() && broker.store().drop_delayed(done).await.is_err() {
        failed += 1;
    }
    for reply in replies {
        failed += usize::from(!matches!(reply.await, Ok(Ok(_))));
    }
    failed
}

/// The outcome to wait for; `None`: nothing stores it (any more), the row may go.
fn publish_one(
    broker: &Arc<Broker>,
    member: &Arc<Member>,
    batch: &mut Batch,
    delayed: &Delayed,
) -> Option<oneshot::Receiver<Result<Published>>> {
    let message = &delayed.message;
    let online_only = message.expires == Some(delayed.due);
    if !online_only && message.is_expired(broker.clock().now()) {
        broker
            .metrics()
            .expired
            .counter(&[delayed.realm.as_str()])
            .add(1);
        return None;
    }
    let rights = &broker.config.rights;
    let owner = delayed.owner.as_deref();
    if !rights.may_still_publish(&delayed.realm, owner, &message.event) {
        tracing::warn!(
            event = &*message.event,
            "a delayed message may not be published any more"
        );
        return None;
    }
    let from = ProducerName::parse(&message.from).ok()?;
    let matches = Matches::find(member.realm_state(), &from, &message.event);
    let (told, reply) = oneshot::channel();
    let tell = Box::new(move |result| {
        // The pump may be gone.
        let _ = told.send(result);
    });
    let is_stored = publish::publish_due(member, batch, &matches, message, online_only, tell);
    is_stored.then_some(reply)
}
