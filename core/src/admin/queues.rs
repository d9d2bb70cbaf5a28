//! Orders about queues and dead letters (admin.md §4.5, P37).

use serde::Serialize;
use serde_json::{Map, Value};

use super::Admin;
use super::command::WhichLetter;
use super::reply::{Done, named, ok, ok_raw};
use super::shapes::{Letter, of_queue};
use crate::model::RealmId;
use crate::store::{DeadLetterId, QueueId};
use crate::{Error, ErrorKind, Result};

/// Between the realm and the id in a cursor: no name holds one (P19).
const BETWEEN: char = '\n';

#[derive(Serialize)]
struct Letters<'a> {
    realm: Option<&'a str>,
    entries: Vec<Letter<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// Where a page ended.
struct Cursor {
    realm: RealmId,
    after: DeadLetterId,
}

impl Cursor {
    fn parse(text: &str) -> Result<Self> {
        let bad = || Error::new(ErrorKind::BadCommand, "cursor is none that a page gave");
        let (realm, id) = text.split_once(BETWEEN).ok_or_else(bad)?;
        Ok(Self {
            realm: RealmId::parse(realm)?,
            after: id.parse().map_err(|_| bad())?,
        })
    }
}

fn unknown() -> Error {
    Error::new(ErrorKind::DeadLetterUnknown, "no such dead letter is known")
}

impl Admin {
    /// Realms in which something may be stored.
    async fn stored_realms(&self) -> Result<Vec<RealmId>> {
        let mut realms = self.broker.store().realms().await?;
        realms.sort();
        Ok(realms)
    }

    pub(super) async fn list_letters(
        &self,
        realm: Option<&RealmId>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<String> {
        let cursor = cursor.map(Cursor::parse).transpose()?;
        let realms = match realm {
            Some(realm) => vec![realm.clone()],
            None => self.stored_realms().await?,
        };
        let start = cursor.as_ref().map(|cursor| cursor.realm.clone());
        let mut letters = Vec::new();
        for realm in realms.iter().filter(|realm| start.as_ref() <= Some(realm)) {
            let is_start = start.as_ref() == Some(realm);
            let after = cursor.as_ref().filter(|_| is_start);
            let after = after.map(|cursor| cursor.after);
            let left = limit + 1 - letters.len();
            letters.extend(self.broker.dead_letters(realm, after, left).await?);
            if letters.len() > limit {
                break;
            }
        }
        let has_more = letters.len() > limit;
        letters.truncate(limit);
        let last = letters.last().filter(|_| has_more);
        let cursor = last.map(|last| format!("{}{BETWEEN}{}", last.realm, last.id));
        ok_raw(&Letters {
            realm: realm.map(RealmId::as_str),
            entries: letters.iter().map(Letter::from).collect(),
            cursor,
        })
    }

    /// The realm of a dead letter: the one that is said, or the one it is in.
    async fn realm_of(&self, letter: &WhichLetter) -> Result<RealmId> {
        if let Some(realm) = &letter.realm {
            return Ok(realm.clone());
        }
        for realm in self.stored_realms().await? {
            if self.has_letter(&realm, letter.id).await? {
                return Ok(realm);
            }
        }
        Err(unknown())
    }

    async fn has_letter(&self, realm: &RealmId, id: DeadLetterId) -> Result<bool> {
        // Ids go up, and the one before need not be there.
        let before = id.seq.checked_sub(1).map(|seq| DeadLetterId { seq, ..id });
        let letters = self.broker.dead_letters(realm, before, 1).await?;
        Ok(letters.first().is_some_and(|letter| letter.id == id))
    }

    pub(super) async fn requeue(&self, letter: &WhichLetter) -> Result<String> {
        let realm = self.realm_of(letter).await?;
        self.broker.requeue(&realm, letter.id).await?;
        let id = letter.id.to_string();
        // It stays the same message; existing clients read the second member.
        Ok(said([("msg_id", id.clone()), ("new_msg_id", id)]))
    }

    pub(super) async fn discard(&self, letter: &WhichLetter) -> Result<String> {
        let realm = self.realm_of(letter).await?;
        self.broker.discard(&realm, letter.id).await?;
        Ok(said([("msg_id", letter.id.to_string())]))
    }

    pub(super) async fn purge_letters(&self, realm: &RealmId) -> Result<Done> {
        let count = self.broker.purge_dead_letters(realm).await?;
        Ok(Done::default().with("purged", count))
    }

    pub(super) async fn queue_stats(&self, realm: Option<&RealmId>) -> Result<String> {
        let realms = match realm {
            Some(realm) => vec![realm.clone()],
            None => self
                .broker
                .stats()
                .into_iter()
                .map(|(realm, _)| realm)
                .collect(),
        };
        let mut queues: Vec<Value> = Vec::new();
        for realm in realms {
            let stats = self.broker.queue_stats(&realm).await?;
            queues.extend(stats.iter().map(|queue| of_queue(&realm, queue)));
        }
        let mut reply = Map::new();
        reply.insert("realm".to_owned(), named(realm));
        reply.insert("queues".to_owned(), queues.into());
        Ok(ok(reply))
    }

    pub(super) async fn release_queue(&self, realm: &RealmId, queue: QueueId) -> Result<Done> {
        self.broker.release_queue(realm, queue).await?;
        Ok(Done::default())
    }
}

fn said<const N: usize>(members: [(&str, String); N]) -> String {
    let members = members.map(|(name, text)| (name.to_owned(), Value::from(text)));
    ok(members.into_iter().collect::<Map<_, _>>())
}
