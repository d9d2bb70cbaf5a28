'use strict';
// A consumer: subscriptions, their handlers, and how deliveries are settled.
const { randomUUID } = require('node:crypto');
const native = require('./native');
const { restore } = require('./binary');
const { ALL_PUBLISHERS, ANONYMOUS, EVENT_ALL } = require('./constants');
const events = require('./events');
const { RestanteError, aborted, call, reasonOf, refused } = require('./errors');
const { MessageStream } = require('./messages');
const { read, subscribeOptions, unsubscribeOptions, kinds } = require('./options');
const { Settler } = require('./settle');
const { Socket } = require('./socket');

class Subscriber extends Socket {
  #byKey = new Map();
  #byId = new Map();
  #running = new Set();
  #settler = new Settler(this);
  #draining = false;
  #onProducerOnline = new Map();
  #warned = new Set();

  constructor(name, options) {
    super(name || `${ANONYMOUS}-${randomUUID()}`);
    const { consumer_id } = read(options, { consumer_id: kinds.text });
    this.consumer_id = consumer_id ?? this.name;
    /** Key → what calls the handler with a delivery. */
    this.consumes = Object.create(null);
  }

  _connectOptions() {
    return { ...super._connectOptions(), ...this._identity() };
  }

  _identity() {
    return { consumer: { name: this.name, consumer_id: this.consumer_id } };
  }

  // ---- subscribing

  /** See index.d.ts for the forms. Never an unhandled rejection: failures are also reported. */
  subscribe(...args) {
    return this.#promised(() => this.#subscribe(parse(args)));
  }

