// Cases D05, D10, E07 and the promise about reconnects, with the package's own client.
'use strict';
const assert = require('node:assert/strict');
const { once } = require('node:events');
const { test } = require('node:test');
const { startProxy } = require('../helpers/proxy');
const { startServer, inbox, until, within, sleep } = require('../node/helpers');

const long = process.env.RESTANTE_LONG === '1';
const numbered = (label, sentence, body) => test(`${label}: ${sentence}`, { timeout: long ? 600_000 : 60_000 }, body);

/** A client factory behind a proxy. */
async function proxied(t, options, more) {
  const home = await startServer(t);
  const proxy = await startProxy({ port: home.port }, options);
  t.after(() => proxy.close());
  return { ...home, proxy, far: home.factory({ port: proxy.port, ...more }) };
}

numbered('D05', 'a server that accepts and drops sees tries further and further apart (P31)', async (t) => {
  const { proxy, far, keep } = await proxied(t, { lifetime: 100 });
  keep(far.createConsumerPrivate('c')).connect().catch(() => {});
  const tries = long ? 9 : 7;
  const begin = performance.now();
  await until(() => proxy.opened.length >= tries, `${tries} tries`, 60_000);
  const gaps = proxy.opened.slice(1).map((at, n) => at - proxy.opened[n]);
  // A pause is between half of the doubled 100 ms and all of it, after a link that lived 100 ms.
  for (const [n, gap] of gaps.entries()) assert.ok(gap >= Math.min(50 * 2 ** n, 5000), `gaps of ${gaps.map(Math.round)} ms`);
  if (!long) return;
  await sleep(30_000 - (performance.now() - begin));
  assert.ok(proxy.opened.length < 12, `${proxy.opened.length} tries in 30 s`);
});

numbered('D10', 'a message that outlives its ttl offline is not sent, and its promise says expired (P2, P15)', async (t) => {
  const { proxy, far, keep, consumer } = await proxied(t);
  const c = await consumer();
  const { handler, grown, messages } = inbox();
  await c.subscribe('e', handler);
  const p = keep(await far.createProducer('p'));
  const down = once(p, 'disconnect');
  proxy.hold();
  proxy.kill();
  await down;
  const [offline, ttl] = long ? [9000, '3s'] : [900, '500ms'];
  const first = p.produce('e', 'first', { confirm: true, ttl, timeout: '30s' });
  const refused = assert.rejects(first, { code: 'expired' });
  await sleep(offline);
  const second = p.produce('e', 'second', { confirm: true, ttl: '30s', timeout: '30s' });
  proxy.release();
  await within(30_000, Promise.all([refused, second]), 'both promises');
  await grown(1);
  await p.produce('e', 'third', { confirm: true });
  await grown(2);
  assert.deepEqual(messages(), ['second', 'third']);
});

numbered('E07', 'confirms that never come are refused on time and leave nothing behind (P25)', async (t) => {
  const { proxy, far, keep } = await proxied(t);
  const p = keep(await far.createProducer('p'));
  await p.produce('e', 'warm', { confirm: true });
  const [rounds, each] = long ? [100, 1000] : [6, 500];
  proxy.freeze();
  let settled = 0;
  let memory = 0;
  for (let round = 0; round < rounds; round++) {
    const begin = performance.now();
    const outcomes = await Promise.allSettled(Array.from({ length: each }, (_, n) => p.produce('e', n, { confirm: true, timeout: '300ms' })));
    for (const { reason } of outcomes) assert.equal(reason?.code, 'timeout');
    const took = performance.now() - begin;
    assert.ok(took >= 300 && took < 3000, `${Math.round(took)} ms`);
    settled += outcomes.length;
    if (round === Math.floor(rounds / 2)) memory = process.memoryUsage().rss;
  }
  assert.equal(settled, rounds * each);
  assert.ok(process.memoryUsage().rss < memory * 1.2 + 16 * 2 ** 20, 'memory grows from round to round');
  proxy.thaw();
  assert.equal((await within(10_000, p.produce('e', 'after', { confirm: true }))).duplicate, false);
});

numbered('E07', 'deliveries that a leaving consumer never acked are in flight no more (P25)', async (t) => {
  const { server, consumer, producer } = await startServer(t);
  const count = long ? 100_000 : 2000;
  const c = await consumer('c');
  const { handler, grown } = inbox();
  await c.subscribe('e', handler, { durable: true, manual_ack: true, prefetch: count });
  const p = await producer();
  for (let n = 0; n < count; n++) if (!p.produce('e', n)) await once(p, 'drain');
  await grown(count);
  const queue = async () => (await server.getStats({ queues: true })).queues[0];
  assert.deepEqual([(await queue()).waiting, (await queue()).in_flight], [count, count]);
  await c.close();
  await until(async () => (await queue()).in_flight === 0, 'nothing in flight');
  assert.deepEqual([(await queue()).waiting, (await queue()).sessions], [count, 0]);
});

numbered('P31', 'after a lost link registrations and subscriptions are restored, each once', async (t) => {
  const { proxy, far, keep, producer } = await proxied(t);
  const c = keep(await far.createConsumer('c'));
  const p = await producer('p');
  const { handler, grown, messages } = inbox();
  await c.subscribe('p', 'plain', handler);
  await c.subscribe('p', 'kept', handler, { durable: true });
  for (let round = 0; round < 3; round++) {
    const back = once(c, 'gap');
    const down = once(c, 'disconnect');
    proxy.kill();
    await down;
    assert.deepEqual((await within(20_000, back))[0].keys.length > 0, true);
  }
  for (const event of ['plain', 'kept']) {
    const answer = await p.produce(event, event, { confirm: true });
    assert.equal(answer.delivered + answer.queued, 1);
  }
  await grown(2);
  await p.produce('plain', 'last', { confirm: true });
  await grown(3);
  assert.deepEqual(messages().sort(), ['kept', 'last', 'plain']);
});
