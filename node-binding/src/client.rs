//! A connection as free functions over a handle: half the cost of methods on a class, and these
//! calls are hot. Converts and calls; what they mean is told at [`restante::client::Connection`].
//!
//! Every call returns at once. What takes time is answered through the connection's port, under
//! the token that JavaScript gave. Called by `lib/link.js`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use napi::bindgen_prelude::{Buffer, External};
use napi_derive::napi;
use parking_lot::Mutex;
use restante::client::{
    Broadcast, ClientEvent, Confirm, Connection, DEFAULT_TIMEOUT, Delivery, Nack, Produce, Settle,
    Sink,
};
use restante::{Error, ErrorKind};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::error::{Result, Told, thrown, unreadable};
use crate::options::{Connect, Extras, Return, Span, Subscription};
use crate::port::Port;
use crate::runtime::Runtime;

/// One connection and what it needs to live.
pub struct Client {
    connection: Connection,
    port: Arc<Port>,
    /// Taken by [`close`]: the thread must not live as long as a forgotten JavaScript object.
    runtime: Mutex<Option<Arc<Runtime>>>,
}

/// Writes what a connection receives into its port.
struct Inlet(Arc<Port>);

impl Sink for Inlet {
    fn delivery(&self, subscription: u32, delivery: Delivery<'_>) {
        self.0.deliver(delivery.attachments, |out| {
            out.push(b'[');
            crate::port::write_json(out, &subscription);
            write_payload(out, &delivery);
            out.push(b']');
        });
    }

    fn batch_end(&self) {
        self.0.ring();
    }

    fn event(&self, event: ClientEvent<'_>) {
        let port = &*self.0;
        match event {
            ClientEvent::Connected {
                socket_id,
                first,
                auth,
            } => port.tell(&[], &("connected", socket_id, first, auth.map(raw))),
            ClientEvent::Disconnected { reason } => port.tell(&[], &("disconnected", reason)),
            ClientEvent::ServerError { payload } => {
                port.tell(&[], &("server_error", raw(payload)));
            }
            ClientEvent::ProduceFailed { error } => {
                port.tell(&[], &("produce_failed", Told::from(error)));
            }
            ClientEvent::Named {
                name,
                payload,
                attachments,
            } => port.tell(
                attachments,
                &("named", name, raw(payload), attachments.len()),
            ),
            ClientEvent::Broadcast { name, delivery } => {
                port.deliver(delivery.attachments, |out| {
                    out.push(b'[');
                    crate::port::write_json(out, &name);
                    write_payload(out, &delivery);
                    out.push(b']');
                })
            }
            ClientEvent::Gap { keys, dropped } => {
                port.tell(&[], &("gap", json!({ "keys": keys, "dropped": dropped })));
            }
            ClientEvent::Takeover => port.tell(&[], &("takeover",)),
            ClientEvent::Drain => port.tell(&[], &("drain",)),
            ClientEvent::Waiting { error } => port.tell(&[], &("waiting", Told::from(error))),
            ClientEvent::Down { error } => port.tell(&[], &("down", Told::from(error))),
            _ => return,
        }
        port.ring();
    }

    fn wants_more(&self) -> bool {
        self.0.has_room()
    }
}

/// The rest of a delivery's record: its payload, and how many binary parts are its own.
fn write_payload(out: &mut Vec<u8>, delivery: &Delivery<'_>) {
    out.push(b',');
    out.extend_from_slice(delivery.payload.as_bytes());
    if !delivery.attachments.is_empty() {
        out.push(b',');
        crate::port::write_json(out, &delivery.attachments.len());
    }
}

/// JSON text as it is; the connection has checked it.
fn raw(text: &str) -> Option<&RawValue> {
    serde_json::from_str(text).ok()
}

/// Copies: JavaScript may go on writing into its buffers.
pub(crate) fn copied(buffers: Option<Vec<Buffer>>) -> Vec<Bytes> {
    let copy = |buffer: &Buffer| Bytes::copy_from_slice(buffer);
    buffers.iter().flatten().map(copy).collect()
}

