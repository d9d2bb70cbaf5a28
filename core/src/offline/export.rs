//! Everything a store holds as lines of JSON: a head with the version, a record a line, an end with
//! their count. The same store gives the same lines.

use serde::{Deserialize, Serialize};

use crate::store::{PageLimit, Record, SharedStore};
use crate::{Error, ErrorKind, Result};

use super::Streams;

/// The version of what is written.
pub(super) const VERSION: u32 = 1;
/// Rows between two words of how far it has come.
pub(super) const WORDS: u64 = 50_000;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    /// Always `store`.
    pub(super) restante: String,
    pub(super) version: u32,
}

/// The last line: without it something is missing.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(super) enum Tail {
    End {
        /// Lines between head and end.
        lines: u64,
    },
}

fn written(line: &impl Serialize, streams: &mut Streams<'_>) -> Result<()> {
    let text = serde_json::to_string(line);
    let text = text.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    streams.line(text)
}

/// Writes it all.
pub(super) async fn export(store: &SharedStore, streams: &mut Streams<'_>) -> Result<()> {
    let head = Head {
        restante: "store".to_owned(),
        version: VERSION,
    };
    written(&head, streams)?;
    let damaged = store.counters().damaged;
    let (mut lines, mut word, mut numbers, mut cursor) = (0, WORDS, None, None);
    loop {
        let page = store.export(cursor, PageLimit::default()).await?;
        for record in &page.records {
            // Every page says it.
            if let Record::Numbers { last } = record
                && numbers.replace(*last) == Some(*last)
            {
                continue;
            }
            written(record, streams)?;
            lines += 1;
        }
        if page.left == 0 {
            break;
        }
        cursor = Some(page.next);
        if lines >= word {
            word = lines + WORDS;
            streams.note(format!("{lines} lines written, about {} to go", page.left));
        }
    }
    written(&Tail::End { lines }, streams)?;
    streams.note(format!("{lines} lines written"));
    let damaged = store.counters().damaged - damaged;
    if damaged > 0 {
        streams.note(format!(
            "{damaged} damaged messages were set aside and are not among them"
        ));
    }
    Ok(())
}
