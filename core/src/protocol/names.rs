//! Every event name, once.
//!
//! Fixed by the clients that exist. Knows no payloads.

/// Client → server: a consumer registers.
pub const CONSUMER: &str = "CONSUMER";
/// Client → server: a producer registers.
pub const PRODUCER: &str = "PRODUCER";
/// Client → server: a subscription begins or its consumer is back.
pub const SUBSCRIBE: &str = "SUBSCRIBE";
/// Client → server: a subscription ends.
pub const UNSUBSCRIBE: &str = "UNSUBSCRIBE";
/// Client → server: a message.
pub const PRODUCE: &str = "PRODUCE";
/// Client → server: a piece of a message.
pub const PRODUCE_CHUNK: &str = "PRODUCE_CHUNK";
/// Client → server: deliveries are done.
pub const ACK: &str = "ACK";
/// Client → server: a delivery failed.
pub const NACK: &str = "NACK";
/// Client → server: a delivery takes longer.
pub const WORKING: &str = "WORKING";
/// Client → server: small talk.
pub const HELLO: &str = "HELLO";
/// Client → server: are you there.
pub const PING: &str = "PING";
/// Client → server: for logs.
pub const DEBUG: &str = "DEBUG";
/// Client → server: close my connection.
pub const QUIT: &str = "QUIT";
/// Client → server: who I am.
pub const AUTHENTICATION: &str = "AUTHENTICATION";
/// Client → server: a management command.
pub const AUTH_MANAGEMENT_COMMAND: &str = "AUTH_MANAGEMENT_COMMAND";
/// Client → server: let me in from now on.
pub const AUTHORIZATION_REQUEST: &str = "AUTHORIZATION_REQUEST";
/// Client → server: who asks to be let in?
pub const AUTHORIZATION_NEXT: &str = "AUTHORIZATION_NEXT";
/// Client → server: let them in, or not.
pub const AUTHORIZATION_DECIDE: &str = "AUTHORIZATION_DECIDE";

/// Server → client: a piece of a delivery.
pub const CONSUME_CHUNK: &str = "CONSUME_CHUNK";
/// Server → client: something was refused.
pub const ERROR: &str = "ERROR";
/// Server → client: an ACK was taken.
pub const ACK_OK: &str = "ACK_OK";
/// Server → client: an ACK was refused.
pub const ACK_FAIL: &str = "ACK_FAIL";
/// Server → client: a NACK was taken.
pub const NACK_OK: &str = "NACK_OK";
/// Server → client: a NACK was refused.
pub const NACK_FAIL: &str = "NACK_FAIL";
/// Server → client: the ack timeout starts anew.
pub const WORKING_OK: &str = "WORKING_OK";
/// Server → client: a WORKING was refused.
pub const WORKING_FAIL: &str = "WORKING_FAIL";
/// Server → client: logged in.
pub const AUTH_OK: &str = "AUTH_OK";
/// Server → client: not logged in, or may not do this.
pub const AUTH_FAIL: &str = "AUTH_FAIL";
/// Server → client: plain messages were dropped for a slow reader (P23).
pub const GAP: &str = "GAP";
/// Server → client: too much in too short a time.
pub const RATE_LIMITED: &str = "RATE_LIMITED";
/// Server → client: answer to a management command.
pub const AUTH_MANAGEMENT_RESULT: &str = "AUTH_MANAGEMENT_RESULT";
/// Server → client: a management command was refused.
pub const AUTH_MANAGEMENT_FAIL: &str = "AUTH_MANAGEMENT_FAIL";
/// Server → client: the request waits for its decision.
pub const AUTHORIZATION_REQUEST_OK: &str = "AUTHORIZATION_REQUEST_OK";
/// Server → client: the request was not taken.
pub const AUTHORIZATION_REQUEST_FAIL: &str = "AUTHORIZATION_REQUEST_FAIL";
/// Server → client: the oldest request that waits.
pub const AUTHORIZATION_NEXT_RESULT: &str = "AUTHORIZATION_NEXT_RESULT";
/// Server → client: the request as it was decided.
pub const AUTHORIZATION_DECIDE_RESULT: &str = "AUTHORIZATION_DECIDE_RESULT";
/// Server → client: nothing was shown or decided.
pub const AUTHORIZATION_FAIL: &str = "AUTHORIZATION_FAIL";
/// Server → client: your request was approved.
pub const AUTHORIZATION_APPROVED: &str = "AUTHORIZATION_APPROVED";
/// Server → client: your request was rejected.
pub const AUTHORIZATION_REJECTED: &str = "AUTHORIZATION_REJECTED";

/// What an old holder of a producer name is told, as the bare payload of [`ERROR`].
pub const PRODUCER_TAKEN_OVER: &str = "The same producer newly joined";
/// The event that means "every event of that producer", in any case.
pub const ALL_EVENTS: &str = "TM-ALL";

/// The event a subscription's messages arrive under; `key` is `Key::wire_name`.
pub fn consume(key: &str) -> String {
    format!("CONSUME-{key}")
}

/// The event a realm broadcast arrives under; `event` in the producer's case.
pub fn broadcast(event: &str) -> String {
    consume(event)
}

/// Tells a producer of a subscription; without its id there is no suffix.
pub fn subscribe_to(producer_id: Option<&str>) -> String {
    match producer_id {
        Some(id) => format!("SUBSCRIBE-TO-{id}"),
        None => "SUBSCRIBE-TO".to_owned(),
    }
}

/// Tells the holder of `id` that its other side is there.
pub fn connect(id: &str) -> String {
    format!("CONNECT-{id}")
}

/// Tells the holder of `id` that its other side is gone.
pub fn disconnect(id: &str) -> String {
    format!("DISCONNECT-{id}")
}

/// Tells a consumer that a producer is there, by the producer's name.
pub fn online(producer: &str) -> String {
    format!("{producer}-ONLINE")
}

/// Tells a producer that a subscription has ended (the name Node clients listen on).
pub fn unsubscribe(producer_id: &str) -> String {
    format!("UNSUBSCRIBE-{producer_id}")
}

/// The same under the name Python clients listen on.
pub fn unsubscribe_event(event: &str, producer_id: &str) -> String {
    format!("UNSUBSCRIBE-{event}-{producer_id}")
}
