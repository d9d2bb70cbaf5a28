//! Rust → JavaScript: one port per endpoint that JavaScript sees.
//!
//! Records are written, joined as JSON, into the batch at the end of a lane; a doorbell that
//! carries nothing rings at most once until JavaScript has emptied the port. JavaScript then takes
//! batch after batch with [`drain`], each as one string to parse. There are two lanes, so that a
//! reader that takes no more deliveries still gets its answers. Binary parts cannot travel in text:
//! they wait beside their batch for [`attachments`].
//!
//! Knows no connection and no server; they push here from threads of their own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use napi::bindgen_prelude::{BufferSlice, Env, External, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{JsString, Status};
use napi_derive::napi;
use parking_lot::Mutex;
use serde::Serialize;

use crate::error::{Result, Told, broken};

/// A batch is closed for more at this many bytes: above about 1 KiB a message, joining stops
/// paying, and one string must not hold up the event loop.
const BATCH_BYTES: usize = 64 * 1024;
/// … or at this many records.
const BATCH_RECORDS: usize = 256;
/// With so many waiting what may be lost is.
const MOST_BATCHES: usize = 16;
/// With more than this waiting no more is wanted …
const HIGH_WATER: usize = 8 << 20;
/// … until less than this waits.
const LOW_WATER: usize = 2 << 20;

/// Weak: an open doorbell does not keep the process alive; JavaScript holds a timer for that.
type Bell = ThreadsafeFunction<(), (), (), Status, false, true>;

/// The inbox of one endpoint.
pub struct Port {
    inbox: Mutex<Inbox>,
    /// Whether the next record must ring.
    armed: AtomicBool,
    /// Bytes of the lane of deliveries that JavaScript has not taken yet.
    waiting: AtomicUsize,
    /// Somebody was told that there is no room, and wants to hear when there is.
    stalled: AtomicBool,
    on_room: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// None once closed: an open bell keeps its callback, and all that reaches, from being
    /// collected.
    bell: Mutex<Option<Bell>>,
}

#[derive(Default)]
struct Inbox {
    control: Lane,
    deliveries: Lane,
    /// The binary parts of the batch taken last.
    taken: Vec<Bytes>,
}

#[derive(Default)]
struct Lane(VecDeque<Batch>);

#[derive(Default)]
struct Batch {
    /// `[record,record` — the closing bracket is written when it is taken.
    text: Vec<u8>,
    records: usize,
    attachments: Vec<Bytes>,
}

impl Batch {
    fn size(&self) -> usize {
        self.text.len() + self.attachments.iter().map(Bytes::len).sum::<usize>()
    }

    fn is_full(&self) -> bool {
        self.records >= BATCH_RECORDS || self.text.len() >= BATCH_BYTES
    }
}

impl Lane {
    /// Adds the record that `write` appends as JSON text, and says how many bytes that were.
    fn push(&mut self, attachments: &[Bytes], write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let mut batch = match self.0.pop_back() {
            Some(last) if !last.is_full() => last,
            last => {
                self.0.extend(last);
                Batch::default()
            }
        };
        let before = batch.text.len();
        batch.text.push(if before == 0 { b'[' } else { b',' });
        write(&mut batch.text);
        batch.records += 1;
        batch.attachments.extend_from_slice(attachments);
        let added = batch.text.len() - before + attachments.iter().map(Bytes::len).sum::<usize>();
        self.0.push_back(batch);
        added
    }
}

impl Port {
    /// Adds a delivery; [`Port::ring`] once all of a read are in.
    pub(crate) fn deliver(&self, attachments: &[Bytes], write: impl FnOnce(&mut Vec<u8>)) {
        let added = self.inbox.lock().deliveries.push(attachments, write);
        self.waiting.fetch_add(added, Ordering::Relaxed);
    }

    /// Adds a control record, an array that starts with its name.
    pub(crate) fn tell(&self, attachments: &[Bytes], record: &impl Serialize) {
        let mut inbox = self.inbox.lock();
        inbox
            .control
            .push(attachments, |out| write_json(out, record));
    }

    /// Adds a control record that may be lost, and rings; it is lost when much waits to be taken.
    pub(crate) fn try_tell(&self, record: &impl Serialize) {
        {
            let lane = &mut self.inbox.lock().control;
            if lane.0.len() >= MOST_BATCHES {
                return;
            }
            lane.push(&[], |out| write_json(out, record));
        }
        self.ring();
    }

    /// Settles the promise that JavaScript keeps under `token`, and rings.
    pub(crate) fn answer<T: Serialize>(&self, token: u32, outcome: restante::Result<T>) {
        match outcome {
            Ok(value) => self.tell(&[], &("ok", token, value)),
            Err(error) => self.tell(&[], &("err", token, Told::from(&error))),
        }
        self.ring();
    }

