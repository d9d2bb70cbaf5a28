//! The publish: match once, live copies into the batch, stored copies into one append.
//!
//! Knows no session's protocol and waits for nothing. Matches are cached per session and hold until
//! a key comes or goes in the realm, so that the cost of a message does not depend on the number of
//! subscriptions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;

use super::Broker;
use super::batch::{Answering, Batch, Manner, Stored, Target};
use super::listen::{GroupKey, KeyEntry, Listener};
use super::matches::{Matches, NO_TTL, Outgoing, RouteSet};
use super::member::Member;
use super::ports::Content;
use super::request::{Broadcast, PublishRequest, Reply, refuse};
use super::staging::{self, Staged};
use crate::clock::Timestamp;
use crate::model::{Message, ProducerName, RealmId};
use crate::store::{Append, Appended};
use crate::{Error, ErrorKind, Result};

/// Where a message went.
#[derive(Default)]
pub(super) struct Placing {
    pub(super) append: Option<usize>,
    pub(super) segments: SmallVec<[usize; 2]>,
}

/// See [`Broker::publish`].
pub(super) fn publish(
    broker: &Arc<Broker>,
    member: &Arc<Member>,
    batch: &mut Batch,
    request: &PublishRequest<'_>,
    reply: Option<Reply>,
) {
    let set = match admit(broker, member, batch, request) {
        Ok(set) => set,
        Err(error) => return refuse(broker, member, reply, error),
    };
    set.produced.add(1);
    let mut outgoing = outgoing(broker, &set, request);
    if let Some(due) = request.due.filter(|due| *due > outgoing.produced) {
        return hold(member, batch, &mut outgoing, due, reply);
    }
    if let Some(known) = known(broker, &set.own, &mut outgoing) {
        batch.replies.extend(reply.map(|reply| Answering {
            reply: Some(reply),
            append: None,
            segments: SmallVec::new(),
            id: known.id,
            known: Some(known),
        }));
        return;
    }
    let placing = match request.broadcast {
        Some(to) => super::broadcast::place(broker, member, batch, &set, &mut outgoing, to),
        None => place(member, batch, &set.own, &mut outgoing),
    };
    answer_later(batch, &outgoing, placing, reply);
    if let (Some(monitor), None) = (&set.monitor, request.broadcast)
        && !monitor.keys.is_empty()
    {
        // A copy of its own: it never decides what the producer is told.
        outgoing.mark = None;
        outgoing.uid = None;
        place(member, batch, monitor, &mut outgoing);
    }
}

/// What the store says of a numbered message that it has already, where nothing stores it any more:
/// else the append tells (P16). Without a number it costs nothing.
fn known(broker: &Broker, matches: &Matches, outgoing: &mut Outgoing<'_>) -> Option<Appended> {
    let guaranteed = outgoing.guaranteed;
    let may_store = !outgoing.online_only && (guaranteed || !outgoing.is_broadcast);
    if !outgoing.is_numbered() || (may_store && matches.store(guaranteed)) {
        return None;
    }
    let item = Append {
        mark: outgoing.mark.map(|(instance, n)| (instance.into(), n)),
        uid: outgoing.uid.map(Arc::from),
        ..Append::new(matches.realm.id.clone(), outgoing.message(), Vec::new())
    };
    broker.store().known(&item)
}

/// Publishes a delayed message that is due (P17).
pub(super) fn publish_due(
    member: &Arc<Member>,
    batch: &mut Batch,
    matches: &Matches,
    message: &Arc<Message>,
    online_only: bool,
    reply: Reply,
) -> bool {
    let mut outgoing = Outgoing {
        content: Content::of(message),
        guaranteed: message.guaranteed,
        online_only,
        is_broadcast: false,
        key: message.key.as_deref(),
        expires: message.expires,
        produced: message.produced,
        mark: None,
        uid: None,
        release: Some(message.id),
        id: message.id,
        message: Some(message.clone()),
    };
    let placing = place(member, batch, matches, &mut outgoing);
    let is_stored = placing.append.is_some();
    answer_later(batch, &outgoing, placing, is_stored.then_some(reply));
    is_stored
}

