'use strict';
// What the tests of the package share. Waits for events, never for a hoped-for time.
const { fork } = require('node:child_process');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const restante = require('../..');
const { until } = require('../helpers/client');

const quiet = { log() {}, info() {}, warn() {}, error() {}, debug() {} };
let count = 0;
const unique = (name) => `${name}-${process.pid}-${++count}`;

/** A server of its own for one test; `factory(options)` makes clients of it. */
async function startServer(t, options = {}) {
  const server = new restante.Server({ host: '127.0.0.1', port: 0, logger: quiet, ...options });
  const { port } = await server.start();
  t.after(() => server.stop());
  const open = [];
  t.after(() => Promise.all(open.map((client) => client.close({ timeout: 0 }))));
  const factory = (more) => new restante.Factory({ host: '127.0.0.1', port, logger: quiet, ...more });
  const keep = (client) => {
    open.push(client);
    return client;
  };
  return {
    server,
    port,
    factory,
    keep,
    consumer: async (name = unique('c'), options) => keep(await factory().createConsumer(name, options)),
    producer: async (name = unique('p'), options) => keep(await factory().createProducer(name, options)),
  };
}

/** Collects what a handler is called with. */
function inbox() {
  const got = [];
  const handler = (message, from, ack, raw) => void got.push({ message, from, ack, raw });
  return { got, handler, messages: () => got.map(({ message }) => message), grown: (n) => until(() => got.length >= n && got, () => `${n} messages, got ${got.length}`) };
}

/** Fails if `promise` is not settled in time. */
function within(ms, promise, what = 'a promise') {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error(`${what} is not settled after ${ms} ms`)), ms)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Runs `fixtures/<name>.js` and resolves `{code, signal, output, ms}` when it has ended. */
function child(name, ...args) {
  const began = performance.now();
  const running = fork(path.join(__dirname, 'fixtures', `${name}.js`), args.map(String), { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] });
  let output = '';
  for (const stream of [running.stdout, running.stderr]) stream.on('data', (data) => (output += data));
  const kill = setTimeout(() => running.kill('SIGKILL'), 30_000);
  const ended = new Promise((resolve) => running.once('close', (code, signal) => resolve({ code, signal, output, ms: performance.now() - began })));
  ended.finally(() => clearTimeout(kill));
  return { running, ended, said: (word) => until(() => output.includes(word), () => `'${word}', it said: ${output}`) };
}

module.exports = { restante, quiet, unique, startServer, until, inbox, within, child, sleep };
