'use strict';
// Where durable messages wait, as an argument of Server.
const { RestanteError } = require('./errors');
const { read, kinds } = require('./options');

const SQLITE = {
  filename: kinds.text,
  synchronous: kinds.one('full', 'normal'),
  default_ttl: kinds.span,
  busy_timeout: kinds.count(1, 2 ** 32 - 1),
  force: kinds.flag,
};

/** Keeps messages in the server's memory: they survive reconnects, not the process. */
class MemoryStore {
  constructor(options) {
    this.options = Object.freeze(read(options, { default_ttl: kinds.span }));
    Object.freeze(this);
  }
}

/** Keeps messages in a SQLite file: they survive the process. The file is opened by the server's start. */
class SqliteStore {
  constructor(options) {
    this.options = Object.freeze(read(options, SQLITE));
    Object.freeze(this);
  }
}

const isStore = (value) => value instanceof MemoryStore || value instanceof SqliteStore;
/** The name that the core knows a store by. */
const nameOf = (store) => (store instanceof SqliteStore ? 'sqlite' : 'memory');

/** `memory` (or `true`), `sqlite`, or a store. @throws `unsupported` for other names. */
function createStore(name = 'memory', options = {}) {
  if (isStore(name)) return name;
  if (name === 'memory' || name === true) return new MemoryStore(options);
  if (name === 'sqlite') return new SqliteStore(options);
  const what = typeof name === 'string' ? `'${name}'` : 'a store of your own';
  throw new RestanteError({ code: 'unsupported', message: `storage: ${what} is not supported yet, only 'memory' and 'sqlite'` });
}

async function createStoreAsync(name, options) {
  const store = createStore(name, options);
  return { store, backend: nameOf(store), fellBack: false, error: null };
}

module.exports = { Storage: Object.freeze({ MemoryStore, SqliteStore, createStore, createStoreAsync }), isStore, nameOf };
