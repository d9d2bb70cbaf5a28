// Promises about the wire that no case and no scenario carries by its number.
'use strict';
const assert = require('node:assert/strict');
const net = require('node:net');
const { Client, Polling, consumer, pair, producer, request, unique } = require('../helpers/client');
const { numbered, sharedServer, onEachStore } = require('../helpers/scenario');
const { startServer } = require('../helpers/server');

const server = sharedServer();
const DURABLE = { durable: true };

onEachStore((server) => {
  numbered('P2', 'the answer to a produce comes after its copies are stored, with every count', async () => {
    const { p, c, again, name } = await pair(server, DURABLE);
    await c.leave();
    const answer = await p.produce('e', 'kept', { guaranteed: true });
    assert.equal(typeof answer.id, 'string');
    assert.deepEqual(answer, { ok: true, id: answer.id, queued: 1, delivered: 0, refused: 0, duplicate: false, delayed: false });
    const back = await again();
    assert.equal(back.subscribed.queued, 1);
    assert.equal((await back.next(name)).message, 'kept');
    const unmatched = await p.produce(unique('e'), 'nobody', { guaranteed: true });
    assert.deepEqual([unmatched.ok, unmatched.queued, unmatched.delivered], [true, 0, 0]);
  });
});

numbered('P2', 'every piece of a dropped transfer is told once, and the reply that is owed comes', async () => {
  const p = await producer(server);
  const piece = (index, total) => ({ transferId: unique('t').slice(0, 8), index, total, data: '{' });
  const first = { ...piece(0, 3), transferId: 'dropped' };
  p.emitEvent('PRODUCE_CHUNK', first);
  p.emitEvent('PRODUCE_CHUNK', { ...first, index: 1, total: 4 });
  assert.equal((await p.next('ERROR')).error, 'chunk_dropped');
  const answer = await p.call('PRODUCE_CHUNK', { ...first, index: 2 });
  assert.deepEqual([answer.ok, answer.error], [false, 'chunk_dropped']);
  assert.equal(p.seen('ERROR').length, 1);
});

onEachStore((server) => {
  numbered('P4', 'a named plain subscription is remembered for guaranteed messages, an anonymous one never', async () => {
    const { p, c, again, name } = await pair(server);
    const anonymous = await consumer(server, `ANONYMOUS-${unique('')}`);
    anonymous.emitEvent('SUBSCRIBE', { event: 'e', producer: p.name, consumer: anonymous.name, durable: true });
    await anonymous.sync();
    await Promise.all([c.leave(), anonymous.leave()]);
    assert.equal((await p.produce('e', 'plain')).queued, 0);
    assert.equal((await p.produce('e', 'guaranteed', { guaranteed: true })).queued, 1);
    const back = await again();
    assert.equal((await back.next(name)).message, 'guaranteed');
    assert.equal(back.seen(name).length, 1);
  });

  numbered('P4', 'what is guaranteed is stored for a plain subscription from the answer to its SUBSCRIBE on', async () => {
    const c = await consumer(server);
    const p = await producer(server);
    for (let n = 0; n < 20; n++) {
      await c.call('SUBSCRIBE', { event: `e${n}`, producer: p.name, consumer: c.name });
      assert.equal((await p.produce(`e${n}`, n, { guaranteed: true })).queued, 1, `${n}`);
    }
  });

  numbered('P5', 'unsubscribing keeps the backlog unless it says purge; what is left comes to a later subscription', async () => {
    for (const [purge, left] of [
      [false, 3],
      [true, 0],
    ]) {
      const { p, c, name, fields } = await pair(server, DURABLE);
      await c.leave();
      for (let n = 0; n < 3; n++) await p.produce('e', n);
      const back = await consumer(server, c.name);
      const gone = await back.call('UNSUBSCRIBE', { event: 'e', producer: p.name, consumer: c.name, purge });
      assert.deepEqual([gone.ok, gone.removed, gone.left ?? 0], [true, 1, left]);
      assert.equal((await p.produce('e', 'not for it')).queued, 0);
      assert.equal((await back.subscribe(fields)).queued, left);
      const got = await back.take(name, left);
      assert.deepEqual(
        got.map(({ message }) => message),
        [0, 1, 2].slice(0, left),
      );
      await p.produce('e', 'next');
      assert.equal((await back.next(name)).message, 'next');
    }
  });

  numbered('P9', 'an ack of another session is 403, of an unknown delivery 404, a second one a duplicate', async () => {
    const { p, c, name } = await pair(server, { durable: true, ack: true });
    await p.produce('e', 1);
    const { msgId } = await c.next(name);
    const other = await consumer(server);
    assert.deepEqual([(await other.ack(msgId)).code, (await other.ack('never-was-1')).code], [403, 404]);
    assert.deepEqual(await c.ack(msgId), { ok: true, msgId });
    const second = await c.ack(msgId);
    assert.deepEqual([second.ok, second.duplicate], [true, true]);
  });
});