fn admit(
    broker: &Arc<Broker>,
    member: &Arc<Member>,
    batch: &mut Batch,
    request: &PublishRequest<'_>,
) -> Result<Arc<RouteSet>> {
    if broker.refuses(member) {
        let text = "the server is stopping, try again elsewhere or later";
        return Err(Error::new(ErrorKind::ShuttingDown, text));
    }
    if request.broadcast == Some(Broadcast::Group("")) {
        let text = "a group broadcast names its group";
        return Err(Error::new(ErrorKind::BadCommand, text));
    }
    if request.broadcast.is_some() && request.due.is_some() {
        let text = "a broadcast cannot be delayed";
        return Err(Error::new(ErrorKind::BadCommand, text));
    }
    if member.is_expelled() {
        // What it says last reaches nobody: its realm may be gone.
        return Err(Error::new(ErrorKind::Disconnected, "the session has ended"));
    }
    let content = &request.content;
    let set = match batch.cached(content.from, content.event) {
        Some(set) => set,
        None => {
            let set = Arc::new(route(broker, member, request)?);
            batch.cache(&set);
            set
        }
    };
    let matched = set.own.keys.len();
    if matched > broker.config.max_matches {
        let text = format!("the message matches {matched} subscriptions' keys, too many");
        return Err(Error::new(ErrorKind::TooManyMatches, text));
    }
    Ok(set)
}

/// The slow way: look everything up, and bind the producer's name if nobody holds it (wire §2.5).
fn route(
    broker: &Arc<Broker>,
    member: &Arc<Member>,
    request: &PublishRequest<'_>,
) -> Result<RouteSet> {
    let from = ProducerName::parse(request.content.from)?;
    let event = request.content.event;
    let realm = member.realm_state();
    let standing = super::takeover::bind_producer(broker, member, &from, request.producer_id);
    let monitor = broker.monitor();
    let produced = &broker.metrics().produced;
    Ok(RouteSet {
        own: Matches::find(realm, &from, event),
        monitor: (!Arc::ptr_eq(monitor, realm)).then(|| Matches::find(monitor, &from, event)),
        standing,
        produced: produced.counter(&[realm.id.as_str(), event]),
    })
}

fn outgoing<'a>(broker: &Broker, set: &RouteSet, request: &PublishRequest<'a>) -> Outgoing<'a> {
    let default = || match set.standing.default_ttl.load(Ordering::Relaxed) {
        NO_TTL => Duration::from_millis(broker.default_ttl.load(Ordering::Relaxed)),
        millis => Duration::from_millis(millis),
    };
    let ttl = request.ttl.unwrap_or_else(default);
    let produced = broker.clock().now();
    // TTL counts from due (P17).
    let start = request.due.map_or(produced, |due| due.max(produced));
    Outgoing {
        content: request.content,
        guaranteed: request.guaranteed,
        online_only: ttl.is_zero(),
        is_broadcast: request.broadcast.is_some(),
        key: request.ordering_key,
        expires: (!ttl.is_zero()).then(|| start.plus(ttl)),
        produced,
        mark: request.instance_seq,
        uid: request.uid,
        release: None,
        id: broker.next_message(produced),
        message: None,
    }
}

/// Holds a message in the store until it is due (P17).
fn hold(
    member: &Member,
    batch: &mut Batch,
    outgoing: &mut Outgoing<'_>,
    due: Timestamp,
    reply: Option<Reply>,
) {
    if outgoing.online_only {
        // Ends when it is due: then only who is connected gets it.
        outgoing.expires = Some(due);
    }
    let append = append(batch, member.realm(), outgoing, &[], Vec::new());
    let held = &mut batch.appends[append].append;
    held.due = Some(due);
    held.owner = member.pass().owner.clone();
    let placing = Placing {
        append: Some(append),
        ..Placing::default()
    };
    answer_later(batch, outgoing, placing, reply);
}

