// Cases A12, B05, B06, B09, C08: acknowledgements, repeated subscriptions, purges, fairness.
'use strict';
const assert = require('node:assert/strict');
const { consumer, pair, producer, unique } = require('../helpers/client');
const { numbered, onEachStore, long } = require('../helpers/scenario');

onEachStore((server) => {
  const numbers = (count) => Array.from({ length: count }, (_, n) => n);
  const messages = (deliveries) => deliveries.map(({ message }) => message);
  const ACKED = { durable: true, ack: true, manual_ack: true };

  numbered('A12', 'every awaited produce is answered while its queue is purged three times (P2)', async () => {
    const [producers, each] = [10, long ? 1000 : 200];
    const { p, c, again, fields } = await pair(server, { producer: 'TYO-MQ-ALL', event: unique('e'), durable: true, ack: true });
    await c.leave();
    let answered = 0;
    const produce = async () => {
      const own = await producer(server);
      for (let n = 0; n < each; n++) {
        const answer = await own.produce(fields.event, n);
        assert.equal(answer.ok, true, JSON.stringify(answer));
        answered++;
      }
    };
    const purge = async () => {
      for (const part of [0.2, 0.5, 0.8]) {
        while (answered < part * producers * each) await p.sync();
        const back = await again({ prefetch: 1 });
        const gone = await back.call('UNSUBSCRIBE', { ...fields, consumer: c.name, consumer_id: c.name, purge: true });
        assert.deepEqual([gone.ok, gone.removed], [true, 1]);
        assert.equal((await back.subscribe({ ...fields, prefetch: 1 })).ok, true);
        await back.leave();
      }
    };
    await Promise.all([purge(), ...numbers(producers).map(produce)]);
    assert.equal(answered, producers * each);
  });

  numbered('B05', 'acks sent on a new connection are accepted before the messages went out again (P9)', async () => {
    const { p, c, again, name, fields } = await pair(server, ACKED);
    for (const n of numbers(5)) await p.produce('e', n);
    const held = await c.take(name, 5);
    await c.cut({ reset: true });
    const back = await consumer(server, c.name);
    for (const { msgId } of held) assert.deepEqual(await back.ack(msgId, { delivery_attempt: 1 }), { ok: true, msgId });
    assert.equal((await back.subscribe(fields)).queued, 0);
    await p.produce('e', 'next');
    assert.equal((await back.next(name)).message, 'next');
    assert.equal(back.seen(name).length, 1);
    await back.leave();
    assert.equal((await again()).subscribed.queued, 1);
  });

  numbered('B05', 'once a newer attempt is out an ack of the older one is stale, and nothing is lost or stuck (P9)', async () => {
    const { p, c, again, name } = await pair(server, { ...ACKED, retry: { delay: '20ms', max_attempts: 9 } });
    for (const n of numbers(5)) await p.produce('e', n);
    const held = await c.take(name, 5);
    await c.cut({ reset: true });
    const back = await again();
    const newer = await back.take(name, 5);
    assert.deepEqual(messages(newer).sort(), numbers(5));
    for (const { delivery_attempt: attempt } of newer) assert.equal(attempt, 2);
    for (const { msgId } of held) {
      const stale = await back.ack(msgId, { delivery_attempt: 1 });
      assert.deepEqual([stale.ok, stale.error, stale.code], [false, 'stale_ack', 409]);
    }
    for (const { msgId } of held) assert.equal((await back.ack(msgId, { delivery_attempt: 2 })).ok, true);
    for (const { msgId } of held) assert.equal((await back.ack(msgId)).duplicate, true);
    await back.leave();
    assert.equal((await again()).subscribed.queued, 0);
  });

  numbered('B06', 'two overlapping subscriptions of one consumer get one copy each of all 500 (P3)', async () => {
    const p = await producer(server);
    const c = await consumer(server);
    const patterns = ['a/#', 'a/b/c'];
    for (const event of patterns) await c.subscribe({ event, producer: p.name, mode: 'topic', ...ACKED });
    const ids = new Set();
    const got = new Map(patterns.map((pattern) => [`CONSUME-${p.name}-${pattern}`, []]));
    let copies = 0;
    let done;
    const all = new Promise((resolve) => (done = resolve));
    c.on('event', (name, delivery) => {
      if (!got.has(name)) return;
      assert.equal(delivery.delivery_attempt, 1);
      got.get(name).push(delivery.message);
      ids.add(delivery.msgId);
      c.emitEvent('ACK', { msgId: delivery.msgId });
      if (++copies === 1000) done();
    });
    for (const n of numbers(500)) assert.equal((await p.produce('a/b/c', n)).queued, 2);
    await all;
    await c.sync();
    for (const list of got.values()) assert.deepEqual(list, numbers(500));
    assert.equal(ids.size, 1000, 'each copy is settled by an id of its own');
    assert.equal(copies, 1000);
  });

  numbered('B09', 'subscribing again to the same is one subscription, also after a reconnect (P3)', async () => {
    const { p, c, again, name, fields } = await pair(server, ACKED);
    for (let n = 0; n < 2; n++) await c.subscribe(fields);
    await c.leave();
    const back = await again();
    for (let n = 0; n < 2; n++) await back.subscribe(fields);
    for (const n of numbers(10)) assert.deepEqual(await p.produce('e', n).then(({ queued, delivered }) => [queued, delivered]), [1, 0]);
    const got = await back.take(name, 10);
    assert.deepEqual(messages(got), numbers(10));
    for (const { msgId } of got) assert.equal((await back.ack(msgId)).ok, true);
    assert.equal(back.seen(name).length, 10);
    const gone = await back.call('UNSUBSCRIBE', { event: 'e', producer: p.name });
    assert.deepEqual([gone.ok, gone.removed], [true, 1]);
    assert.equal((await p.produce('e', 'nobody')).queued, 0);
  });

  numbered('C08', 'a ready message is not starved by 200 that are always due again (P8)', async () => {
    const window = 10;
    const { p, c, name } = await pair(server, { ...ACKED, prefetch: window, retry: { max_attempts: 1000, delay: 0 } });
    let deliveries = 0;
    let retried = 0;
    let ready;
    const came = new Promise((resolve) => (ready = resolve));
    let enough;
    const busy = new Promise((resolve) => (enough = resolve));
    c.each(name, ({ message, msgId, delivery_attempt: attempt }) => {
      deliveries++;
      if (message === 'ready') return ready(deliveries);
      if (attempt > 1 && ++retried === 400) enough();
      c.emitEvent('NACK', { msgId, delay: 0 });
    });
    for (const n of numbers(200)) p.emitEvent('PRODUCE', { event: 'e', message: n, from: p.name });
    await busy;
    assert.equal((await p.produce('e', 'ready')).queued, 1);
    const before = deliveries;
    const waited = (await came) - before;
    assert.ok(waited <= 4 * window, `${waited} others went first`);
  });
});
