//! Every call of a store as a script and its arguments.

use std::collections::HashMap;

use super::super::claim::{Claim, Hear, Wish};
use super::reads::{read_browse, read_due, read_page};
use super::*;

impl RedisStore {
    /// A change of a queue; `read` runs whether anybody waits or not.
    pub(super) fn change<T: Send + 'static>(
        &self,
        queue: QueueId,
        script: Script,
        args: impl FnOnce() -> Args,
        read: impl FnOnce(&Arc<Lanes>, &Arc<Lane>, Value) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let lane = match self.lane_of(queue) {
            Ok(lane) => lane,
            Err(error) => return Pending::ready(Err(error)),
        };
        let (lanes, known) = (self.lanes.clone(), lane.clone());
        let read = move |value| read(&lanes, &known, value);
        Pending::waiting(self.lanes.ask_for(&lane, script, args(), 0, read))
    }

    fn queue_args(&self, what: &str, now: Timestamp, queue: QueueId) -> Args {
        let mut args = self.args(what, now);
        args.id(queue.0);
        args
    }

    /// One script's worth of a page.
    async fn page_bite(
        lanes: &Arc<Lanes>,
        lane: &Arc<Lane>,
        queue: QueueId,
        args: Args,
    ) -> Result<Page> {
        let answer = parts(lanes.ask(lane, Script::Read, args).await?)?;
        read_page(lanes, lane, queue, answer)
    }
}

/// The first number of a text that may say that there is no such queue.
fn count(value: &Value) -> Result<u64> {
    Fields::of(known(value)?).next()
}

impl Store for RedisStore {
    fn durability(&self) -> Durability {
        self.durability
    }

    fn queues(&self) -> Pending<Vec<QueueRecord>> {
        self.spawn(|lanes| async move { lanes.records().await })
    }

    fn open(&self, spec: QueueSpec, now: Timestamp) -> Pending<QueueRecord> {
        if self.hub().is_closed() {
            return Pending::ready(Err(hub::closed()));
        }
        let lane = self.lanes.of(&spec.realm);
        let mut args = self.args("open", now);
        args.text(&spec.key.encode())
            .number(settings::kind_number(spec.kind).into())
            .text(&spec.name)
            .flag(spec.settings.durable)
            .optional(spec.settings.owner.as_deref())
            .text(&settings::settings_text(&spec.settings));
        let (lanes, opened) = (self.lanes.clone(), lane.clone());
        let read = move |value: Value| match answers::text(&value)? {
            "taken" => Err(settings::owned()),
            text => {
                let record = answers::record(text, spec)?;
                lanes.learn(record.queue, &opened);
                Ok((record, text.ends_with(" 1")))
            }
        };
        let opening = self.lanes.ask_for(&lane, Script::Queues, args, 2, read);
        let lanes = self.lanes.clone();
        Pending::waiting(async move {
            let (record, is_new) = opening.await?;
            if is_new {
                lanes.claims.others.heard(record.queue).await;
            }
            Ok(record)
        })
    }

    fn touch(&self, queue: QueueId, now: Timestamp) -> Pending<()> {
        let args = || self.queue_args("touch", now, queue);
        self.change(queue, Script::Queues, args, |_, _, value| {
            known(&value).map(|_| ())
        })
    }

    fn forget(&self, queue: QueueId, purge: bool) -> Pending<u64> {
        self.forget_queue(queue, purge, None)
    }

    fn evict(&self, queue: QueueId, now: Timestamp) -> Pending<u64> {
        self.forget_queue(queue, true, Some(now))
    }

    fn left_over(&self, queue: QueueId) -> Pending<Option<QueueRecord>> {
        if self.lanes.of_queue(queue).is_none() && !self.hub().is_closed() {
            return Pending::ready(Ok(None));
        }
        let args = || self.queue_args("left_over", Timestamp(0), queue);
        self.about(queue, Script::Read, args, |_, lane, value| match value {
            Value::Array(_) => answers::whole_record(value, &lane.realm()).map(Some),
            _ => Ok(None),
        })
    }

