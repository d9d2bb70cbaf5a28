'use strict';
// Subscriptions: forms, what handlers get, settling, errors, detaching.
const assert = require('node:assert/strict');
const { once } = require('node:events');
const { test } = require('node:test');
const { startServer, inbox, until, unique, sleep, quiet } = require('./helpers');

const FORMS = {
  '(event, handler)': (c, { event, fn }) => c.subscribe(event, fn),
  '({event}, handler)': (c, { event, fn }) => c.subscribe({ event }, fn),
  '(event, handler, options)': (c, { event, fn }) => c.subscribe(event, fn, { durable: true }),
  '(event, handler, boolean)': (c, { event, fn }) => c.subscribe(event, fn, false),
  '(who, event, handler)': (c, { who, event, fn }) => c.subscribe(who, event, fn),
  '(who, event, handler, options)': (c, { who, event, fn }) => c.subscribe(who, event, fn, { requireAck: true }),
  '(who, event, handler, true)': (c, { who, event, fn }) => c.subscribe(who, event, fn, true),
  '(context, who, event, handler)': (c, { who, event, on }) => c.subscribe({ mine: 1 }, who, event, on),
  '(context, who, event, handler, options)': (c, { who, event, on }) => c.subscribe({ mine: 1 }, who, event, on, { reconnect: true, durable: true }),
  '(topic, handler, {mode})': (c, { event, fn }) => c.subscribe(`${event}/#`, fn, { mode: 'topic' }),
  'Once(who, event, handler)': (c, { who, event, fn }) => c.subscribeOnce(who, event, fn),
  'Once(context, who, event, handler)': (c, { who, event, on }) => c.subscribeOnce({ mine: 1 }, who, event, on),
  'All(context, event, handler)': (c, { event, on }) => c.subscribeAll({ mine: 1 }, event, on),
  'All(event, handler, options)': (c, { event, fn }) => c.subscribeAll(event, fn, { ack: true }),
  'Producer(who, handler)': (c, { who, fn }) => c.subscribeProducer(who, fn),
  'Producer(who, handler, options)': (c, { who, fn }) => c.subscribeProducer(who, fn, { durable: true }),
};

for (const [form, subscribe] of Object.entries(FORMS)) {
  test(`subscribe${form}`, async (t) => {
    const { consumer, producer } = await startServer(t);
    const [c, p] = [await consumer(), await producer()];
    const { handler, got, grown } = inbox();
    const contexts = [];
    const on = function (...args) {
      contexts.push(this);
      handler(...args);
    };
    const event = unique('e');
    const answer = await subscribe(c, { who: p.name, event, fn: handler, on });
    assert.match(answer.consume_event, /^CONSUME-/);
    assert.equal(answer.queued, 0);
    p.produce(event, { n: 1 });
    const [{ message, from, ack, raw }] = await grown(1);
    assert.deepEqual([message, from, raw.event, raw.from], [{ n: 1 }, p.name, event, p.name]);
    assert.equal(typeof ack, 'function');
    assert.equal(typeof ack.nack, 'function');
    assert.equal(got.length, 1);
    if (form.includes('context')) assert.deepEqual(contexts, [{ mine: 1 }]);
  });
}

test('subscribing again replaces the handler; nothing multiplies (TC-B09)', async (t) => {
  const { consumer, producer, server } = await startServer(t);
  const [c, p] = [await consumer(), await producer()];
  const [first, second] = [inbox(), inbox()];
  await c.subscribe(p.name, 'e', first.handler);
  await c.subscribe(p.name, 'e', first.handler);
  p.produce('e', 1);
  await first.grown(1);
  await c.subscribe(p.name, 'e', second.handler);
  for (let i = 0; i < 10; i++) await p.produce('e', i, { confirm: true });
  await second.grown(10);
  assert.equal(first.got.length, 1);
  assert.equal(second.got.length, 10);
  assert.equal(server.getStats().realms.default.subscriptions, 1);
});

