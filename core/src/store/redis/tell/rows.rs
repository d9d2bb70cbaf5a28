//! What is asked for each kind of row, and what its answer adds to a page. Knows no order.

use std::sync::Arc;

use redis::Value;

use crate::Result;
use crate::clock::Timestamp;

use super::super::super::record::{EntryRecord, Gone, Record};
use super::super::super::types::{DeadLetterId, LogId, QueueId, Seq};
use super::super::answers::{self, Fields};
use super::super::args::Args;
use super::super::lane::Lane;
use super::super::lanes::Lanes;
use super::super::script::Script;
use super::super::{set_aside, told};
use super::{Answered, Row, Sheet, Telling, What};

/// Queues of one bite.
const QUEUES: usize = 200;

impl Telling {
    /// What a script is asked for a row; nothing if no script knows more of it.
    pub(super) fn question(
        &self,
        lanes: &Lanes,
        row: &Row,
        (entries, bytes): (usize, usize),
    ) -> Option<(Script, Args)> {
        let with = |what: &str, add: &dyn Fn(&mut Args)| {
            let mut args = Args::new();
            args.text(what);
            add(&mut args);
            Some((Script::Tell, args))
        };
        let letters = |after: Option<DeadLetterId>, most: usize| {
            let mut args = lanes.args("dead_letters", Timestamp(0));
            args.text(&after.map_or_else(|| "-".to_owned(), answers::letter_name))
                .size(most);
            Some((Script::Read, args))
        };
        let exceptions = |queue: QueueId, after: Seq, most: usize| {
            with("exceptions", &|args| {
                args.id(queue.0).number(after).size(most).size(bytes);
            })
        };
        match &row.what {
            What::Realm | What::Cleared | What::Exceptions(_) => None,
            What::Delayed(_) if self.passing.contains(&row.realm) => None,
            What::Log(id) => with("log", &|args| {
                args.id(id.0);
            }),
            What::Queue(id) => with("queue", &|args| {
                args.id(id.0);
            }),
            What::Exception(queue, seq) => exceptions(*queue, seq.saturating_sub(1), 1),
            What::EachException(queue, after) => exceptions(*queue, *after, entries),
            What::Letter(id) => {
                let seq = id.seq.saturating_sub(1);
                letters(Some(DeadLetterId { seq, ..*id }), 1)
            }
            What::EachLetter(after) => letters(*after, entries),
            What::Delayed(id) => with("delayed", &|args| {
                args.id(id.0);
            }),
            What::EachDelayed(after) => with("delayed_from", &|args| {
                match after {
                    Some((due, place)) => args.number(*due).text(place),
                    None => args.text("-").text("-"),
                };
                args.size(entries);
            }),
            What::Mark(instance) => with("mark", &|args| {
                args.text(instance);
            }),
            What::EachMark(used, passed) => with("marks_from", &|args| {
                args.text(used).number(*passed).size(entries);
            }),
            What::Uid(uid) => with("uid", &|args| {
                args.text(uid);
            }),
            What::EachUid(after) => with("uids_from", &|args| {
                args.number(*after).size(entries);
            }),
            What::EachLog(after) => with("logs_from", &|args| {
                args.id(*after);
            }),
            What::EachQueue(after) => with("queues_from", &|args| {
                args.number(*after).size(QUEUES);
            }),
        }
    }

    /// Tells what is known without asking.
    pub(super) fn tell_realm(&mut self, row: Row, lane: &Lane, sheet: &mut Sheet) {
        let realm = row.realm;
        match row.what {
            What::Exceptions(queue) => {
                sheet.put(Record::Gone(Gone::Exceptions { queue: queue.0 }));
                self.add(realm, What::EachException(queue, 0));
            }
            // What the walk has not passed yet it meets in its place.
            What::Delayed(_) => self.turns.add(row),
            what => {
                if what == What::Cleared {
                    sheet.put(Record::Gone(Gone::Realm { realm }));
                }
                let name = lane.realm();
                sheet.put(Record::Realm {
                    realm,
                    name: name.as_str().into(),
                });
            }
        }
    }

    pub(super) async fn take_log(
        &mut self,
        lanes: &Arc<Lanes>,
        id: LogId,
        answered: Answered,
        sheet: &mut Sheet,
    ) -> Result<()> {
        let Answered {
            realm,
            lane,
            answer,
        } = answered;
        let Some(log) = told::log(answer, id, realm)? else {
            self.logs.remove(&id);
            sheet.put(Record::Gone(Gone::Log { log: id.0 }));
            return Ok(());
        };
        let head = log.head.seq;
        sheet.put(Record::Log(log));
        let after = self.logs.get(&id).map_or(0, |(told, _)| *told);
        let (most, bytes) = sheet.room();
        let mut args = Args::new();
        args.text("entries").id(id.0);
        args.number(after).size(most).size(bytes);
        let answer = lanes.ask(&lane, Script::Tell, args).await?;
        let Some((told, entries)) = told::entries(answer)? else {
            // It has gone since; that is noted.
            self.logs.insert(id, (after, after));
            return Ok(());
        };
        let mut damaged = Vec::new();
        for (sums, message) in entries {
            match message {
                Some(Ok(message)) => sheet.put(Record::Entry(EntryRecord {
                    log: id.0,
                    sums,
                    message,
                })),
                Some(Err(_)) => damaged.push(sums.seq),
                // It is let go.
                None => {}
            }
        }
        if !damaged.is_empty() {
            lanes.spoil(&lane, id, &damaged).await?;
        }
        self.logs.insert(id, (told, head.max(told)));
        if told < head {
            self.add(realm, What::Log(id));
        }
        Ok(())
    }

