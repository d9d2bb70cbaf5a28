'use strict';
// The SQLite store through the package: what waits survives the server, and what operators see of it.
const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const path = require('node:path');
const { test } = require('node:test');
const { newFolder } = require('../helpers/folder');
const restante = require('../..');
const { quiet, startServer, inbox, until } = require('./helpers');

const sqlite = (filename) => ({ storage: 'sqlite', storage_options: { filename } });

test('what waits survives a restart of the server', async (t) => {
  const filename = path.join(newFolder(), 'store.sqlite');
  const first = await startServer(t, sqlite(filename));
  const away = await first.consumer('billing');
  await away.subscribe('paid', () => {}, { durable: true, ack: true });
  await away.close();
  const producer = await first.producer('orders');
  const bytes = Buffer.from([0, 1, 255]);
  for (const n of [1, 2, 3]) assert.equal((await producer.produce('paid', { n, bytes }, { confirm: true })).queued, 1);
  await first.server.stop();

  const second = await startServer(t, { storage: new restante.Storage.SqliteStore({ filename, synchronous: 'normal' }) });
  const back = await second.consumer('billing');
  const box = inbox();
  await back.subscribe('paid', box.handler, { durable: true, ack: true });
  await box.grown(3);
  assert.deepEqual(box.messages().map(({ n }) => n), [1, 2, 3]);
  assert.deepEqual(box.messages()[0].bytes, bytes);
});

test('a second server on one file is refused, and the file is free after a stop', async (t) => {
  const filename = path.join(newFolder(), 'store.sqlite');
  const first = await startServer(t, sqlite(filename));
  const second = new restante.Server({ host: '127.0.0.1', port: 0, logger: quiet, ...sqlite(filename) });
  await assert.rejects(second.start(), { code: 'store_locked', message: new RegExp(String(process.pid)) });
  await first.server.stop();
  await second.start();
  await second.stop();
});

test('a place that cannot be used is named', async (t) => {
  const server = new restante.Server({ port: 0, host: '127.0.0.1', logger: quiet, ...sqlite(path.join(newFolder(), 'none', 'x.sqlite')) });
  await assert.rejects(server.start(), { code: 'config', message: /none/ });
  const odd = [['synchronous', 'off'], ['busy_timeout', -1], ['filename', 5], ['filename', ''], ['filename', { path: 'x' }], ['default_ttl', 'soon'], ['force', 1]];
  for (const [name, value] of odd) {
    assert.throws(() => new restante.Server({ storage: 'sqlite', storage_options: { [name]: value } }), { code: 'config', message: new RegExp(name) });
  }
  for (const url of [{}, 5, new URL('redis://127.0.0.1')]) {
    assert.throws(() => new restante.Server({ storage: 'redis', storage_options: { url } }), { code: 'config', message: /url/ });
  }
  assert.throws(() => new restante.Server({ storage: 'sqlite', storage_options: 'x.sqlite' }), { code: 'config', message: /storage_options/ });
  const name = new restante.Server({ port: 0, host: '127.0.0.1', logger: quiet, ...sqlite('file:x.sqlite') });
  await assert.rejects(name.start(), { code: 'config', message: /not an address/ });
});

test('an option of the store that nobody reads is named', async (t) => {
  const warned = [];
  const logger = { ...quiet, warn: (text) => warned.push(text) };
  new restante.Server({ logger, storage: 'sqlite', storage_options: { filename: 'x', colour: 1, busyTimeout: 5 } });
  assert.deepEqual(warned.splice(0), ['restante: option storage_options.colour is unknown and ignored']);
  new restante.Server({ logger, storage: 'memory', storage_options: { filename: 'x' } });
  assert.match(warned.splice(0).join(), /storage_options\.filename is unknown/);
  new restante.Server({ logger, storage: new restante.Storage.MemoryStore({ ttl: 5 }), storage_options: { default_ttl: 5 } });
  assert.match(warned.splice(0).join(), /storage_options\.ttl is unknown.*storage_options is ignored/);
  const { server } = await startServer(t, { logger, data_dir: newFolder() });
  await server.setPersistence({ storage: 'memory', storage_options: { size: 5 }, sure: true });
  assert.match(warned.splice(0).join(), /option sure is unknown.*storage_options\.size is unknown/);
});

test('a backup is a database of its own; statistics say how the store is doing', async (t) => {
  const made = newFolder();
  const first = await startServer(t, sqlite(path.join(made, 'store.sqlite')));
  const away = await first.consumer('billing');
  await away.subscribe('paid', () => {}, { durable: true });
  await away.close();
  const producer = await first.producer('orders');
  await producer.produce('paid', 1, { confirm: true });
  const copy = path.join(made, 'copy.sqlite');
  await first.server.backup(copy);
  await assert.rejects(first.server.backup(copy), { code: 'config' });
  await assert.rejects(first.server.backup(), { code: 'bad_command' });
  const store = await until(() => first.server.getStats().store.file_bytes > 0 && first.server.getStats().store, 'sizes');
  assert.deepEqual([store.state, store.degraded, store.last_error, store.warnings], ['ok', false, null, []]);
  const counted = await until(() => first.server.getStats().store.oldest !== null && first.server.getStats().store, 'what waits to be counted');
  assert.deepEqual([counted.depth.messages, counted.delayed, counted.dead_letters], [1, 0, 0]);
  assert.ok(counted.depth.bytes > 0 && counted.oldest >= 0 && counted.wal_bytes >= 0);

  const second = await startServer(t, sqlite(copy));
  const { queues } = await second.server.getStats({ queues: true });
  assert.deepEqual(queues.map(({ name, waiting }) => [name, waiting]), [['billing', 1]]);

  const memory = await startServer(t);
  await assert.rejects(memory.server.backup(path.join(made, 'no.sqlite')), { code: 'store_unsupported' });
});

test('a backup that is taken under load holds all that was confirmed before it began', async (t) => {
  const made = newFolder();
  const first = await startServer(t, sqlite(path.join(made, 'store.sqlite')));
  const away = await first.consumer('billing');
  await away.subscribe('paid', () => {}, { durable: true, ack: true });
  await away.close();
  const producer = await first.producer('orders');
  let confirmed = 0;
  let isOver = false;
  const load = Array.from({ length: 16 }, async () => {
    while (!isOver) {
      await producer.produce('paid', 'x'.repeat(500), { confirm: true });
      confirmed++;
    }
  });
  await until(() => confirmed >= 500, 'some load');
  const copy = path.join(made, 'copy.sqlite');
  const before = confirmed;
  await first.server.backup(copy);
  const after = confirmed;
  isOver = true;
  await Promise.all(load);
  assert.ok(after > before, 'work went on meanwhile');

  const second = await startServer(t, sqlite(copy));
  const { queues } = await second.server.getStats({ queues: true });
  assert.ok(queues[0].waiting >= before, `${queues[0].waiting} of ${before}`);
  await second.server.stop();
  const whole = spawnSync(process.execPath, [path.join(__dirname, '../../bin/restante.js'), 'store', 'check', '--filename', copy], { encoding: 'utf8' });
  assert.equal(whole.status, 0, whole.stderr);
});
