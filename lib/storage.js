'use strict';
// Where durable messages wait, as an argument of Server.
const { CustomStore } = require('./custom_store');
const { RestanteError } = require('./errors');
const { read, kinds } = require('./options');

/** Keeps messages in the server's memory: they survive reconnects, not the process. */
class MemoryStore {
  constructor(options) {
    this.options = Object.freeze(read(options, { default_ttl: kinds.span }));
    Object.freeze(this);
  }
}

/** `memory` (or `true`), `custom` with a module, or a store of the user's own: an object, its class,
 *  or a function that makes it. @throws `unsupported` for other names. */
function createStore(name = 'memory', options = {}) {
  if (name instanceof MemoryStore) return name;
  if (name === 'memory' || name === true) return new MemoryStore(options);
  if (name instanceof CustomStore) return name;
  if (CustomStore.accepts(name)) return new CustomStore(name, options);
  throw new RestanteError({ code: 'unsupported', message: `storage: ${String(name)} is not supported, only 'memory' and 'custom'` });
}

async function createStoreAsync(name, options) {
  return { store: createStore(name, options), backend: name instanceof CustomStore || CustomStore.accepts(name) ? 'custom' : 'memory', fellBack: false, error: null };
}

module.exports = Object.freeze({ MemoryStore, createStore, createStoreAsync });
