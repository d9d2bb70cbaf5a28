'use strict';
// Where durable messages wait, as an argument of Server.
const { RestanteError } = require('./errors');
const { read, kinds } = require('./options');

/** Keeps messages in the server's memory: they survive reconnects, not the process. */
class MemoryStore {
  constructor(options) {
    this.options = Object.freeze(read(options, { default_ttl: kinds.span }));
    Object.freeze(this);
  }
}

/** `memory` (or `true`). @throws `unsupported` for other names. */
function createStore(name = 'memory', options = {}) {
  if (name instanceof MemoryStore) return name;
  if (name === 'memory' || name === true) return new MemoryStore(options);
  const what = typeof name === 'string' ? `'${name}'` : 'a store of your own';
  throw new RestanteError({ code: 'unsupported', message: `storage: ${what} is not supported yet, only 'memory'` });
}

async function createStoreAsync(name, options) {
  return { store: createStore(name, options), backend: 'memory', fellBack: false, error: null };
}

module.exports = Object.freeze({ MemoryStore, createStore, createStoreAsync });
