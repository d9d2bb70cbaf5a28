'use strict';
// Another store in the place of the one in force, through the package.
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { newFolder } = require('../helpers/folder');
const restante = require('../..');
const { startRedis } = require('../helpers/redis');
const { startServer, inbox, quiet, until } = require('./helpers');

test('what waits moves to another store, and the next start goes on with that', async (t) => {
  const data_dir = newFolder();
  const filename = path.join(data_dir, 'queue.sqlite');
  const first = await startServer(t, { data_dir });
  const away = await first.consumer('billing');
  await away.subscribe('paid', () => {}, { durable: true, ack: true });
  await away.close();
  const producer = await first.producer('orders');
  for (const n of [1, 2, 3]) await producer.produce('paid', n, { confirm: true });
  assert.equal(first.server.getStats().store.level, 'memory');
  const change = await first.server.setPersistence({ storage: 'sqlite', storage_options: { filename } });
  assert.deepEqual(change.migrated, { messages: 3, dlq: 0, subscriptions: 1 });
  assert.deepEqual([change.storage, change.level, typeof change.paused_ms], ['sqlite', 'disk', 'number']);
  const { storage, level } = first.server.getStats().store;
  assert.deepEqual([storage, level], ['sqlite', 'disk']);
  await producer.produce('paid', 4, { confirm: true });
  await first.server.stop();

  const warned = [];
  const second = await startServer(t, { data_dir, logger: { ...quiet, warn: (text) => warned.push(text) } });
  assert.match(warned.join('\n'), /the store is sqlite .*queue\.sqlite, as set while the server ran, and not memory, .*restante\.state\.json/);
  const back = await second.consumer('billing');
  const box = inbox();
  await back.subscribe('paid', box.handler, { durable: true, ack: true });
  await box.grown(4);
  assert.deepEqual(box.messages(), [1, 2, 3, 4]);
});

test('of two changes at once the second is refused and the first is made', async (t) => {
  const data_dir = newFolder();
  const { server } = await startServer(t, { data_dir });
  const change = (name) => server.setPersistence({ storage: 'sqlite', storage_options: { filename: path.join(data_dir, name) } });
  const [first, second] = await Promise.allSettled([change('one.sqlite'), change('other.sqlite')]);
  assert.deepEqual([first.value?.storage, second.reason?.code, second.reason?.number], ['sqlite', 'swap_in_progress', 409]);
  assert.deepEqual(fs.readdirSync(data_dir).filter((name) => name.startsWith('other')), []);
});

test('a change that cannot be is refused, and nothing changes', async (t) => {
  const data_dir = newFolder();
  const filename = path.join(data_dir, 'queue.sqlite');
  const { server } = await startServer(t, { data_dir, storage: 'sqlite', storage_options: { filename } });
  await assert.rejects(server.setPersistence({ storage: 'memory' }), { code: 'config', message: /force/ });
  const away = { url: 'redis://127.0.0.1:1' };
  await assert.rejects(server.setPersistence({ storage: 'redis', storage_options: away }), { code: 'store_unavailable' });
  await assert.rejects(server.setPersistence({}), { code: 'bad_command' });
  for (const force of ['false', 'no', 1, {}]) await assert.rejects(server.setPersistence({ storage: 'memory', force }), { code: 'bad_command', message: /force/ });
  await assert.rejects(server.setPersistence({ storage: 'sqlite', storage_options: { filename } }), { code: 'store_locked' });
  assert.equal(server.getStats().store.storage, 'sqlite');
  assert.deepEqual(fs.readdirSync(data_dir).filter((name) => name.endsWith('.json')), []);
  const store = new restante.Storage.MemoryStore();
  assert.equal((await server.setPersistence({ storage: store, force: true })).level, 'memory');
});

