'use strict';
// A Redis client of the user's in the place of an address: ioredis and node-redis, with all that the store does.
const assert = require('node:assert/strict');
const path = require('node:path');
const { test } = require('node:test');
const IORedis = require('ioredis').default ?? require('ioredis');
const { createClient } = require('redis');
const { newFolder } = require('../helpers/folder');
const restante = require('../..');
const { startRedis } = require('../helpers/redis');
const { quiet, startServer, inbox, until, within } = require('./helpers');

const durable = { durable: true, ack: true };

const CLIENTS = {
  async ioredis(t, url) {
    const client = new IORedis(url, { maxRetriesPerRequest: 1, retryStrategy: () => 50 });
    client.on('error', () => {});
    t.after(() => client.disconnect());
    return client;
  },
  async 'node-redis'(t, url) {
    const client = createClient({ url, socket: { reconnectStrategy: () => 50 } });
    client.on('error', () => {});
    await client.connect();
    t.after(() => client.destroy());
    return client;
  },
};

for (const [name, connect] of Object.entries(CLIENTS)) {
  test(`what waits survives the broker through ${name}`, async (t) => {
    const redis = await startRedis(t);
    const client = await connect(t, redis.url);
    const storage = { storage: 'redis', storage_options: { client } };
    const first = await startServer(t, storage);
    assert.equal(first.server.getStats().store.storage, 'redis');
    const away = await first.consumer('billing');
    await away.subscribe('paid', () => {}, durable);
    await away.close();
    const producer = await first.producer('orders');
    // Every byte, and text that is none of any code page.
    const bytes = Buffer.from(Array.from({ length: 512 }, (_, n) => n % 256));
    const sent = Array.from({ length: 300 }, (_, n) => producer.produce('paid', { n, bytes, text: '\u{1F980}\r\n$-1\r\n' }, { confirm: true }));
    for (const { queued } of await Promise.all(sent)) assert.equal(queued, 1);
    await first.server.stop();

    // The client stays the user's, and the same keys are found by an address.
    const second = await startServer(t, { storage: new restante.Storage.RedisStore({ url: redis.url }) });
    const back = await second.consumer('billing');
    const box = inbox();
    await back.subscribe('paid', box.handler, durable);
    await box.grown(300);
    assert.deepEqual(box.messages().map(({ n }) => n), Array.from({ length: 300 }, (_, n) => n));
    assert.deepEqual(box.messages()[7].bytes, bytes);
  });

  test(`Redis goes and comes back under ${name}: nothing confirmed is lost, and nothing is stored twice`, async (t) => {
    const redis = await startRedis(t, '--appendonly', 'yes', '--appendfsync', 'always');
    const client = await connect(t, redis.url);
    const { server, consumer, producer } = await startServer(t, { storage: 'redis', storage_options: { client }, store_timeout: '1s' });
    const c = await consumer('billing');
    const box = inbox();
    await c.subscribe('paid', box.handler, durable);
    const p = await producer('orders');
    await p.produce('paid', { n: 1 }, { confirm: true });
    await redis.stop();
    await assert.rejects(p.produce('paid', { n: 2 }, { confirm: true }), ({ code }) => ['store_unavailable', 'store_timeout'].includes(code));
    await redis.start();
    await until(() => p.produce('paid', { n: 3 }, { confirm: true }).catch(() => null), 'a confirmed message');
    await until(() => box.messages().some(({ n }) => n === 3), 'its delivery');
    assert.equal(box.messages().filter(({ n }) => n === 3).length, 1);
    assert.equal(server.getStats().store.degraded, false);
  });
}

test('a client that answers text for bytes is refused at the start', async (t) => {
  const redis = await startRedis(t);
  const client = await CLIENTS.ioredis(t, redis.url);
  const texts = { sendCommand: ([name, ...args]) => client.call(String(name), ...args) };
  const server = new restante.Server({ port: 0, host: '127.0.0.1', logger: quiet, storage: 'redis', storage_options: { client: texts } });
  await assert.rejects(server.start(), { code: 'config', message: /client: it answers text/ });
});

test('what is no client is refused at once, and no change of the store takes a client', async (t) => {
  const server = (storage_options) => () => new restante.Server({ port: 0, logger: quiet, storage: 'redis', storage_options });
  for (const client of [{}, 7, 'redis://x']) assert.throws(server({ client }), { code: 'config', message: /callBuffer/ });
  // A client that has not come to be is none; it must not become a Redis on this machine.
  for (const client of [null, undefined]) assert.throws(server({ client }), { code: 'config', message: /client is (null|undefined)/ });
  const running = await startServer(t, {});
  const client = { sendCommand: async () => null };
  await assert.rejects(running.server.setPersistence({ storage: 'redis', storage_options: { client } }), { code: 'unsupported' });
});

test('a client that throws, hangs or answers nonsense is trouble of the store and nothing else', async (t) => {
  const data_dir = newFolder();
  const calls = [
    () => {
      throw new Error('closed');
    },
    async () => {
      throw new Error('closed');
    },
    async () => 'nonsense',
    async () => ({}),
    () => new Promise(() => {}),
  ];
  for (const sendCommand of calls) {
    const storage_options = { client: { sendCommand }, fallback: 'sqlite', fallback_filename: path.join(data_dir, 'f.sqlite'), probe_timeout: 300 };
    const refusing = new restante.Server({ port: 0, host: '127.0.0.1', data_dir, logger: quiet, storage: 'redis', storage_options });
    const outcome = await refusing.start().then(() => refusing.getStats().store.fallback, ({ code }) => code);
    assert.ok(outcome === 1 || outcome === 'config' || outcome.startsWith('store_'), outcome);
    await refusing.stop();
  }
});

test('a client that never answers is a start that fails in time (P32)', async () => {
  const client = { sendCommand: () => new Promise(() => {}) };
  const server = new restante.Server({ storage: 'redis', storage_options: { client }, store_timeout: '300ms', logger: quiet });
  await within(5000, assert.rejects(server.start(0), { code: 'store_unavailable' }), 'the refusal');
  await within(5000, server.stop(), 'the stop');
});