    fn append(&self, batch: Vec<Append>) -> Pending<Vec<Result<Appended>>> {
        if self.hub().is_closed() {
            return Pending::ready(Err(hub::closed()));
        }
        let lost = || Err(trouble::unavailable("the store has ended"));
        let is_one = batch.windows(2).all(|pair| pair[0].realm == pair[1].realm);
        if is_one {
            let answer = self.append_in(batch);
            return Pending::waiting(async move { answer.await.unwrap_or_else(|_| lost()) });
        }
        let total = batch.len();
        let mut realms: HashMap<RealmId, (Vec<usize>, Vec<Append>)> = HashMap::new();
        for (at, item) in batch.into_iter().enumerate() {
            let realm = realms.entry(item.realm.clone()).or_default();
            realm.0.push(at);
            realm.1.push(item);
        }
        let calls: Vec<_> = realms
            .into_values()
            .map(|(places, items)| (places, self.append_in(items)))
            .collect();
        Pending::waiting(async move {
            let mut answers: Vec<Option<Result<Appended>>> = (0..total).map(|_| None).collect();
            for (places, call) in calls {
                // The other realms' items are stored, whatever becomes of these.
                match call.await.unwrap_or_else(|_| lost()) {
                    Ok(found) => {
                        let each = places.into_iter().zip(found);
                        each.for_each(|(at, answer)| answers[at] = Some(answer));
                    }
                    Err(error) => {
                        for at in places {
                            answers[at] = Some(Err(error.clone()));
                        }
                    }
                }
            }
            Ok(answers
                .into_iter()
                .map(|answer| answer.unwrap_or_else(|| Err(strange())))
                .collect())
        })
    }

    fn page(&self, queue: QueueId, after: Seq, limit: PageLimit, now: Timestamp) -> Pending<Page> {
        let head = self.queue_args("page", now, queue);
        let claim = self.lanes.claims.text(queue);
        let args = move |after: Seq, entries: usize, bytes: usize| {
            let mut args = head.clone();
            args.number(after)
                .size(entries.clamp(1, SCRIPT_ENTRIES))
                .size(bytes.min(SCRIPT_BYTES))
                .text(&claim);
            args
        };
        if self.lanes.claims.is_shared(queue) {
            return self.take(queue, limit, now);
        }
        if limit.entries <= SCRIPT_ENTRIES {
            let args = || args(after, limit.entries, limit.bytes);
            return self.about(queue, Script::Read, args, move |lanes, lane, value| {
                read_page(lanes, lane, queue, parts(value)?)
            });
        }
        let lane = match self.lane_of(queue) {
            Ok(lane) => lane,
            Err(error) => return Pending::ready(Err(error)),
        };
        self.spawn(move |lanes| async move {
            let first = args(after, limit.entries, limit.bytes);
            let mut page = Self::page_bite(&lanes, &lane, queue, first).await?;
            let size = |page: &Page| {
                let sizes = page.entries.iter().map(|entry| entry.message.size());
                sizes.sum::<usize>()
            };
            let mut bytes = limit.bytes.saturating_sub(size(&page));
            while !page.end && page.entries.len() < limit.entries && bytes > 0 {
                let left = limit.entries - page.entries.len();
                let next = Self::page_bite(&lanes, &lane, queue, args(page.next, left, bytes));
                let mut next = next.await?;
                bytes = bytes.saturating_sub(size(&next));
                page.entries.append(&mut next.entries);
                page.expired += next.expired;
                (page.next, page.end) = (next.next, next.end);
            }
            Ok(page)
        })
    }

    fn due(&self, queue: QueueId, limit: PageLimit, now: Timestamp) -> Pending<Due> {
        let args = || {
            let mut args = self.queue_args("due", now, queue);
            args.size(limit.entries.clamp(1, SCRIPT_ENTRIES))
                .size(limit.bytes.min(SCRIPT_BYTES))
                .text(&self.lanes.claims.text(queue));
            args
        };
        self.about(queue, Script::Read, args, move |lanes, lane, value| {
            read_due(lanes, lane, queue, value)
        })
    }

    fn update(&self, queue: QueueId, change: QueueChange, now: Timestamp) -> Pending<()> {
        let args = || {
            let mut args = change_args(self.hub(), queue, now, "update");
            args.text(&self.lanes.claims.text(queue)).change(&change);
            args
        };
        let is_burial = !change.bury.is_empty();
        self.change(queue, Script::Change, args, move |lanes, lane, value| {
            let mut fields = Fields::of(known(&value)?);
            let (buried, dropped): (u64, u64) = (fields.next()?, fields.next()?);
            lanes.hub.count(|counters| {
                counters.buried += buried;
                counters.dead_letters_dropped += dropped;
            });
            if is_burial {
                lane.wake_at(now.0.saturating_add(millis(lanes.hub.bounds.dlq_ttl)));
            }
            Ok(())
        })
    }

