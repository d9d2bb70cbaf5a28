//! What the brokers on one Redis tell each other: that a queue was opened, taken, let go, that a log
//! has grown, and that they live.
//!
//! A connection of its own hears it. What is missed does no harm: the scripts refuse who is wrong,
//! and after every new connection, and from time to time, everything is looked at anew.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use redis::Value;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};

use crate::Result;
use crate::clock::Timestamp;
use crate::model::RealmId;

use super::super::claim::News;
use super::super::documents::Collection;
use super::super::types::{LogId, QueueId};
use super::answers;
use super::claim::SIGNS;
use super::flow;
use super::hub::Hub;
use super::lane::Lane;
use super::lanes::Lanes;
use super::script::Script;
use super::{start, trouble};

/// How long a new subscription waits until all brokers know of it.
const LONGEST: Duration = Duration::from_millis(500);
/// Brokers that share a Redis look at everything anew so often.
const BELT: Duration = Duration::from_secs(60);
/// A new connection takes this long at most.
const CONNECT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);
/// Notices that are looked at together.
const MOST_AT_ONCE: usize = 1_024;
/// Queues of which it is kept who has heard of them.
const MOST_HEARD: usize = 4_096;

/// The other brokers, and what they have heard.
pub(super) struct Others {
    /// When each was last heard.
    alive: Mutex<HashMap<String, Instant>>,
    heard: Mutex<HashMap<QueueId, HashSet<String>>>,
    changed: watch::Sender<()>,
    end: watch::Sender<bool>,
    /// Realms may have other names than are known here.
    is_behind: AtomicBool,
}

impl Default for Others {
    fn default() -> Self {
        Self {
            alive: Mutex::default(),
            heard: Mutex::default(),
            changed: watch::Sender::new(()),
            end: watch::Sender::new(false),
            is_behind: AtomicBool::new(false),
        }
    }
}

impl Others {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.alive.lock().len()
    }

    /// Ends when every other broker has heard of this queue, or does not answer.
    pub(super) async fn heard(&self, queue: QueueId) {
        let mut missing: Vec<String> = self.alive.lock().keys().cloned().collect();
        let deadline = Instant::now() + LONGEST;
        let mut changed = self.changed.subscribe();
        while !missing.is_empty() {
            if let Some(heard) = self.heard.lock().get(&queue) {
                missing.retain(|writer| !heard.contains(writer));
            }
            if missing.is_empty() || timeout_at(deadline, changed.changed()).await.is_err() {
                break;
            }
        }
        self.heard.lock().remove(&queue);
        if !missing.is_empty() {
            // Nobody waits for it again before it gives a sign of life.
            self.alive
                .lock()
                .retain(|writer, _| !missing.contains(writer));
        }
    }

    /// Hears nothing any more.
    async fn ended(&self) {
        // The sender is right here.
        let _ = self.end.subscribe().wait_for(|is_over| *is_over).await;
    }

    /// Ends when so many others are known.
    async fn until(&self, count: usize) {
        let mut changed = self.changed.subscribe();
        while self.count() < count && changed.changed().await.is_ok() {}
    }

    fn note_heard(&self, queue: QueueId, writer: &str) {
        let mut heard = self.heard.lock();
        if heard.len() >= MOST_HEARD {
            heard.clear();
        }
        heard.entry(queue).or_default().insert(writer.to_owned());
        drop(heard);
        self.changed.send_replace(());
    }

    /// Whether it is a new one.
    fn note_alive(&self, writer: &str) -> bool {
        let before = self.alive.lock().insert(writer.to_owned(), Instant::now());
        if before.is_none() {
            self.changed.send_replace(());
        }
        before.is_none()
    }

    fn note_dead(&self, writer: &str) {
        self.alive.lock().remove(writer);
        self.changed.send_replace(());
    }

    /// Whether one has said nothing for so long.
    fn end_silent(&self, lease: Duration) -> bool {
        let mut alive = self.alive.lock();
        let before = alive.len();
        alive.retain(|_, last| last.elapsed() < lease);
        alive.len() < before
    }
}

