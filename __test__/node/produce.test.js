'use strict';
// What goes in comes out: forms, fidelity, bytes, refusals, confirmations.
const assert = require('node:assert/strict');
const { getEventListeners, once } = require('node:events');
const net = require('node:net');
const { test } = require('node:test');
const { startProxy } = require('../helpers/proxy');
const { startServer, inbox, restante, quiet, within } = require('./helpers');

test('what JSON.stringify and JSON.parse keep is what arrives (P20)', async (t) => {
  const { consumer, producer } = await startServer(t);
  const [c, p] = [await consumer(), await producer()];
  const { handler, grown, messages } = inbox();
  await c.subscribe(p.name, 'e', handler);
  const values = [
    null, true, 0, -0.5, 1e300, '', 'x', 'żółć 😀', '\ud83d', 'a\ud800b', '\u2028\u2029', [], {}, [[[]]],
    { b: 1, a: 2, 1: 'number keys go first' }, { toJSON: () => 'said' }, new Date(0), { gone: undefined, nan: NaN }, [undefined, () => {}],
    JSON.parse('{"__proto__": {"x": 1}, "constructor": 2}'), { _placeholder: 'not one' }, 'x'.repeat(300_000), '界'.repeat(270_000),
  ];
  for (const value of values) p.produce('e', value);
  await grown(values.length);
  messages().forEach((message, i) => assert.equal(JSON.stringify(message), JSON.stringify(values[i])));
  assert.deepEqual(Object.keys(messages()[19]), ['__proto__', 'constructor']);
});

test('a ttl of 0 reaches those online and is confirmed (P15)', async (t) => {
  const { consumer, producer } = await startServer(t);
  const [c, p] = [await consumer(), await producer()];
  const { handler, grown, messages } = inbox();
  await c.subscribe(p.name, 'e', handler, { durable: true, ack: true });
  assert.equal((await p.produce('e', 1, { confirm: true, ttl: 0 })).delivered, 1);
  p.produce('e', 2, { guaranteed: true, lifespan: 0 });
  await grown(2);
  assert.deepEqual(messages(), [1, 2]);
});

test('bytes arrive equal, as Buffers, wherever they were', async (t) => {
  const { consumer, producer } = await startServer(t);
  const [c, p] = [await consumer(), await producer()];
  const { handler, grown, messages } = inbox();
  await c.subscribe(p.name, 'e', handler);
  const bytes = Buffer.from(Array.from({ length: 1000 }, (_, i) => i & 255));
  const big = Buffer.alloc(5 << 20, 'restante');
  const shapes = [bytes, new Uint8Array(bytes), bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + 1000), new DataView(bytes.buffer, bytes.byteOffset + 3, 7), new Float64Array([1.5, -2]), Buffer.alloc(0)];
  for (const shape of shapes) p.produce('e', shape);
  p.produce('e', { deep: [{ down: bytes }, 'text', bytes.subarray(1, 3)], empty: Buffer.alloc(0) });
  p.produce('e', { big });
  const again = Buffer.from('before');
  p.produce('e', again);
  again.fill('x'); // what was said is said
  await grown(shapes.length + 3);
  const expected = [bytes, bytes, bytes, Buffer.from(bytes.buffer, bytes.byteOffset + 3, 7), Buffer.from(new Float64Array([1.5, -2]).buffer), Buffer.alloc(0)];
  expected.forEach((want, i) => {
    assert.ok(Buffer.isBuffer(messages()[i]));
    assert.ok(want.equals(messages()[i]), `shape ${i}`);
  });
  const [nested, large, copied] = messages().slice(-3);
  assert.deepEqual(nested, { deep: [{ down: bytes }, 'text', bytes.subarray(1, 3)], empty: Buffer.alloc(0) });
  assert.ok(big.equals(large.big));
  assert.equal(copied.toString(), 'before');
});

test('small, large and small again arrive in order', async (t) => {
  const { consumer, producer } = await startServer(t);
  const [c, p] = [await consumer(), await producer()];
  const { handler, grown, messages } = inbox();
  await c.subscribe(p.name, 'e', handler);
  for (let i = 0; i < 10; i++) {
    p.produce('e', { i: i * 3 });
    p.produce('e', { i: i * 3 + 1, pad: 'x'.repeat(600_000) });
    p.produce('e', { i: i * 3 + 2 });
  }
  await grown(30);
  assert.deepEqual(messages().map(({ i }) => i), Array.from({ length: 30 }, (_, i) => i));
});

