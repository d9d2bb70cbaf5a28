'use strict';
// One connection as users see it: base of Subscriber and Publisher. The connection itself, with
// its reconnects, lives in the core; this turns its records into calls of listeners.
const { EventEmitter } = require('node:events');
const native = require('./native');
const { DEFAULT_PORT } = require('./constants');
const { RestanteError, call } = require('./errors');
const { closeOptions, milliseconds, read, kinds } = require('./options');
const { Port } = require('./port');
const { RawSocket } = require('./raw_socket');

const CLOSE_TIMEOUT = 5000;
/** What the wire says to a producer whose name another session registers. */
const TAKEOVER = 'The same producer newly joined';
/** Names of our own events, which no server can trigger by sending one of that name. */
const OWN = new Set(['connect', 'disconnect', 'error', 'gap', 'broadcast', 'takeover', 'drain', 'newListener', 'removeListener']);

class Socket extends EventEmitter {
  #link = null;
  #id = undefined;
  #callbacks = [];
  #closing = null;

  constructor(name) {
    super();
    this.name = name;
    this.alias = null;
    this.logger = console;
    this.auth = null;
    this.authInfo = null;
    this.host = null;
    this.port = null;
    this.protocol = null;
    this.args = {};
    this.settings = {};
    this.connectString = null;
    this.connected = false;
    this.autoreconnect = true;
    this.onDisconnectListener = null;
    /** What Socket.IO users expect: `.on`, `.emit`, `.connected`, `.id`. */
    this.socket = new RawSocket(this);
    this.onError = (message) => this.logger.error?.(`restante: ${this.name ?? 'socket'}: ${textOf(message)}`);
  }

