'use strict';
// Options of calls: both spellings become snake_case, and each value gets the type that the addon
// expects. Durations are only checked to be a number or a text here; the core reads them (P14).
const { call, refused } = require('./errors');
const native = require('./native');

const flag = (value) => Boolean(value);
/** For what may lose messages: nothing else is taken for a yes. */
const sure = (value, name) => {
  if (typeof value !== 'boolean') throw refused(`${name} must be true or false`);
  return value;
};
const text = (value, name) => {
  if (typeof value !== 'string') throw refused(`${name} must be a string`);
  return value;
};
const span = (value, name) => {
  if (typeof value === 'string' || (typeof value === 'number' && Number.isFinite(value) && value >= 0)) return value;
  throw refused(`${name} must be a number of seconds or a text like '250ms', '1.5s', '15m', '2h', '7d'`);
};
/** JSON would make null of anything else. */
const finite = (value, name) => {
  if (!Number.isFinite(value)) throw refused(`${name} must be a finite number`);
  return value;
};
const count = (min, max) => (value, name) => {
  if (!Number.isInteger(value) || value < min || value > max) throw refused(`${name} must be a whole number from ${min} to ${max}`);
  return value;
};
const one = (...allowed) => (value, name) => {
  if (!allowed.includes(value)) throw refused(`${name} must be ${allowed.map((word) => `'${word}'`).join(' or ')}`);
  return value;
};
const group = (kinds) => (value, name, onUnknown) => read(value, kinds, `${name}.`, onUnknown);
const signal = (value, name) => {
  if (typeof value?.addEventListener !== 'function') throw refused(`${name} must be an AbortSignal`);
  return value;
};
const unsupported = (value, name) => {
  if (value) throw refused(`${name}: end-to-end encryption is not supported`, 'unsupported');
};
const same = (value) => value;
const pem = (value, name) => text(Buffer.isBuffer(value) ? value.toString() : value, name);

const ACK_NAMES = ['ack', 'require_ack'];
const SUBSCRIBE = {
  ack: flag,
  require_ack: flag,
  manual_ack: flag,
  ack_timeout: span,
  consumer_id: text,
  durable: flag,
  group: text,
  mode: one('topic'),
  prefetch: count(1, 1_000_000),
  producer: text,
  reconnect: flag,
  retry: group({
    max_attempts: count(1, 1000),
    delay: span,
    backoff: one('fixed', 'exponential'),
    max_delay: span,
  }),
  scope: one('all', 'default'),
  signal,
  timeout: span,
};
const PRODUCE = {
  broadcast: same,
  confirm: flag,
  delay: span,
  deliver_at: (value, name) => {
    if (value instanceof Date && !Number.isNaN(value.getTime())) return value.getTime();
    if (typeof value === 'string' || Number.isFinite(value)) return value;
    throw refused(`${name} must be a Date, milliseconds since 1970, or an ISO text`);
  },
  delivery: same,
  delivery_mode: same,
  durable: flag,
  enc: same,
  encrypt: unsupported,
  encrypt_to: unsupported,
  group: text,
  guaranteed: flag,
  guaranteed_delivery: flag,
  headers: (value, name) => {
    const fine = typeof value === 'object' && !Array.isArray(value) && Object.values(value).every((v) => typeof v === 'string');
    if (!fine) throw refused(`${name} must be an object of strings`);
    return value;
  },
  id: text,
  key: text,
  lifespan: (value, name) => (Number(value) === -1 ? undefined : span(value, name)),
  signal,
  timeout: span,
  to: text,
  ttl: span,
};
const NACK = { delay: span, requeue: flag, reason: text };
const CLOSE = { timeout: span };
const UNSUBSCRIBE = { purge: flag, scope: one('all', 'default'), mode: one('topic') };

const snake = (name) => (/[A-Z]/.test(name) ? name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`) : name);

/** `given` with snake_case names and checked values; absent and null ones are left out, names that nobody
 *  knows are told to `onUnknown`. */
function read(given, kinds, prefix = '', onUnknown) {
  const out = {};
  if (given === undefined || given === null) return out;
  if (typeof given !== 'object') throw refused(`${prefix.slice(0, -1) || 'options'} must be an object`);
  for (const name of Object.keys(given)) {
    const value = given[name];
    if (value === undefined || value === null) continue;
    const spelt = snake(name);
    const kind = Object.hasOwn(kinds, spelt) ? kinds[spelt] : undefined;
    if (kind === undefined) onUnknown?.(prefix + name);
    else out[spelt] = kind(value, prefix + name, onUnknown);
  }
  return out;
}

/** The milliseconds of a duration given in seconds or as a text, for timers on this side. */
function milliseconds(value, name, fallback) {
  if (value === undefined || value === null) return fallback;
  span(value, name);
  if (typeof value === 'number') return value * 1000;
  return call(native.durationMs, value, name);
}

const subscribeOptions = (given, onUnknown) => {
  const out = read(given, SUBSCRIBE, '', onUnknown);
  out.ack = ACK_NAMES.some((name) => out[name]) || Boolean(out.manual_ack);
  delete out.require_ack;
  return out;
};

const produceOptions = (given, onUnknown) => {
  const out = read(given, PRODUCE, '', onUnknown);
  if (out.durable || out.guaranteed_delivery || out.delivery === 'guaranteed' || out.delivery_mode === 'guaranteed') out.guaranteed = true;
  if (out.broadcast) out.broadcast = out.broadcast === 'group' ? 'group' : 'realm';
  else delete out.broadcast;
  for (const name of ['durable', 'guaranteed_delivery', 'delivery', 'delivery_mode']) delete out[name];
  return out;
};

module.exports = {
  produceOptions,
  subscribeOptions,
  nackOptions: (given) => read(given, NACK),
  closeOptions: (given) => read(given, CLOSE),
  unsubscribeOptions: (given, onUnknown) => read(given, UNSUBSCRIBE, '', onUnknown),
  read,
  milliseconds,
  kinds: { flag, sure, text, span, finite, count, one, same, pem, group },
  /** By the name of their declaration. */
  readable: { SubscribeOptions: SUBSCRIBE, ProduceOptions: PRODUCE, NackOptions: NACK, CloseOptions: CLOSE, UnsubscribeOptions: UNSUBSCRIBE },
};
