'use strict';
// The Redis store through the package: what waits survives broker and Redis; trouble is told and passes.
const assert = require('node:assert/strict');
const { test } = require('node:test');
const restante = require('../..');
const { startRedis } = require('../helpers/redis');
const { quiet, startServer, inbox, until, within } = require('./helpers');

const durable = { durable: true, ack: true };

test('what waits survives the broker and a restart of Redis', async (t) => {
  const redis = await startRedis(t, '--appendonly', 'yes', '--appendfsync', 'always');
  const storage = { storage: 'redis', storage_options: { url: redis.url } };
  const first = await startServer(t, storage);
  const away = await first.consumer('billing');
  await away.subscribe('paid', () => {}, durable);
  await away.close();
  const producer = await first.producer('orders');
  const bytes = Buffer.from([0, 1, 255]);
  for (const n of [1, 2, 3]) assert.equal((await producer.produce('paid', { n, bytes }, { confirm: true })).queued, 1);
  await first.server.stop();
  await redis.stop();
  await redis.start();

  const second = await startServer(t, { storage: new restante.Storage.RedisStore({ url: redis.url }) });
  const back = await second.consumer('billing');
  const box = inbox();
  await back.subscribe('paid', box.handler, durable);
  await box.grown(3);
  assert.deepEqual(box.messages().map(({ n }) => n), [1, 2, 3]);
  assert.deepEqual(box.messages()[0].bytes, bytes);
});

test('Redis goes and comes back under a running broker: nothing confirmed is lost, no restart is needed', async (t) => {
  const redis = await startRedis(t, '--appendonly', 'yes', '--appendfsync', 'always');
  const { server, consumer, producer } = await startServer(t, { storage: 'redis', storage_options: { url: redis.url }, store_timeout: '500ms' });
  const c = await consumer('billing');
  const box = inbox();
  await c.subscribe('paid', box.handler, durable);
  const p = await producer('orders');
  await p.produce('paid', { n: 1 }, { confirm: true });
  await redis.stop();
  await assert.rejects(p.produce('paid', { n: 2 }, { confirm: true }), ({ code }) => ['store_unavailable', 'store_timeout'].includes(code));
  assert.equal(server.getStats().store.degraded, true);
  await redis.start();
  const again = () => p.produce('paid', { n: 3 }, { confirm: true }).catch(() => null);
  await until(again, 'a confirmed message');
  await until(() => box.messages().some(({ n }) => n === 3), 'its delivery');
  assert.equal(server.getStats().store.degraded, false);
});

test('without a Redis the start is refused, and close ends at once', async (t) => {
  const redis = await startRedis(t);
  await redis.stop();
  const server = new restante.Server({ port: 0, host: '127.0.0.1', logger: quiet, storage: 'redis', storage_options: { url: redis.url } });
  await assert.rejects(server.start(), { code: 'store_unavailable', message: /127\.0\.0\.1/ });
  await server.stop();
});

test('close ends in time when Redis went away under a running server', async (t) => {
  const redis = await startRedis(t);
  const { server, consumer, producer } = await startServer(t, { storage: 'redis', storage_options: { url: redis.url } });
  const c = await consumer('billing');
  await c.subscribe('paid', () => {}, durable);
  const p = await producer('orders');
  await redis.stop();
  await assert.rejects(p.produce('paid', 1, { confirm: true, timeout: '1s' }));
  await within(15_000, server.stop({ timeout: '2s' }), 'stop');
});

test('a Redis that evicts is a warning, and a refusal with strict', async (t) => {
  const redis = await startRedis(t, '--maxmemory-policy', 'allkeys-lru');
  const storage_options = { url: redis.url };
  const { server } = await startServer(t, { storage: 'redis', storage_options });
  assert.match(server.getStats().store.warnings.join(), /allkeys-lru/);
  const strict = new restante.Server({ port: 0, host: '127.0.0.1', logger: quiet, storage: 'redis', storage_options: { ...storage_options, strict: true } });
  await assert.rejects(strict.start(), { code: 'config', message: /allkeys-lru/ });
});

test('a Redis that comes back empty costs what waited, not the subscription of who is connected (P31)', async (t) => {
  const redis = await startRedis(t, '--appendonly', 'no');
  const { consumer, producer } = await startServer(t, { storage: 'redis', storage_options: { url: redis.url } });
  const [c, p] = [await consumer('c'), await producer('p')];
  const box = inbox();
  await c.subscribe('p', 'e', box.handler, { durable: true, ack: true });
  await p.produce('e', 'before', { confirm: true });
  await box.grown(1);
  await redis.stop();
  await redis.start();
  const after = async () => (await p.produce('e', 'after', { confirm: true, timeout: '20s' }).catch(() => ({}))).queued === 1;
  await until(after, 'the subscription', 30_000);
  await until(() => box.messages().includes('after'), 'the message');
});
