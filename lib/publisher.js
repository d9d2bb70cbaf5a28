'use strict';
// A producer; it can subscribe too.
const native = require('./native');
const { encode } = require('./binary');
const { EVENT_DEFAULT } = require('./constants');
const events = require('./events');
const { RestanteError, aborted, call, refused } = require('./errors');
const { produceOptions, read, kinds } = require('./options');
const { Subscriber } = require('./subscriber');

const OPTIONS = { default_ttl: kinds.span, ttl: kinds.span, event: kinds.text, consumer_id: kinds.text };

class Publisher extends Subscriber {
  #onSubscription = null;
  #onSubscriberLost = null;
  #onSubscriberOnline = null;
  #onUnsubscribed = null;

  /** `(name?, defaultEvent?, options?)` or `(name?, options?)`. */
  constructor(name, eventOrOptions, more) {
    const given = typeof eventOrOptions === 'string' ? { ...more, event: eventOrOptions } : { ...eventOrOptions, ...more };
    const { event, default_ttl, ttl, consumer_id } = read(given, OPTIONS);
    super(name, { consumer_id });
    this.eventDefault = event ?? EVENT_DEFAULT;
    this.default_ttl = default_ttl ?? ttl;
    /** Who subscribed, by consumer id: what SUBSCRIBE-TO told last. */
    this.subscribers = Object.create(null);
  }

  _identity() {
    return { producer: { name: this.name, default_ttl: this.default_ttl } };
  }

  /** See index.d.ts for the forms. With `confirm` a promise; else false above the high-water mark. */
  produce(...args) {
    const [event, data, given, to] = args.length === 1 ? [this.eventDefault, args[0]] : args;
    if (given === undefined && to === undefined) return this.#send(event, data, undefined, null, 0);
    const wish = typeof given === 'number' ? { lifespan: given } : given;
    const options = produceOptions(to === undefined ? wish : { ...wish, to }, (name) => this._warnOnce(`unknown produce option '${name}'`));
    const { confirm, signal, ...extras } = options;
    if (signal?.aborted) {
      if (confirm) return Promise.reject(aborted(signal));
      throw aborted(signal);
    }
    if (extras.broadcast === 'group' && !extras.group) throw refused('a group broadcast needs a group');
    const text = JSON.stringify(extras);
    return confirm ? this.#confirmed(event, data, text, signal) : this.#send(event, data, text, extras, 0);
  }

  #send(event, data, options, extras, token) {
    const name = events.toEventString(event);
    const { text, parts } = encode(data);
    const { client } = this._link;
    try {
      return call(native.produce, client, name, text, parts, options, token);
    } catch (error) {
      if (error.code !== 'disconnected' || token !== 0) throw error;
      // As ever: what nobody asked to confirm is lost with the link, and said so.
      this._report(new RestanteError({ code: 'disconnected', message: `not connected: a message to '${name}' was dropped` }));
      return false;
    }
  }

  #confirmed(event, data, options, signal) {
    return new Promise((resolve, reject) => {
      const { port } = this._link;
      const onAbort = () => {
        port.forget(token);
        reject(aborted(signal));
      };
      const over = (settle) => (value) => {
        signal?.removeEventListener('abort', onAbort);
        settle(value);
      };
      const token = port.expect(over(resolve), over(reject));
      try {
        this.#send(event, data, options, null, token);
        signal?.addEventListener('abort', onAbort, { once: true });
      } catch (error) {
        port.forget(token);
        reject(error);
      }
    });
  }

  // ---- awareness: who listens to us

  setOnSubscriptionListener(callback) {
    this.#onSubscription = callback;
  }

  get onSubscriptionListener() {
    return this.#onSubscription;
  }

  set onSubscriptionListener(callback) {
    this.#onSubscription = callback;
  }

  setOnSubscriberLostListener(callback) {
    this.#onSubscriberLost = callback;
  }

  setOnSubscriberOnlineListener(callback) {
    this.#onSubscriberOnline = callback;
  }

  setOnUnsubscribedListener(callback) {
    this.#onUnsubscribed = callback;
  }

  /** The names carry our socket id, which changes with each connect. */
  _onNamed(name, payload) {
    super._onNamed(name, payload);
    const id = this.id();
    switch (name) {
      case 'SUBSCRIBE-TO':
      case `SUBSCRIBE-TO-${id}`:
        if (payload?.id !== undefined) this.subscribers[payload.id] = payload;
        return this.#call(this.#onSubscription, payload);
      case `CONNECT-${id}`:
        return this.#call(this.#onSubscriberOnline, payload);
      case `DISCONNECT-${id}`:
        return this.#call(this.#onSubscriberLost, payload);
      case `UNSUBSCRIBE-${id}`:
        return this.#call(this.#onUnsubscribed, payload);
      default:
    }
  }

  #call(callback, payload) {
    if (typeof callback === 'function') this._guard(callback, payload);
  }
}

/** The longest text in one piece, in UTF-16 units; longer ones travel in chunks. */
Publisher.CHUNK_SIZE = 262_144;

const aliases = {
  onSubscribed: 'setOnSubscriptionListener',
  onSubscriberLost: 'setOnSubscriberLostListener',
  setOnSubscriberOnline: 'setOnSubscriberOnlineListener',
  whenSubscriberOnline: 'setOnSubscriberOnlineListener',
  onUnsubscribed: 'setOnUnsubscribedListener',
};
for (const [alias, method] of Object.entries(aliases)) Publisher.prototype[alias] = Publisher.prototype[method];

module.exports = { Publisher };