    fn settle(&self, queue: QueueId, seqs: Vec<Seq>) -> Pending<Vec<Settled>> {
        let args = || {
            let mut args = change_args(self.hub(), queue, Timestamp(0), "settle");
            seqs.iter().for_each(|seq| {
                args.number(*seq);
            });
            args
        };
        self.change(queue, Script::Change, args, |_, _, value| {
            let text = known(&value)?;
            let marks = text.rsplit(' ').next().unwrap_or_default();
            Ok(answers::settled(marks))
        })
    }

    fn depth(&self, queue: QueueId) -> Pending<Depth> {
        let args = || self.queue_args("depth", Timestamp(0), queue);
        self.about(queue, Script::Read, args, |_, _, value| {
            answers::depth(known(&value)?)
        })
    }

    fn realms(&self) -> Pending<Vec<RealmId>> {
        self.spawn(|lanes| async move {
            lanes.load_realms().await?;
            Ok(lanes.names())
        })
    }

    fn realm_depth(&self, realm: &RealmId) -> Pending<Depth> {
        match self.lanes.find(realm) {
            Some(lane) => self.spawn(|lanes| async move { lanes.realm_depth(&lane).await }),
            None => self.spawn(|_| async { Ok(Depth::default()) }),
        }
    }

    fn browse(&self, queue: QueueId, after: Seq, limit: PageLimit) -> Pending<Vec<Entry>> {
        let args = || {
            let mut args = self.queue_args("browse", Timestamp(0), queue);
            args.number(after)
                .size(limit.entries.clamp(1, SCRIPT_ENTRIES))
                .size(limit.bytes.min(SCRIPT_BYTES))
                .text(&self.lanes.claims.text(queue));
            args
        };
        self.about(queue, Script::Read, args, move |lanes, lane, value| {
            read_browse(lanes, lane, queue, value)
        })
    }

    fn purge_queue(&self, queue: QueueId) -> Pending<u64> {
        let args = || self.queue_args("purge_queue", Timestamp(0), queue);
        self.change(queue, Script::Queues, args, |_, _, value| count(&value))
    }

    fn purge_realm(&self, realm: &RealmId) -> Pending<u64> {
        match self.lanes.find(realm) {
            Some(lane) => self.spawn(|lanes| async move { lanes.purge_realm(&lane).await }),
            None => self.spawn(|_| async { Ok(0) }),
        }
    }

    fn rename_realm(&self, from: &RealmId, to: &RealmId) -> Pending<()> {
        let (from, to) = (from.clone(), to.clone());
        self.spawn(|lanes| async move {
            match from == to {
                true => Ok(()),
                false => lanes.rename(&from, &to).await,
            }
        })
    }

    fn delayed(&self, limit: usize, now: Timestamp) -> Pending<(Vec<Delayed>, Option<Timestamp>)> {
        self.spawn(move |lanes| async move { lanes.delayed(limit, now).await })
    }

    fn drop_delayed(&self, ids: Vec<MessageId>) -> Pending<()> {
        self.spawn(|lanes| async move { lanes.drop_delayed(&ids).await })
    }

