'use strict';
// JavaScript's end of a port: takes what waits in slices that leave the event loop its turn, and
// keeps the promises that records settle. Knows nothing of what the records mean.
const { performance } = require('node:perf_hooks');
const native = require('./native');
const { RestanteError } = require('./errors');

/** Longest slice in milliseconds; handlers run inside it. */
const SLICE = 2;
const FOREVER = 2 ** 31 - 1;

class Port {
  #onRecord;
  #onSlice;
  #waiting = new Map();
  #token = 0;
  #rest = null; // records taken from the addon and not yet handed out: [records, parts, next]
  #held = false;
  #keepAlive = null;
  #refed = true;
  #scheduled = false;
  #ending = false;

  /** `onRecord(record, parts)` gets each record that settles no promise; `parts` is an array of
   *  Buffers of which the record takes its own from the front. `onSlice` runs after each slice. */
  constructor(onRecord, onSlice = () => {}) {
    this.#onRecord = onRecord;
    this.#onSlice = onSlice;
    this.native = native.openPort(() => this.#pump());
  }

  /** Calls `start(token)`, which makes the addon answer under that token. A throw rejects. */
  promise(start) {
    return new Promise((resolve, reject) => {
      const token = this.expect(resolve, reject);
      try {
        start(token);
      } catch (error) {
        this.forget(token);
        reject(error);
      }
    });
  }

  /** A token for an answer that `resolve` or `reject` gets. */
  expect(resolve, reject) {
    do this.#token = (this.#token % 0xffff_ffff) + 1;
    while (this.#waiting.has(this.#token));
    this.#waiting.set(this.#token, { resolve, reject });
    return this.#token;
  }

  /** The answer under `token` is of no interest any more. */
  forget(token) {
    this.#waiting.delete(token);
    this.#finishIfOver();
  }

  /** Promises that are still open. */
  get pending() {
    return this.#waiting.size;
  }

  /** While held, deliveries stay in the addon; answers and events go on. */
  hold(held) {
    if (this.#held === held) return;
    this.#held = held;
    if (!held) this.#later();
  }

  /** Keeps the process alive until `end()` is over, unless told not to by `ref(false)`. */
  wake() {
    this.#keepAlive ??= setInterval(() => {}, FOREVER);
    if (!this.#refed) this.#keepAlive.unref();
  }

  /** Nothing new comes; it is over when the promises that are still open are settled. */
  end() {
    this.#ending = true;
    this.#finishIfOver();
  }

  #finishIfOver() {
    if (!this.#ending || this.#waiting.size > 0) return;
    clearInterval(this.#keepAlive);
    this.#keepAlive = null;
    native.closePort(this.native);
  }

  ref(refed) {
    this.#refed = refed;
    if (refed) this.#keepAlive?.ref();
    else this.#keepAlive?.unref();
  }

  #later() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#pump();
    });
  }

  #pump() {
    const until = performance.now() + SLICE;
    for (;;) {
      if (this.#rest === null && !this.#take()) {
        if (!native.rearm(this.native, !this.#held)) break;
        continue;
      }
      if (!this.#handOut(until)) {
        this.#later();
        break;
      }
    }
    this.#onSlice();
  }

  /** Takes the next batch; false if there is none. */
  #take() {
    const text = native.drain(this.native, !this.#held);
    if (text === '') return false;
    let records;
    try {
      records = JSON.parse(text);
    } catch (error) {
      records = [['broken', `a batch of deliveries could not be read: ${error.message}`]];
    }
    this.#rest = { records, parts: null, next: 0 };
    // Whether a record has binary parts is its last element; ask for them once.
    if (records.some((record) => record !== null && record.length > 2 && typeof record.at(-1) === 'number')) {
      this.#rest.parts = native.attachments(this.native);
    }
    return true;
  }

  /** Hands out what was taken; false when the time is up. */
  #handOut(until) {
    const rest = this.#rest;
    const { records } = rest;
    while (rest.next < records.length) {
      const record = records[rest.next++];
      if (record !== null) this.#give(record, rest);
      if (performance.now() > until && rest.next < records.length) return false;
    }
    this.#rest = null;
    return performance.now() <= until;
  }

  #give(record, rest) {
    const [name, token, value] = record;
    if (name !== 'ok' && name !== 'err') return this.#onRecord(record, rest);
    const waiting = this.#waiting.get(token);
    if (waiting === undefined) return;
    if (name === 'ok') waiting.resolve(value);
    else waiting.reject(new RestanteError(value));
    this.forget(token);
  }
}

module.exports = { Port };