    /// Rings the doorbell unless JavaScript is already awake.
    pub(crate) fn ring(&self) {
        if !self.armed.swap(false, Ordering::AcqRel) {
            return;
        }
        if let Some(bell) = &*self.bell.lock() {
            // A status other than Ok means that the environment is going away: nobody is left to
            // read the inbox, and its owner is dropped with the environment.
            bell.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    /// Whether JavaScript keeps up. After `false` the callback of [`Port::on_room`] is called.
    pub(crate) fn has_room(&self) -> bool {
        let room = self.waiting.load(Ordering::Relaxed) < HIGH_WATER;
        if !room {
            self.stalled.store(true, Ordering::Release);
        }
        room
    }

    /// Sets who is told, on JavaScript's thread, that there is room again. Only the first counts.
    pub(crate) fn on_room(&self, callback: impl Fn() + Send + Sync + 'static) {
        // A port has one owner, which sets this once.
        let _ = self.on_room.set(Box::new(callback));
    }

    fn took(&self, size: usize) {
        let left = self.waiting.fetch_sub(size, Ordering::Relaxed) - size;
        if left < LOW_WATER
            && self.stalled.swap(false, Ordering::AcqRel)
            && let Some(callback) = self.on_room.get()
        {
            callback();
        }
    }
}

/// Appends `record` as JSON. Records are made of strings, numbers and JSON text, none of which can
/// fail to serialise; one that did would be `null`, which JavaScript skips.
pub(crate) fn write_json(out: &mut Vec<u8>, record: &impl Serialize) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, record).is_err() {
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}

/// Opens a port; `bell` is called without arguments when records wait.
#[napi(catch_unwind)]
pub fn open_port(bell: Function<'_, (), ()>) -> Result<External<Arc<Port>>> {
    let bell = bell
        .build_threadsafe_function::<()>()
        .weak::<true>()
        .build()
        .map_err(broken)?;
    Ok(External::new(Arc::new(Port {
        inbox: Mutex::default(),
        armed: AtomicBool::new(true),
        waiting: AtomicUsize::new(0),
        stalled: AtomicBool::new(false),
        on_room: OnceLock::new(),
        bell: Mutex::new(Some(bell)),
    })))
}

/// Nothing will be taken from this port any more.
#[napi(catch_unwind)]
pub fn close_port(port: &External<Arc<Port>>) {
    let bell = port.bell.lock().take();
    drop(bell);
}

/// The next batch as the text of a JSON array, or an empty string. Control records come first;
/// deliveries only if they are `wanted`.
#[napi(catch_unwind)]
pub fn drain<'env>(
    env: &'env Env,
    port: &External<Arc<Port>>,
    wanted: bool,
) -> Result<JsString<'env>> {
    let mut inbox = port.inbox.lock();
    let mut delivered = 0;
    let batch = match inbox.control.0.pop_front() {
        None if wanted => {
            let batch = inbox.deliveries.0.pop_front();
            delivered = batch.as_ref().map_or(0, Batch::size);
            batch
        }
        control => control,
    };
    let Some(batch) = batch else {
        drop(inbox);
        return env.create_string("").map_err(broken);
    };
    inbox.taken = batch.attachments;
    drop(inbox);
    port.took(delivered);
    let mut text = batch.text;
    text.push(b']');
    if text.is_ascii() {
        return env.create_string_latin1(&text).map_err(broken);
    }
    let text =
        String::from_utf8(text).map_err(|error| napi::Error::new("internal", error.to_string()))?;
    env.create_string(&text).map_err(broken)
}

/// The binary parts of the batch taken last, in the order of its records. Copies: a runtime may
/// forbid buffers over foreign memory.
#[napi(catch_unwind)]
pub fn attachments<'env>(
    env: &'env Env,
    port: &External<Arc<Port>>,
) -> Result<Vec<BufferSlice<'env>>> {
    let taken = std::mem::take(&mut port.inbox.lock().taken);
    taken
        .iter()
        .map(|part| BufferSlice::copy_from(env, part).map_err(broken))
        .collect()
}

/// Arms the doorbell again. `true`: something came in between, and the caller must go on draining.
#[napi(catch_unwind)]
pub fn rearm(port: &External<Arc<Port>>, wanted: bool) -> bool {
    port.armed.store(true, Ordering::SeqCst);
    let inbox = port.inbox.lock();
    let waits = !inbox.control.0.is_empty() || (wanted && !inbox.deliveries.0.is_empty());
    waits && port.armed.swap(false, Ordering::AcqRel)
}