/// Where all brokers hear.
pub(super) fn channel(hub: &Hub) -> String {
    hub.key("notices")
}

fn channels(hub: &Hub) -> [String; 2] {
    let all = channel(hub);
    let own = format!("{all}:{}", hub.writer);
    [all, own]
}

/// What tells all brokers that a realm has another name: where, and the word.
pub(super) fn renamed(hub: &Hub) -> (String, String) {
    (channel(hub), format!("{} n", hub.writer))
}

/// Begins to listen and to give signs of life.
pub(super) async fn start(lanes: &Arc<Lanes>) -> Result<()> {
    start::number(&lanes.hub).await?;
    let (listens, listening) = oneshot::channel();
    let (hearing, living) = (lanes.clone(), lanes.clone());
    if is_deaf(&lanes.hub) {
        tokio::spawn(async move {
            tokio::select! {
                () = living.claims.others.ended() => {}
                () = look(&living) => {}
            }
        });
        return Ok(());
    }
    tokio::spawn(async move {
        tokio::select! {
            () = hearing.claims.others.ended() => {}
            () = listen(&hearing, listens) => {}
        }
    });
    tokio::spawn(async move {
        tokio::select! {
            () = living.claims.others.ended() => {}
            () = live(&living) => {}
        }
    });
    // Without a link it goes on trying; then nobody is known yet.
    if let Ok(Ok(count)) = timeout(CONNECT, listening).await {
        // A node of a cluster does not know who listens at another one.
        let (count, longest) = match lanes.hub.options.cluster {
            true => (usize::MAX, PAUSE),
            false => (count, LONGEST),
        };
        let _ = timeout(longest, lanes.claims.others.until(count)).await;
    }
    Ok(())
}

/// Tells one other broker, or all of them; how many hear it, as far as is known.
async fn publish(hub: &Hub, to: Option<&str>, text: &str) -> Result<usize> {
    let [all, _] = channels(hub);
    let channel = to.map_or_else(|| all.clone(), |writer| format!("{all}:{writer}"));
    let mut cmd = redis::cmd("PUBLISH");
    cmd.arg(channel).arg(format!("{} {text}", hub.writer));
    let (_, mut link) = hub.links.get().await?;
    match link.one(&cmd).await {
        Ok(Value::Int(count)) => Ok(usize::try_from(count).unwrap_or(0)),
        Ok(_) => Ok(0),
        Err(error) => Err(trouble::said(&error)),
    }
}

/// Whether it can hear nobody: a client that was given knows commands only.
fn is_deaf(hub: &Hub) -> bool {
    hub.options.client.is_some()
}

/// Gives signs of life, and looks at everything anew once in a lease.
async fn look(lanes: &Arc<Lanes>) {
    let lease = lanes.hub.options.lease;
    let mut tick = interval(lease / SIGNS);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Instant::now();
    while !lanes.hub.is_closed() {
        tick.tick().await;
        let _ = timeout(lease / SIGNS, renew(lanes)).await;
        if last.elapsed() >= lease {
            last = Instant::now();
            missed(lanes).await;
        }
    }
}

/// Tells Redis and the others that this broker lives, as often as a lease needs it.
async fn live(lanes: &Arc<Lanes>) {
    let lease = lanes.hub.options.lease;
    let mut tick = interval(lease / SIGNS);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut belt = Instant::now();
    while !lanes.hub.is_closed() {
        tick.tick().await;
        // One that fails is made up for by the next.
        let _ = timeout(lease / SIGNS, renew(lanes)).await;
        let others = &lanes.claims.others;
        // What a dead one was to do is for the others.
        let is_due = belt.elapsed() >= BELT && others.count() > 0;
        if others.end_silent(lease) || is_due || others.is_behind.load(Ordering::Acquire) {
            belt = Instant::now();
            missed(lanes).await;
        }
    }
}

