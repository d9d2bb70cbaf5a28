// Scenarios 65 to 69: bounds, refusals, hostile values, slow readers.
'use strict';
const assert = require('node:assert/strict');
const { Client, Polling, consumer, producer, request, unique } = require('../helpers/client');
const { scenario, sharedServer, onEachStore, long, sleep } = require('../helpers/scenario');

const server = sharedServer();

onEachStore((server) => {
  scenario(65, 'a realm that may hold two messages holds two; the producer is told', async (t) => {
    const own = await server.another(t, { max_queued_per_realm: 2 });
    const p = await producer(own);
    const c = await consumer(own);
    const wish = { event: 'e', producer: p.name, durable: true };
    await c.subscribe(wish);
    await c.leave();
    const answers = [];
    for (let n = 0; n < 5; n++) answers.push(await p.produce('e', n));
    assert.deepEqual(
      answers.map(({ ok }) => ok),
      [true, true, false, false, false],
    );
    for (const { error } of answers.slice(2)) assert.equal(error, 'queue_full');
    const back = await consumer(own, c.name);
    assert.equal((await back.subscribe(wish)).queued, 2);
    const got = await back.take(`CONSUME-${p.name}-e`, 2);
    assert.deepEqual(
      got.map(({ message }) => message),
      [0, 1],
    );
  });

  scenario(65, 'a queue at max_queued refuses for itself; with drop_oldest it keeps the newest', async (t) => {
    for (const [options, kept, refused] of [
      [{ max_queued: 3 }, [0, 1, 2], true],
      [{ max_queued: 3, overflow: 'drop_oldest' }, [3, 4, 5], false],
    ]) {
      const own = await server.another(t, options);
      const p = await producer(own);
      const c = await consumer(own);
      const wish = { event: 'e', producer: p.name, durable: true };
      await c.subscribe(wish);
      await c.leave();
      let last;
      for (let n = 0; n < 6; n++) last = await p.produce('e', n);
      assert.equal(last.ok, !refused);
      if (refused) assert.equal(last.error, 'queue_full');
      const back = await consumer(own, c.name);
      await back.subscribe(wish);
      const got = await back.take(`CONSUME-${p.name}-e`, 3);
      assert.deepEqual(
        got.map(({ message }) => message),
        kept,
      );
      assert.ok(await back.quiet(/^CONSUME-/));
    }
  });

  scenario(65, 'a realm holds as many messages a queue and as many bytes as its limits say', async (t) => {
    const large = 'x'.repeat(1000);
    for (const [limits, name] of [
      [{ max_queued: 3 }, 'max_queued'],
      [{ maxQueuedBytesPerRealm: 3500 }, 'max_queued_bytes_per_realm'],
      [{ max_queued: 1, realms: { default: { max_queued: 3 } } }, 'max_queued'],
    ]) {
      const own = await server.another(t, { limits });
      const p = await producer(own);
      const c = await consumer(own);
      const wish = { event: 'e', producer: p.name, durable: true, ack: true };
      await c.subscribe(wish);
      await c.leave();
      for (let n = 0; n < 3; n++) assert.equal((await p.produce('e', large)).ok, true);
      const full = await p.produce('e', large);
      assert.equal(full.error, 'queue_full');
      assert.ok(full.message.includes(`(${name})`), full.message);
      const back = await consumer(own, c.name);
      await back.subscribe(wish);
      for (const { msgId } of await back.take(`CONSUME-${p.name}-e`, 3)) await back.ack(msgId);
      assert.equal((await p.produce('e', large)).ok, true);
    }
  });

  scenario(66, 'the answer to PRODUCE counts live and stored copies', async () => {
    const p = await producer(server);
    const [live, durable, away] = [await consumer(server), await consumer(server), await consumer(server)];
    await live.subscribe({ event: 'e', producer: p.name });
    await durable.subscribe({ event: 'e', producer: p.name, durable: true });
    await away.subscribe({ event: 'e', producer: p.name, durable: true });
    await away.leave();
    const answer = await p.produce('e', 1);
    assert.equal(answer.ok, true);
    assert.equal(answer.delivered, 1);
    assert.equal(answer.queued, 2);
    assert.equal(answer.refused ?? 0, 0);
    assert.ok(!answer.duplicate && !answer.delayed);
    assert.equal(typeof answer.id, 'string');
    assert.notEqual((await p.produce('e', 2)).id, answer.id);
  });
});