pub(super) fn append(
    batch: &mut Batch,
    realm: &RealmId,
    outgoing: &mut Outgoing<'_>,
    keys: &[Arc<KeyEntry>],
    skip: Vec<(Arc<KeyEntry>, Arc<GroupKey>)>,
) -> usize {
    let message = outgoing.message();
    batch.bytes += message.size();
    batch.appends.push(Stored {
        append: Append {
            mark: outgoing.mark.map(|(instance, n)| (instance.into(), n)),
            uid: outgoing.uid.map(Arc::from),
            release: outgoing.release,
            ..Append::new(realm.clone(), message, Vec::new())
        },
        keys: keys.to_vec(),
        skip,
    });
    batch.appends.len() - 1
}

pub(super) fn answer_later(
    batch: &mut Batch,
    outgoing: &Outgoing<'_>,
    placing: Placing,
    reply: Option<Reply>,
) {
    // What is stored can fail, and that is told even to who did not ask.
    if reply.is_some() || placing.append.is_some() {
        batch.replies.push(Answering {
            reply,
            append: placing.append,
            segments: placing.segments,
            id: outgoing.id,
            known: None,
        });
    }
}

/// Routes one message through the matches of one realm: what is to be stored, then live copies.
pub(super) fn place(
    member: &Member,
    batch: &mut Batch,
    matches: &Matches,
    outgoing: &mut Outgoing<'_>,
) -> Placing {
    let guaranteed = outgoing.guaranteed;
    let mut stored: Vec<Arc<KeyEntry>> = Vec::new();
    let mut chosen: Vec<(Arc<KeyEntry>, Arc<Listener>)> = Vec::new();
    let mut passed_over: Vec<&[(Arc<KeyEntry>, Arc<GroupKey>)]> = Vec::new();
    if !outgoing.online_only {
        stored.extend(
            matches
                .keys
                .iter()
                .filter(|key| key.stores(guaranteed))
                .cloned(),
        );
    }
    for group in &matches.groups {
        // Only the first key of a group that can take the message takes it (P18).
        for (at, (key, interest)) in group.iter().enumerate() {
            if !outgoing.online_only && interest.stores(guaranteed) {
                if !stored.iter().any(|other| Arc::ptr_eq(other, key)) {
                    stored.push(key.clone());
                }
                if !interest.stores(false) {
                    // Its members get other messages live; they must not overtake this one (P8).
                    batch.held.insert(Arc::as_ptr(key) as usize);
                }
            } else if let Some(listener) = interest.choose(outgoing.content.event) {
                chosen.push((key.clone(), listener));
            } else {
                continue;
            }
            passed_over.push(&group[at + 1..]);
            break;
        }
    }
    let mut placing = Placing::default();
    if !stored.is_empty() {
        let skip = skipped(&passed_over, &stored);
        let append = append(batch, &matches.realm.id, outgoing, &stored, skip);
        placing.append = Some(append);
    } else if guaranteed && !outgoing.online_only {
        matches.realm.unmatched.add(1);
    }
    // A refused guaranteed message reaches nobody, a repeated one neither (P16, P27).
    let guard = placing
        .append
        .filter(|_| guaranteed || outgoing.is_numbered());
    let is_stored =
        |key: &Arc<KeyEntry>| guaranteed && stored.iter().any(|other| Arc::ptr_eq(other, key));
    for key in &matches.keys {
        if key.live.len() > 0 {
            let is_stored = is_stored(key);
            let at = live(member, batch, key, Target::Key, guard, is_stored, outgoing);
            placing.segments.push(at);
        }
    }
    for (key, listener) in chosen {
        let target = Target::One(listener);
        // A queue that is being opened takes what is stored on its key.
        let is_stored = is_stored(&key);
        let at = live(member, batch, &key, target, guard, is_stored, outgoing);
        placing.segments.push(at);
    }
    if outgoing.online_only {
        online(member, batch, matches, outgoing, &mut placing);
    }
    placing
}