test('bad subscriptions reject with codes, awaited or not (TC-J06)', async (t) => {
  const { consumer } = await startServer(t);
  const c = await consumer();
  const errors = [];
  c.on('error', (error) => errors.push(error.code));
  await assert.rejects(c.subscribe('e'), TypeError);
  await assert.rejects(c.subscribe('', () => {}), TypeError);
  await assert.rejects(c.subscribe('a\u0000b', () => {}), { code: 'bad_name' });
  await assert.rejects(c.subscribe('e', () => {}, { prefetch: 0 }), { code: 'bad_command' });
  await assert.rejects(c.subscribe('e', () => {}, { mode: 'tpoic' }), { code: 'bad_command' });
  c.subscribe('e', () => {}, { retry: { max_attempts: 0 } }); // not awaited: told to 'error', never fatal
  await until(() => errors.length === 6, 'errors');
});

test('an option that nobody knows is told once, by its name, and ignored', async (t) => {
  const { factory, keep } = await startServer(t);
  const warned = [];
  const logger = { ...quiet, warn: (text) => warned.push(text) };
  const p = keep(await factory({ logger }).createProducer('p'));
  for (const n of [1, 2]) {
    await p.subscribe(`e${n}`, () => {}, { durabel: true, retry: { maxAttemps: 3 } });
    await p.produce('e', n, { confirm: true, tttl: 5 });
    await p.unsubscribe(`e${n}`, undefined, { porge: true });
  }
  assert.deepEqual(warned.map((text) => /option '(.*)'/.exec(text)?.[1]), ['durabel', 'retry.maxAttemps', 'tttl', 'porge']);
});

test('in ack mode a returned or resolved handler acks, a thrown or rejected one fails at once (TC-F07)', async (t) => {
  const { consumer, producer, server } = await startServer(t);
  const [c, p] = [await consumer(), await producer()];
  const circular = new Error('circular');
  circular.cause = circular;
  const attempts = {};
  await c.subscribe(p.name, 'e', async (how, _, ack, raw) => {
    (attempts[how] ??= []).push(raw.delivery_attempt);
    if (raw.delivery_attempt > 1) return;
    if (how === 'throws') throw new Error('no');
    if (how === 'undefined') throw undefined;
    if (how === 'circular') throw circular;
    if (how === 'later') await Promise.reject(new Error('later'));
  }, { durable: true, ack: true, ack_timeout: '30s', retry: { delay: '50ms', max_attempts: 3 } });
  await c.subscribe(p.name, 'sync', (how, _, ack, raw) => {
    (attempts.sync ??= []).push(raw.delivery_attempt);
    if (raw.delivery_attempt === 1) throw new TypeError('sync');
  }, { durable: true, ack: true, retry: { delay: '50ms' } });
  for (const how of ['fine', 'throws', 'undefined', 'circular', 'later']) p.produce('e', how);
  p.produce('sync', 'sync');
  await until(() => Object.values(attempts).flat().length === 11, 'retries');
  assert.deepEqual(attempts, { fine: [1], throws: [1, 2], undefined: [1, 2], circular: [1, 2], later: [1, 2], sync: [1, 2] });
  await until(async () => (await server.getStats({ queues: true })).queues.every(({ waiting }) => waiting === 0), 'empty queues');
});

test('a handler that always fails ends in a dead letter with its reason (P10, P37)', async (t) => {
  const { consumer, producer, server } = await startServer(t);
  const [c, p] = [await consumer(), await producer()];
  let calls = 0;
  await c.subscribe(p.name, 'e', () => {
    calls++;
    throw new Error('not today');
  }, { durable: true, ack: true, retry: { max_attempts: 2, delay: '20ms' } });
  await p.produce('e', { n: 7 }, { confirm: true });
  const [letter] = await until(async () => (await server.deadLetters()).length === 1 && server.deadLetters(), 'a dead letter');
  assert.equal(calls, 2);
  assert.deepEqual([letter.message.message, letter.producer, letter.consumer, letter.attempts], [{ n: 7 }, p.name, c.name, 2]);
  assert.match(letter.last_error, /not today/);
  assert.equal(new Date(letter.dead_lettered_at).toISOString(), letter.dead_lettered_at);
  await server.requeueDeadLetter(letter.id);
  await until(() => calls === 4, 'two more attempts');
  await until(async () => (await server.deadLetters()).length === 1, 'a dead letter again');
  await assert.rejects(server.discardDeadLetter('1-99'), { code: 'dead_letter_unknown' });
  assert.equal(await server.purgeDeadLetters(), 1);
  assert.deepEqual(await server.deadLetters(), []);
});

