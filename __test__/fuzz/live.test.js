// Random and mutated frames and requests against a live server, while good clients exchange
// messages. RESTANTE_FUZZ_SECONDS sets the time (10, or 60 with RESTANTE_LONG=1), RESTANTE_FUZZ_SEED
// repeats a run.
'use strict';
const assert = require('node:assert/strict');
const net = require('node:net');
const { test } = require('node:test');
const { Client, Polling, consumer, producer, request, unique } = require('../helpers/client');
const { frame } = require('../helpers/websocket');
const { startServer } = require('../helpers/server');
const { below, bytes, mutate, pick, random, seconds, seed } = require('./random');

const NAMES = [
  'CONSUMER',
  'PRODUCER',
  'SUBSCRIBE',
  'UNSUBSCRIBE',
  'PRODUCE',
  'PRODUCE_CHUNK',
  'ACK',
  'NACK',
  'WORKING',
  'PING',
  'QUIT',
  'HELLO',
  'AUTHENTICATION',
  '__proto__',
];
const FIELDS = [
  'name',
  'id',
  'consumer_id',
  'event',
  'producer',
  'consumer',
  'message',
  'from',
  'ttl',
  'delay',
  'durable',
  'ack',
  'ack_timeout',
  'retry',
  'mode',
  'group',
  'scope',
  'prefetch',
  'msgId',
  'msgIds',
  'transferId',
  'index',
  'total',
  'data',
  'method',
  'broadcast',
  'guaranteed',
  'headers',
  'key',
  'msg_uid',
  'instance_seq',
  'purge',
  'options',
  'delivery_attempt',
  'requeue',
];

function value(depth = 0) {
  switch (below(depth > 3 ? 8 : 11)) {
    case 0:
      return null;
    case 1:
      return below(100) - 50;
    case 2:
      return pick([0, -1, 1e9, 1e308, 0.5, 2 ** 53]);
    case 3:
      return random() < 0.5;
    case 4:
      return pick([
        '',
        'e',
        'p',
        'c',
        'topic',
        'all',
        '1s',
        '-1',
        'a/#',
        '#',
        '+',
        '__proto__',
        '\u0000',
        '\ud800',
        '😀',
        'TYO-MQ-ALL',
        'x'.repeat(300),
      ]);
    case 5:
      return 'fuzz' + below(20);
    case 6:
      return 'x'.repeat(below(3000));
    case 7:
      return {};
    case 8:
      return Array.from({ length: below(4) }, () => value(depth + 1));
    default:
      return Object.fromEntries(Array.from({ length: below(8) }, () => [pick(FIELDS), value(depth + 1)]));
  }
}

function packet() {
  const payload = random() < 0.85 ? Object.fromEntries(Array.from({ length: below(10) }, () => [pick(FIELDS), value()])) : value();
  const text = random() < 0.1 ? JSON.stringify(JSON.stringify(payload)) : JSON.stringify(payload);
  return (
    pick(['42', '42', '42', '427', '4299999999999999999999', '43', '451-', '452-9', '40', '41', '44', '42/ns,']) +
    `["${pick(NAMES)}",${text}]`
  );
}

/** One bad websocket client: joined or not, well-formed frames with odd content, or broken ones. */
async function badWebsocket(server) {
  const client = await Client.websocket(server, { join: random() < 0.9 });
  client.receive = () => {};
  client.receiveBinary = () => {};
  client.link.deliver = () => {};
  for (let n = 0; n < 40 && !client.isClosed; n++) {
    const kind = random();
    if (kind < 0.7) client.send(packet());
    else if (kind < 0.8)
      client.link.raw(frame(pick([0, 1, 2, 3, 8, 9, 10, 15]), bytes(below(130)), { fin: random() < 0.7, rsv: random() < 0.1 ? 4 : 0 }));
    else if (kind < 0.95) client.link.raw(mutate(frame(1, Buffer.from(packet()))));
    else client.link.raw(bytes(below(200)));
    if (n % 8 === 0) await new Promise(setImmediate);
  }
  random() < 0.3 ? client.link.close() : client.link.cut({ reset: random() < 0.5 });
}

/** Bytes that are nearly an HTTP request. */
function badRequest(server) {
  const good = pick([
    'GET /socket.io/?EIO=4&transport=polling HTTP/1.1\r\nHost: x\r\n\r\n',
    'POST /socket.io/?EIO=4&transport=polling&sid=x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n40{}',
    'GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n\r\n',
    'OPTIONS * HTTP/1.1\r\n\r\n',
    'GET / HTTP/1.0\r\n\r\n',
  ]);
  return new Promise((resolve) => {
    const socket = net.connect(server.port, '127.0.0.1');
    socket
      .on('error', () => {})
      .on('data', () => {})
      .on('close', resolve);
    socket.write(random() < 0.8 ? mutate(Buffer.from(good)) : bytes(below(400)));
    setTimeout(() => socket.destroy(), 20 + below(100));
  });
}

async function badPolling(server) {
  const polling = await Polling.open(server);
  await polling.post('40').catch(() => {});
  const path = random() < 0.8 ? polling.path : `${polling.path}${value()}`.replace(/[^\x21-\x7e]/g, '');
  for (let n = 0; n < 5; n++) {
    const body = random() < 0.5 ? Buffer.from(Array.from({ length: below(4) }, packet).join('\x1e')) : mutate(Buffer.from(packet()));
    await request(server, path, {
      method: pick(['POST', 'POST', 'POST', 'PUT', 'GET']),
      body,
      headers: { 'content-length': body.length },
      timeout: 300,
    }).catch(() => {});
  }
}

test(`good clients are undisturbed by ${seconds} s of garbage (seed ${seed})`, { timeout: (seconds + 60) * 1000 }, async () => {
  const server = await startServer();
  const p = await producer(server);
  const plain = await consumer(server);
  const durable = await consumer(server);
  const event = unique('steady');
  await plain.subscribe({ event, producer: p.name });
  await durable.subscribe({ event, producer: p.name, durable: true, ack: true });
  const name = `CONSUME-${p.name}-${event}`;
  const end = Date.now() + seconds * 1000;
  let rounds = 0;
  const storm = async (bad) => {
    while (Date.now() < end) {
      // A connection that is refused or cut is what a bad client deserves.
      await bad(server).catch((error) => {
        if (error.code === 'ECONNREFUSED') throw error;
      });
      rounds++;
    }
  };
  const exchange = async () => {
    let n = 0;
    for (; Date.now() < end; n++) {
      const body = { n, text: 'x'.repeat(n % 2000) };
      const answer = await p.produce(event, body);
      // Bad clients may have subscribed to everything: at least our own two copies.
      assert.ok(answer.ok && answer.delivered >= 1 && answer.queued >= 1, JSON.stringify(answer));
      assert.deepEqual((await plain.next(name)).message, body);
      const delivery = await durable.next(name);
      assert.deepEqual([delivery.message, delivery.delivery_attempt], [body, 1]);
      assert.equal((await durable.ack(delivery.msgId)).ok, true);
      for (const client of [plain, durable, p]) client.events.length = client.packets.length = 0;
    }
    return n;
  };
  const [exchanged] = await Promise.all([exchange(), storm(badWebsocket), storm(badWebsocket), storm(badRequest), storm(badPolling)]);
  assert.ok(exchanged > 10 * seconds, `only ${exchanged} messages in ${seconds} s`);
  assert.ok(rounds > 10 * seconds, `only ${rounds} bad clients`);
  await server.stop();
});
