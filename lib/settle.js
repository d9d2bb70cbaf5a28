'use strict';
// The `ack` that handlers get, and the acks on their way to the connection. One for each opened
// connection of a subscriber.
const native = require('./native');
const { RestanteError, call } = require('./errors');
const { nackOptions } = require('./options');

class Settler {
  #owner;
  #acks = [];
  #stop = new AbortController();

  constructor(owner) {
    this.#owner = owner;
    /** For deliveries that need no ack: does nothing. */
    this.plain = Object.assign((callback) => this.#tell(callback), { nack() {}, working() {}, signal: this.#stop.signal });
  }

  /** What settles this delivery; only its first settlement counts. */
  ackOf({ msgId: id, delivery_attempt: attempt }) {
    let settled = false;
    const ack = (callback) => {
      if (!settled) {
        settled = true;
        // Those of one turn leave in one frame.
        if (this.#acks.push([id, attempt]) === 1) queueMicrotask(() => this.#flush());
      }
      this.#tell(callback);
    };
    ack.nack = (options) => {
      if (settled) return;
      const text = JSON.stringify(nackOptions(options));
      this.#withClient((client) => call(native.nack, client, id, attempt, text));
      settled = true;
    };
    ack.working = () => {
      if (!settled) this.#withClient((client) => native.working(client, id, attempt));
    };
    ack.signal = this.#stop.signal;
    return ack;
  }

  /** Nobody waits for handlers any longer. */
  end() {
    this.#stop.abort(new RestanteError({ code: 'disconnected', message: 'the connection is closing' }));
    this.#flush();
  }

  #flush() {
    const acks = this.#acks;
    this.#acks = [];
    if (acks.length > 0) this.#withClient((client) => native.ack(client, JSON.stringify(acks)));
  }

  /** Without a connection the delivery has been given back already. */
  #withClient(use) {
    const link = this.#owner._anyLink;
    if (link !== null) use(link.client);
  }

  #tell(callback) {
    if (typeof callback === 'function') this.#owner._guard(callback);
  }
}

module.exports = { Settler };