test('manual ack: nack with delay, nack without requeue, working, ack twice', async (t) => {
  const { consumer, producer, server } = await startServer(t);
  const [c, p] = [await consumer(), await producer()];
  const { handler, got, grown } = inbox();
  await c.subscribe(p.name, 'e', handler, { durable: true, manual_ack: true, ack_timeout: '600ms', retry: { delay: '1h' } });
  p.produce('e', 'returned');
  await grown(1);
  got[0].ack.nack({ delay: '20ms', reason: 'busy' });
  await grown(2);
  assert.deepEqual([got[1].message, got[1].raw.delivery_attempt], ['returned', 2]);
  assert.throws(() => got[1].ack.nack({ delay: 'soon' }), /delay/);
  got[1].ack.nack({ requeue: false, reason: 'useless' });
  await until(async () => (await server.deadLetters()).length === 1, 'a dead letter');
  p.produce('e', 'slow');
  await grown(3);
  // Longer than the ack timeout, but it says that it is at it.
  for (let i = 0; i < 6; i++) {
    await sleep(200);
    got[2].ack.working();
  }
  got[2].ack();
  got[2].ack();
  got[2].ack.nack(); // too late, and it does nothing
  await until(async () => (await server.getStats({ queues: true })).queues[0].waiting === 0, 'an empty queue');
  assert.equal(got.length, 3);
});

test('durable: what was produced while away comes first, then live, in order (P5)', async (t) => {
  const { consumer, producer } = await startServer(t);
  const p = await producer();
  const first = await consumer('billing');
  await first.subscribe(p.name, 'e', () => {}, { durable: true });
  await first.close();
  for (let i = 0; i < 50; i++) await p.produce('e', i, { confirm: true });
  const back = await consumer('billing');
  const { handler, grown, messages } = inbox();
  const answer = back.subscribe(p.name, 'e', handler, { durable: true });
  for (let i = 50; i < 100; i++) p.produce('e', i);
  assert.ok((await answer).queued >= 50);
  await grown(100);
  assert.deepEqual(messages(), Array.from({ length: 100 }, (_, i) => i));
});

test('unsubscribe ends it: nothing is delivered and nothing stored (TC-J07)', async (t) => {
  const { consumer, producer, server } = await startServer(t);
  const [c, p] = [await consumer('c'), await producer()];
  const { handler, got } = inbox();
  await c.subscribe(p.name, 'plain', handler);
  await c.subscribe(p.name, 'kept', handler, { durable: true });
  await c.subscribe(p.name, 'a/#', handler, { mode: 'topic', durable: true });
  assert.equal((await c.unsubscribe('plain', p.name)).removed, 1);
  assert.equal((await c.unsubscribe('kept', p.name)).removed, 1);
  assert.equal((await c.unsubscribe('a/#', p.name)).removed, 1);
  assert.equal((await c.unsubscribe('never', p.name)).removed, 0);
  for (const event of ['plain', 'kept', 'a/b']) {
    const said = await p.produce(event, 1, { confirm: true });
    assert.deepEqual([said.queued, said.delivered], [0, 0], event);
  }
  await c.close();
  assert.equal((await p.produce('kept', 1, { confirm: true, guaranteed: true })).queued, 0);
  assert.equal(got.length, 0);
  assert.equal(server.getStats().realms.default.subscriptions, 0);
});

test('unsubscribe says what is left; purge drops it; a later run may do it too', async (t) => {
  const { consumer, producer } = await startServer(t);
  const p = await producer();
  const c = await consumer('c');
  await c.subscribe(p.name, 'e', () => {}, { durable: true });
  await c.close();
  for (let i = 0; i < 3; i++) await p.produce('e', i, { confirm: true });
  const later = await consumer('c');
  assert.equal((await later.unsubscribe('e', p.name)).left, 3);
  const { handler, grown } = inbox();
  await later.subscribe(p.name, 'e', handler, { durable: true });
  await grown(3);
  assert.equal((await later.unsubscribe('e', p.name, { purge: true })).left, 0);
});

