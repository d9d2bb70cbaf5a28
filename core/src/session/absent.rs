//! Verbs of parts that this server does not have: what clients that know them are told
//! (decided 10).

use crate::protocol::outbound;
use crate::{Error, ErrorKind};

use super::replies::Replies;

/// Look-ups, which find nothing.
const LOOK_UPS: &[(&str, &str)] = &[
    ("KEY_LOOKUP", "{\"keys\":[]}"),
    ("PREKEY_TAKE", "{\"found\":false}"),
];

/// Answers a verb that is none of ours, if the client waits for it.
pub(super) fn answer(replies: &Replies, name: &str, reply: Option<u64>) {
    tracing::debug!(event = name, "unknown event");
    let error = Error::new(ErrorKind::Unsupported, format!("this server has no {name}"));
    if name == "REMOTE_TICKET_REQUEST" {
        let payload = format!(
            "{{\"ok\":false,\"code\":{},\"error\":\"{}\"}}",
            error.kind().number(),
            error.code()
        );
        replies.push(|out| outbound::raw_event(out, "REMOTE_TICKET_FAIL", &payload, &[]));
    }
    let Some(id) = reply else { return };
    match LOOK_UPS.iter().find(|(verb, _)| *verb == name) {
        Some((_, nothing)) => replies.push(|out| outbound::raw_reply(out, id, nothing)),
        None => replies.push(|out| outbound::reply_error(out, id, &error)),
    }
}