async fn renew(lanes: &Arc<Lanes>) -> Result<()> {
    let hub = &lanes.hub;
    if !is_deaf(hub) {
        publish(hub, None, "h").await?;
    }
    let held = lanes.claims.queues();
    let tags = held.iter().filter_map(|queue| lanes.of_queue(*queue));
    let tags: HashSet<u64> = tags.map(|lane| lane.tag()).collect();
    for tag in tags {
        let mut cmd = redis::cmd("SET");
        cmd.arg(format!("{}n:{}", flow::prefix(hub, tag), hub.writer));
        cmd.arg("1").arg("PX").arg(sign_millis(hub));
        let (_, mut link) = hub.links.get().await?;
        link.one(&cmd)
            .await
            .map_err(|error| trouble::said(&error))?;
    }
    Ok(())
}

/// How long a sign of life holds: so that the others have looked before the lease is over.
pub(super) fn sign_millis(hub: &Hub) -> u64 {
    super::millis(hub.options.lease * 2 / 3)
}

/// Follows realms to their new names; what fails now is tried again with the next sign of life.
async fn follow_names(lanes: &Arc<Lanes>) {
    let followed = timeout(CONNECT, lanes.load_realms()).await;
    let is_behind = !matches!(followed, Ok(Ok(())));
    let others = &lanes.claims.others;
    others.is_behind.store(is_behind, Ordering::Release);
}

/// Everything may have changed without us.
async fn missed(lanes: &Arc<Lanes>) {
    follow_names(lanes).await;
    for lane in lanes.all() {
        lane.wake_at(0);
        lane.holds.store(true, Ordering::Release);
    }
    tell(lanes, News::Missed);
}

pub(super) fn tell(lanes: &Lanes, news: News) {
    let hear = lanes.claims.hear.lock().clone();
    if let Some(hear) = hear {
        hear(news);
    }
}

/// Hears the others; `first` is told how many there are once it does.
async fn listen(lanes: &Arc<Lanes>, first: oneshot::Sender<usize>) {
    let mut first = Some(first);
    let channels = channels(&lanes.hub);
    while !lanes.hub.is_closed() {
        let hub = &lanes.hub;
        let linking = hub.links.hearing(&hub.options, &channels);
        if let Ok(Ok(mut link)) = timeout(CONNECT, linking).await {
            // Who is there says so.
            let count = publish(hub, None, "?").await.unwrap_or(1);
            match first.take() {
                // This one is among them.
                Some(first) => drop(first.send(count.saturating_sub(1))),
                None => missed(lanes).await,
            }
            let mut messages = link.on_message();
            let mut realms = HashMap::new();
            // Our own signs of life come back on a link that works.
            let silence = hub.options.lease;
            while let Ok(Some(first)) = timeout(silence, messages.next()).await {
                let mut texts: Vec<String> = text_of(&first).into_iter().collect();
                while texts.len() < MOST_AT_ONCE
                    && let Some(Some(message)) = messages.next().now_or_never()
                {
                    texts.extend(text_of(&message));
                }
                for text in last_of_each(&texts) {
                    heard(lanes, &mut realms, text).await;
                }
            }
        }
        sleep(PAUSE).await;
    }
}

