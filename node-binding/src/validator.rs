//! A function of the user's that says whose token it is: asked through the server's port under ids of
//! their own, answered with [`validator_answer`]. Holds no rule: how long it may take and what its answer
//! means is the core's affair, what it is called with is in `lib/validator.js`.

use std::collections::HashMap;
use std::sync::Arc;

use napi::bindgen_prelude::External;
use napi_derive::napi;
use parking_lot::Mutex;
use restante::auth::{Answer, Claims, Validator};
use restante::clock::Timestamp;
use tokio::sync::oneshot;

use crate::port::Port;
use crate::server::Broker;

/// The Rust end of the function.
pub struct JsValidator {
    port: Arc<Port>,
    calls: Arc<Mutex<Calls>>,
}

/// Those that are under way; the core bounds how many.
#[derive(Default)]
struct Calls {
    waiting: HashMap<u32, oneshot::Sender<Option<String>>>,
    last: u32,
}

/// Forgets a call that nobody waits for any more.
struct Interest {
    calls: Arc<Mutex<Calls>>,
    id: u32,
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.calls.lock().waiting.remove(&self.id);
    }
}

impl JsValidator {
    fn settle(&self, id: u32, answer: Option<String>) {
        let waiting = self.calls.lock().waiting.remove(&id);
        if let Some(done) = waiting {
            // Nobody may wait any more.
            let _ = done.send(answer);
        }
    }
}

impl Validator for JsValidator {
    fn validate(&self, token: &str, now: Timestamp) -> Answer {
        let (done, answer) = oneshot::channel();
        let id = {
            let mut calls = self.calls.lock();
            // None is under way for so long that the numbers come round.
            calls.last = calls.last.wrapping_add(1);
            let last = calls.last;
            calls.waiting.insert(last, done);
            last
        };
        let interest = Interest {
            calls: Arc::clone(&self.calls),
            id,
        };
        self.port.tell(&[], &("validate", id, token));
        self.port.ring();
        Box::pin(async move {
            let _interest = interest;
            let text = answer.await.ok()??;
            Claims::from_json(text.as_bytes(), now)
        })
    }
}

/// The server is to be started with the function that `lib/validator.js` holds.
#[napi(catch_unwind)]
pub fn use_validator(broker: &External<Broker>) {
    broker.set_validator(Arc::new(JsValidator {
        port: Arc::clone(broker.port()),
        calls: Arc::default(),
    }));
}

/// Answers a call: claims as JSON text, or nothing for a no.
#[napi(catch_unwind)]
pub fn validator_answer(broker: &External<Broker>, id: u32, answer: Option<String>) {
    if let Some(validator) = broker.validator() {
        validator.settle(id, answer);
    }
}
