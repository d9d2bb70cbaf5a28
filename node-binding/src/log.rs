//! What the core logs of trouble, told to JavaScript: without this nobody in Node would hear of it.
//!
//! Warnings and errors alone, as `["log", level, text]` to every port that wants them; which logger
//! prints one is decided there (`lib/log.js`).

use std::fmt::{self, Write as _};
use std::sync::{Arc, Once, Weak};

use napi::bindgen_prelude::External;
use napi_derive::napi;
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::port::Port;

static HEARERS: Mutex<Vec<Weak<Port>>> = Mutex::new(Vec::new());
static BEGUN: Once = Once::new();

/// Tells this port what is logged from now on, until it is gone.
#[napi(catch_unwind)]
pub fn hear_log(port: &External<Arc<Port>>) {
    BEGUN.call_once(|| {
        // One that is set already hears what is logged.
        let _ = tracing::subscriber::set_global_default(Log);
    });
    let mut hearers = HEARERS.lock();
    hearers.retain(|hearer| hearer.strong_count() > 0);
    hearers.push(Arc::downgrade(port));
}

struct Log;

impl Subscriber for Log {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        // What befalls a client is told by its events.
        let is_ours =
            of.target().starts_with("restante") && !of.target().starts_with("restante::client");
        is_ours && of.is_event() && *of.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            _ => "warn",
        };
        let mut text = Text::default();
        event.record(&mut text);
        let line = text.message + &text.fields;
        // A port may be let go of here: not under the lock.
        let hearers: Vec<_> = HEARERS.lock().iter().filter_map(Weak::upgrade).collect();
        for port in hearers {
            port.try_tell(&("log", level, &line));
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message, and what stands beside it.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a text does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