    pub(super) async fn take_queue(
        &mut self,
        lanes: &Arc<Lanes>,
        id: QueueId,
        answered: Answered,
        sheet: &mut Sheet,
    ) -> Result<()> {
        let Answered {
            realm,
            lane,
            answer,
        } = answered;
        let Some(queue) = told::Told::read(answer)? else {
            self.queues.remove(&id);
            sheet.put(Record::Gone(Gone::Queue { queue: id.0 }));
            return Ok(());
        };
        let log = LogId(queue.log);
        if !self.logs.contains_key(&log) {
            self.add(realm, What::Log(log));
            self.add(realm, What::Queue(id));
            return Ok(());
        }
        if self.queues.insert(id) && queue.exceptions > 0 {
            self.add(realm, What::EachException(id, 0));
        }
        let guaranteed = match queue.unclear() {
            Some((after, upto)) => lanes.guaranteed(&lane, log, after, upto).await?,
            None => Vec::new(),
        };
        sheet.put(Record::Queue(Box::new(queue.record(id, &guaranteed)?)));
        Ok(())
    }

    pub(super) fn take(
        &mut self,
        lanes: &Arc<Lanes>,
        what: What,
        answered: Answered,
        sheet: &mut Sheet,
    ) -> Result<()> {
        let Answered {
            realm,
            lane,
            answer,
        } = answered;
        match what {
            What::Exception(queue, seq) => {
                let mut rows = told::exceptions(answer, queue)?;
                rows.retain(|(at, _)| *at == seq);
                if rows.is_empty() {
                    let queue = queue.0;
                    sheet.put(Record::Gone(Gone::Exception { queue, seq }));
                }
                put_exceptions(lanes, &lane, queue, rows, sheet);
            }
            What::EachException(queue, _) => {
                let rows = told::exceptions(answer, queue)?;
                if let Some((last, _)) = rows.last() {
                    self.add(realm, What::EachException(queue, *last));
                }
                put_exceptions(lanes, &lane, queue, rows, sheet);
            }
            What::Letter(id) => {
                let mut rows = told::letters(answer, realm, &lane.realm())?;
                rows.retain(|(at, _)| *at == id);
                if rows.is_empty() {
                    sheet.put(Record::Gone(Gone::Letter {
                        realm,
                        queue: id.queue.0,
                        seq: id.seq,
                    }));
                }
                rows.into_iter()
                    .filter_map(|(_, row)| row)
                    .for_each(|row| sheet.put(row));
            }
            What::EachLetter(_) => {
                let rows = told::letters(answer, realm, &lane.realm())?;
                if let Some((last, _)) = rows.last() {
                    self.add(realm, What::EachLetter(Some(*last)));
                }
                rows.into_iter()
                    .filter_map(|(_, row)| row)
                    .for_each(|row| sheet.put(row));
            }
            what => self.take_more(what, realm, answer, sheet)?,
        }
        Ok(())
    }

    fn take_more(
        &mut self,
        what: What,
        realm: u64,
        answer: Value,
        sheet: &mut Sheet,
    ) -> Result<()> {
        match what {
            What::Delayed(id) => {
                let rows = told::delayed(answer, realm)?;
                if rows.is_empty() {
                    sheet.put(Record::Gone(Gone::Delayed { message: id.0 }));
                }
                rows.into_iter()
                    .filter_map(|(_, row)| row)
                    .for_each(|row| sheet.put(row));
            }
            What::EachDelayed(_) => {
                let rows = told::delayed(answer, realm)?;
                match rows.last() {
                    Some((last, _)) => self.add(realm, What::EachDelayed(Some(last.clone()))),
                    None => {
                        self.passing.remove(&realm);
                    }
                }
                rows.into_iter()
                    .filter_map(|(_, row)| row)
                    .for_each(|row| sheet.put(row));
            }
            What::Mark(_) => {
                let rows = told::marks(answer, realm)?;
                rows.into_iter().for_each(|row| sheet.put(row));
            }
            What::EachMark(..) => {
                let (next, rows) = told::with_next(answer)?;
                if let Some((used, passed)) = next.split_once(' ') {
                    let passed = Fields::of(passed).next()?;
                    self.add(realm, What::EachMark(used.into(), passed));
                }
                let rows = told::marks(rows, realm)?;
                rows.into_iter().for_each(|row| sheet.put(row));
            }
            What::Uid(_) => {
                let rows = told::uids(answer, realm)?;
                rows.into_iter().for_each(|row| sheet.put(row));
            }
            What::EachUid(_) => {
                let (next, rows) = told::with_next(answer)?;
                if next != "-" {
                    self.add(realm, What::EachUid(Fields::of(&next).next()?));
                }
                let rows = told::uids(rows, realm)?;
                rows.into_iter().for_each(|row| sheet.put(row));
            }
            What::EachLog(_) => {
                let (next, ids) = told::with_next(answer)?;
                for id in told::ids(&ids)? {
                    self.add(realm, What::Log(LogId(id)));
                }
                if next != "0" {
                    self.add(realm, What::EachLog(Fields::of(&next).next()?));
                }
            }
            What::EachQueue(_) => {
                let ids = told::ids(&answer)?;
                for id in &ids {
                    self.add(realm, What::Queue(QueueId(*id)));
                }
                if let Some(last) = ids.last() {
                    self.add(realm, What::EachQueue(*last));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn put_exceptions(
    lanes: &Arc<Lanes>,
    lane: &Arc<Lane>,
    queue: QueueId,
    rows: Vec<(Seq, Option<Record>)>,
    sheet: &mut Sheet,
) {
    let mut damaged = Vec::new();
    for (seq, row) in rows {
        match row {
            Some(row) => sheet.put(row),
            None => damaged.push(seq),
        }
    }
    set_aside(lanes, lane, queue, &damaged);
}