test('what cannot be carried is refused at the call', async (t) => {
  const { producer } = await startServer(t);
  const p = await producer();
  const cycle = {};
  cycle.self = cycle;
  for (const data of [undefined, () => {}, cycle, 10n, { deep: [1n] }, Symbol('x')]) {
    const refused = (error) => error instanceof TypeError && error.code === 'not_carriable';
    assert.throws(() => p.produce('e', data), refused);
    await assert.rejects(async () => p.produce('e', data, { confirm: true }), refused);
  }
  for (const event of [undefined, null, '', 5, {}]) assert.throws(() => p.produce(event, 1), TypeError);
  let deep = {};
  for (let i = 0; i < 600; i++) deep = { deep };
  assert.throws(() => p.produce('e', deep), { code: 'not_carriable' });
});

test('over the size limit: refused with its code, and the connection stays', async (t) => {
  const { factory, keep, consumer } = await startServer(t, { max_message_bytes: 1 << 20 });
  const p = keep(await factory({ max_message_bytes: 1 << 20 }).createProducer('big'));
  const c = await consumer();
  const { handler, grown } = inbox();
  await c.subscribe('big', 'e', handler);
  assert.throws(() => p.produce('e', 'x'.repeat(1 << 20)), { code: 'payload_too_large' });
  await assert.rejects(p.produce('e', Buffer.alloc(2 << 20), { confirm: true }), { code: 'payload_too_large' });
  p.produce('e', 'small');
  assert.equal((await grown(1))[0].message, 'small');
});

test('durations and other options are refused at the call, by name (P14)', async (t) => {
  const { producer, consumer } = await startServer(t);
  const [p, c] = [await producer(), await consumer()];
  for (const bad of ['5 minutes', 'abc', '', {}, -1, '1e3s', NaN, Infinity, [], true]) {
    for (const option of ['ttl', 'delay', 'timeout']) {
      const named = (error) => error instanceof TypeError && error.code === 'bad_command' && error.message.includes(option);
      assert.throws(() => p.produce('e', 1, { [option]: bad }), named, `${option}: ${bad}`);
    }
    for (const option of ['ack_timeout', 'ackTimeout']) {
      await assert.rejects(c.subscribe('e', () => {}, { [option]: bad }), (error) => /ack_?timeout/i.test(error.message) && error.code === 'bad_command');
    }
    await assert.rejects(c.subscribe('e', () => {}, { retry: { delay: bad } }), /retry\.delay/);
    await assert.rejects(c.close({ timeout: bad }), /timeout/);
  }
  for (const good of [250, '250ms', '1.5s', '15m', '2h', '7d', ' 3 H ', '10', null, undefined]) {
    assert.equal(p.produce('e', 1, { ttl: good }), true);
  }
  assert.equal(p.produce('e', 1, -1), true); // a lifespan of -1 is none
  for (const [options, name] of [[{ key: 5 }, 'key'], [{ headers: { a: 1 } }, 'headers'], [{ headers: [] }, 'headers'], [{ id: {} }, 'id'], [{ broadcast: 'group' }, 'group'], [{ deliver_at: {} }, 'deliver_at'], [{ signal: {} }, 'signal']]) {
    assert.throws(() => p.produce('e', 1, options), new RegExp(name));
  }
  for (const option of ['encrypt', 'encryptTo']) assert.throws(() => p.produce('e', 1, { [option]: 'x' }), { code: 'unsupported' });
  assert.throws(() => new restante.Factory({ e2ee: {} }), { code: 'unsupported' });
});

test('a confirmation comes after every durable copy is stored, with its counts (P2)', async (t) => {
  const { consumer, producer, server } = await startServer(t);
  const p = await producer();
  const away = await consumer('away');
  await away.subscribe(p.name, 'e', () => {}, { durable: true });
  await away.close();
  const live = await consumer();
  await live.subscribe(p.name, 'e', () => {});
  const said = await p.produce('e', { n: 1 }, { confirm: true });
  assert.deepEqual(said, { ...said, queued: 1, delivered: 1, refused: 0, duplicate: false, delayed: false });
  assert.equal(typeof said.id, 'string');
  const queues = (await server.getStats({ queues: true })).queues;
  assert.equal(queues.find(({ name }) => name === 'away').waiting, 1);
  assert.equal((await p.produce('e', 1, { confirm: true, id: 'order-7' })).duplicate, false);
  assert.equal((await p.produce('e', 1, { confirm: true, id: 'order-7' })).duplicate, true);
  assert.equal((await p.produce('e', 1, { confirm: true, delay: '1h' })).delayed, true);
  assert.equal((await p.produce('nobody listens', 1, { confirm: true, guaranteed: true })).queued, 0);
});

