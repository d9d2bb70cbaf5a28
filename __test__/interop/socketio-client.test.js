// Scenario 8 with the stock socket.io-client: long polling first, and websocket only.
'use strict';
const assert = require('node:assert/strict');
const { createHash } = require('node:crypto');
const { once } = require('node:events');
const { test, before, after } = require('node:test');
const { io } = require('socket.io-client');
const { startServer } = require('../helpers/server');
const { unique, deadline } = require('../helpers/client');
const { signed } = require('../helpers/proof');

let server;
before(async () => {
  server = await startServer();
});
after(() => server.stop());

const WAYS = {
  'long polling, then the upgrade': {},
  'websocket only': { transports: ['websocket'] },
  'long polling only': { transports: ['polling'] },
};

/** A connected client; `next(event)` waits for a delivery, chunks joined as the Node client does. */
async function connect(t, options, to = server) {
  const socket = io(to.url, { forceNew: true, reconnectionDelay: 50, reconnectionDelayMax: 100, ...options });
  t.after(() => socket.close());
  await deadline(once(socket, 'connect'), 10_000, 'connect');
  const waiting = [];
  const arrived = [];
  const deliver = (name, payload) => {
    const at = waiting.findIndex((one) => one.name === name);
    if (at >= 0) waiting.splice(at, 1)[0].resolve(payload);
    else arrived.push({ name, payload });
  };
  const transfers = new Map();
  socket.onAny((name, payload) => {
    if (name !== 'CONSUME_CHUNK') return deliver(name, payload);
    const parts = transfers.get(payload.transferId) ?? [];
    transfers.set(payload.transferId, parts);
    parts[payload.index] = payload.data;
    if (parts.filter(Boolean).length === payload.total) deliver(payload.event, JSON.parse(parts.join('')));
  });
  const next = (name) => {
    const at = arrived.findIndex((one) => one.name === name);
    if (at >= 0) return Promise.resolve(arrived.splice(at, 1)[0].payload);
    return deadline(new Promise((resolve) => waiting.push({ name, resolve })), 10_000, name);
  };
  return { socket, next, call: (name, payload) => socket.timeout(10_000).emitWithAck(name, payload) };
}

async function consumer(t, options, name = unique('c')) {
  const client = await connect(t, options);
  client.name = name;
  client.socket.emit('CONSUMER', { name, id: name, consumer_id: name });
  client.subscribe = (fields) =>
    client.call('SUBSCRIBE', { consumer: name, consumer_id: name, scope: 'default', retry: null, mode: null, group: null, ...fields });
  return client;
}

async function producer(t, options) {
  const client = await connect(t, options);
  client.name = unique('p');
  client.socket.emit('PRODUCER', { name: client.name });
  client.produce = (event, message, more) => client.call('PRODUCE', { event, message, from: client.name, ...more });
  return client;
}