    fn dead_letters(
        &self,
        realm: &RealmId,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Pending<Vec<DeadLetter>> {
        let mut args = self.args("dead_letters", Timestamp(0));
        args.text(&after.map_or_else(|| "-".to_owned(), answers::letter_name))
            .size(limit.min(SCRIPT_ENTRIES));
        self.about_realm(realm, Script::Read, args, Ok(Vec::new()), |lane, value| {
            let realm = lane.realm();
            let letters = answers::list(value)?.into_iter();
            let letters = letters.map(|value| answers::dead_letter(value, &realm));
            let letters: Vec<_> = letters.collect::<Result<_>>()?;
            Ok(letters.into_iter().flatten().collect())
        })
    }

    fn revive(&self, realm: &RealmId, id: DeadLetterId, now: Timestamp) -> Pending<QueueId> {
        let mut args = self.args("revive", now);
        args.id(id.queue.0).text(&answers::letter_name(id));
        let none = Err(no_dead_letter());
        self.about_realm(realm, Script::Queues, args, none, move |lane, value| {
            known(&value)?;
            lane.wake_at(now.0);
            Ok(id.queue)
        })
    }

    fn discard(&self, realm: &RealmId, id: DeadLetterId) -> Pending<()> {
        let mut args = self.args("discard", Timestamp(0));
        args.text(&answers::letter_name(id));
        let none = Err(no_dead_letter());
        self.about_realm(realm, Script::Queues, args, none, |_, value| {
            known(&value).map(|_| ())
        })
    }

    fn purge_dead_letters(&self, realm: &RealmId) -> Pending<u64> {
        let args = self.args("purge_letters", Timestamp(0));
        self.about_realm(realm, Script::Queues, args, Ok(0), |_, value| count(&value))
    }

    fn probe(&self) -> Pending<()> {
        self.spawn(|lanes| async move {
            let (number, mut link) = lanes.hub.links.get().await?;
            let probed = start::probe(&lanes.hub, &mut link).await;
            if probed.is_err() {
                lanes.hub.links.broken(number);
            }
            probed
        })
    }

    fn maintain(&self, budget: usize, now: Timestamp) -> Pending<Maintained> {
        self.spawn(move |lanes| async move {
            let mut done = lanes.maintain(budget, now).await?;
            done.more |= lanes.documents.sweep(now, budget).await?;
            lanes.sample().await;
            Ok(done)
        })
    }

    fn counters(&self) -> StoreCounters {
        *self.hub().counters.lock()
    }

    fn health(&self) -> StoreHealth {
        let going = self.hub().state.lock().clone();
        StoreHealth {
            holding: going.holding,
            is_degraded: going.is_away || going.is_full,
            last_error: going.last_error,
            warnings: going.warnings,
            figures: vec![
                ("waiting_calls", self.hub().waiting()),
                ("repeated_calls", going.repeats),
            ],
        }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn others(&self) -> usize {
        self.lanes.claims.others.count()
    }

    fn number(&self) -> u16 {
        self.hub().number.load(Ordering::Relaxed)
    }

    fn claim(&self, queue: QueueId, wish: Wish) -> Pending<Claim> {
        self.claim_queue(queue, wish)
    }

    fn release(&self, queue: QueueId, sent: Seq) -> Pending<()> {
        self.release_queue(queue, sent)
    }

    fn listen(&self, hear: Hear) {
        *self.lanes.claims.hear.lock() = Some(hear);
    }

    fn export(&self, after: Option<ExportCursor>, limit: PageLimit) -> Pending<Exported> {
        self.detach(move |lanes| tell::export(lanes, after, limit))
    }

    fn begin_import(&self, replace: bool) -> Pending<()> {
        self.about_copy(move |lanes| async move { take::begin(&lanes, replace).await })
    }

    fn import(&self, records: Vec<Record>) -> Pending<()> {
        self.about_copy(move |lanes| async move { take::import(&lanes, records).await })
    }

    fn end_import(&self) -> Pending<()> {
        self.about_copy(|lanes| async move { take::end(&lanes).await })
    }

    fn lead(&self) -> Pending<()> {
        self.detach(|lanes| async move {
            lanes.takes_copy.store(false, Ordering::Release);
            leads::lead(&lanes.hub).await
        })
    }

    fn remember(&self, realm: &RealmId, marks: Vec<Record>) -> Pending<()> {
        let lane = self.lanes.of(realm);
        let args = take::marks(&marks);
        self.detach(
            move |lanes| async move { lanes.copy(&lane, "remember", args).await.map(|_| ()) },
        )
    }

    fn moved(&self, to: &str) -> Pending<()> {
        let to = to.to_owned();
        self.detach(move |lanes| async move { leads::moved(&lanes.hub, &to).await })
    }

    fn close(&self) -> Pending<()> {
        let (sender, receiver) = oneshot::channel();
        let lanes = self.lanes.clone();
        // No call comes after this one, whenever the lines have ended.
        lanes.hub.close(hub::CLOSING);
        self.lanes.runtime.spawn(async move {
            lanes.close().await;
            let _ = sender.send(());
        });
        Pending::waiting(async move {
            // Without a thread nothing is in line.
            let _ = receiver.await;
            Ok(())
        })
    }
}
