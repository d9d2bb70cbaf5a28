//! What the calls that read entries make of the answers; entries that cannot be read are set aside.

use std::sync::Arc;

use redis::Value;

use super::*;

pub(super) fn read_page(
    lanes: &Arc<Lanes>,
    lane: &Arc<Lane>,
    queue: QueueId,
    answer: Vec<Value>,
) -> Result<Page> {
    let [head, seqs, messages] = <[Value; 3]>::try_from(answer).map_err(|_| strange())?;
    let mut fields = Fields::of(answers::text(&head)?);
    let (next, end, expired) = (fields.next()?, fields.next::<u8>()? == 1, fields.next()?);
    let sent = fields.next()?;
    let mut damaged = Vec::new();
    let messages = answers::list(messages)?;
    let entries = answers::page_entries(answers::text(&seqs)?, sent, messages, &mut damaged)?;
    set_aside(lanes, lane, queue, &damaged);
    lanes.hub.count(|counters| counters.expired += expired);
    Ok(Page {
        entries,
        next,
        expired,
        end,
    })
}

pub(super) fn read_due(
    lanes: &Arc<Lanes>,
    lane: &Arc<Lane>,
    queue: QueueId,
    answer: Value,
) -> Result<Due> {
    let [head, entries] = <[Value; 2]>::try_from(parts(answer)?).map_err(|_| strange())?;
    let mut fields = Fields::of(answers::text(&head)?);
    let (expired, next) = (fields.next()?, fields.time()?);
    let mut damaged = Vec::new();
    let entries = answers::entries(answers::list(entries)?, 0, &mut damaged)?;
    set_aside(lanes, lane, queue, &damaged);
    lanes.hub.count(|counters| counters.expired += expired);
    Ok(Due {
        entries,
        next,
        expired,
    })
}

pub(super) fn read_browse(
    lanes: &Arc<Lanes>,
    lane: &Arc<Lane>,
    queue: QueueId,
    answer: Value,
) -> Result<Vec<Entry>> {
    let [sent, entries] = <[Value; 2]>::try_from(parts(answer)?).map_err(|_| strange())?;
    let sent = Fields::of(answers::text(&sent)?).next()?;
    let mut damaged = Vec::new();
    let entries = answers::entries(answers::list(entries)?, sent, &mut damaged)?;
    set_aside(lanes, lane, queue, &damaged);
    Ok(entries)
}