impl Client {
    /// Answers `token` when `outcome` is there; `runtime` goes on until then.
    fn answer_later<T: Serialize + Send + 'static>(
        &self,
        runtime: Option<Arc<Runtime>>,
        token: u32,
        outcome: impl Future<Output = restante::Result<T>> + Send + 'static,
    ) {
        let port = self.port.clone();
        let Some(runtime) = runtime else {
            let closed = Error::new(ErrorKind::Disconnected, "the connection is closed");
            return port.answer::<T>(token, Err(closed));
        };
        let handle = runtime.handle().clone();
        handle.spawn(async move {
            port.answer(token, outcome.await);
            drop(runtime);
        });
    }
}

/// Opens a connection that puts everything into `port`.
#[napi(catch_unwind)]
pub fn open_connection(port: &External<Arc<Port>>, options: String) -> Result<External<Client>> {
    let connect: Connect = serde_json::from_str(&options).map_err(unreadable)?;
    let (options, identity) = connect.into_options().map_err(|error| thrown(&error))?;
    let runtime = Runtime::shared().map_err(|error| thrown(&error))?;
    let port = Arc::clone(port);
    let connection = {
        let _ambient = runtime.handle().enter();
        Connection::open(options, identity, Arc::new(Inlet(port.clone())))
    };
    let resumed = connection.clone();
    port.on_room(move || resumed.resume());
    Ok(External::new(Client {
        connection,
        port,
        runtime: Mutex::new(Some(runtime)),
    }))
}

/// Answers `token` once connected and registered.
#[napi(catch_unwind)]
pub fn ready(client: &External<Client>, token: u32) {
    let connection = client.connection.clone();
    let runtime = client.runtime.lock().clone();
    client.answer_later(runtime, token, async move { connection.ready().await });
}

/// Subscribes; the number names the subscription in deliveries.
#[napi(catch_unwind)]
pub fn subscribe(client: &External<Client>, options: String, token: u32) -> Result<u32> {
    let asked: Subscription = serde_json::from_str(&options).map_err(unreadable)?;
    let subscribe = asked.into_subscribe().map_err(|error| thrown(&error))?;
    let (id, answer) = client.connection.subscribe(subscribe);
    let port = client.port.clone();
    answer.on(move |outcome| {
        let told = outcome.map(
            |is| json!({ "key": is.key, "consume_event": is.consume_event, "queued": is.queued }),
        );
        port.answer(token, told);
    });
    Ok(id)
}

/// Ends a subscription for good.
#[napi(catch_unwind)]
pub fn unsubscribe(client: &External<Client>, id: u32, purge: bool, token: u32) {
    let port = client.port.clone();
    client.connection.unsubscribe(id, purge).on(move |outcome| {
        let told = outcome.map(|is| json!({ "removed": is.removed, "left": is.left }));
        port.answer(token, told);
    });
}

/// Takes no more of a subscription: a durable one stays at the server, a plain one ends.
#[napi(catch_unwind)]
pub fn detach(client: &External<Client>, id: u32) {
    client.connection.detach(id);
}

/// Sends a message. `token` 0: no confirmation. False above the high-water mark.
#[napi(catch_unwind)]
pub fn produce(
    client: &External<Client>,
    event: String,
    message: String,
    attachments: Option<Vec<Buffer>>,
    options: Option<String>,
    token: u32,
) -> Result<bool> {
    let attachments = copied(attachments);
    let extras: Extras<'_> = match &options {
        None => Extras::default(),
        Some(text) => serde_json::from_str(text).map_err(unreadable)?,
    };
    let produce = Produce {
        event: &event,
        message: Some(&message),
        attachments: &attachments,
        ..request(&extras).map_err(|error| thrown(&error))?
    };
    let timeout = Span::read(extras.timeout.as_ref(), "timeout").map_err(|error| thrown(&error))?;
    let confirm = (token != 0).then(|| confirmation(&client.port, timeout, token));
    client
        .connection
        .produce(&produce, confirm)
        .map_err(|error| thrown(&error))
}