/// The groups on keys that were passed over, where somebody else's queue makes the log take the
/// message.
fn skipped(
    passed_over: &[&[(Arc<KeyEntry>, Arc<GroupKey>)]],
    stored: &[Arc<KeyEntry>],
) -> Vec<(Arc<KeyEntry>, Arc<GroupKey>)> {
    let keys = passed_over.iter().copied().flatten();
    keys.filter(|(key, _)| stored.iter().any(|other| Arc::ptr_eq(other, key)))
        .cloned()
        .collect()
}

/// Adds the live copy of one key to the batch; the segment it went into.
pub(super) fn live(
    member: &Member,
    batch: &mut Batch,
    key: &Arc<KeyEntry>,
    target: Target,
    guard: Option<usize>,
    is_guaranteed: bool,
    outgoing: &mut Outgoing<'_>,
) -> usize {
    let address = Arc::as_ptr(key) as usize;
    // What a group's queue takes holds the key for nobody else, but goes before this copy (P8).
    let is_apart = outgoing.online_only || outgoing.is_broadcast;
    let is_behind = is_apart && matches!(target, Target::One(_)) && is_storing(member, batch);
    let waits =
        guard.is_some() || is_behind || batch.held.contains(&address) || member.line.holds(address);
    let keeps = match &target {
        Target::Key => batch.keeps(key) || key.needs_message() || (waits && key.keeps_guaranteed()),
        Target::One(listener) => {
            listener.filter.is_some()
                || listener.detour(outgoing.is_broadcast).is_some()
                || (waits && listener.may_have_queue())
        }
        Target::Seat(..) => true,
    };
    let manner = Manner {
        keeps,
        is_guaranteed,
        guard,
        waits,
        is_untracked: outgoing.is_broadcast,
        expires: outgoing.expires.filter(|_| waits),
    };
    let message = keeps.then(|| outgoing.message());
    batch.add(key, target, manner, &outgoing.content, message.as_ref())
}

/// `ttl: 0` reaches durable subscriptions that are attached now, and is stored for nobody (P15).
fn online(
    member: &Member,
    batch: &mut Batch,
    matches: &Matches,
    outgoing: &mut Outgoing<'_>,
    placing: &mut Placing,
) {
    for key in &matches.keys {
        if key.durable.load(Ordering::Acquire) == 0 {
            continue;
        }
        for slot in key.attached.all().iter() {
            let is_durable = {
                let state = slot.state.lock();
                state.settings.durable && state.settings.group.is_none()
            };
            if let Some(session) = slot.any_session().filter(|_| is_durable) {
                // Behind what the session has stored before (P8).
                let waits = is_storing(member, batch);
                let target = Target::Seat(slot.queue.clone(), session);
                let at = batch.add_seat(key, target, waits, outgoing.message());
                placing.segments.push(at);
            }
        }
    }
}

/// Whether something the session has produced is not stored yet.
fn is_storing(member: &Member, batch: &Batch) -> bool {
    !batch.appends.is_empty() || !member.line.is_idle()
}

/// See [`Broker::flush`].
pub(super) fn flush(broker: &Arc<Broker>, member: &Arc<Member>, batch: &mut Batch) {
    if batch.is_empty() {
        return;
    }
    let mut waits = !batch.appends.is_empty();
    for segment in &mut batch.segments {
        if segment.manner.waits {
            waits = true;
        } else {
            segment.send(member);
        }
    }
    if waits {
        Staged::new(broker, batch).finish(broker, member);
    } else {
        for mut answering in batch.replies.drain(..) {
            let published = answering.published(None, &batch.segments);
            staging::settle(broker, member, answering.reply.take(), Ok(published));
        }
    }
    batch.clear();
}