const deep = (levels) => {
  let text = '1';
  for (let n = 0; n < levels; n++) text = `{"a":${text}}`;
  return text;
};
const VALUES = [
  'null',
  '7',
  '-1e999',
  'true',
  '[]',
  '[[]]',
  '""',
  '"text"',
  '"{"',
  '"null"',
  '"[]"',
  '{}',
  '{"event":null}',
  '{"name":null}',
  '{"event":{}}',
  '{"event":7,"from":7}',
  '{"__proto__":{"socket":1}}',
  '{"name":"__proto__"}',
  '{"name":"constructor","id":"toString"}',
  '{"event":"__proto__","producer":"__proto__","consumer":"__proto__"}',
  '{"event":"e","message":1,"from":7}',
  '{"event":"e","ttl":"x","from":"p"}',
  '{"method":"broadcast"}',
  '{"method":"broadcast","event":"e","broadcast":"group"}',
  '{"transferId":"x","index":0,"total":-1,"data":"x"}',
  '{"transferId":null,"index":null,"total":null,"data":null}',
  '{"msgId":{}}',
  '{"msgIds":[1,null,"x"]}',
  '{"msgIds":7}',
  '{"retry":7,"event":"e"}',
  '{"retry":{"max_attempts":-1,"delay":"x"},"event":"e","producer":"p","consumer":"c"}',
  '{"prefetch":-1,"event":"e"}',
  '{"name":"a\\u0000b"}',
  '{"name":"\\ud800"}',
  '{"event":"e","event":7}',
  deep(100),
  deep(600),
];
const EVENTS = [
  'CONSUMER',
  'PRODUCER',
  'SUBSCRIBE',
  'UNSUBSCRIBE',
  'PRODUCE',
  'PRODUCE_CHUNK',
  'ACK',
  'NACK',
  'WORKING',
  'HELLO',
  'PING',
  'DEBUG',
  'QUIT',
  'AUTHENTICATION',
  'AUTH_MANAGEMENT_COMMAND',
  'NO_SUCH_EVENT',
  '__proto__',
  '',
];

scenario(67, 'no value under any event name harms the server or its other clients', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  await c.subscribe({ event: 'steady', producer: p.name });
  const huge = `{"name":"${'n'.repeat(1024 * 1024)}","event":"${'e'.repeat(1024 * 1024)}"}`;
  for (const event of EVENTS) {
    const bad = await Client.websocket(server);
    for (const value of [...VALUES, huge]) {
      if (bad.isClosed) break;
      bad.send(`42["${event}",${value}]`);
      bad.send(`4299["${event}",${value}]`);
    }
    bad.send(`42["${event}"]`);
    bad.send(`42["${event}",1,2,3]`);
    await p.produce('steady', event);
    assert.equal((await c.next(`CONSUME-${p.name}-steady`)).message, event);
    bad.link.cut();
  }
});

scenario(67, 'names with control characters, reserved names and names over 255 bytes are refused; odd ones are literal', async () => {
  for (const name of ['a\u0000b', 'a\nb', '\u007f', 'n'.repeat(256), 'TYO-MQ-ALL', 'TYO-MQ-SYSTEM', 'http:0123abcd']) {
    const client = await Client.websocket(server);
    client.emitEvent('CONSUMER', { name });
    assert.equal((await client.next('ERROR')).code, -1, JSON.stringify(name));
  }
  for (const stem of ['__proto__', 'a%b', 'a:b', '*', 'group:x', '😀', 'constructor', 'n'.repeat(200)]) {
    const name = `${stem}${unique('')}`;
    const p = await producer(server, `${name}p`);
    const c = await consumer(server, name);
    await c.subscribe({ event: stem, producer: p.name, durable: true });
    await c.leave();
    assert.equal((await p.produce(stem, stem)).queued, 1, stem);
    const back = await consumer(server, name);
    await back.subscribe({ event: stem, producer: p.name, durable: true });
    assert.equal((await back.next(/^CONSUME-/)).message, stem);
  }
});

