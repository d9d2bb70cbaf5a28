//! A Redis client of the user's, in JavaScript: packets of commands go out through the server's port,
//! and come back with [`redis_answer`]. Knows no command; `lib/redis_client.js` unpacks them.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use napi::bindgen_prelude::{Buffer, External};
use napi_derive::napi;
use parking_lot::Mutex;
use restante::store::{Pending, RedisClient};
use restante::{Error, ErrorKind};
use tokio::sync::oneshot;

use crate::port::Port;
use crate::server::Broker;

/// Packets under way at most: the client may keep what it cannot send.
const MOST: usize = 1024;

type Settle = oneshot::Sender<restante::Result<Bytes>>;

/// The Rust end of a client in JavaScript.
pub struct JsRedis {
    port: Arc<Port>,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    waiting: HashMap<u32, Settle>,
    last: u32,
}

fn failed(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::StoreUnavailable, why.into())
}

impl RedisClient for JsRedis {
    fn send(&self, commands: Vec<u8>, count: usize) -> Pending<Bytes> {
        let (settle, answer) = oneshot::channel();
        let id = {
            let mut calls = self.calls.lock();
            if calls.waiting.len() >= MOST {
                return Pending::ready(Err(failed("too much waits for the client already")));
            }
            calls.last = calls.last.wrapping_add(1);
            let id = calls.last;
            calls.waiting.insert(id, settle);
            id
        };
        // The last number says how many binary parts it has.
        self.port.tell(&[commands.into()], &("redis", id, count, 1));
        self.port.ring();
        Pending::waiting(async move {
            let gone = || Err(failed("the client is gone"));
            answer.await.unwrap_or_else(|_| gone())
        })
    }
}

/// The server is to be started with a client of the user's.
#[napi(catch_unwind)]
pub fn use_redis(broker: &External<Broker>) {
    broker.set_redis(Arc::new(JsRedis {
        port: Arc::clone(broker.port()),
        calls: Mutex::default(),
    }));
}

/// Answers a packet: its answers as a RESP array, or why the client has failed.
#[napi(catch_unwind)]
pub fn redis_answer(broker: &External<Broker>, id: u32, answers: Option<Buffer>, failure: String) {
    let Some(redis) = broker.redis() else {
        return;
    };
    let settle = redis.calls.lock().waiting.remove(&id);
    if let Some(settle) = settle {
        let outcome = match answers {
            Some(answers) => Ok(Bytes::copy_from_slice(&answers)),
            None => Err(failed(failure)),
        };
        // Nobody may wait any more.
        let _ = settle.send(outcome);
    }
}
