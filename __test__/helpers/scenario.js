// Numbered scenarios over one server a file, or one for each store. RESTANTE_LONG=1 runs the sizes of
// the specification where the everyday run takes smaller ones.
'use strict';
const { describe, test, before, after } = require('node:test');
const { startServer } = require('./server');
const { PLACES, STORES } = require('./stores');

const long = process.env.RESTANTE_LONG === '1';

/** `numbered('P8', 'what users see', async (t) => …)`: a case or a promise by its number. */
function numbered(label, sentence, body) {
  test(`${label}: ${sentence}`, { timeout: long ? 600_000 : 60_000 }, body);
}

/** `scenario(22, 'what users see', async (t) => …)`. */
function scenario(number, sentence, body) {
  numbered(`scenario ${number}`, sentence, body);
}

/**
 * One server for all scenarios of a file or suite: an object with `port` and `server`, filled before the first, and
 * `another(t, options)`, which starts one of its own for one scenario on a new store of the same kind.
 */
function sharedServer(options, store = 'memory') {
  let place;
  const shared = {
    store,
    get port() {
      return shared.server.port;
    },
    async another(t, more) {
      const server = await startServer({ ...place.fresh(), ...more });
      t.after(() => server.stop());
      return server;
    },
  };
  before(async () => {
    place = await PLACES[store]();
    shared.server = await startServer({ ...place.fresh(), ...options });
  });
  after(async () => {
    await shared.server?.stop();
    await place?.close();
  });
  return shared;
}

/** `onEachStore((server) => …)`: what is inside once for each store, with a shared server on it. */
function onEachStore(body, stores = STORES) {
  for (const store of stores) describe(`on ${store}`, () => body(sharedServer({}, store)));
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

module.exports = { numbered, scenario, sharedServer, onEachStore, long, sleep };
