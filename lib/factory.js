'use strict';
// Makes producers, consumers and sockets that share where and how to connect.
const { refused } = require('./errors');
const { read, kinds } = require('./options');
const { Publisher } = require('./publisher');
const { Socket } = require('./socket');
const { Subscriber } = require('./subscriber');

const anything = kinds.same;
const milliseconds = kinds.count(1, 2 ** 31 - 1);
/** PEM as a text or a Buffer, or a file of it. */
const bytes = kinds.count(1, Number.MAX_SAFE_INTEGER);
const OPTIONS = {
  args: anything,
  auth: anything,
  ca: kinds.pem,
  connect_timeout: milliseconds,
  e2ee: (value) => {
    if (value) throw refused('e2ee: end-to-end encryption is not supported', 'unsupported');
  },
  host: kinds.text,
  logger: anything,
  max_message_bytes: bytes,
  offline: (value, name) => {
    const wish = typeof value === 'string' ? { policy: value } : value;
    return read(wish, { policy: kinds.one('queue', 'reject'), max_messages: kinds.count(0, 1e9), max_bytes: bytes }, `${name}.`);
  },
  port: anything,
  protocol: kinds.text,
  reconnect: kinds.group({ min: kinds.span, max: kinds.span }),
  token: kinds.text,
};

class Factory {
  constructor(options) {
    const warn = (name) => (options.logger ?? console).warn?.(`restante: unknown Factory option '${name}'`);
    const { host, port, protocol, args, auth, token, logger, ca, connect_timeout, offline, reconnect, max_message_bytes } = read(options, OPTIONS, '', warn);
    this.host = host ?? null;
    this.port = port ?? null;
    this.protocol = protocol ?? null;
    this.args = args ?? {};
    this.auth = auth ?? (token === undefined ? null : { token });
    this.logger = logger ?? console;
    this.settings = { ca, connect_timeout_ms: connect_timeout, offline, reconnect, max_message_bytes };
  }

  /** `(name?, defaultEvent | options?, options?, callback?, port?, host?, protocol?, args?)`. */
  createProducer(...given) {
    const { before, callback, where } = split(given);
    const [name, event, options] = before;
    return this.#start(this.createProducerPrivate(name, event, options), callback, where);
  }

  /** `(context, name, callback?, …, onError?)` or `(name, options?, callback?, …, onError?)`. */
  createConsumer(...given) {
    const { before, callback, where } = split(given);
    const named = typeof before[0] === 'string' && typeof before[1] !== 'string';
    const [context, name, options] = named ? [undefined, ...before] : before;
    const consumer = this.createConsumerPrivate(context, name, options);
    const onError = where.at(4);
    if (typeof onError === 'function') consumer.onError = onError;
    return this.#start(consumer, callback, where);
  }

  createSocket(...given) {
    const { callback, where } = split(given);
    const socket = this.#prepare(new Socket(null));
    if (callback) this.#start(socket, callback, where);
    return socket;
  }

  /** An unconnected producer. */
  createProducerPrivate(name, event, options) {
    return this.#prepare(new Publisher(name, event, options));
  }

  /** An unconnected consumer; the logger of `context` becomes its own. */
  createConsumerPrivate(context, name, options) {
    const consumer = this.#prepare(new Subscriber(name, options));
    if (context?.logger) consumer.logger = context.logger;
    return consumer;
  }

  #prepare(socket) {
    const { host, port, protocol, args, auth, logger, settings } = this;
    return Object.assign(socket, { host, port, protocol, args, auth, logger, settings });
  }

  /** With a callback: called with the socket now and after each reconnect, or once `(null, error)`. */
  #start(socket, callback, [port, host, protocol, args]) {
    const connect = (each) => socket.connect(each, port, host, protocol, args);
    if (callback === undefined) return connect().then(() => socket);
    try {
      connect(() => callback(socket)).catch((error) => socket._guard(callback, null, error));
    } catch (error) {
      socket._guard(callback, null, error);
    }
  }
}

/** What stands before the callback, the callback, and `[port, host, protocol, args, onError]`. */
function split(given) {
  const at = given.findIndex((value) => typeof value === 'function');
  if (at >= 0 && at <= 3) return { before: given.slice(0, at), callback: given[at], where: given.slice(at + 1) };
  // No callback, though its place may be there, empty: `(name, undefined, 17352, 'host')`, or with
  // an `onError` at the end.
  const end = at > 3 ? at - 4 : given.findIndex((value, i) => i > 0 && typeof value === 'number');
  return end < 0 ? { before: given, where: [] } : { before: given.slice(0, end), where: given.slice(end) };
}

Factory.prototype.createSubscriber = Factory.prototype.createConsumer;
Factory.Producer = Factory.Publisher = Publisher;
Factory.Consumer = Factory.Subscriber = Subscriber;

module.exports = { Factory };