  /** Connects, and calls back now and after each reconnect. Values given first stay. */
  connect(callback, port, host, protocol, args) {
    if (this.#closing !== null) return this.#closing.then(() => this.connect(callback, port, host, protocol, args));
    if (typeof callback === 'function') {
      this.#callbacks.push(callback);
      if (this.connected) this._guard(callback);
    }
    this.port ??= port ?? null;
    this.host ??= host ?? null;
    this.protocol ??= protocol ?? null;
    if (args) this.args = args;
    if (this.#link === null) this.#open();
    return this.#link.ready;
  }

  connectWith(callback, url, args) {
    const { protocol, hostname, port } = new URL(url ?? this.generateConnectionUrl());
    this.connectString = url;
    return this.connect(callback, port === '' ? undefined : Number(port), hostname.replace(/^\[|\]$/g, ''), protocol.slice(0, -1), args);
  }

  /** Waits for the login that `auth` asks for. */
  authenticate(callback) {
    const ready = this.connect();
    if (typeof callback !== 'function') return ready;
    ready.then(() => this._guard(callback, null, this.authInfo), (error) => this._guard(callback, error));
  }

  #open() {
    const options = this._connectOptions();
    const port = new Port((record, rest) => this.#onRecord(record, rest));
    const client = call(native.openConnection, port.native, JSON.stringify(options));
    const ready = port.promise((token) => native.ready(client, token));
    port.wake();
    this.#closing = null;
    const link = { port, client, ready, told: null };
    this.#link = link;
    ready.catch((error) => {
      if (this.#link === link && this.#closing === null) this.#onDown(error);
    });
    this._onOpen();
  }

  /** What the addon needs to connect; subclasses add who they are. */
  _connectOptions() {
    const { env } = process;
    const { ca, path, reconnectionDelay, reconnectionDelayMax, timeout, reconnection } = this.args ?? {};
    if (reconnection === false) this.autoreconnect = false;
    const { connect_timeout_ms, offline, max_message_bytes, once, reconnect } = this.settings;
    const auth = this.auth && read(this.auth, AUTH, 'auth.');
    if (auth && 'timeout' in auth) auth.timeout_ms = auth.timeout;
    const ms = (value) => (value === undefined ? undefined : `${value}ms`);
    return {
      host: this.host ?? (env.RESTANTE_HOST || env.TYO_MQ_HOST || 'localhost'),
      port: portNumber(this.port ?? (env.RESTANTE_PORT || env.TYO_MQ_PORT || DEFAULT_PORT)),
      protocol: this.protocol ?? 'http',
      ca: this.settings.ca ?? (Buffer.isBuffer(ca) ? ca.toString() : ca),
      path,
      auth: auth && Object.keys(auth).length > 0 ? auth : undefined,
      connect_timeout_ms: connect_timeout_ms ?? (timeout === undefined || timeout === null ? undefined : kinds.finite(timeout, 'timeout')),
      reconnect: { min: ms(reconnectionDelay), max: ms(reconnectionDelayMax), ...reconnect },
      offline,
      once,
      max_message_bytes,
    };
  }

  /** The link was opened; nothing is connected yet. */
  _onOpen() {}

  /** A delivery: `id` of the subscription, or the event's name of a broadcast. */
  _onDelivery() {}

  /** An event of the server that is not ours: true if it was taken. */
  _onNamed() {}

  #onRecord(record, rest) {
    const [kind, first, second] = record;
    switch (kind) {
      case 'connected': return this.#onConnected(record);
      case 'disconnected': return this.#onDisconnected(first);
      case 'named': return this.#onNamedRecord(record, rest);
      case 'server_error': return this.#onServerError(first);
      case 'produce_failed': return this._report(new RestanteError(first));
      case 'gap': return this._emit('gap', first);
      case 'takeover': return this.#onTakeover();
      case 'drain': return this._emit('drain');
      case 'waiting': return this.#tell(new RestanteError(first));
      case 'down': return this.#onDown(new RestanteError(first));
      case 'broken': return this._report(new RestanteError({ code: 'internal', message: first }));
      default: return this._onDelivery(kind, first, second ? rest.parts.splice(0, second) : null);
    }
  }

  #onConnected([, id, , authInfo]) {
    this.#id = id;
    this.connected = true;
    if (authInfo) this.authInfo = authInfo;
    this._emit('connect');
    this.socket._dispatch('connect');
    for (const callback of [...this.#callbacks]) this._guard(callback);
  }

  #onDisconnected(reason) {
    if (!this.connected) return;
    this.connected = false;
    this._emit('disconnect', reason);
    this.socket._dispatch('disconnect', reason);
    if (typeof this.onDisconnectListener === 'function') this._guard(this.onDisconnectListener, reason);
    if (!this.autoreconnect) this.disconnect();
  }

  #onNamedRecord([, name, payload, count], rest) {
    const data = count > 0 ? require('./binary').restore(payload, rest.parts.splice(0, count)) : payload;
    if (name === 'AUTH_FAIL') this.#onRefused(data);
    this._onNamed(name, data);
    this._dispatch(name, data);
  }

  #onServerError(payload) {
    if (payload === TAKEOVER) return; // told by a record of its own
    const told = typeof payload === 'object' && payload !== null ? payload : { message: String(payload) };
    const error = new RestanteError({ code: told.error ?? 'server_error', number: told.code, message: textOf(payload) });
    if (this.#link !== null) this.#link.told = error.code;
    this.socket._dispatch('ERROR', payload);
    if (!this._emit('error', error)) this._guard(this.onError, payload);
  }

  /** What this session may not do, or no longer: the verb was dropped. */
  #onRefused(data) {
    const { code, error, message } = data ?? {};
    const told = new RestanteError({ code: error ?? (code === 403 ? 'forbidden' : 'unauthenticated'), number: code, message: message ?? 'not allowed' });
    if (!this._emit('error', told)) this._guard(this.onError, told.message);
  }

