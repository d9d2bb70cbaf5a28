'use strict';
// Deliveries as an async iterable. An item is acked when the loop asks for the next one, unless it
// was settled before or `manual_ack` is set. Leaving the loop detaches: the item in hand and those
// not looked at go back to the broker, the durable subscription stays (P5).
const { aborted } = require('./errors');

/** Without ack nothing but this bounds what waits here. */
const MOST = 1024;

class Message {
  #ack;

  constructor({ raw, ack }) {
    this.message = raw.message;
    this.from = raw.from;
    this.event = raw.event;
    this.headers = raw.headers;
    this.msgId = raw.msgId;
    this.delivery_attempt = raw.delivery_attempt;
    this.redelivered = raw.redelivered === true || raw.delivery_attempt > 1;
    Object.defineProperty(this, 'raw', { value: raw });
    this.#ack = ack;
  }

  ack() {
    this.#ack();
  }

  nack(options) {
    this.#ack.nack(options);
  }

  working() {
    this.#ack.working();
  }
}

class MessageStream {
  /** The server's answer to the subscription. */
  ready;
  #subscriber;
  #subscription = null;
  #ready = [];
  #asking = [];
  #current = null;
  #over = false;
  #error = null;
  #manual;
  #signal;
  #onAbort;

  constructor(subscriber, options) {
    this.#subscriber = subscriber;
    this.#manual = Boolean(options?.manual_ack ?? options?.manualAck);
    const signal = options?.signal;
    if (!signal) return;
    this.#signal = signal;
    this.#onAbort = () => this._fail(aborted(signal));
    if (signal.aborted) this._refused(aborted(signal));
    else signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  _opened(answer) {
    this.ready = answer;
    this.#subscription = answer.subscription;
    if (this.#over) this.#detach(); // aborted before it began
  }

  /** It did not come to a subscription. */
  _refused(error) {
    this.ready = Promise.reject(error);
    this.ready.catch(() => {});
    this._fail(error);
  }

  _push(delivery) {
    if (this.#over) return;
    const item = new Message(delivery);
    const asking = this.#asking.shift();
    if (asking) {
      this.#current = item;
      asking.resolve({ value: item, done: false });
      return;
    }
    this.#ready.push(item);
    if (this.#ready.length >= MOST) this.#hold(true);
  }

  /** The connection ends: what is here is given back by the broker. */
  _end() {
    this.#finish(null);
  }

  _fail(error) {
    this.#finish(error);
    this.#detach();
  }

  #finish(error) {
    if (this.#over) return;
    this.#over = true;
    this.#error = error;
    this.#ready = [];
    this.#hold(false);
    this.#signal?.removeEventListener('abort', this.#onAbort);
    for (const { resolve, reject } of this.#asking.splice(0)) {
      if (this.#error === null) resolve({ value: undefined, done: true });
      else reject(this.#take());
    }
  }

  /** The error, once; after it the iteration is merely over. */
  #take() {
    const error = this.#error;
    this.#error = null;
    return error;
  }

  #hold(held) {
    if (this.#subscriber._isOpen) this.#subscriber._link.port.hold(held);
  }

  #detach() {
    if (this.#subscription) this.#subscriber._detach(this.#subscription);
  }

  next() {
    const done = this.#current;
    this.#current = null;
    if (done !== null && !this.#manual) done.ack();
    if (this.#over) {
      if (this.#error !== null) return Promise.reject(this.#take());
      return Promise.resolve({ value: undefined, done: true });
    }
    const item = this.#ready.shift();
    if (item === undefined) return new Promise((resolve, reject) => this.#asking.push({ resolve, reject }));
    if (this.#ready.length === MOST / 4) this.#hold(false);
    this.#current = item;
    return Promise.resolve({ value: item, done: false });
  }

  return(value) {
    this.#finish(null);
    this.#detach();
    return Promise.resolve({ value, done: true });
  }

  throw(error) {
    this.#finish(null);
    this.#detach();
    return Promise.reject(error);
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  async [Symbol.asyncDispose]() {
    await this.return();
  }
}

module.exports = { MessageStream };
