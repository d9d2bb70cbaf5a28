// Numbered scenarios over one server a file. RESTANTE_LONG=1 runs the sizes of the specification
// where the everyday run takes smaller ones.
'use strict';
const { test, before, after } = require('node:test');
const { startServer } = require('./server');

const long = process.env.RESTANTE_LONG === '1';

/** `numbered('P8', 'what users see', async (t) => …)`: a case or a promise by its number. */
function numbered(label, sentence, body) {
  test(`${label}: ${sentence}`, { timeout: long ? 600_000 : 60_000 }, body);
}

/** `scenario(22, 'what users see', async (t) => …)`. */
function scenario(number, sentence, body) {
  numbered(`scenario ${number}`, sentence, body);
}

/** One server for all scenarios of a file: an object with `port`, filled before the first. */
function sharedServer(options) {
  const shared = {};
  before(async () => {
    const server = await startServer(options);
    shared.port = server.port;
    shared.server = server;
  });
  after(() => shared.server?.stop());
  return shared;
}

/** A server with options of its own for one scenario. */
async function serverFor(t, options) {
  const server = await startServer(options);
  t.after(() => server.stop());
  return server;
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

module.exports = { numbered, scenario, sharedServer, serverFor, long, sleep };