fn text_of(message: &redis::Msg) -> Option<String> {
    match message.get_payload::<Value>() {
        Ok(Value::BulkString(bytes)) => String::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// Without those that say of a log what a later one says too.
fn last_of_each(texts: &[String]) -> Vec<&str> {
    let mut grown = HashSet::new();
    let mut kept: Vec<&str> = texts.iter().rev().map(String::as_str).collect();
    kept.retain(|text| {
        let words: Vec<&str> = text.split(' ').collect();
        match words.as_slice() {
            [_, "l", tag, log, _] => grown.insert((tag.to_string(), log.to_string())),
            _ => true,
        }
    });
    kept.reverse();
    kept
}

/// Acts on one notice; one that cannot be read is left out.
async fn heard(lanes: &Arc<Lanes>, realms: &mut HashMap<u64, Arc<Lane>>, text: &str) {
    let mut words = text.split(' ');
    let (Some(writer), Some(what)) = (words.next(), words.next()) else {
        return;
    };
    let others = &lanes.claims.others;
    if writer == lanes.hub.writer {
        return;
    }
    if what == "b" {
        others.note_dead(writer);
        return missed(lanes).await;
    }
    let is_new = others.note_alive(writer);
    if what == "?" || (is_new && what == "h") {
        let _ = publish(&lanes.hub, Some(writer), "h").await;
    }
    if what == "n" {
        return follow_names(lanes).await;
    }
    if what == "d" {
        if let Some(collection) = words.next().and_then(Collection::parse) {
            tell(lanes, News::Documents(collection));
        }
        return;
    }
    let mut numbers = words.map(|word| word.parse::<u64>().unwrap_or(0));
    let (first, second) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if what == "a" {
        return others.note_heard(QueueId(first), writer);
    }
    if matches!(what, "h" | "?") {
        return;
    }
    let lane = match realms.get(&first) {
        Some(lane) => lane.clone(),
        None => match lane_of(lanes, first).await {
            Some(lane) => realms.entry(first).or_insert(lane).clone(),
            None => return,
        },
    };
    let (realm, queue) = (lane.realm(), QueueId(second));
    let news = match what {
        "o" => {
            opened(lanes, &lane, queue).await;
            let _ = publish(&lanes.hub, Some(writer), &format!("a {second}")).await;
            return;
        }
        "f" => News::Forgotten(realm, queue),
        "t" | "q" => News::Look(realm, queue),
        "w" => {
            lanes.claims.released(queue);
            News::Look(realm, queue)
        }
        "y" => {
            let ticket = numbers.next().unwrap_or(0);
            if !lanes.claims.is_older(queue, ticket) {
                return;
            }
            News::Wanted(realm, queue)
        }
        "p" => News::Purged(realm, queue),
        "s" => News::Settled(realm, queue, numbers.collect()),
        "l" => News::Grown(realm, LogId(second), numbers.next().unwrap_or(0)),
        _ => News::Missed,
    };
    tell(lanes, news);
}

/// The lane of a realm's number; another broker may have made the realm.
async fn lane_of(lanes: &Arc<Lanes>, tag: u64) -> Option<Arc<Lane>> {
    let find = || {
        let mut all = lanes.all().into_iter();
        all.find(|lane| lane.tag() == tag)
    };
    if let Some(lane) = find() {
        return Some(lane);
    }
    lanes.load_realms().await.ok()?;
    find()
}

/// Tells the broker of a queue as it is.
pub(super) async fn opened(lanes: &Arc<Lanes>, lane: &Arc<Lane>, queue: QueueId) {
    let mut args = lanes.args("record", Timestamp(0));
    args.id(queue.0);
    let answer = lanes.ask(lane, Script::Read, args).await;
    let realm: RealmId = lane.realm();
    let record = answer.and_then(|answer| answers::whole_record(answer, &realm));
    if let Ok(record) = record {
        lanes.learn(queue, lane);
        tell(lanes, News::Opened(Box::new(record)));
    }
}

/// Says goodbye, so that nobody waits for this broker, and ends.
pub(super) async fn leave(lanes: &Lanes) {
    let _ = timeout(PAUSE, publish(&lanes.hub, None, "b")).await;
    lanes.claims.others.end.send_replace(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_log_that_has_grown_the_last_word_is_enough() {
        let said = [
            "w l 1 2 3",
            "w o 1 7",
            "v l 1 2 4",
            "w l 1 5 1",
            "w l 1 2 9",
        ];
        let texts = said.map(str::to_owned);
        assert_eq!(last_of_each(&texts), ["w o 1 7", "w l 1 5 1", "w l 1 2 9"]);
    }
}
