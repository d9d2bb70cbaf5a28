//! What telling and taking copies ask of the lanes. Knows no row.

use std::sync::Arc;

use redis::Value;

use crate::Result;
use crate::clock::Timestamp;
use crate::model::RealmId;

use super::super::types::{LogId, Seq};
use super::answers::{self, Fields, strange};
use super::args::Args;
use super::lane::Lane;
use super::lanes::{Lanes, ROWS};
use super::names;
use super::script::Script;

impl Lanes {
    /// A call of `copy.lua`.
    pub(super) async fn copy(&self, lane: &Arc<Lane>, what: &str, more: Args) -> Result<Value> {
        let mut args = Args::new();
        args.text(what).overflow(&self.hub.bounds);
        args.join(&more);
        self.ask(lane, Script::Copy, args).await
    }

    /// Seq and number of the guaranteed entries between two places of a log.
    pub(super) async fn guaranteed(
        &self,
        lane: &Arc<Lane>,
        log: LogId,
        after: Seq,
        upto: Seq,
    ) -> Result<Vec<(Seq, u64)>> {
        let (mut found, mut at) = (Vec::new(), after);
        while at < upto {
            let mut args = Args::new();
            args.text("guaranteed").id(log.0).number(at).number(upto);
            let answer = self.ask(lane, Script::Tell, args).await?;
            let Value::Array(parts) = answer else {
                break;
            };
            let [looked, pairs] = parts.as_slice() else {
                return Err(strange());
            };
            let mut fields = answers::text(pairs)?.split_ascii_whitespace();
            let read = |field: &str| field.parse::<u64>().map_err(|_| strange());
            while let (Some(seq), Some(number)) = (fields.next(), fields.next()) {
                found.push((read(seq)?, read(number)?));
            }
            let looked = Fields::of(answers::text(looked)?).next()?;
            if looked <= at {
                break;
            }
            at = looked;
        }
        Ok(found)
    }

    /// Takes entries whose messages cannot be read from all readers of their log (P7).
    pub(super) async fn spoil(&self, lane: &Arc<Lane>, log: LogId, seqs: &[Seq]) -> Result<()> {
        tracing::error!(
            realm = %lane.realm(), log = log.0, ?seqs,
            "stored messages are damaged; they are set aside"
        );
        let mut args = Args::new();
        args.id(log.0);
        seqs.iter().for_each(|seq| {
            args.number(*seq);
        });
        self.copy(lane, "spoil", args).await?;
        // Nothing else is so old.
        let upkeep = self.upkeep(ROWS, Timestamp(1));
        let answer = self.ask(lane, Script::Maintain, upkeep).await?;
        let mut fields = Fields::of(answers::text(&answer)?);
        let (_, _): (u64, u64) = (fields.next()?, fields.next()?);
        let lost = fields.next::<u64>()?;
        self.hub.count(|counters| counters.damaged += lost);
        Ok(())
    }

    /// The lane of a realm that another store has told of.
    pub(super) fn new_lane(&self, realm: RealmId, tag: u64) -> Arc<Lane> {
        Lane::new(self.hub.clone(), self.runtime.clone(), realm, Some(tag))
    }

    /// A realm has come, or has another name now.
    pub(super) fn enter(&self, lane: &Arc<Lane>, name: RealmId) {
        let mut realms = self.realms.write();
        let before = std::mem::replace(&mut *lane.name.write(), name.clone());
        if realms
            .get(&before)
            .is_some_and(|found| Arc::ptr_eq(found, lane))
        {
            realms.remove(&before);
        }
        realms.insert(name, lane.clone());
    }

    /// A realm has gone.
    pub(super) async fn leave(&self, lane: &Arc<Lane>) -> Result<()> {
        let name = lane.realm();
        self.realms.write().remove(&name);
        let (_, mut link) = self.hub.links.get().await?;
        names::drop(&self.hub, &mut link, Some(&name)).await
    }

    /// Nothing is known any more.
    pub(super) fn leave_all(&self) {
        self.realms.write().clear();
        self.queues.write().clear();
    }
}