test('a full queue rejects the promise with queue_full (TC-E08)', async (t) => {
  const { consumer, producer } = await startServer(t, { max_queued: 100 });
  const p = await producer();
  const c = await consumer('slow');
  await c.subscribe(p.name, 'e', () => {}, { durable: true });
  await c.close();
  const outcomes = await Promise.allSettled(Array.from({ length: 150 }, (_, i) => p.produce('e', i, { confirm: true })));
  assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 100);
  for (const { reason } of outcomes.slice(100)) assert.ok(reason instanceof restante.RestanteError && reason.code === 'queue_full', reason);
});

test('an aborted signal rejects with an AbortError that has its reason', async (t) => {
  const { factory, keep, producer } = await startServer(t);
  const p = await producer();
  const reason = new Error('changed my mind');
  const aborted = (error) => error.name === 'AbortError' && error.code === 'ABORT_ERR' && error.cause === reason;
  await assert.rejects(p.produce('e', 1, { confirm: true, signal: AbortSignal.abort(reason) }), aborted);
  const controller = new AbortController();
  const producing = p.produce('e', 1, { confirm: true, signal: controller.signal });
  controller.abort(reason);
  await assert.rejects(producing, aborted);
  const late = new AbortController();
  await p.produce('e', 1, { confirm: true, signal: late.signal });
  assert.equal(getEventListeners(late.signal, 'abort').length, 0);
  late.abort(reason); // settled: nothing happens
  // Nobody answers: the promise rejects when its time is over.
  const silent = keep(new restante.Publisher('p', 'e'));
  Object.assign(silent, { host: '127.0.0.1', port: 1, logger: quiet });
  silent.connect().catch(() => {});
  await assert.rejects(silent.produce('e', 1, { confirm: true, timeout: '100ms' }), { code: 'timeout' });
  await factory().createSocket().close();
});

test('produce() says false above the high-water mark, drain follows, and a flood is refused', async (t) => {
  const { port, keep, factory } = await startServer(t);
  const proxy = await startProxy({ port });
  t.after(() => proxy.close());
  const p = keep(await factory({ port: proxy.port }).createProducer('p'));
  const drained = once(p, 'drain');
  const chunk = 'x'.repeat(100_000);
  // This loop keeps the relay, which is in this process, from reading.
  let taken = 0;
  let first = 0;
  const flood = () => {
    for (; taken < 2000; taken++) if (!p.produce('e', chunk)) first ||= taken;
  };
  assert.throws(flood, { code: 'queue_full' });
  assert.ok(first >= 5 && first < taken, `false after ${first}, refused after ${taken}`);
  await within(10_000, drained, 'drain');
  assert.equal((await p.produce('e', 'goes on', { confirm: true })).duplicate, false);
});

test('confirms that never come reject in time, and nothing of them is kept (TC-E07)', async (t) => {
  const { port, keep, factory } = await startServer(t);
  // A relay that swallows what the server says once it is told to.
  let mute = false;
  const sockets = new Set();
  const relay = net.createServer((near) => {
    const far = net.connect(port, '127.0.0.1');
    for (const socket of [near, far]) sockets.add(socket.on('error', () => {}));
    near.pipe(far);
    far.on('data', (data) => mute || near.write(data));
  });
  await new Promise((resolve) => relay.listen(0, '127.0.0.1', resolve));
  t.after(() => relay.close(() => {}) && sockets.forEach((socket) => socket.destroy()));
  const p = keep(await factory({ port: relay.address().port, offline: { max_messages: 1_000_000 } }).createProducer('p'));
  mute = true;
  const count = process.env.RESTANTE_LONG === '1' ? 100_000 : 3000;
  const began = performance.now();
  const outcomes = await Promise.allSettled(Array.from({ length: count }, (_, i) => p.produce('e', i, { confirm: true, timeout: '1s' })));
  assert.ok(outcomes.every(({ reason }) => reason?.code === 'timeout' || reason?.code === 'expired'), JSON.stringify(outcomes.find(({ reason }) => reason?.code !== 'timeout')));
  assert.ok(performance.now() - began < (count > 10_000 ? 30_000 : 6000));
  assert.equal(p._link.port.pending, 0);
});
