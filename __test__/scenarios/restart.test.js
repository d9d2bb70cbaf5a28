// Scenarios and cases with a killed server in their middle: what was confirmed, settled or counted before stays so.
'use strict';
const assert = require('node:assert/strict');
const { consumer, pair, producer, unique, until } = require('../helpers/client');
const { numbered, scenario, onEachStore } = require('../helpers/scenario');
const { LASTING } = require('../helpers/stores');

const numbers = (count) => Array.from({ length: count }, (_, n) => n);
const messages = (deliveries) => deliveries.map(({ message }) => message);
const ACKED = { durable: true, ack: true };

onEachStore((server) => {
  /** The server killed and started again, and the producer back on it. */
  const restarted = async (p) => {
    await server.server.restart();
    return producer(server, p.name);
  };

  numbered('A01', 'a thousand confirmed messages, a kill right after the last: all arrive, in order (P1, P2)', async () => {
    const { p, c, again, name } = await pair(server, ACKED);
    await c.leave();
    for (const n of numbers(1000)) assert.equal((await p.produce('e', n)).queued, 1);
    await server.server.restart();
    const back = await again();
    assert.equal(back.subscribed.queued, 1000);
    assert.deepEqual(messages(await back.take(name, 1000)), numbers(1000));
  });

  for (const how of ['stopped', 'killed']) {
    scenario(48, `${how} while the consumer is away: old messages and those before it returns come in order`, async () => {
      const { p, c, again, name } = await pair(server, { durable: true });
      await c.leave();
      for (const n of [0, 1, 2]) await p.produce('e', n);
      if (how === 'stopped') {
        await server.server.stop();
        await server.server.start();
      } else await server.server.restart();
      const later = await producer(server, p.name);
      for (const n of [3, 4, 5]) assert.equal((await later.produce('e', n)).queued, 1);
      const back = await again();
      for (const n of [6, 7]) await later.produce('e', n);
      assert.deepEqual(messages(await back.take(name, 8)), numbers(8));
    });
  }

  scenario(46, 'a guaranteed message waits for a plain subscription through a restart, a plain one does not', async () => {
    const { p, c, again, name } = await pair(server);
    await c.leave();
    // It was answered before the store had it (P4).
    await until(async () => (await p.produce('e', 'before', { guaranteed: true })).queued === 1, 'a queue');
    const later = await restarted(p);
    assert.equal((await later.produce('e', 'plain')).queued, 0);
    assert.equal((await later.produce('e', 'after', { guaranteed: true })).queued, 1);
    const back = await again();
    assert.deepEqual(messages(await back.take(name, 2)), ['before', 'after']);
    assert.ok(await back.quiet(name));
  });

  scenario(50, 'what was sent and not confirmed comes again and says so, what was confirmed does not', async () => {
    const { p, c, again, name } = await pair(server, { durable: true });
    await p.produce('e', 'confirmed');
    await c.next(name);
    await c.confirmed();
    await c.leave();
    const current = await until(async () => {
      const back = await again();
      return back.subscribed.queued === 0 ? back : back.leave();
    }, 'the settlement in the store');
    current.autoPong = false;
    await p.produce('e', 'sent');
    await current.next(name);
    await server.server.restart();
    const back = await again();
    const { message, redelivered } = await back.next(name);
    assert.deepEqual([message, redelivered], ['sent', true]);
    assert.ok(await back.quiet(name));
  });

  scenario(51, 'what expires while the server is down never comes', async () => {
    const { p, c, again, name } = await pair(server, { durable: true });
    await c.leave();
    await p.produce('e', 'short', { ttl: '300ms' });
    const stored = Date.now();
    await p.produce('e', 'long', { ttl: 60 });
    await server.server.restart();
    const later = await producer(server);
    while (Date.now() <= stored + 300) await later.sync();
    const back = await again();
    assert.equal((await back.next(name)).message, 'long');
    assert.ok(await back.quiet(name));
  });

  scenario(51, 'delayed messages come when they are due, also those due while the server was down', async () => {
    const { p, c, again, name } = await pair(server, { durable: true });
    const begin = performance.now();
    for (const [n, delay] of ['1s', '1ms'].entries()) assert.equal((await p.produce('e', n, { delay })).delayed, true);
    await c.leave();
    await server.server.restart();
    const back = await again();
    assert.deepEqual(messages(await back.take(name, 2)), [1, 0]);
    assert.ok(performance.now() - begin >= 995);
  });

  scenario(52, 'an ACK for a delivery of the server before is accepted, a second one is a duplicate', async () => {
    const { p, c, name, fields } = await pair(server, ACKED);
    for (const n of numbers(3)) await p.produce('e', n);
    const held = await c.take(name, 3);
    assert.equal((await c.ack(held[1].msgId)).ok, true);
    await server.server.restart();
    const back = await consumer(server, c.name);
    assert.deepEqual(await back.ack(held[0].msgId), { ok: true, msgId: held[0].msgId });
    for (const { msgId } of held.slice(0, 2)) assert.equal((await back.ack(msgId)).duplicate, true);
    assert.equal((await back.subscribe(fields)).queued, 1);
    const last = await back.next(name);
    assert.deepEqual([last.message, last.msgId, last.delivery_attempt], [2, held[2].msgId, 2]);
    assert.equal((await back.ack(last.msgId)).ok, true);
  });

  scenario(57, 'a failure before the kill counts, the retry comes once and not early', async () => {
    const { p, c, again, name } = await pair(server, { ...ACKED, retry: { delay: '800ms', max_attempts: 9 } });
    await p.produce('e', 1);
    const { msgId } = await c.next(name);
    const begin = performance.now();
    assert.equal((await c.nack(msgId)).ok, true);
    await server.server.restart();
    const back = await again();
    const delivery = await back.next(name);
    assert.deepEqual([delivery.msgId, delivery.delivery_attempt], [msgId, 2]);
    assert.ok(performance.now() - begin >= 790);
    assert.equal((await back.ack(msgId)).ok, true);
    assert.ok(await back.quiet(name));
  });

  numbered('F05', 'a message that fails three times with a kill after each is given up; others flow (P10)', async () => {
    const { p, c, again, name } = await pair(server, { ...ACKED, prefetch: 1, retry: { max_attempts: 3, delay: '500ms' } });
    await p.produce('e', 'poison');
    await p.produce('e', 'good');
    let current = c;
    for (const attempt of [1, 2, 3]) {
      let delivery = await current.next(name);
      // A retry that is not due yet holds nobody up.
      if (delivery.message === 'good') delivery = await current.next(name);
      assert.deepEqual([delivery.message, delivery.delivery_attempt], ['poison', attempt]);
      assert.equal((await current.nack(delivery.msgId)).ok, true);
      await server.server.restart();
      current = await again({ prefetch: 9 });
    }
    const good = await current.next(name);
    assert.equal(good.message, 'good');
    assert.equal((await current.ack(good.msgId)).ok, true);
    assert.ok(await current.quiet(name));
    await current.leave();
    assert.equal((await again()).subscribed.queued, 0);
  });

  numbered('B01', 'an id and a number that were stored before the kill are duplicates after it (P16)', async () => {
    const { p, c, again, name } = await pair(server, { durable: true });
    await c.leave();
    const [uid, instance] = [unique('uid'), unique('instance')];
    const send = async (by) => [(await by.produce('e', 'uid', { msg_uid: uid })).duplicate, (await by.produce('e', 'seq', { instance_seq: [instance, 1] })).duplicate];
    assert.deepEqual(await send(p), [false, false]);
    const later = await restarted(p);
    assert.deepEqual(await send(later), [true, true]);
    assert.equal((await later.produce('e', 'next', { instance_seq: [instance, 2] })).duplicate, false);
    const back = await again();
    assert.deepEqual(messages(await back.take(name, 3)), ['uid', 'seq', 'next']);
    assert.equal(back.subscribed.queued, 3);
  });

  scenario(60, 'a window of 10 over a backlog goes on behind what was settled before the kill', async () => {
    const { p, c, again, name } = await pair(server, { ...ACKED, prefetch: 10 });
    for (const n of numbers(100)) p.emitEvent('PRODUCE', { event: 'e', message: n, from: p.name });
    const got = [];
    const settle = async (client) => {
      const { message, msgId } = await client.next(name);
      got.push(message);
      assert.equal((await client.ack(msgId)).ok, true);
    };
    while (got.length < 35) await settle(c);
    await p.sync();
    await server.server.restart();
    const back = await again();
    while (got.length < 100) await settle(back);
    assert.deepEqual(got, numbers(100));
    assert.ok(await back.quiet(name));
  });

  numbered('P5', 'what was unsubscribed stays so, and what it left waits for a later subscription', async () => {
    const { p, c, again } = await pair(server, { durable: true });
    await c.leave();
    await p.produce('e', 'left');
    const back = await again();
    back.autoPong = false;
    assert.equal((await back.call('UNSUBSCRIBE', { event: 'e', producer: p.name, consumer: c.name })).left, 1);
    const later = await restarted(p);
    assert.equal((await later.produce('e', 'nobody')).queued, 0);
    assert.equal((await again()).subscribed.queued, 1);
  });

  numbered('P18', 'the queue of a group waits for whoever comes first after the kill', async () => {
    const p = await producer(server);
    const fields = { event: 'e', producer: p.name, group: unique('g'), durable: true, ack: true };
    const first = await consumer(server);
    await first.subscribe(fields);
    await p.produce('e', 0);
    assert.equal((await first.next(`CONSUME-${p.name}-e`)).delivery_attempt, 1);
    const later = await restarted(p);
    for (const n of [1, 2]) assert.equal((await later.produce('e', n)).queued, 1);
    const second = await consumer(server);
    assert.equal((await second.subscribe(fields)).queued, 3);
    const got = await second.take(`CONSUME-${p.name}-e`, 3);
    assert.deepEqual(messages(got), [0, 1, 2]);
    // In Redis all that the killed broker had marked counts as sent, until its lease is over (docs/redis.md).
    const attempts = server.store === 'redis' ? [2, 2, 2] : [2, 1, 1];
    assert.deepEqual(got.map(({ delivery_attempt: attempt }) => attempt), attempts);
  });

  scenario(65, 'a full queue is full after the kill too', async (t) => {
    const own = await server.another(t, { max_queued: 3 });
    const { p, c, again, name } = await pair(own, { durable: true });
    await c.leave();
    for (const n of numbers(3)) assert.equal((await p.produce('e', n)).queued, 1);
    await own.restart();
    const later = await producer(own, p.name);
    assert.equal((await later.produce('e', 3)).error, 'queue_full');
    const back = await again();
    assert.deepEqual(messages(await back.take(name, 3)), numbers(3));
    await back.confirmed();
    // The store may still be at it.
    await until(async () => (await later.produce('e', 4)).queued === 1, 'room for another');
  });
}, LASTING);