test('what waits moves to Redis and back, and the old one says where it went', async (t) => {
  const data_dir = newFolder();
  const redis = await startRedis(t);
  const filename = path.join(data_dir, 'queue.sqlite');
  const { server, consumer, producer } = await startServer(t, { data_dir, storage: 'redis', storage_options: { url: redis.url } });
  const away = await consumer('billing');
  await away.subscribe('paid', () => {}, { durable: true, ack: true });
  await away.close();
  const p = await producer('orders');
  for (const n of [1, 2, 3]) await p.produce('paid', n, { confirm: true });
  const toFile = await server.setPersistence({ storage: 'sqlite', storage_options: { filename } });
  assert.deepEqual(toFile.migrated, { messages: 3, dlq: 0, subscriptions: 1 });
  const back = { storage: 'redis', storage_options: { url: redis.url } };
  await assert.rejects(server.setPersistence(back), { code: 'config', message: /has moved to sqlite/ });
  const forced = await server.setPersistence({ ...back, force: true });
  assert.deepEqual(forced.migrated, { messages: 3, dlq: 0, subscriptions: 1 });
  const state = path.join(data_dir, 'restante.state.json');
  assert.equal(fs.statSync(state).mode & 0o077, 0, 'an address may hold a password');
  const box = inbox();
  await (await consumer('billing')).subscribe('paid', box.handler, { durable: true, ack: true });
  await box.grown(3);
  assert.deepEqual(box.messages(), [1, 2, 3]);
});

test('a Redis that is away at the start has a file in its place until it is back', async (t) => {
  const data_dir = newFolder();
  const redis = await startRedis(t, '--appendonly', 'yes');
  const said = [];
  const options = {
    data_dir,
    logger: { ...quiet, error: (text) => said.push(text) },
    storage: 'redis',
    storage_options: { url: redis.url, fallback: 'sqlite', fallbackPath: path.join(data_dir, 'meanwhile.sqlite') },
  };
  await redis.stop();
  const { server, consumer, producer } = await startServer(t, options);
  assert.match(said.join('\n'), /Redis is away/);
  const { storage, fallback, degraded, warnings } = server.getStats().store;
  assert.deepEqual([storage, fallback, degraded, warnings.length], ['sqlite', 1, true, 1]);
  const box = inbox();
  await (await consumer('billing')).subscribe('paid', box.handler, { durable: true, ack: true });
  const p = await producer('orders');
  for (const n of [1, 2, 3]) await p.produce('paid', n, { confirm: true });
  await box.grown(3);
  await redis.start();
  await until(() => server.getStats().store.storage === 'redis' && server.getStats().store.fallback === undefined, 'Redis in force');
  // Both have come back by themselves.
  await until(() => p.produce('paid', 4, { confirm: true }).then(({ queued }) => queued === 1, () => false), 'a confirmed message');
  await until(() => box.messages().includes(4), 'its delivery');
  assert.equal(server.getStats().store.degraded, false);
});

test('a database that was chosen while the server ran beats another one in the options, which is told', async (t) => {
  const data_dir = newFolder();
  const [one, other] = ['one.sqlite', 'other.sqlite'].map((name) => path.join(data_dir, name));
  const sqlite = (filename, more) => ({ data_dir, storage: 'sqlite', storage_options: { filename, ...more } });
  const first = await startServer(t, sqlite(one));
  const { data_dir: _, ...wish } = sqlite(other, { synchronous: 'normal' });
  await first.server.setPersistence(wish);
  await first.server.stop();
  const told = async (options) => {
    const warned = [];
    const { server } = await startServer(t, { ...options, logger: { ...quiet, warn: (text) => warned.push(text) } });
    await server.stop();
    return warned.join('\n');
  };
  const text = await told(sqlite(one));
  for (const name of [one, other, 'restante.state.json']) assert.ok(text.includes(name), text);
  assert.match(await told(sqlite(other)), /synchronous: normal/);
  assert.equal(await told(sqlite(other, { synchronous: 'normal' })), '');
});