scenario(67, 'HTTP requests that are none of ours are answered and harm nobody', async () => {
  assert.equal((await request(server, '/')).status, 403);
  assert.equal((await request(server, '/')).body.length, 0);
  for (const [query, code] of [
    ['transport=polling', 5],
    ['EIO=3&transport=polling', 5],
    ['EIO=4&transport=carrier-pigeon', 0],
    ['EIO=4&transport=polling&sid=nobody', 1],
  ]) {
    const answer = await request(server, `/socket.io/?${query}`);
    assert.equal(answer.status, 400, query);
    assert.equal(JSON.parse(answer.body).code, code, query);
  }
  const wrong = await request(server, '/socket.io/?EIO=4&transport=polling', { method: 'DELETE' });
  assert.equal(wrong.status, 400);
  assert.equal(JSON.parse(wrong.body).code, 2);
  assert.equal((await request(server, '/socket.io?EIO=4&transport=polling')).status, 200);
  const polling = await Polling.open(server);
  await polling.post('garbage');
  await (await Client.websocket(server)).sync();
});

scenario(68, 'many event names leave nothing behind', async (t) => {
  const own = await server.another(t);
  const count = long ? 100_000 : 20_000;
  const round = async () => {
    const p = await producer(own);
    const c = await consumer(own);
    for (let n = 0; n < count; n++) {
      p.emitEvent('PRODUCE', { event: `name-${p.name}-${n}`, message: n, from: p.name });
      c.emitEvent('SUBSCRIBE', { event: `name-${n}`, producer: p.name, consumer: c.name });
      if (n % 1000 === 999) await Promise.all([p.sync(), c.sync()]);
    }
    for (let n = 0; n < count; n++) {
      c.emitEvent('UNSUBSCRIBE', { event: `name-${n}`, producer: p.name });
      if (n % 1000 === 999) await c.sync();
    }
    await Promise.all([p.leave(), c.leave()]);
    await sleep(200);
    return own.resident();
  };
  await round();
  const settled = await round();
  const again = await round();
  // Tables grow by doubling; what stayed behind of each name would be more.
  const most = Math.max(8 * 1024, (count * 200) / 1024);
  assert.ok(again - settled < most, `resident memory ${settled} → ${again} KiB`);
});

scenario(69, 'a reader that stops costs a bounded amount of memory and delays nobody', async (t) => {
  const own = await server.another(t);
  const p = await producer(own);
  const [slow, quick] = [await consumer(own, undefined, { gap: true }), await consumer(own)];
  for (const c of [slow, quick]) await c.subscribe({ event: 'e', producer: p.name });
  slow.link.pause();
  const before = own.resident();
  const body = 'x'.repeat(64 * 1024);
  const count = 1000;
  let worst = 0;
  for (let n = 0; n < count; n++) {
    const begin = performance.now();
    p.emitEvent('PRODUCE', { event: 'e', message: [n, body], from: p.name });
    await quick.next(`CONSUME-${p.name}-e`);
    worst = Math.max(worst, performance.now() - begin);
    quick.events.length = 0;
    quick.packets.length = 0;
  }
  assert.ok(own.resident() - before < 48 * 1024, `resident memory grew by ${own.resident() - before} KiB`);
  assert.ok(worst < 2000, `one message took ${Math.round(worst)} ms`);
  slow.link.resume();
  const gap = await slow.next('GAP');
  assert.ok(gap.dropped > 0);
  assert.ok(Array.isArray(gap.keys));
  assert.equal((await p.produce('e', 'after')).ok, true);
  await slow.when(() => slow.seen(`CONSUME-${p.name}-e`).find(({ message }) => message === 'after'), { what: 'the message after the gap' });
  assert.equal(slow.seen(`CONSUME-${p.name}-e`).length + gap.dropped, count + 1);
});