  #onTakeover() {
    this.socket._dispatch('ERROR', TAKEOVER);
    if (!this._emit('takeover')) this._guard(this.onError, TAKEOVER);
  }

  /** It stays down. */
  #onDown(error) {
    const link = this.#link;
    if (link === null) return;
    this.#onDisconnected(error.message);
    this.#link = null;
    link.port.end();
    this._onDown(error);
    // One fault is one callback: an ERROR of the server may have told it.
    if (link.told !== error.code) this.#tell(error);
  }

  _onDown() {}

  /** An event under its wire name to listeners on this object and on `.socket`. */
  _dispatch(name, data) {
    if (!OWN.has(name)) this._emit(name, data);
    this.socket._dispatch(name, data);
  }

  #tell(error) {
    if (!this._emit('error', error)) this._guard(this.onError, error.message);
  }

  /** Something went wrong that no caller is told of. */
  _report(error) {
    if (!this._emit('error', error)) this.logger.warn?.(`restante: ${this.name}: ${error.message}`);
  }

  /** Calls the listeners of `name`; a throwing one harms nobody else (P26). False: there is none. */
  _emit(name, ...args) {
    const listeners = this.listeners(name);
    if (listeners.length === 0) return false;
    for (const listener of this.rawListeners(name)) this._guard(listener, ...args);
    return true;
  }

  /** Calls a user's function; what it throws or rejects with is reported, never fatal. */
  _guard(fn, ...args) {
    const failed = (error) => this.logger.error?.('restante: a listener failed:', error);
    try {
      const result = fn.apply(this, args);
      if (typeof result?.then === 'function') result.then(undefined, failed);
    } catch (error) {
      failed(error);
    }
  }

  /** The open link. @throws `disconnected` if there is none. */
  get _link() {
    if (this.#link === null || this.#closing !== null) {
      throw new RestanteError({ code: 'disconnected', message: 'not connected: call connect() first' });
    }
    return this.#link;
  }

  /** The link while there is one, also while it closes; else null. */
  get _anyLink() {
    return this.#link;
  }

  get _isOpen() {
    return this.#link !== null && this.#closing === null;
  }

  /** Without a listener: removes all of that event. */
  off(event, listener) {
    return listener === undefined ? this.removeAllListeners(event) : super.off(event, listener);
  }

  addConnectionListener(listener) {
    return this.on('connect', listener);
  }

  sendMessage(event, payload, from, callback) {
    const link = this._link;
    if (!this.connected) {
      const error = new RestanteError({ code: 'disconnected', message: `not connected: ${event} was not sent` });
      this.logger.warn?.(`restante: ${error.message}`);
      if (typeof callback === 'function') this._guard(callback, error);
      return;
    }
    this.socket._send(link, event, [payload]);
    if (typeof callback === 'function') this._guard(callback);
  }

  /** Waits until nothing waits to be sent. */
  flush(callback) {
    const { port, client } = this._link;
    const flushed = port.promise((token) => native.flush(client, CLOSE_TIMEOUT, token)).then(() => undefined);
    if (typeof callback !== 'function') return flushed;
    flushed.then(() => this._guard(callback), (error) => this._guard(callback, error));
  }

  isConnected() {
    return this.connected;
  }

  id() {
    return this.#id;
  }

  getId() {
    return this.#id;
  }

  getSocketId() {
    return this.#id;
  }

  generateConnectionUrl() {
    const { protocol, host, port } = this._connectOptions();
    return `${protocol}://${host.includes(':') ? `[${host}]` : host}:${port}/`;
  }

  ref() {
    this.#link?.port.ref(true);
    return this;
  }

  unref() {
    this.#link?.port.ref(false);
    return this;
  }

  /** Ends the connection without waiting for handlers. What was produced is still sent. */
  disconnect() {
    this.#end(0, CLOSE_TIMEOUT).catch((error) => this._report(error));
    this.#onDisconnected('closed');
  }

  /** Any time, any number of times; resolves within `timeout` (5 s). Durable subscriptions stay. */
  async close(options) {
    const timeout = milliseconds(closeOptions(options).timeout, 'timeout', CLOSE_TIMEOUT);
    await this.#end(timeout, timeout);
  }

  async #end(patience, timeout) {
    if (this.#link === null) return;
    this.#closing ??= this.#close(this.#link, performance.now() + patience, performance.now() + timeout);
    await this.#closing;
  }

  async #close(link, patience, deadline) {
    link.port.ref(true);
    try {
      await this._drain(patience);
      const left = Math.max(0, Math.round(deadline - performance.now()));
      await link.port.promise((token) => native.close(link.client, left, token));
    } catch (error) {
      if (error.code !== 'timeout' && error.code !== 'disconnected') throw error;
    } finally {
      this.#onDisconnected('closed');
      link.port.end();
      this.#link = null;
      this.#closing = null;
      this.#callbacks = [];
      this._onClosed();
    }
  }

  /** Waits until `deadline` for what is under way. */
  async _drain() {}

  _onClosed() {}

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}

const AUTH = { token: kinds.text, realm: kinds.text, role: kinds.text, key: kinds.text, timeout: kinds.count(1, 2 ** 31) };

function portNumber(value) {
  const port = Number(value);
  return kinds.count(1, 65535)(port, 'port');
}

function textOf(message) {
  if (typeof message === 'string') return message;
  return typeof message?.message === 'string' ? message.message : JSON.stringify(message);
}

module.exports = { Socket };
