'use strict';
// messages(): deliveries as an async iterable.
const assert = require('node:assert/strict');
const { getEventListeners, once } = require('node:events');
const { test } = require('node:test');
const { startServer, until, within, sleep } = require('./helpers');

const settled = (server, n = 0) => until(async () => (await server.getStats({ queues: true })).queues.every(({ waiting }) => waiting === n), `${n} waiting`);

test('items come in order and are acked when the next one is asked for', async (t) => {
  const { consumer, producer, server } = await startServer(t);
  const [c, p] = [await consumer('c'), await producer('p')];
  const seen = [];
  const stream = c.messages('p', 'e', { durable: true, ack: true });
  await stream.ready;
  for (let i = 0; i < 5; i++) p.produce('e', i, { headers: { n: String(i) } });
  for await (const item of stream) {
    seen.push(item.message);
    assert.deepEqual([item.from, item.event, item.headers, item.delivery_attempt, item.redelivered, typeof item.msgId], ['p', 'e', { n: String(item.message) }, 1, false, 'string']);
    assert.equal(item.raw.message, item.message);
    if (seen.length === 5) {
      item.ack();
      break;
    }
  }
  assert.deepEqual(seen, [0, 1, 2, 3, 4]);
  await settled(server);
});

test('nack, working and manual_ack work on items', async (t) => {
  const { consumer, producer, server } = await startServer(t);
  const [c, p] = [await consumer('c'), await producer('p')];
  const stream = c.messages('e', { durable: true, manual_ack: true, retry: { delay: '10ms' } });
  await stream.ready;
  p.produce('e', 'x');
  const first = (await stream.next()).value;
  first.working();
  first.nack();
  const second = (await within(5000, stream.next(), 'a retry')).value;
  assert.deepEqual([second.delivery_attempt, second.redelivered], [2, true]);
  second.ack();
  await settled(server);
  await stream.return();
  assert.deepEqual(await stream.next(), { value: undefined, done: true });
});

test('break leaves the durable subscription in place, and what was not acked comes again (P5)', async (t) => {
  const { consumer, producer, server } = await startServer(t);
  const p = await producer('p');
  const c = await consumer('c');
  const stream = c.messages('p', 'e', { durable: true, ack: true });
  await stream.ready;
  for (let i = 0; i < 5; i++) await p.produce('e', i, { confirm: true });
  for await (const item of stream) if (item.message === 2) break;
  // Acked: 0 and 1. In hand: 2. Not looked at: 3 and 4.
  await settled(server, 3);
  assert.equal((await p.produce('e', 5, { confirm: true })).queued, 1);
  await c.close();
  const seen = [];
  const back = await consumer('c');
  for await (const item of back.messages('p', 'e', { durable: true, ack: true })) {
    seen.push(item.message);
    item.ack();
    if (seen.length === 4) break;
  }
  assert.deepEqual(seen.sort(), [2, 3, 4, 5]);
  await settled(server);
});

test('a throw inside the loop detaches too', async (t) => {
  const { consumer, producer, server } = await startServer(t);
  const [c, p] = [await consumer('c'), await producer('p')];
  const stream = c.messages('e', { durable: true, ack: true });
  await stream.ready;
  p.produce('e', 1);
  await assert.rejects(async () => {
    for await (const item of stream) throw new Error(`at ${item.message}`);
  }, /at 1/);
  await settled(server, 1);
});

test('a signal ends it: before, while waiting, while items wait, and after (TC-J05)', async (t) => {
  const { consumer, producer, server } = await startServer(t);
  const [c, p] = [await consumer('c'), await producer('p')];
  const reason = new Error('enough');
  const aborted = (error) => error.name === 'AbortError' && error.cause === reason;
  const drainAll = async (stream) => {
    for await (const item of stream) item.ack();
  };

  await assert.rejects(drainAll(c.messages('e', { signal: AbortSignal.abort(reason) })), aborted);
  assert.equal(server.getStats().realms.default?.subscriptions ?? 0, 0);

  const controller = new AbortController();
  const waiting = drainAll(c.messages('e', { signal: controller.signal }));
  await until(() => server.getStats().realms.default.subscriptions === 1, 'a subscription');
  p.produce('e', 1);
  await sleep(20);
  controller.abort(reason);
  await assert.rejects(waiting, aborted);

  const late = new AbortController();
  const stream = c.messages('e2', { signal: late.signal });
  await stream.return();
  assert.equal(getEventListeners(late.signal, 'abort').length, 0);
  late.abort(reason);
  assert.deepEqual(await stream.next(), { value: undefined, done: true });

  // The same on subscribe().
  const third = new AbortController();
  const got = [];
  await c.subscribe('e3', (message) => got.push(message), { signal: third.signal, durable: true });
  p.produce('e3', 1);
  await until(() => got.length === 1, 'a message');
  third.abort();
  await p.produce('e3', 2, { confirm: true });
  await sleep(20);
  assert.deepEqual(got, [1]);
  await assert.rejects(c.subscribe('e4', () => {}, { signal: AbortSignal.abort(reason) }), aborted);
});

test('a refused subscription and a closed connection end the iteration', async (t) => {
  const { consumer } = await startServer(t);
  const c = await consumer('c');
  await assert.rejects(c.messages('e', { ack_timeout: 'soon' }).next(), /ack_timeout/);
  const stream = c.messages('e');
  const next = stream.next();
  await c.close();
  assert.deepEqual(await within(2000, next, 'the end'), { value: undefined, done: true });
});

test('while a slow loop holds deliveries back, answers still come and nothing is lost', async (t) => {
  const { consumer, producer } = await startServer(t);
  const [c, p] = [await consumer('c'), await producer('p')];
  const stream = c.messages('p', 'e');
  await stream.ready;
  const pad = 'x'.repeat(500);
  const total = 5000; // five times what the stream keeps itself
  for (let i = 0; i < total; i++) if (!p.produce('e', { i, pad })) await once(p, 'drain');
  await p.flush();
  let seen = 0;
  for await (const item of stream) {
    assert.equal(item.message.i, seen);
    if (seen === 10) await within(5000, c.subscribe('other', () => {}), 'an answer while deliveries are held');
    if (++seen === total) break;
  }
});

test('a loop that does not read stops the reading of its socket, and goes on where it was', async (t) => {
  const { consumer, producer } = await startServer(t);
  const [c, p] = [await consumer('c'), await producer('p')];
  const stream = c.messages('p', 'e', { durable: true, ack: true, prefetch: 2000 });
  await stream.ready;
  const pad = 'x'.repeat(20_000);
  const total = 1500; // 30 MB: more than the process keeps unread
  for (let i = 0; i < total; i++) if (!p.produce('e', { i, pad })) await once(p, 'drain');
  await p.flush();
  await sleep(500);
  let seen = 0;
  for await (const item of stream) {
    assert.equal(item.message.i, seen);
    if (++seen === total) break;
  }
});
