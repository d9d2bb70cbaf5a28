// Cases D01, E01, F01, F09: what the server costs under load. Everyday sizes are smaller.
'use strict';
const assert = require('node:assert/strict');
const fs = require('node:fs');
const { consumer, deadline, pair, producer, unique } = require('../helpers/client');
const { numbered, sharedServer, onEachStore, long } = require('../helpers/scenario');

const server = sharedServer();
const numbers = (count) => Array.from({ length: count }, (_, n) => n);
const MIB = 1024;

/** Produces `count` messages of `make(n)` without waiting for each; the server keeps pace. */
async function fill(p, count, make) {
  for (let n = 0; n < count; n++) {
    p.emitEvent('PRODUCE', { event: 'e', message: make(n), from: p.name });
    if (n % 500 === 499) await p.call('PING', {}, { timeout: 60_000 });
  }
  await p.call('PING', {}, { timeout: 60_000 });
}

onEachStore((server) => {
  numbered('D01', 'a huge backlog and a slow handler: never more than 50 unsettled, memory flat, all arrive (P12)', async () => {
    const count = long ? 100_000 : 5000;
    const { p, c, again, name } = await pair(server, { durable: true, ack: true, prefetch: 50 });
    await c.leave();
    const body = 'x'.repeat(1000);
    await fill(p, count, (n) => [n, body]);
    const before = { server: server.server.resident(), own: process.memoryUsage().rss };
    const back = await again();
    assert.equal(back.subscribed.queued, count);
    let [unsettled, most, got, highest] = [0, 0, 0, 0];
    let done;
    const all = new Promise((resolve) => (done = resolve));
    back.each(name, ({ message: [n], msgId, delivery_attempt: attempt }) => {
      assert.deepEqual([n, attempt], [got++, 1]);
      most = Math.max(most, ++unsettled);
      if (got % 1000 === 0) highest = Math.max(highest, server.server.resident());
      setTimeout(() => {
        unsettled--;
        back.emitEvent('ACK', { msgId });
        if (got === count && unsettled === 0) done();
      }, 5);
    });
    await deadline(all, long ? 300_000 : 40_000, () => `all of ${count}, ${got} came`);
    assert.ok(most <= 50, `${most} at once`);
    assert.ok(highest - before.server < 16 * MIB, `the server grew by ${highest - before.server} KiB`);
    const grown = (process.memoryUsage().rss - before.own) / 1024;
    assert.ok(grown < 128 * MIB, `the client grew by ${Math.round(grown)} KiB`);
    await back.leave();
    assert.equal((await again()).subscribed.queued, 0);
  });
});

numbered('E01', 'connections that come and go leave nothing behind (P25)', async (t) => {
  const rounds = long ? 10_000 : 2500;
  const own = await server.another(t, {
    idle_eviction: { enabled: true, ttl_ms: 200, interval_ms: 100 },
    guaranteed_subscription_ttl: '200ms',
  });
  let [settled, at] = [0, 0];
  for (; at < rounds; at++) {
    const c = await consumer(own);
    await c.subscribe({ event: unique('e'), producer: unique('p') });
    await c.leave();
    if (at === 1000) settled = own.resident();
  }
  const grown = own.resident() / settled - 1;
  assert.ok(grown < 0.15, `resident memory grew by ${Math.round(grown * 100)} %`);
});

numbered('F01', 'one frozen reader among ten delays nobody, and its durable messages wait (P23)', async (t) => {
  const own = await server.another(t, { max_outbound_bytes: 256 * 1024 });
  const [count, size] = long ? [20_000, 1000] : [1500, 8000];
  const p = await producer(own);
  const fields = { event: 'e', producer: p.name, durable: true };
  const name = `CONSUME-${p.name}-e`;
  const readers = [];
  for (let n = 0; n < 10; n++) readers.push(await consumer(own));
  const [frozen, ...others] = readers;
  for (const reader of readers) await reader.subscribe(fields);
  const body = 'x'.repeat(size);
  let left;
  let done;
  for (const reader of others) {
    let expected = 0;
    reader.each(name, ({ message: [n] }) => {
      assert.equal(n, expected);
      expected = (expected + 1) % count;
      if (--left === 0) done();
    });
  }
  const run = async () => {
    left = others.length * count;
    const all = new Promise((resolve) => (done = resolve));
    const begin = performance.now();
    await fill(p, count, (n) => [n, body]);
    await deadline(all, long ? 300_000 : 60_000, () => `all, ${left} are missing`);
    return performance.now() - begin;
  };
  // Nine alone first: the tenth reads too, but nothing holds it up.
  frozen.each(name, () => {});
  await run();
  const alone = await run();
  await frozen.confirmed();
  delete frozen.record;
  frozen.link.pause();
  const beside = await run();
  assert.ok(beside < 2 * alone + 1000, `${Math.round(alone)} ms alone, ${Math.round(beside)} ms beside a frozen reader`);
  const name2 = frozen.name;
  frozen.link.cut({ reset: true });
  const back = await consumer(own, name2);
  const order = [];
  let whole;
  const replayed = new Promise((resolve) => (whole = resolve));
  back.each(name, ({ message: [n] }) => {
    order.push(n);
    if (order.length === count) whole();
  });
  assert.equal((await back.subscribe(fields)).queued, count);
  await deadline(replayed, 60_000, () => `the frozen one’s messages, ${order.length} came`);
  assert.deepEqual(order, numbers(count));
});

/** Seconds of processor time of all threads of a process: what the machine's other work does not change. */
function processorTime(pid) {
  const tasks = fs.readdirSync(`/proc/${pid}/task`);
  const spent = tasks.map((task) => Number(fs.readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]));
  return spent.reduce((sum, each) => sum + each, 0) / 1e9;
}

onEachStore((server) => {
  for (const [what, rate] of [
    ['', 0],
    [' while a producer adds 1,000 a second', 1000],
  ]) {
    numbered('F09', `draining a long backlog costs the same for each tenth${what} (P23)`, async (t) => {
      const own = await server.another(t);
      const count = long ? 1_000_000 : 20_000;
      const { p, c, again, name } = await pair(own, { durable: true, ack: true, prefetch: 200 });
      await c.leave();
      const body = 'x'.repeat(180);
      await fill(p, count, () => body);
      const tenths = [];
      let got = 0;
      let done;
      const all = new Promise((resolve) => (done = resolve));
      const back = await again();
      assert.equal(back.subscribed.queued, count);
      let last = processorTime(own.pid);
      const producing = rate ? setInterval(() => numbers(rate / 50).forEach(() => p.emitEvent('PRODUCE', { event: 'e', message: body, from: p.name })), 20) : null;
      back.each(name, ({ msgId }) => {
        back.emitEvent('ACK', { msgId });
        if (++got % (count / 10) !== 0 || tenths.length === 10) return;
        const now = processorTime(own.pid);
        tenths.push(now - last);
        last = now;
        if (tenths.length === 10) done();
      });
      await deadline(all, long ? 500_000 : 50_000, () => `all of ${count}, ${got} came`).finally(() => clearInterval(producing));
      // A tenth of the everyday size takes milliseconds: what is compared is the beginning and the end.
      const sum = (some) => some.reduce((all, each) => all + each, 0);
      const [early, late] = [sum(tenths.slice(0, 3)), sum(tenths.slice(-3))];
      const told = `processor seconds of each tenth: ${tenths.map((each) => each.toFixed(3))}`;
      assert.ok(Math.max(early, late) < 2 * Math.min(early, late) + 0.1, told);
    });
  }
});
