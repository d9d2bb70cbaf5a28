// Cases A06, C01, D03, F02, F05: consumers that freeze, lose their link, die, and come back.
'use strict';
const assert = require('node:assert/strict');
const { Client, consumer, producer, pair, unique } = require('../helpers/client');
const { startConsumer } = require('../helpers/consumer-process');
const { startProxy } = require('../helpers/proxy');
const { numbered, onEachStore, long } = require('../helpers/scenario');

onEachStore((server) => {
  const numbers = (count) => Array.from({ length: count }, (_, n) => n);
  const messages = (deliveries) => deliveries.map(({ message }) => message);

  numbered('A06', 'messages sent into a frozen connection arrive after it returns (P3, P6)', async (t) => {
    const p = await producer(server);
    const wish = { url: server.server.url, name: unique('c'), fields: { event: 'e', producer: p.name, durable: true } };
    const frozen = await startConsumer(t, wish);
    frozen.child.kill('SIGSTOP');
    for (const n of numbers(20)) assert.equal((await p.produce('e', n)).queued, 1);
    frozen.child.kill('SIGKILL');
    await frozen.exited;
    assert.deepEqual(frozen.got, []);
    const back = await startConsumer(t, wish);
    await back.until((got) => got.length >= 20, 'twenty messages');
    assert.deepEqual(messages(back.got), numbers(20));
    const repeated = back.got.map(({ redelivered }) => redelivered === true);
    assert.ok(repeated[0], 'the first had been sent into the frozen connection');
    assert.equal(repeated.lastIndexOf(true) + 1, repeated.filter(Boolean).length, 'sent ones come before unsent ones');
    for (const delivery of back.got) assert.equal(delivery.msgId, undefined);
  });

  for (const [mode, wish] of [
    ['without ack', { durable: true }],
    ['with ack', { durable: true, ack: true, retry: { delay: '20ms', max_attempts: 20 } }],
  ]) {
    numbered('C01', `a link cut three times, ${mode}: first deliveries strictly rise and all arrive (P8)`, async () => {
      const count = long ? 10_000 : 4000;
      const cuts = [0.2, 0.5, 0.8].map((part) => part * count);
      const { p, c, again, name } = await pair(server, wish);
      const seen = new Set();
      let highest = -1;
      let current = c;
      let done;
      const all = new Promise((resolve) => (done = resolve));
      const listen = (client) =>
        client.each(name, (delivery) => {
          const { message: n, msgId } = delivery;
          const isFirst = msgId ? delivery.delivery_attempt === 1 : !delivery.redelivered;
          if (isFirst) {
            assert.ok(n > highest, `${n} came after ${highest}`);
            highest = n;
          }
          seen.add(n);
          if (msgId && client === current) client.emitEvent('ACK', { msgId });
          if (seen.size === count) done();
          if (client === current && n >= cuts[0]) {
            cuts.shift();
            client.link.cut({ reset: true });
            current = null;
            client.closed.then(again).then((back) => listen((current = back)));
          }
        });
      listen(c);
      for (const n of numbers(count)) {
        p.emitEvent('PRODUCE', { event: 'e', message: n, from: p.name });
        if (n % 500 === 499) await p.sync();
      }
      await c.when(() => (seen.size === count ? true : undefined), { timeout: 1 }).catch(() => all);
      assert.equal(seen.size, count);
      assert.equal(cuts.length, 0);
    });
  }

  /** A consumer behind a proxy that freezes, holding one unsettled delivery. */
  async function frozenHolder(t, on, more) {
    const proxy = await startProxy(on);
    t.after(() => proxy.close());
    const p = await producer(on);
    const old = await consumer(proxy, undefined, more);
    const fields = { event: 'e', producer: p.name, durable: true, ack: true };
    const name = `CONSUME-${p.name}-e`;
    await old.subscribe(fields);
    await p.produce('e', 'in flight');
    const held = await old.next(name);
    proxy.freeze();
    return { proxy, p, old, fields, name, held };
  }

  /**
   * A newcomer subscribes within `[least, most]` ms and gets what was in flight; the old connection,
   * awake again, hears that it is over.
   */
  async function takenOver({ proxy, p, old, fields, name, held }, on, [least, most], more) {
    const next = await Client.websocket(on);
    const begin = performance.now();
    await next.consumer(old.name, more);
    await next.subscribe(fields);
    const took = performance.now() - begin;
    assert.ok(took >= least && took < most, `it took ${Math.round(took)} ms`);
    const delivery = await next.next(name);
    assert.deepEqual([delivery.message, delivery.msgId, delivery.delivery_attempt], ['in flight', held.msgId, 2]);
    assert.equal((await next.ack(held.msgId, { delivery_attempt: 2 })).ok, true);
    proxy.thaw();
    assert.equal((await old.next('ERROR')).error, 'duplicate_consumer');
    await old.gone();
    await p.produce('e', 'more');
    assert.equal((await next.next(name)).message, 'more');
    assert.deepEqual(messages(old.seen(name)), ['in flight']);
  }

  numbered('D03', 'the same client object takes over its half-open connection at once (P22)', async (t) => {
    const holder = await frozenHolder(t, server, { instance: 'one' });
    await takenOver(holder, server, [0, 900], { instance: 'one' });
  });

  numbered('D03', 'another process takes over a connection silent for a ping interval within the probe and 1 s (P22)', async (t) => {
    const own = await server.another(t, { pingInterval: 1000, pingTimeout: 60_000 });
    const holder = await frozenHolder(t, own);
    // Another client's heartbeats tell when the frozen one has been silent for more than an interval.
    for (let beats = 0; beats < 3; beats++) {
      holder.p.packets.length = 0;
      await holder.p.packet((packet) => packet === '2');
    }
    await takenOver(holder, own, [900, 2000]);
  });

  numbered('D03', 'a live holder keeps its name, the newcomer is told and closed (P22)', async () => {
    const { p, c, name } = await pair(server);
    const next = await Client.websocket(server);
    next.emitEvent('CONSUMER', { name: c.name, id: c.name, consumer_id: c.name });
    const error = await next.next('ERROR');
    assert.deepEqual([error.code, error.error], [-3, 'duplicate_consumer']);
    assert.match(JSON.stringify(error), /duplicate/);
    await next.gone();
    await p.produce('e', 1);
    assert.equal((await c.next(name)).message, 1);
  });

  numbered('F02', 'what a dead group member held goes to the others within seconds, as attempt 2 (P18, P10)', async () => {
    const p = await producer(server);
    const group = unique('g');
    const fields = { event: 'e', producer: p.name, group, durable: true, ack: true, ack_timeout: '10m' };
    const name = `CONSUME-${p.name}-e`;
    const members = [];
    for (let n = 0; n < 3; n++) {
      members.push(await consumer(server));
      await members[n].subscribe({ ...fields, prefetch: n === 0 ? 5 : 20 });
    }
    const [dies, ...stay] = members;
    const all = () => members.flatMap((member) => member.seen(name));
    let produced = 0;
    while (dies.seen(name).length < 5 && produced < 60) {
      await p.produce('e', produced++);
      await Promise.all(members.map((member) => member.sync()));
    }
    await p.when(() => (all().length === produced ? true : undefined), { timeout: 1 }).catch(() => Promise.all(members.map((m) => m.sync())));
    const held = messages(dies.seen(name));
    assert.equal(held.length, 5);
    for (const member of stay) {
      for (const { msgId } of member.seen(name)) assert.equal((await member.ack(msgId)).ok, true);
    }
    const begin = performance.now();
    await dies.cut({ reset: true });
    const again = () => stay.flatMap((member) => member.seen(name)).filter(({ delivery_attempt: attempt }) => attempt > 1);
    for (const member of stay) member.on('event', () => p.emit('activity'));
    await p.when(() => (again().length >= 5 ? true : undefined), { what: 'the five again' });
    assert.ok(performance.now() - begin < 5000);
    assert.deepEqual(messages(again()).sort((a, b) => a - b), held);
    for (const { delivery_attempt: attempt } of again()) assert.equal(attempt, 2);
  });

  numbered('F05', 'a message that ends its consumer’s process is given up after three deliveries; others flow (P10)', async (t) => {
    const p = await producer(server);
    const fields = { event: 'e', producer: p.name, durable: true, ack: true, prefetch: 1, retry: { max_attempts: 3, delay: '50ms' } };
    const wish = { url: server.server.url, name: unique('c'), fields, fatal: 'poison' };
    const attempts = [];
    let current = await startConsumer(t, wish);
    await p.produce('e', 'poison');
    await p.produce('e', 'good');
    const good = (got) => messages(got).includes('good');
    while (attempts.length < 4) {
      const end = await Promise.race([current.exited, current.until(good).then(() => null)]);
      attempts.push(...current.got.filter(({ message }) => message === 'poison').map((delivery) => delivery.delivery_attempt));
      if (end === null) break;
      assert.equal(end.code, 1);
      current = await startConsumer(t, wish);
    }
    assert.deepEqual(attempts, [1, 2, 3]);
    assert.ok(good(current.got));
    await p.produce('e', 'next');
    await current.until((got) => messages(got).includes('next'));
  });
});
