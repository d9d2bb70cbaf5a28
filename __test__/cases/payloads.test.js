// Cases C06, G01, G03, G07: what payloads of every size and kind look like when they arrive.
'use strict';
const assert = require('node:assert/strict');
const { once } = require('node:events');
const { io } = require('socket.io-client');
const { chunked, deadline, pair, sendChunks, unique } = require('../helpers/client');
const { numbered, sharedServer, onEachStore, long } = require('../helpers/scenario');

const server = sharedServer();
const UNITS = 262_144;
const MIB = 1 << 20;

onEachStore((server) => {
  for (const way of ['live', 'replayed']) {
    numbered('C06', `small, chunked and small again keep their order, ${way} (P8, P20, P21)`, async () => {
      const [rounds, size] = long ? [50, 5 * MIB] : [12, 400_000];
      const { p, c, again, name } = await pair(server, { durable: true });
      if (way === 'replayed') await c.leave();
      const order = [];
      let done;
      const all = new Promise((resolve) => (done = resolve));
      const listen = (client) =>
        client.each(name, ({ message }) => {
          order.push(typeof message === 'string' ? message.length : message);
          if (order.length === 3 * rounds) done();
        });
      if (way === 'live') listen(c);
      const large = 'x'.repeat(size);
      for (let n = 0; n < rounds; n++) {
        p.emitEvent('PRODUCE', { event: 'e', message: 2 * n, from: p.name });
        for (const chunk of chunked({ event: 'e', message: large, from: p.name })) p.emitEvent('PRODUCE_CHUNK', chunk);
        p.emitEvent('PRODUCE', { event: 'e', message: 2 * n + 1, from: p.name });
        await p.call('PING', {}, { timeout: 30_000 });
      }
      if (way === 'replayed') listen(await again());
      await deadline(all, long ? 300_000 : 30_000, () => `all of ${3 * rounds}, ${order.length} came`);
      assert.deepEqual(
        order,
        Array.from({ length: rounds }, (_, n) => [2 * n, size, 2 * n + 1]).flat(),
      );
    });
  }
});

const SIZES = [UNITS - 1, UNITS, UNITS + 1, 2 * UNITS, 2 * UNITS + 1, 10 * MIB];

for (const [script, letter] of [
  ['ASCII', 'x'],
  ['3-byte text', '€'],
]) {
  numbered('G01', `${script} around the chunk border arrives equal and once, live and replayed (P20, P21)`, async () => {
    const { p, c, again, name } = await pair(server, { durable: true });
    // The largest message there may be, the 50 MiB less what surrounds the text.
    const largest = Math.floor((50 * MIB - 4096) / Buffer.byteLength(letter));
    const texts = [...SIZES, ...(long ? [largest] : [])].map((units) => letter.repeat(units - 2));
    const send = (text) =>
      text.length > UNITS
        ? sendChunks(p, chunked({ event: 'e', message: text, from: p.name }))
        : p.produce('e', text);
    const check = (got, text) => assert.ok(got.message === text, `${text.length} units came as ${got.message.length}`);
    const patience = { timeout: 30_000 };
    for (const text of texts) {
      assert.equal((await send(text)).queued, 1);
      check(await c.next(name, patience), text);
      const whole = await p.call('PRODUCE', { event: 'e', message: text, from: p.name }, patience);
      assert.equal(whole.queued, 1, JSON.stringify(whole));
      check(await c.next(name, patience), text);
    }
    await c.confirmed();
    assert.equal(c.seen(name).length, 2 * texts.length);
    await c.leave();
    for (const text of texts) assert.equal((await send(text)).queued, 1);
    const back = await again();
    assert.equal(back.subscribed.queued, texts.length);
    for (const text of texts) check(await back.next(name, patience), text);
    await back.sync();
    assert.equal(back.seen(name).length, texts.length);
  });
}

numbered('G03', 'a message over the limit is refused with limit and size, and the connection stays (P21)', async (t) => {
  const limit = 300_000;
  const own = await server.another(t, { max_message_bytes: limit });
  const { p, c, name } = await pair(own);
  const fits = await p.produce('e', 'x'.repeat(limit - 2));
  assert.equal(fits.ok, true, JSON.stringify(fits));
  await c.next(name);
  const text = 'x'.repeat(limit - 1);
  for (const [form, answer] of [
    ['one frame', await p.produce('e', text)],
    ['chunks', await sendChunks(p, chunked({ event: 'e', message: text, from: p.name }))],
  ]) {
    assert.deepEqual([answer.ok, answer.error, answer.code, answer.limit, answer.size], [false, 'payload_too_large', 413, limit, limit + 1], form);
  }
  // A frame over the frame limit is read and thrown away; nobody can tell what it would have answered.
  p.emitEvent('PRODUCE', { event: 'e', message: 'x'.repeat(limit + MIB), from: p.name });
  const error = await p.next('ERROR');
  assert.deepEqual([error.error, error.code], ['payload_too_large', 413]);
  assert.ok(error.limit >= limit && error.size > limit + MIB, JSON.stringify(error));
  assert.equal((await p.produce('e', 'next')).ok, true);
  assert.equal((await c.next(name)).message, 'next');
  assert.ok(!p.isClosed);
});

onEachStore((server) => {
  numbered('G07', 'binary of every kind arrives byte-equal, live and stored, over the stock client (P20)', async (t) => {
    const connect = async () => {
      const socket = io(server.server.url, { transports: ['websocket'], forceNew: true });
      t.after(() => socket.close());
      await deadline(once(socket, 'connect'), 10_000, 'connect');
      return socket;
    };
    const ask = (socket, event, payload) => socket.timeout(20_000).emitWithAck(event, payload);
    const from = unique('p');
    const bytes = (length) => Buffer.from(Array.from({ length }, (_, n) => (n * 31 + 7) & 255));
    const some = bytes(64);
    const view = new DataView(some.buffer, some.byteOffset + 3, 11);
    const cases = [
      [some, some],
      [new Uint8Array(some), some],
      [new Uint8Array(some).buffer, some],
      [view, some.subarray(3, 14)],
      [Buffer.alloc(0), Buffer.alloc(0)],
      [{ a: [some, { b: bytes(1) }], c: 'text' }, { a: [some, { b: bytes(1) }], c: 'text' }],
      [[bytes(1), Buffer.alloc(0), bytes(300_000)], [bytes(1), Buffer.alloc(0), bytes(300_000)]],
      [bytes(5 * MIB), bytes(5 * MIB)],
    ];
    const consume = async (name) => {
      const socket = await connect();
      const got = [];
      let look = () => {};
      socket.on(`CONSUME-${from}-e`, (delivery) => {
        got.push(delivery.message);
        look();
      });
      socket.emit('CONSUMER', { name, id: name, consumer_id: name });
      await ask(socket, 'SUBSCRIBE', { event: 'e', producer: from, consumer: name, consumer_id: name, durable: true });
      const all = () => deadline(new Promise((resolve) => (look = () => got.length >= cases.length && resolve(got))(look)), 30_000, 'all');
      return { socket, all };
    };
    const [present, absent] = [unique('c'), unique('c')];
    const live = await consume(present);
    (await consume(absent)).socket.close();
    const p = await connect();
    for (const [sent] of cases) assert.equal((await ask(p, 'PRODUCE', { event: 'e', message: sent, from })).queued, 2);
    for (const { all } of [live, await consume(absent)]) {
      const got = await all();
      assert.equal(got.length, cases.length);
      for (const [at, [, expected]] of cases.entries()) assert.deepEqual(got[at], expected, `case ${at}`);
    }
  });
});