test('awareness reaches producers and consumers', async (t) => {
  const { consumer, producer } = await startServer(t);
  const p = await producer('shop');
  const seen = [];
  p.onSubscribed((payload) => seen.push(['subscribed', payload.name, payload.events]));
  p.onSubscriberLost((payload) => seen.push(['lost', payload.consumer]));
  p.whenSubscriberOnline((payload) => seen.push(['online', payload.consumer]));
  p.onUnsubscribed((payload) => seen.push(['unsubscribed', payload.name]));
  const c = await consumer('c');
  await c.subscribe('shop', 'paid', () => {}, { durable: true });
  await until(() => seen.length === 1, 'subscribed');
  assert.equal(p.subscribers.c.name, 'c');
  await c.close();
  await until(() => seen.length === 2, 'lost');
  const back = await consumer('c');
  await until(() => seen.length === 3, 'online');
  const online = new Promise((resolve) => back.whenProducerOnline('other', resolve));
  await back.subscribe('other', 'x', () => {});
  await producer('other');
  assert.equal((await online).producer, 'other');
  await back.subscribe('shop', 'paid', () => {}, { durable: true });
  await back.unsubscribe('paid', 'shop');
  await until(() => seen.some(([what]) => what === 'unsubscribed'), 'unsubscribed');
  assert.deepEqual(seen.slice(0, 3), [['subscribed', 'c', ['shop-paid']], ['lost', 'c'], ['online', 'c']]);
});

test('broadcasts reach members that have not subscribed, as an event', async (t) => {
  const { consumer, producer } = await startServer(t);
  const [c, p] = [await consumer(), await producer('p')];
  const heard = once(c, 'broadcast');
  p.produce('Closing', { at: 5 }, { broadcast: 'realm' });
  const [message, from, raw] = await heard;
  assert.deepEqual([message, from, raw.event], [{ at: 5 }, 'p', 'Closing']);
});

test('a newer producer of the same name takes over, and the older one is told', async (t) => {
  const { producer } = await startServer(t);
  const older = await producer('p');
  const told = once(older, 'takeover');
  await producer('p');
  await told;
  assert.equal(older.isConnected(), true);
});

test('a second consumer of a name is refused and says why; the first keeps working (P22)', async (t) => {
  const { consumer, factory, producer } = await startServer(t, { duplicate_probe_ms: 200 });
  const p = await producer();
  const first = await consumer('c');
  const { handler, grown } = inbox();
  await first.subscribe(p.name, 'e', handler);
  const second = factory().createConsumerPrivate(null, 'c');
  const down = once(second, 'error');
  second.connect().catch(() => {});
  assert.equal((await down)[0].code, 'duplicate_consumer');
  p.produce('e', 1);
  await grown(1);
  await second.close();
});

test('.socket speaks raw events, also bytes and replies', async (t) => {
  const { consumer, producer } = await startServer(t);
  const [c, p] = [await consumer('raw'), await producer('p')];
  assert.equal(c.socket.connected, true);
  assert.equal(c.socket.id, c.getId());
  const delivered = once(c.socket, 'CONSUME-p-e');
  await new Promise((resolve) => c.socket.emit('SUBSCRIBE', { event: 'e', producer: 'p', consumer: 'raw' }, resolve));
  p.produce('e', { bytes: Buffer.from([1, 2]) });
  const [raw] = await delivered;
  assert.deepEqual(raw.message, { bytes: Buffer.from([1, 2]) });
  const pong = await new Promise((resolve) => c.socket.emit('PING', { a: 1 }, resolve));
  assert.equal(JSON.parse(pong).pong, 'PONG');
});

test('names with an own meaning elsewhere are plain names here (P19)', async (t) => {
  const { consumer, producer } = await startServer(t);
  for (const name of ['__proto__', 'constructor', 'a%b', '*', 'group:x', '😀']) {
    const [c, p] = [await consumer(name), await producer(name)];
    const { handler, grown } = inbox();
    await c.subscribe(name, name, handler);
    p.produce(name, name);
    assert.equal((await grown(1))[0].message, name);
  }
  assert.equal(Object.prototype.online, undefined);
});
