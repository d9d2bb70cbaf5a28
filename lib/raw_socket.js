'use strict';
// The Socket.IO face of a connection, for code that reaches for `.socket`.
const { EventEmitter } = require('node:events');
const native = require('./native');
const { encode } = require('./binary');
const { RestanteError, call } = require('./errors');

const REPLY_TIMEOUT = 10_000;

class RawSocket extends EventEmitter {
  #owner;

  constructor(owner) {
    super();
    this.#owner = owner;
  }

  get connected() {
    return this.#owner.connected;
  }

  get id() {
    return this.#owner.id();
  }

  /** Sends an event to the server; a function as the last argument gets its reply. */
  emit(name, ...args) {
    this._send(this.#owner._link, name, args);
    return this;
  }

  off(name, listener) {
    return listener === undefined ? this.removeAllListeners(name) : super.off(name, listener);
  }

  connect() {
    this.#owner.connect();
    return this;
  }

  disconnect() {
    this.#owner.disconnect();
    return this;
  }

  close() {
    return this.disconnect();
  }

  _send({ client, port }, name, args) {
    const reply = typeof args.at(-1) === 'function' ? args.pop() : null;
    // As Socket.IO does: a missing argument is null.
    const { text, parts } = encode(args.map((arg) => (arg === undefined ? null : arg)));
    const list = text.slice(1, -1);
    if (reply === null) return call(native.emit, client, name, list, parts, 0, 0);
    port
      .promise((token) => call(native.emit, client, name, list, parts, REPLY_TIMEOUT, token))
      .then((answer) => this.#owner._guard(reply, ...(answer ?? [])), (error) => this.#owner._report(error));
  }

  /** Asks and waits: the first argument of the reply. */
  async _request({ client, port }, name, payload, timeout = REPLY_TIMEOUT) {
    const { text } = encode(payload);
    const answer = await port.promise((token) => call(native.emit, client, name, text, null, timeout, token));
    return answer?.[0] ?? null;
  }

  /** The same, and a no is an error. */
  async _ask(link, name, payload, timeout) {
    const first = await this._request(link, name, payload, timeout);
    if (first?.ok === false) throw new RestanteError({ code: first.error ?? 'internal', number: first.code, message: first.message });
    return first;
  }

  _dispatch(name, ...args) {
    for (const listener of this.rawListeners(name)) this.#owner._guard(listener, ...args);
  }
}

module.exports = { RawSocket };
