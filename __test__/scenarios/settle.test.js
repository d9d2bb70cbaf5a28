// Scenarios 52 to 60: acknowledging, retrying, giving up, and the window.
'use strict';
const assert = require('node:assert/strict');
const { consumer, pair, producer } = require('../helpers/client');
const { scenario, onEachStore, long, sleep } = require('../helpers/scenario');

onEachStore((server) => {
  const ACKED = { durable: true, ack: true };

  scenario(52, 'acknowledged deliveries carry msgId and attempt; every ACK is answered', async () => {
    const { p, c, name } = await pair(server, ACKED);
    await p.produce('e', 1);
    const delivery = await c.next(name);
    assert.deepEqual(Object.keys(delivery).sort(), ['delivery_attempt', 'event', 'from', 'message', 'msgId', 'msg_id']);
    assert.equal(typeof delivery.msgId, 'string');
    assert.ok(delivery.msgId.length <= 64);
    assert.equal(delivery.msg_id, delivery.msgId);
    assert.equal(delivery.delivery_attempt, 1);
    const { msgId } = delivery;

    const foreign = await consumer(server);
    const refused = await foreign.ack(msgId);
    assert.deepEqual([refused.ok, refused.code], [false, 403]);
    assert.equal((await foreign.next('ACK_FAIL')).code, 403);

    assert.deepEqual(await c.ack(msgId), { ok: true, msgId });
    assert.deepEqual(await c.next('ACK_OK'), { ok: true, msgId });
    const second = await c.ack(msgId);
    assert.deepEqual([second.ok, second.duplicate], [true, true]);
    await c.next('ACK_OK');

    const unknown = await c.ack('msg-unknown-1');
    assert.deepEqual([unknown.ok, unknown.code], [false, 404]);
    assert.equal((await c.next('ACK_FAIL')).code, 404);
    for (const bad of ['{not json', {}, { msgId: 7 }, null, []]) {
      const answer = await c.call('ACK', bad);
      assert.deepEqual([answer.ok, answer.code], [false, 400], JSON.stringify(bad));
      assert.equal((await c.next('ACK_FAIL')).code, 400);
    }
  });

  scenario(52, 'ids may be called msg_id or id, come in a batch, or with an older attempt', async () => {
    const { p, c, name } = await pair(server, { ...ACKED, retry: { max_attempts: 5, delay: '10ms' } });
    for (let n = 0; n < 5; n++) await p.produce('e', n);
    const [a, b, d, e, f] = (await c.take(name, 5)).map(({ msgId }) => msgId);
    assert.equal((await c.call('ACK', { msg_id: a })).ok, true);
    assert.equal((await c.call('ACK', { id: b })).ok, true);
    assert.deepEqual((await c.call('ACK', { msgIds: [d, e] })).ok, true);
    await c.nack(f);
    assert.equal((await c.next(name)).delivery_attempt, 2);
    const stale = await c.ack(f, { delivery_attempt: 1 });
    assert.deepEqual([stale.ok, stale.error], [false, 'stale_ack']);
    assert.equal((await c.ack(f, { delivery_attempt: 2 })).ok, true);
  });

  scenario(53, 'ack without durable works; what was not acknowledged goes with the consumer', async () => {
    const { p, c, again, name } = await pair(server, { ack: true });
    assert.equal((await p.produce('e', 1)).delivered, 1);
    const first = await c.next(name);
    assert.equal(first.delivery_attempt, 1);
    assert.equal((await c.ack(first.msgId)).ok, true);
    await p.produce('e', 2);
    await c.next(name);
    await c.leave();
    const back = await again();
    assert.ok(await back.quiet(name));
    assert.equal((await p.produce('e', 3)).ok, true);
    assert.equal((await back.next(name)).message, 3);
  });

  scenario(54, 'two attempts, then no more, also not for the next session', async () => {
    const { p, c, again, name } = await pair(server, {
      ...ACKED,
      manual_ack: true,
      ack_timeout: '100ms',
      retry: { max_attempts: 2, delay: '50ms' },
    });
    await p.produce('e', 'poison');
    const got = await c.take(name, 2);
    assert.deepEqual(
      got.map(({ delivery_attempt: attempt }) => attempt),
      [1, 2],
    );
    assert.equal(got[0].msgId, got[1].msgId);
    assert.ok(await c.quiet(name, 500));
    await c.leave();
    const back = await again();
    assert.equal(back.subscribed.queued, 0);
    assert.ok(await back.quiet(name));
  });

  scenario(55, 'exponential backoff waits once, twice, four times the delay', async () => {
    const { p, c, name } = await pair(server, { ...ACKED, retry: { max_attempts: 4, delay: '200ms', backoff: 'exponential' } });
    await p.produce('e', 1);
    const waits = [];
    let delivery = await c.next(name);
    for (let n = 0; n < 3; n++) {
      const begin = performance.now();
      c.emitEvent('NACK', { msgId: delivery.msgId });
      delivery = await c.next(name);
      waits.push(performance.now() - begin);
    }
    for (const [at, least] of [200, 400, 800].entries()) {
      assert.ok(waits[at] >= least - 10 && waits[at] < least + 400, `waits ${waits.map(Math.round)}`);
    }
  });

  scenario(55, 'a huge delay does not fire early', async () => {
    const { p, c, name } = await pair(server, { ...ACKED, retry: { max_attempts: 1000, delay: '4000d', backoff: 'exponential' } });
    await p.produce('e', 1);
    const { msgId } = await c.next(name);
    assert.equal((await c.nack(msgId)).ok, true);
    assert.ok(await c.quiet(name, 700));
  });

  scenario(56, 'a late ACK during the retry pause is accepted and no redelivery follows', async () => {
    const { p, c, name } = await pair(server, { ...ACKED, ack_timeout: '100ms', retry: { delay: '1s' } });
    await p.produce('e', 1);
    const { msgId } = await c.next(name);
    await sleep(250);
    assert.equal((await c.ack(msgId)).ok, true);
    assert.ok(await c.quiet(name, 900));
  });

  scenario(57, 'away during the retry pause and back: exactly one redelivery, the attempt goes on', async () => {
    const { p, c, again, name } = await pair(server, { ...ACKED, ack_timeout: '100ms', retry: { delay: '1s', max_attempts: 9 } });
    await p.produce('e', 1);
    const { msgId } = await c.next(name);
    await sleep(250);
    await c.leave();
    const back = await again({ ack_timeout: '10s' });
    const delivery = await back.next(name);
    assert.deepEqual([delivery.msgId, delivery.delivery_attempt], [msgId, 2]);
    assert.ok(await back.quiet(name, 700));
    assert.equal((await back.ack(msgId)).ok, true);
  });

  scenario(58, 'SUBSCRIBE again while a delivery is unacknowledged brings no duplicate', async () => {
    const { p, c, name, fields } = await pair(server, ACKED);
    await p.produce('e', 1);
    const { msgId } = await c.next(name);
    for (let n = 0; n < 3; n++) await c.subscribe(fields);
    assert.ok(await c.quiet(name));
    assert.equal((await c.ack(msgId)).ok, true);
  });

  scenario(59, 'a message that its consumer crashes on max_attempts times comes no more; its neighbours do', async () => {
    const { p, c, again, name } = await pair(server, { ...ACKED, retry: { max_attempts: 3, delay: '10ms' }, prefetch: 1 });
    await p.produce('e', 'poison');
    await p.produce('e', 'good');
    let current = c;
    for (let attempt = 1; attempt <= 3; attempt++) {
      const delivery = await current.next(name);
      assert.deepEqual([delivery.message, delivery.delivery_attempt], ['poison', attempt]);
      await current.cut({ reset: attempt % 2 === 0 });
      current = await again();
    }
    const delivery = await current.next(name);
    assert.equal(delivery.message, 'good');
    await current.ack(delivery.msgId);
    assert.ok(await current.quiet(name));
  });

  scenario(59, 'NACK requeue:false gives up at once; NACK with a delay waits; WORKING starts the timeout anew', async () => {
    const { p, c, name } = await pair(server, { ...ACKED, ack_timeout: '1s', retry: { delay: '10ms', max_attempts: 5 } });
    await p.produce('e', 'never');
    const never = await c.next(name);
    const answer = await c.nack(never.msgId, { requeue: false, reason: 'no use' });
    assert.deepEqual(answer, { ok: true, msgId: never.msgId });
    assert.equal((await c.next('NACK_OK')).msgId, never.msgId);
    await p.produce('e', 'later');
    const first = await c.next(name);
    assert.equal(first.message, 'later');
    const begin = performance.now();
    await c.nack(first.msgId, { delay: '300ms' });
    const second = await c.next(name);
    assert.ok(performance.now() - begin >= 290);
    assert.equal(second.delivery_attempt, 2);
    for (let n = 0; n < 3; n++) {
      await sleep(500);
      assert.equal((await c.call('WORKING', { msgId: second.msgId })).ok, true);
    }
    assert.equal(c.seen(name).length, 3);
    assert.equal((await c.ack(second.msgId)).ok, true);
    const gone = await c.nack('unknown-1');
    assert.deepEqual([gone.ok, gone.code], [false, 404]);
  });

  scenario(60, 'a long backlog with a window of 10: never more unacknowledged, all in order, memory flat', async () => {
    const count = long ? 50_000 : 5000;
    const { p, c, again, name } = await pair(server, { ...ACKED, prefetch: 10 });
    await c.leave();
    const body = 'x'.repeat(200);
    for (let n = 0; n < count; n++) {
      p.emitEvent('PRODUCE', { event: 'e', message: [n, body], from: p.name });
      if (n % 500 === 499) await p.sync();
    }
    const before = server.server.resident();
    const back = await again();
    let unsettled = 0;
    let most = 0;
    let got = 0;
    await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${got} of ${count} came`)), long ? 120_000 : 30_000);
      const handle = (event, delivery) => {
        if (event !== name) return;
        if (delivery.message[0] !== got) return reject(new Error(`message ${got} expected, ${delivery.message[0]} came`));
        got++;
        most = Math.max(most, ++unsettled);
        setImmediate(() => {
          unsettled--;
          back.emitEvent('ACK', { msgId: delivery.msgId });
        });
        if (got === count) {
          clearTimeout(timer);
          resolve();
        }
      };
      for (const { name: event, args } of back.events) handle(event, args[0]);
      back.on('event', handle);
    });
    assert.ok(most <= 10, `${most} at once`);
    const grown = server.server.resident() - before;
    assert.ok(grown < 16 * 1024, `resident memory grew by ${grown} KiB`);
  });

  scenario(60, 'a prefetch of 0 is refused', async () => {
    const p = await producer(server);
    const c = await consumer(server);
    const answer = await c.subscribe({ event: 'e', producer: p.name, durable: true, ack: true, prefetch: 0 });
    assert.deepEqual([answer.ok, answer.code], [false, -5]);
  });
});
