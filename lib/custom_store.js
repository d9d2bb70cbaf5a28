'use strict';
// A store that its user wrote: found, checked, and called as the core asks. What it answers is
// checked here and told back in bulk. The core keeps order, deadlines, attempts and subscriptions.
const path = require('node:path');
const { pathToFileURL } = require('node:url');
const native = require('./native');
const { encode, restore } = require('./binary');
const { reasonOf, refused } = require('./errors');

const REQUIRED = ['enqueue', 'dequeue', 'ack'];
const OPTIONAL = ['deadLetter', 'listDlq', 'discardDlq', 'enqueueMany', 'ackMany', 'countQueued', 'purgeRealm', 'import', 'close'];
const FILE = 'restante.subscriptions.json';

/** What the core remembers for a store object, as long as that lives. */
const notes = new WeakMap();

class CustomStore {
  #given;
  #store = null;
  #options;
  #isModule;

  /** `given`: a store, a class or function that makes one, or `'custom'` with the name of a module
   *  that exports one of these. @throws TypeError naming what is missing. */
  constructor(given, options = {}) {
    this.#options = options ?? {};
    this.#isModule = given === 'custom';
    this.#given = this.#isModule ? load(this.#options) : making(() => make(given, this.#options));
    if (typeof this.#given?.then !== 'function') this.#store = checked(this.#given);
    else this.#given.then(undefined, () => {}); // told at start()
  }

  static accepts(given) {
    return given === 'custom' || typeof given === 'function' || (typeof given === 'object' && given !== null);
  }

  get options() {
    return { default_ttl: this.#options.default_ttl ?? this.#options.defaultTtl };
  }

  async #awaited() {
    try {
      return await make(await this.#given, this.#options);
    } catch (error) {
      throw unmade(error);
    }
  }

  /** The server is about to start with it. */
  async attach(broker, dataDir) {
    this.#store ??= checked(await this.#awaited());
    const store = this.#store;
    if (!notes.has(store)) notes.set(store, native.storeNotes());
    const methods = OPTIONAL.filter((name) => typeof store[name] === 'function');
    if (store.dequeue.length >= 4) methods.push('pages');
    // A module is configuration and outlives the process; an object is remembered by itself.
    const folder = dataDir ?? (this.#isModule ? process.cwd() : null);
    native.useStore(broker, methods, folder === null ? null : path.resolve(folder, FILE), notes.get(store));
    return new Calls(store, broker);
  }
}

/** Performs calls of the core and answers them, those of one turn together. */
class Calls {
  #store;
  #broker;
  #answers = [];

  constructor(store, broker) {
    this.#store = store;
    this.#broker = broker;
  }

  /** Never throws: whatever the store does becomes an answer. */
  perform(id, method, args, warn) {
    try {
      const answered = CALLS[method](this.#store, args ?? [], warn);
      const { value, read } = answered;
      if (isThenable(value)) value.then((later) => this.#settle(id, read, later), (error) => this.#fail(id, error));
      else this.#settle(id, read, value);
    } catch (error) {
      this.#fail(id, error);
    }
  }

  #settle(id, read, value) {
    try {
      this.#answer([id, true, read(value) ?? null]);
    } catch (error) {
      this.#fail(id, error);
    }
  }

  #fail(id, error) {
    let code;
    try {
      code = typeof error?.code === 'string' ? error.code : undefined;
    } catch {
      // It has a getter that throws.
    }
    // Half a surrogate pair is no text to the core.
    this.#answer([id, false, { code: code?.toWellFormed(), message: reasonOf(error).toWellFormed() }]);
  }

  #answer(answer) {
    if (this.#answers.push(answer) === 1) queueMicrotask(() => this.#flush());
  }

  #flush() {
    const answers = this.#answers;
    this.#answers = [];
    native.storeAnswers(this.#broker, JSON.stringify(answers));
  }
}

const nothing = () => null;

/** Each calls the store's method, `this` kept, and says how its answer is read. */
const CALLS = {
  enqueue: (store, [realm, event, row]) => ({ value: store.enqueue(realm, event, entry(row)), read: (id) => rowId(id, 'enqueue() must answer the id of the row') }),
  dequeue: (store, [realm, event, consumer, page], warn) => ({
    value: store.dequeue(realm, event, consumer, { limit: page.limit ?? undefined, after: page.after ?? undefined }),
    read: (rows) => readable(list(rows, 'dequeue() must answer an array of rows'), readRow, warn),
  }),
  ack: (store, [id]) => ({ value: store.ack(id), read: nothing }),
  enqueueMany: (store, [rows]) => ({
    value: store.enqueueMany(rows.map(([realm, event, row]) => ({ realm, event, ...entry(row) }))),
    read: (ids) => list(ids, 'enqueueMany() must answer an array of ids').map((id) => rowId(id, 'enqueueMany() must answer ids')),
  }),
  ackMany: (store, [ids]) => ({ value: store.ackMany(ids), read: nothing }),
  deadLetter: (store, [id, reason]) => ({ value: store.deadLetter(id, reason), read: nothing }),
  listDlq: (store, [realm], warn) => ({
    value: store.listDlq(realm),
    read: (rows) => readable(list(rows, 'listDlq() must answer an array of rows'), readDead, warn),
  }),
  discardDlq: (store, [id, realm]) => ({ value: store.discardDlq(id, realm), read: nothing }),
  countQueued: (store, [realm]) => ({ value: store.countQueued(realm), read: count }),
  purgeRealm: (store, [realm]) => ({ value: store.purgeRealm(realm), read: nothing }),
  import: (store, [rows]) => ({
    value: store.import(rows.map(([id, realm, event, row]) => ({ realm, event, ...entry(row), id }))),
    read: nothing,
  }),
  close: (store) => ({ value: store.close(), read: nothing }),
};

/** A row as users get it: the parts that the core gives, and the payload as a value. */
function entry(row) {
  const whole = JSON.parse(row.raw);
  const parts = whole.attachments?.map((part) => Buffer.from(part, 'base64'));
  return {
    id: row.id,
    consumer_id: row.consumer_id,
    payload: (parts ? restore(whole.message, parts) : whole.message) ?? null,
    raw: row.raw,
    producer: row.producer,
    ttl: row.ttl,
    created_at: new Date(row.created_at).toISOString(),
    expires_at: row.expires_at,
  };
}

function readRow(row) {
  if (typeof row !== 'object' || row === null) throw new TypeError('a row must be an object');
  const id = rowId(row.id ?? row.msgId ?? row.msg_id, 'a row must have an id (id or msgId)');
  if (typeof row.raw === 'string') return { id, raw: row.raw.toWellFormed() };
  const payload = row.payload !== undefined ? row.payload : row.message;
  if (payload === undefined) throw new TypeError(`row ${id} must have raw, payload or message`);
  const { text, parts } = encode(payload);
  return {
    id,
    body: text,
    parts: parts?.map((part) => part.toString('base64')) ?? [],
    producer: typeof row.producer === 'string' ? row.producer.toWellFormed() : undefined,
    created_at: time(row.created_at),
    expires_at: time(row.expires_at),
  };
}

function readDead(row) {
  const read = readRow(row);
  const text = (value) => (value === undefined || value === null ? '' : String(value).toWellFormed());
  return {
    realm: text(row.realm),
    event: text(row.event),
    consumer: text(row.consumer ?? row.consumer_id),
    reason: text(row.reason),
    dead_at: time(row.dead_lettered_at) ?? 0,
    row: read,
  };
}

/** The rows that can be read; the others are told and stay in the store (P7). */
function readable(rows, read, warn) {
  const out = [];
  for (const row of rows) {
    try {
      out.push(read(row));
    } catch (error) {
      warn(`the store answered a row that cannot be read and is set aside: ${reasonOf(error)}`);
    }
  }
  return out;
}

function list(value, message) {
  if (!Array.isArray(value)) throw new TypeError(`${message}, not ${kind(value)}`);
  return value;
}

function rowId(id, message) {
  if ((typeof id === 'string' && id.isWellFormed()) || Number.isSafeInteger(id)) return id;
  throw new TypeError(`${message}: a well-formed text or a whole number, not ${kind(id)}`);
}

function count(value) {
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new TypeError(`countQueued() must answer a number, not ${kind(value)}`);
}

function kind(value) {
  if (value === null || value === undefined) return String(value);
  return Array.isArray(value) ? 'an array' : `a ${typeof value}`;
}

/** Milliseconds since 1970 of a Date, a number or an ISO text. */
function time(value) {
  if (value === undefined || value === null) return undefined;
  const at = new Date(value).getTime();
  return Number.isFinite(at) && at >= 0 ? Math.trunc(at) : undefined;
}

function isThenable(value) {
  return (typeof value === 'object' || typeof value === 'function') && value !== null && typeof value.then === 'function';
}

/** A store from what a user gives: it, its class, or a function that makes it. */
function make(given, options) {
  const whole = given?.default !== undefined && typeof given.enqueue !== 'function' ? given.default : given;
  if (typeof whole !== 'function') return whole;
  const isClass = REQUIRED.some((name) => typeof whole.prototype?.[name] === 'function') || /^class\b/.test(Function.prototype.toString.call(whole));
  return isClass ? new whole(options) : whole(options);
}

function checked(store) {
  if ((typeof store !== 'object' && typeof store !== 'function') || store === null) throw refused(`storage: a store must be an object, not ${kind(store)}`, 'config');
  for (const name of REQUIRED) {
    if (typeof store[name] !== 'function') throw refused(`storage: the store has no method ${name}()`, 'config');
  }
  return store;
}

/** What a module exports; a promise for one that is an ES module. */
function load(options) {
  const name = options.module ?? options.module_path ?? options.modulePath;
  if (typeof name !== 'string' || name === '') throw refused("storage: 'custom' needs storage_options.module, a path or the name of a package", 'config');
  const isPath = name.startsWith('.') || path.isAbsolute(name);
  let file;
  try {
    file = require.resolve(isPath ? path.resolve(name) : name, { paths: [process.cwd()] });
  } catch (error) {
    throw Object.assign(refused(`storage_options.module: ${name} is not found: ${error.message.split('\n')[0]}`, 'config'), { cause: error });
  }
  try {
    return make(require(file), options);
  } catch (error) {
    if (error?.code !== 'ERR_REQUIRE_ESM') throw unmade(error);
    return import(pathToFileURL(file).href);
  }
}

/** What code of the user's answers that makes a store. @throws `config` with what it threw as cause. */
function making(work) {
  try {
    return work();
  } catch (error) {
    throw unmade(error);
  }
}

function unmade(error) {
  return Object.assign(refused(`storage: the store could not be made: ${reasonOf(error)}`, 'config'), { cause: error });
}

module.exports = { CustomStore };