const GOOD = [
  [1, 1000],
  ['1', 1000],
  ['1.5s', 1500],
  ['250ms', 250],
  ['250MS', 250],
  [0.5, 500],
];
const BAD = ['5 minutes', 'abc', {}, -1, '-1s', '1e3s', true, []];

numbered('P14', 'durations are seconds, or have a unit; anything else is refused by its name', async () => {
  await Promise.all(
    GOOD.map(async ([delay, ms]) => {
      const { p, c, name } = await pair(server);
      const begin = performance.now();
      assert.equal((await p.produce('e', 1, { delay })).delayed, true);
      await c.next(name);
      const waited = performance.now() - begin;
      assert.ok(waited >= ms - 5 && waited < ms + 1500, `${JSON.stringify(delay)} took ${Math.round(waited)} ms`);
    }),
  );
  const { p, c } = await pair(server);
  for (const bad of BAD) {
    for (const [field, answer] of [
      ['ttl', await p.produce('e', 1, { ttl: bad })],
      ['delay', await p.produce('e', 1, { delay: bad })],
      ['ack_timeout', await c.subscribe({ event: 'f', producer: p.name, ack: true, ack_timeout: bad })],
      ['delay', await c.subscribe({ event: 'f', producer: p.name, ack: true, retry: { delay: bad } })],
    ]) {
      assert.deepEqual([answer.ok, answer.code], [false, -5], `${field} ${JSON.stringify(bad)}`);
      assert.match(answer.message, new RegExp(field));
    }
  }
  const long = await c.subscribe({ event: 'f', producer: p.name, ack: true, ack_timeout: '25h' });
  assert.deepEqual([long.ok, long.code], [false, -5]);
  await assert.rejects(startServer({ ack_timeout: 'soon' }), /ack_timeout/);
});

onEachStore((server) => {
  numbered('P16', 'a numbered produce sent again over another connection is stored once', async () => {
    const { p, c, again, name } = await pair(server, DURABLE);
    await c.leave();
    const instance = unique('instance');
    const other = await producer(server);
    const send = (client, n) => client.produce('e', n, { from: p.name, instance_seq: [instance, n] });
    assert.deepEqual([(await send(p, 1)).duplicate, (await send(p, 2)).duplicate], [false, false]);
    assert.deepEqual([(await send(other, 2)).duplicate, (await send(other, 3)).duplicate], [true, false]);
    const back = await again();
    assert.deepEqual(
      (await back.take(name, 3)).map(({ message }) => message),
      [1, 2, 3],
    );
    assert.equal(back.subscribed.queued, 3);
  });

  numbered('P17', 'a delayed message is routed when it is due: to who listens then; a past date is now', async () => {
    const p = await producer(server);
    const event = unique('e');
    const answer = await p.produce(event, 'later', { delay: '400ms' });
    assert.deepEqual([answer.ok, answer.queued, answer.delivered, answer.delayed], [true, 0, 0, true]);
    const c = await consumer(server);
    await c.subscribe({ event, producer: p.name, ...DURABLE });
    const past = await p.produce(event, 'past', { deliver_at: Date.now() - 60_000 });
    assert.equal(past.ok, true);
    const got = await c.take(`CONSUME-${p.name}-${event}`, 2);
    assert.deepEqual(
      got.map(({ message }) => message),
      ['past', 'later'],
    );
  });

  numbered('P18', 'a group takes a message once, at the first of its keys, and its queue waits for whoever comes', async () => {
    const p = await producer(server);
    const group = unique('g');
    const fields = { event: 'e', producer: p.name, group, ...DURABLE };
    const first = await consumer(server);
    await first.subscribe(fields);
    const refused = await (await consumer(server)).call('SUBSCRIBE', { consumer: 'x', ...fields, ack: true, retry: { max_attempts: 7 } });
    assert.deepEqual([refused.ok, refused.code], [false, -5]);
    await first.leave();
    for (let n = 0; n < 4; n++) assert.equal((await p.produce('e', n)).queued, 1);
    const second = await consumer(server);
    assert.equal((await second.subscribe(fields)).queued, 4);
    assert.deepEqual(
      (await second.take(`CONSUME-${p.name}-e`, 4)).map(({ message }) => message),
      [0, 1, 2, 3],
    );
  });
});

