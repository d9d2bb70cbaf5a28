//! Renames under way: noted before they begin, so that one that a crash has cut short is finished at the
//! next start. What a realm's messages and requests need for that is their caller's business.

use super::super::load::RENAME;
use super::super::realm::refuse_fixed;
use super::super::{Auth, records};
use crate::Result;
use crate::model::RealmId;
use crate::store::Collection;

fn key(from: &RealmId) -> String {
    format!("{RENAME}{from}")
}

impl Auth {
    /// Notes that a realm is about to get another name.
    ///
    /// # Errors
    /// `bad_command` for `default` and `*`; those of the store.
    pub async fn begin_rename(&self, from: &RealmId, to: &RealmId) -> Result<()> {
        refuse_fixed(from)?;
        refuse_fixed(to)?;
        let (key, to) = (key(from), to.as_str().to_owned());
        self.whole(move |inner| async move {
            let noted = inner.edit(Collection::Settings, &key, |_| Ok(Some(to.clone())));
            noted.await.map(drop)
        })
        .await
    }

    /// It has it, with all that is in it; or keeps its old one.
    ///
    /// # Errors
    /// Those of the store: it is looked at again at the next start then.
    pub async fn end_rename(&self, from: &RealmId) -> Result<()> {
        let key = key(from);
        self.whole(move |inner| async move {
            let ended = inner.edit(Collection::Settings, &key, |_: Option<String>| Ok(None));
            ended.await.map(drop)
        })
        .await
    }

    /// Renames that were begun and not ended: from which name to which, and whether the realm has it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn open_renames(&self) -> Result<Vec<(RealmId, RealmId, bool)>> {
        let Some(keeper) = &self.0.documents else {
            return Ok(Vec::new());
        };
        let now = self.0.clock.now();
        let all = records::all::<serde_json::Value>(&**keeper, Collection::Settings, now);
        let mut open = Vec::new();
        for read in all.await? {
            let to = read.stored.entry.as_ref().and_then(|to| to.as_str());
            let (Some(from), Some(to)) = (read.key.strip_prefix(RENAME), to) else {
                continue;
            };
            let (from, to) = (RealmId::parse(from)?, RealmId::parse(to)?);
            let state = self.0.state.read();
            let has_it = state.realm(&from).is_none() && state.realm(&to).is_some();
            open.push((from, to, has_it));
        }
        Ok(open)
    }
}