  subscribeOnce(...args) {
    return this.#promised(() => {
      const wish = parse(args);
      return this.#subscribe({ ...wish, options: { ...wish.options, reconnect: false } });
    });
  }

  resubscribeWhenReconnect(...args) {
    return this.subscribe(...args);
  }

  /** That event from any producer: `(event, handler, options?)` or `(context, event, handler, options?)`. */
  subscribeAll(...args) {
    return this.#promised(() => {
      const at = args.findIndex((arg, i) => i > 0 && typeof arg === 'function');
      return this.#subscribe({
        context: at === 2 ? args[0] : undefined,
        producer: ALL_PUBLISHERS,
        event: args[at - 1],
        handler: args[at],
        options: optionsOf(args[at + 1]),
      });
    });
  }

  /** All events of one producer. */
  subscribeProducer(producer, handler, options) {
    return this.#promised(() => this.#subscribe({ producer, event: EVENT_ALL, handler, options: { ...options, scope: 'all' } }));
  }

  /** Deliveries as an async iterable: `(event, options?)` or `(producer, event, options?)`. */
  messages(...args) {
    const [producer, event, given] = typeof args[1] === 'string' ? args : [undefined, args[0], args[1]];
    const stream = new MessageStream(this, given);
    const { signal, ...options } = given ?? {};
    if (signal?.aborted) return stream;
    const handler = (delivery) => stream._push(delivery);
    try {
      const wish = { producer: producer ?? options.producer ?? ALL_PUBLISHERS, event, handler, options, stream };
      const answer = this.#subscribe(wish);
      answer.catch((error) => stream._fail(error));
      stream._opened(answer);
    } catch (error) {
      stream._refused(error);
    }
    return stream;
  }

  #promised(start) {
    let answer;
    try {
      answer = start();
    } catch (error) {
      answer = Promise.reject(error);
    }
    answer.catch((error) => {
      if (error.name !== 'AbortError') this._report(error);
    });
    return answer;
  }

  #subscribe({ context, producer, event, handler, options: given, stream }) {
    if (typeof handler !== 'function') throw refused('subscribe needs a handler function');
    const options = subscribeOptions(given, (name) => this._warnOnce(`unknown subscribe option '${name}'`));
    const { signal, reconnect = true, ...wire } = options;
    if (signal?.aborted) return rejected(aborted(signal));
    const name = events.toEventString(event);
    const all = wire.scope === 'all' || name.toUpperCase() === EVENT_ALL;
    const from = wire.producer ?? producer ?? ANONYMOUS;
    const key = wire.scope === 'all' ? events.toConsumerEventAll(from) : events.toConsumerEvent(name, from);
    const text = JSON.stringify({
      ...wire,
      event: name,
      producer: from === ALL_PUBLISHERS ? undefined : from,
      scope: all ? 'all' : undefined,
      consumer: this.name,
      consumer_id: wire.consumer_id ?? this.consumer_id,
      resubscribe: Boolean(reconnect),
    });
    const slot = `${wire.mode ?? ''}:${key}`;
    let subscription = this.#byKey.get(slot);
    // The same wish again only changes who is called; nothing multiplies.
    if (subscription?.text !== text || subscription.failed) {
      if (subscription) this.#forget(subscription);
      subscription = { slot, key, text, id: 0, failed: false, event: name, producer: from, options: wire, answer: null };
      this.#byKey.set(slot, subscription);
      this.#ask(subscription);
    } else {
      subscription.release?.();
    }
    Object.assign(subscription, { handler, context, stream, manual: wire.manual_ack || stream !== undefined, release: undefined });
    if (subscription.failed) return subscription.answer;
    this.consumes[key] = (raw) => this.#deliver(subscription, raw);
    if (signal) this.#detachOn(signal, subscription);
    return subscription.answer;
  }

  /** Sends SUBSCRIBE, or leaves it for when the link is opened. */
  #ask(subscription) {
    const previous = subscription.settle;
    if (!previous) {
      subscription.answer = new Promise((resolve, reject) => (subscription.settle = { resolve, reject }));
      subscription.answer.subscription = subscription;
      subscription.answer.catch(() => {});
    }
    if (!this._isOpen) return;
    const { port, client } = this._link;
    const { resolve, reject } = subscription.settle;
    const token = port.expect(resolve, (error) => {
      // Without an answer in time it stays in force; a refusal ends it.
      subscription.failed = error.code !== 'timeout';
      reject(error);
    });
    try {
      subscription.id = call(native.subscribe, client, subscription.text, token);
      this.#byId.set(subscription.id, subscription);
    } catch (error) {
      port.forget(token);
      subscription.failed = true;
      this.#byKey.delete(subscription.slot);
      reject(error);
    }
  }

  _onOpen() {
    this.#settler = new Settler(this);
    this.#draining = false;
    this.#byId.clear();
    for (const subscription of this.#byKey.values()) this.#ask(subscription);
  }

  #detachOn(signal, subscription) {
    const onAbort = () => this._detach(subscription);
    signal.addEventListener('abort', onAbort, { once: true });
    subscription.release = () => signal.removeEventListener('abort', onAbort);
  }

  /** Forgets a subscription on this side only. */
  #forget(subscription) {
    subscription.release?.();
    if (this.#byKey.get(subscription.slot) === subscription) this.#byKey.delete(subscription.slot);
    if (this.#byId.get(subscription.id) === subscription) this.#byId.delete(subscription.id);
    delete this.consumes[subscription.key];
  }

  /** Takes no more of it: a durable subscription stays, as if the connection had ended (P5), a
   *  plain one ends. */
  _detach(subscription) {
    if (this.#byKey.get(subscription.slot) !== subscription) return;
    this.#forget(subscription);
    if (this._isOpen && subscription.id !== 0) native.detach(this._link.client, subscription.id);
  }

  #named({ event, producer, options }) {
    const { mode, scope, consumer_id = this.consumer_id } = options;
    return { event, producer, consumer: this.name, consumer_id, mode, scope };
  }

  #ending(options) {
    return unsubscribeOptions(options, (name) => this._warnOnce(`unknown unsubscribe option '${name}'`));
  }

  /** Ends a subscription for good; its backlog goes with `{purge: true}` only. Answers
   *  `{removed, left}`. */
  async unsubscribe(event, who, options) {
    const { purge = false, mode, scope } = this.#ending(options);
    const name = events.toEventString(event);
    const from = who ?? ALL_PUBLISHERS;
    const keys = [events.toConsumerEvent(name, from)];
    if (scope === 'all' || name.toUpperCase() === EVENT_ALL) keys.push(events.toConsumerEventAll(from));
    const found = [...this.#byKey.values()].filter((s) => keys.includes(s.key) && (mode === undefined || s.options.mode === mode));
    if (found.length > 0) return this.#end(found, purge);
    // Not one of this run: a durable one of an earlier run, perhaps.
    const wish = this.#named({ event: name, producer: from, options: { mode, scope: keys.length > 1 ? 'all' : undefined } });
    const { removed = 0, left = 0 } = (await this.socket._ask(this._link, 'UNSUBSCRIBE', { ...wish, purge })) ?? {};
    return { removed, left };
  }

  /** Ends all subscriptions of this object. */
  async unsubscribeAll(options) {
    return this.#end([...this.#byKey.values()], this.#ending(options).purge ?? false);
  }

  async #end(subscriptions, purge) {
    const total = { removed: 0, left: 0 };
    const answers = subscriptions.map((subscription) => {
      this.#forget(subscription);
      subscription.stream?._end();
      if (!this._isOpen || subscription.id === 0) return null;
      const { port, client } = this._link;
      return port.promise((token) => native.unsubscribe(client, subscription.id, purge, token));
    });
    for (const answer of await Promise.all(answers)) {
      if (answer === null) continue;
      total.removed += answer.removed;
      total.left += answer.left;
    }
    return total;
  }

  /** Takes no more deliveries; durable subscriptions stay. */
  clearSubscriptions() {
    for (const subscription of [...this.#byKey.values()]) {
      subscription.stream?._end();
      this._detach(subscription);
    }
  }

  // ---- deliveries

  _onDelivery(id, payload, parts) {
    if (this.#draining) return; // given back when the connection ends
    const raw = parts === null ? payload : restore(payload, parts);
    if (typeof id === 'string') return this.#onBroadcast(id, raw);
    const subscription = this.#byId.get(id);
    if (subscription === undefined) return;
    const name = events.toConsumeEvent(subscription.key);
    if (this.socket.listenerCount(name) > 0) this.socket._dispatch(name, raw);
    this.#deliver(subscription, raw);
  }

  #onBroadcast(name, raw) {
    const heard = this.socket.listenerCount(name) > 0;
    if (heard) this.socket._dispatch(name, raw);
    this._emit('broadcast', raw.message, raw.from, raw);
  }

  #deliver(subscription, raw) {
    const { stream, handler, context } = subscription;
    const tracked = typeof raw.msgId === 'string';
    const ack = tracked ? this.#settler.ackOf(raw) : this.#settler.plain;
    if (stream) return handler({ raw, ack });
    let result;
    try {
      result = handler.call(context, raw.message, raw.from ?? raw.message?.from, ack, raw);
    } catch (error) {
      return this.#failed(error, ack);
    }
    if (typeof result?.then !== 'function') {
      if (tracked && !subscription.manual) ack();
      return;
    }
    const running = Promise.resolve(result).then(
      () => {
        if (tracked && !subscription.manual) ack();
      },
      (error) => this.#failed(error, ack),
    );
    this.#running.add(running);
    running.then(() => this.#running.delete(running));
  }

  /** A handler threw: a failure of the delivery, never of the process (P10, P26). */
  #failed(error, ack) {
    const reason = reasonOf(error);
    ack.nack({ reason });
    const told = new RestanteError({ code: 'handler_failed', message: `a handler failed: ${reason}` });
    told.cause = error;
    this._report(told);
  }

  // ---- the end

  /** No new deliveries; running handlers may finish, then their signal is aborted. */
  async _drain(deadline) {
    this.#draining = true;
    for (const { stream } of this.#byKey.values()) stream?._end();
    let timer;
    const late = new Promise((resolve) => (timer = setTimeout(resolve, Math.max(0, deadline - performance.now()))));
    while (this.#running.size > 0) {
      const over = await Promise.race([Promise.all(this.#running), late.then(() => 'late')]);
      if (over === 'late') break;
    }
    clearTimeout(timer);
    this.#settler.end();
  }

  _onClosed() {
    this.#running.clear();
    const error = new RestanteError({ code: 'disconnected', message: 'the connection is closed' });
    for (const subscription of this.#byKey.values()) subscription.settle.reject(error);
  }

  _onDown(error) {
    for (const subscription of this.#byKey.values()) {
      subscription.settle.reject(error);
      subscription.stream?._fail(error);
    }
  }

  _warnOnce(text) {
    if (this.#warned.has(text)) return;
    this.#warned.add(text);
    this.logger.warn?.(`restante: ${text}`);
  }

  // ---- awareness (bound to this object, so it outlives reconnects)

  setOnProducerOnlineListener(producer, callback) {
    this.#onProducerOnline.set(`${producer}-ONLINE`, callback);
  }

  _onNamed(name, payload) {
    const callback = this.#onProducerOnline.get(name);
    if (callback) this._guard(callback, payload);
  }
}

Subscriber.prototype.setOnProducerOnline = Subscriber.prototype.setOnProducerOnlineListener;
Subscriber.prototype.whenProducerOnline = Subscriber.prototype.setOnProducerOnlineListener;

function rejected(error) {
  const promise = Promise.reject(error);
  promise.catch(() => {});
  return promise;
}

/** `false` and `true` stand for `{reconnect: …}`. */
function optionsOf(given) {
  return typeof given === 'boolean' ? { reconnect: given } : given;
}

/** The forms of subscribe, told apart by where the handler stands. */
function parse(args) {
  let at = args.findIndex((arg) => typeof arg === 'function');
  if (at === 0) at = args.findIndex((arg, i) => i > 0 && typeof arg === 'function'); // a function as context
  const options = optionsOf(args[at + 1]);
  const handler = args[at];
  switch (at) {
    case 1: return { producer: ALL_PUBLISHERS, event: args[0], handler, options };
    case 2: return { producer: args[0], event: args[1], handler, options };
    case 3: return { context: args[0], producer: args[1], event: args[2], handler, options };
    default: throw refused('subscribe takes (event, handler), (producer, event, handler) or (context, producer, event, handler), then options');
  }
}

module.exports = { Subscriber };