fn request<'a>(extras: &'a Extras<'a>) -> restante::Result<Produce<'a>> {
    let broadcast = match (extras.broadcast.as_deref(), extras.group.as_deref()) {
        (None, _) => None,
        (Some("group"), group) => Some(Broadcast::Group(group.unwrap_or_default())),
        _ => Some(Broadcast::Realm),
    };
    Ok(Produce {
        to: extras.to.as_deref(),
        enc: extras.enc.map(RawValue::get),
        ttl: Span::read(extras.ttl.as_ref(), "ttl")?,
        lifespan: Span::read(extras.lifespan.as_ref(), "lifespan")?,
        guaranteed: extras.guaranteed,
        broadcast,
        id: extras.id.as_deref(),
        headers: extras.headers.map(RawValue::get),
        key: extras.key.as_deref(),
        delay: Span::read(extras.delay.as_ref(), "delay")?,
        deliver_at: extras.deliver_at.map(RawValue::get),
        ..Produce::default()
    })
}

fn confirmation(port: &Arc<Port>, timeout: Option<Duration>, token: u32) -> Confirm {
    let port = port.clone();
    Confirm {
        timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
        settle: Settle::callback(move |outcome: restante::Result<_>| {
            let told = outcome.map(|is: restante::client::Confirmed| {
                json!({
                    "id": is.id, "queued": is.queued, "delivered": is.delivered,
                    "refused": is.refused, "duplicate": is.duplicate, "delayed": is.delayed,
                })
            });
            port.answer(token, told);
        }),
    }
}

/// Acks deliveries: the text of an array of `[msgId, attempt]`.
#[napi(catch_unwind)]
pub fn ack(client: &External<Client>, ids: String) -> Result<()> {
    let ids: Vec<(&str, Option<u32>)> = serde_json::from_str(&ids).map_err(unreadable)?;
    client.connection.ack(ids);
    Ok(())
}

/// Gives a delivery back.
#[napi(catch_unwind)]
pub fn nack(
    client: &External<Client>,
    msg_id: String,
    attempt: Option<u32>,
    options: String,
) -> Result<()> {
    let how: Return = serde_json::from_str(&options).map_err(unreadable)?;
    let delay = Span::read(how.delay.as_ref(), "delay").map_err(|error| thrown(&error))?;
    let nack = Nack {
        delay,
        bury: how.requeue == Some(false),
        reason: how.reason.as_deref(),
    };
    client.connection.nack(&msg_id, attempt, nack);
    Ok(())
}

/// Starts the ack timeout of a delivery anew.
#[napi(catch_unwind)]
pub fn working(client: &External<Client>, msg_id: String, attempt: Option<u32>) {
    client.connection.working(&msg_id, attempt);
}

/// Sends any event; `args` is the text of a JSON array without its brackets. `token` 0: no reply.
#[napi(catch_unwind)]
pub fn emit(
    client: &External<Client>,
    name: String,
    args: String,
    attachments: Option<Vec<Buffer>>,
    timeout_ms: u32,
    token: u32,
) -> Result<()> {
    let attachments = copied(attachments);
    let connection = &client.connection;
    if token == 0 {
        return connection
            .emit(&name, &args, &attachments)
            .map_err(|error| thrown(&error));
    }
    let port = client.port.clone();
    let timeout = Duration::from_millis(timeout_ms.into());
    connection
        .request(&name, &args, &attachments, timeout)
        .on(move |outcome| {
            let reply = outcome.as_deref().map(raw).map_err(Clone::clone);
            port.answer(token, reply);
        });
    Ok(())
}

/// Bytes that wait to be sent.
#[napi(catch_unwind)]
pub fn buffered(client: &External<Client>) -> f64 {
    #[allow(
        clippy::cast_precision_loss,
        reason = "a JavaScript number; exact far beyond any limit"
    )]
    let bytes = client.connection.buffered() as f64;
    bytes
}

/// Answers `token` when nothing waits to be sent.
#[napi(catch_unwind)]
pub fn flush(client: &External<Client>, timeout_ms: u32, token: u32) {
    let connection = client.connection.clone();
    let timeout = Duration::from_millis(timeout_ms.into());
    let runtime = client.runtime.lock().clone();
    client.answer_later(
        runtime,
        token,
        async move { connection.flush(timeout).await },
    );
}

/// Says goodbye and answers `token` when it is over.
#[napi(catch_unwind)]
pub fn close(client: &External<Client>, timeout_ms: u32, token: u32) {
    let connection = client.connection.clone();
    let timeout = Duration::from_millis(timeout_ms.into());
    let runtime = client.runtime.lock().take();
    client.answer_later(
        runtime,
        token,
        async move { connection.close(timeout).await },
    );
}
