'use strict';
// Where durable messages wait, as an argument of Server.
const { CustomStore } = require('./custom_store');
const { RedisClient } = require('./redis_client');
const { RestanteError, refused } = require('./errors');
const { read, kinds } = require('./options');

const SQLITE = {
  filename: kinds.text,
  synchronous: kinds.one('full', 'normal'),
  default_ttl: kinds.span,
  busy_timeout: kinds.count(1, 2 ** 32 - 1),
  force: kinds.sure,
};

const REDIS = {
  url: (value, name) => (Array.isArray(value) ? value.map((one) => kinds.text(one, name)).join(',') : kinds.text(value, name)),
  prefix: kinds.text,
  sentinel: kinds.text,
  tls_ca: kinds.text,
  tls_cert: kinds.text,
  tls_key: kinds.text,
  cluster: kinds.flag,
  strict: kinds.flag,
  lease: kinds.span,
  force: kinds.sure,
  client: (value) => new RedisClient(value),
  fallback: kinds.one('sqlite', false),
  fallback_filename: kinds.text,
  fallback_path: kinds.text,
  probe_timeout: kinds.count(1, 2 ** 32 - 1),
  default_ttl: kinds.span,
};

/** What all stores of the core have. */
class Kept {
  #unknown = [];
  #client = null;

  /** @throws `config`, naming the option. */
  constructor(options, known) {
    try {
      const { client, ...plain } = read(options, known, 'storage_options.', (name) => this.#unknown.push(name));
      this.#client = client ?? null;
      this.options = Object.freeze(plain);
    } catch (error) {
      error.code = 'config';
      throw error;
    }
    Object.freeze(this);
  }

  /** The Redis client that a store was given. */
  static client(store) {
    return #client in store ? store.#client : null;
  }

  /** What to say of options that nobody reads. */
  static warnings(store) {
    return #unknown in store ? store.#unknown.map((name) => `option ${name} is unknown and ignored`) : [];
  }
}

/** Keeps messages in the server's memory: they survive reconnects, not the process. */
class MemoryStore extends Kept {
  constructor(options) {
    super(options, { default_ttl: kinds.span });
  }
}

/** Keeps messages in a SQLite file: they survive the process. The file is opened by the server's start. */
class SqliteStore extends Kept {
  constructor(options) {
    super(options, SQLITE);
  }
}

/** Keeps messages in Redis: they survive the broker. The server's start connects, or uses the client it was given. */
class RedisStore extends Kept {
  /** A client that has not come to be must not become a Redis on this machine. */
  constructor(options) {
    const isMissing = options?.url === undefined && Object.hasOwn(options ?? {}, 'client') && (options.client ?? null) === null;
    if (isMissing) throw refused(`storage_options.client is ${options.client}: give a client, or leave it out for a url`, 'config');
    super(options, REDIS);
  }
}

/** Stores by the names that the core knows them by. */
const STORES = { memory: MemoryStore, sqlite: SqliteStore, redis: RedisStore };
const isStore = (value) => value instanceof CustomStore || value instanceof Kept;
/** The name that the core knows a store by; it sees a store of the user's own as one in memory. */
const nameOf = (store) => Object.keys(STORES).find((name) => store instanceof STORES[name]) ?? 'memory';

/** `memory` (or `true`), `sqlite`, `redis`, `custom` with a module, or a store of the user's own: an
 *  object, its class, or a function that makes it. @throws `unsupported` for other names. */
function createStore(name = 'memory', options = {}) {
  if (isStore(name)) return name;
  if (name === true) return new MemoryStore(options);
  if (Object.hasOwn(STORES, name)) return new STORES[name](options);
  if (CustomStore.accepts(name)) return new CustomStore(name, options);
  throw new RestanteError({ code: 'unsupported', message: `storage: ${String(name)} is not supported, only 'memory', 'sqlite', 'redis' and 'custom'` });
}

async function createStoreAsync(name, options) {
  const store = createStore(name, options);
  return { store, backend: store instanceof CustomStore ? 'custom' : nameOf(store), fellBack: false, error: null };
}

module.exports = { Storage: Object.freeze({ MemoryStore, SqliteStore, RedisStore, createStore, createStoreAsync }), isStore, nameOf, warningsOf: Kept.warnings, clientOf: Kept.client };