for (const [way, options] of Object.entries(WAYS)) {
  test(`scenario 8: socket.io-client, ${way}: every kind of subscription`, { timeout: 60_000 }, async (t) => {
    const p = await producer(t, options);
    const c = await consumer(t, options);
    const event = unique('dev/');
    const names = [];
    for (const wish of [
      { event, producer: p.name },
      { event, producer: 'TYO-MQ-ALL' },
      { event: 'dev/+', producer: p.name, mode: 'topic' },
      { event: `${event}g`, producer: p.name, group: unique('g') },
      { event: `${event}d`, producer: p.name, durable: true, ack: true },
    ]) {
      const answer = await c.subscribe(wish);
      assert.equal(answer.ok, true, JSON.stringify(answer));
      names.push(answer.consume_event);
    }
    await p.produce(event, { n: 1 });
    for (const name of names.slice(0, 3)) assert.deepEqual(await c.next(name), { event, message: { n: 1 }, from: p.name });
    await p.produce(`${event}g`, 2);
    assert.equal((await c.next(names[3])).message, 2);
    await p.produce(`${event}d`, 3);
    const delivery = await c.next(names[4]);
    assert.deepEqual([delivery.message, delivery.delivery_attempt], [3, 1]);
    assert.deepEqual(await c.call('ACK', { msgId: delivery.msgId }), { ok: true, msgId: delivery.msgId });
  });

  test(`scenario 8: socket.io-client, ${way}: 5 MiB and binary`, { timeout: 60_000 }, async (t) => {
    const p = await producer(t, options);
    const c = await consumer(t, options);
    const { consume_event: name } = await c.subscribe({ event: 'e', producer: p.name });
    const text = 'ü5€'.repeat((5 * 1024 * 1024) / 6);
    assert.equal((await p.produce('e', text)).ok, true);
    assert.ok((await c.next(name)).message === text, 'the text differs');
    const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, n) => n & 255));
    assert.equal((await p.produce('e', { a: [bytes, new Uint8Array([1, 2])], b: bytes.buffer.slice(0, 5) })).ok, true);
    const { message } = await c.next(name);
    assert.deepEqual(
      message.a.map((part) => Buffer.from(part)),
      [bytes, Buffer.from([1, 2])],
    );
    assert.deepEqual(Buffer.from(message.b), bytes.subarray(0, 5));
  });

  test(`scenario 8: socket.io-client, ${way}: away, back, and the backlog`, { timeout: 60_000 }, async (t) => {
    const p = await producer(t, options);
    const c = await consumer(t, options);
    const wish = { event: 'e', producer: p.name, durable: true, ack: true };
    const { consume_event: name } = await c.subscribe(wish);
    // The link breaks; the client reconnects by itself and registers again, as the Node client does.
    const away = once(c.socket, 'disconnect');
    c.socket.io.reconnection(false);
    c.socket.io.engine.close();
    await away;
    for (let n = 0; n < 3; n++) assert.equal((await p.produce('e', n)).queued, 1);
    const returned = once(c.socket, 'connect');
    c.socket.io.reconnection(true);
    c.socket.connect();
    await deadline(returned, 10_000, 'reconnect');
    c.socket.emit('CONSUMER', { name: c.name, id: c.name, consumer_id: c.name });
    assert.equal((await c.subscribe(wish)).queued, 3);
    for (let n = 0; n < 3; n++) {
      const delivery = await c.next(name);
      assert.equal(delivery.message, n);
      assert.equal((await c.call('ACK', { msgId: delivery.msgId })).ok, true);
    }
  });
}

test('scenario 41: socket.io-client sends chunks cut inside surrogate pairs', { timeout: 60_000 }, async (t) => {
  const p = await producer(t, {});
  const c = await consumer(t, {});
  const { consume_event: name } = await c.subscribe({ event: 'e', producer: p.name });
  const message = `x${'😀'.repeat(300_000)}`;
  const text = JSON.stringify({ event: 'e', message, from: p.name });
  const total = Math.ceil(text.length / 262_144);
  for (let index = 0; index < total; index++) {
    p.socket.emit('PRODUCE_CHUNK', { transferId: `t-${p.name}`, index, total, data: text.slice(index * 262_144, (index + 1) * 262_144) });
  }
  assert.ok((await c.next(name)).message === message, 'the text differs');
});

for (const [way, options] of Object.entries(WAYS)) {
  test(`socket.io-client, ${way}: who is shut out hears why before the connection ends`, { timeout: 60_000 }, async (t) => {
    const [ADMIN, TOKEN] = ['the administrator of this server', 'a token that will be revoked'];
    const tokens = [
      { token: ADMIN, realm: '*', role: 'admin' },
      { token: TOKEN, realm: 'acme', role: 'both' },
    ];
    const own = await startServer({ auth: { enabled: true, auto_admin_token: false, tokens } });
    t.after(() => own.stop());
    const inside = await connect(t, { ...options, reconnection: false }, own);
    assert.equal((await inside.call('AUTHENTICATION', { token: TOKEN })).ok, true);
    await inside.next('AUTH_OK');
    const ended = once(inside.socket, 'disconnect');
    const operator = await connect(t, {}, own);
    const token_hash = createHash('sha256').update(TOKEN).digest('hex');
    const order = signed('AUTH_MANAGEMENT_COMMAND', { command: 'revoke_token', token_hash }, ADMIN);
    assert.equal((await operator.call('AUTH_MANAGEMENT_COMMAND', order)).ok, true);
    assert.equal((await inside.next('AUTH_FAIL')).code, 401);
    await deadline(ended, 10_000, 'the end');
  });
}