numbered('P19', 'odd names are literal; reserved, long and control ones are refused', async () => {
  for (const stem of ['__proto__', 'a%b', 'a:b', '*', 'group:x', 'emoji 😀', 'a/+/#']) {
    const event = `${stem}${unique('')}`;
    const p = await producer(server, `${event}-p`);
    const c = await consumer(server, `${event}-c`);
    await c.subscribe({ event, producer: p.name });
    assert.equal((await p.produce(event.toUpperCase(), stem)).delivered, 1, stem);
    assert.equal((await c.next(`CONSUME-${`${p.name}-${event}`.toLowerCase()}`)).message, stem);
  }
  for (const name of ['TYO-MQ-ALL', 'TYO-MQ-SYSTEM', 'http:0123abcd', 'a\u0007', 'n'.repeat(256), '']) {
    const client = await Client.websocket(server);
    client.emitEvent('PRODUCER', { name });
    assert.equal((await client.next('ERROR')).code, -1, JSON.stringify(name));
  }
});

numbered('P20', 'texts, numbers and key order arrive as they were sent', async () => {
  const { p, c, name } = await pair(server, DURABLE);
  const texts = ['{"b":1,"a":2,"10":3}', '1.0', '12345678901234567890', '1e2', '"\\ud800"', '"\\u0000"', '-0', '[[],{}]', 'null', '""'];
  for (const text of texts) {
    p.send(`42["PRODUCE",{"event":"e","from":"${p.name}","message":${text}}]`);
    const packet = await c.packet((each) => each.startsWith(`42["${name}"`) && each.includes(`"message":${text}`));
    assert.ok(packet);
    c.packets.length = 0;
  }
});

numbered('P26', 'frames and requests that make no sense end at most their own connection', async () => {
  const { p, c, name } = await pair(server);
  const hostile = ['4', '42', '42[', '42[]', '42[7]', '42{"a":1}', '9', '451-', '4599999-["e"]', '43', '42["PRODUCE"]', '42/ns,["x"]', '5', 'é'.repeat(1000)];
  for (const packet of hostile) {
    const bad = await Client.websocket(server);
    bad.send(packet);
    bad.link.binary(Buffer.from([1, 2, 3]));
    bad.link.cut();
  }
  for (const head of ['GET / HTTP/9.9\r\n\r\n', '\x16\x03\x01\x02\x00', 'POST /socket.io/ HTTP/1.1\r\nContent-Length: -1\r\n\r\n', `GET /${'x'.repeat(100_000)} HTTP/1.1\r\n\r\n`]) {
    await new Promise((resolve) => {
      const socket = net.connect(server.port, '127.0.0.1', () => socket.end(head));
      socket.on('error', resolve).on('close', resolve).resume();
    });
  }
  const polling = await Polling.open(server);
  await request(server, polling.path, { method: 'POST', body: '\x1e\x1e4\x1e', headers: { 'content-length': 4 } });
  await p.produce('e', 'still here');
  assert.equal((await c.next(name)).message, 'still here');
});

numbered('P32', 'a stopped server ends every connection, frees its port and leaves by itself', async (t) => {
  const own = await startServer();
  const { p, c } = await pair(own, DURABLE);
  await p.produce('e', 1);
  const polling = await Polling.open(own);
  const poll = polling.poll().catch((error) => error);
  await own.stop();
  assert.equal(own.ended.code, 0);
  await Promise.all([p.gone(), c.gone(), poll]);
  const probe = net.createServer();
  t.after(() => probe.close());
  await new Promise((resolve, reject) => probe.once('error', reject).listen(own.port, '127.0.0.1', resolve));
});

numbered('P34', 'every refusal carries one stable word beside its number', async (t) => {
  const own = await server.another(t, { max_message_bytes: 2048, max_queued: 1 });
  const { p, c, fields } = await pair(own, DURABLE);
  await c.leave();
  await p.produce('e', 1);
  const someone = await consumer(own);
  const seen = [
    [await p.produce('e', 2), 'queue_full'],
    [await p.produce('e', 'x'.repeat(4096)), 'payload_too_large'],
    [await p.produce('', 3), 'bad_command'],
    [await someone.ack('never-was-1'), 'delivery_unknown'],
    [await someone.call('SUBSCRIBE', { ...fields, event: 7, consumer: someone.name }), 'bad_command'],
    [await someone.call('NO_SUCH_VERB', {}), 'unsupported'],
  ];
  for (const [answer, word] of seen) {
    assert.deepEqual([answer.ok, answer.error], [false, word], JSON.stringify(answer));
    assert.equal(typeof answer.code, 'number');
    assert.equal(typeof answer.message, 'string');
  }
  const taken = await Client.websocket(own);
  taken.emitEvent('CONSUMER', { name: someone.name });
  const error = await taken.next('ERROR');
  assert.deepEqual([error.code, error.error], [-3, 'duplicate_consumer']);
});
