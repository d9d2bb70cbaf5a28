// Where the messages of a test's server wait: the stores that the broker has, real ones. Knows no server.
'use strict';
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { unique } = require('./client');
const { redisServer } = require('./redis');

/**
 * For each store a place: `fresh()` answers options of a server that name a new, empty store there, which is still there for
 * the next server with the same options; `close()` ends the place.
 */
const PLACES = {
  async memory() {
    return { fresh: () => ({ storage: 'memory' }), close() {} };
  },
  async sqlite() {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restante-stores-'));
    return {
      fresh: () => ({ storage: 'sqlite', storage_options: { filename: path.join(folder, `${unique('s')}.sqlite`) } }),
      close: () => fs.rmSync(folder, { recursive: true }),
    };
  },
  async redis() {
    const redis = await redisServer();
    return { fresh: () => ({ storage: 'redis', storage_options: { url: redis.url, prefix: unique('s'), lease: '2s' } }), close: () => redis.close() };
  },
};

module.exports = { PLACES, STORES: Object.keys(PLACES), LASTING: ['sqlite', 'redis'] };
