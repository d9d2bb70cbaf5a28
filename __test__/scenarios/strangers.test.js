// A thousand strangers who each try to send 40 MB before anybody has let them in, beside clients that are (P25, P30).
'use strict';
const assert = require('node:assert/strict');
const { fork } = require('node:child_process');
const net = require('node:net');
const { test } = require('node:test');
const { Client, Polling, deadline, unique } = require('../helpers/client');
const { signed } = require('../helpers/proof');
const { startServer } = require('../helpers/server');

const ADMIN = 'the administrator of this server, whoever that is';
const TOKEN = 'a token of realm steady, that nobody can guess';
const STRANGERS = 1000;
const LARGE = 40 << 20;
const PIECE = Buffer.alloc(64 << 10, 'x');

const guarded = () =>
  startServer({
    auth: {
      enabled: true,
      tokens: [
        { token: ADMIN, realm: '*', role: 'admin' },
        { token: TOKEN, realm: 'steady', role: 'both' },
      ],
      realms: { steady: {} },
    },
    limits: { max_connections_per_ip: 0, connections_per_minute_per_ip: 0 },
  });

async function enter(server, token, verb) {
  const client = await Client.websocket(server);
  assert.equal((await client.call('AUTHENTICATION', { token })).ok, true);
  if (verb) await client[verb](unique('steady'));
  return client;
}

const order = (client, body) => client.call('AUTH_MANAGEMENT_COMMAND', signed('AUTH_MANAGEMENT_COMMAND', body, ADMIN));

/** Writes `LARGE` bytes as fast as they are taken, until the socket has ended. */
function pour(socket) {
  return new Promise((resolve) => {
    let sent = 0;
    const more = () => {
      while (sent < LARGE && !socket.destroyed) {
        sent += PIECE.length;
        if (!socket.write(PIECE)) return;
      }
    };
    socket.on('error', () => {});
    socket.on('data', () => {});
    socket.on('drain', more);
    socket.on('close', resolve);
    more();
  });
}

/** A websocket frame of 40 MB that claims its length in its head. */
async function large(server) {
  const client = await Client.websocket(server);
  client.link.deliver = () => {};
  const head = Buffer.alloc(14);
  head[0] = 0x81;
  head[1] = 0x80 | 127;
  head.writeBigUInt64BE(BigInt(LARGE), 2);
  client.link.raw(head);
  return pour(client.link.socket);
}

/** The same as the body of a POST. */
async function posted(server) {
  const polling = await Polling.open(server);
  const socket = net.connect(server.port, '127.0.0.1');
  socket.write(`POST ${polling.path} HTTP/1.1\r\nHost: x\r\nContent-Length: ${LARGE}\r\n\r\n`);
  return pour(socket);
}

if (process.argv[2] === 'strangers') {
  const server = { port: Number(process.argv[3]) };
  const all = Array.from({ length: STRANGERS }, (_, n) => (n % 5 ? large(server) : posted(server)));
  Promise.all(all).then(() => process.exit(0));
} else {
  tests();
}

function tests() {
  test('a thousand strangers with 40 MB each cost little memory, and nobody who is in notices', { timeout: 180_000 }, async (t) => {
    const server = await guarded();
    const p = await enter(server, TOKEN, 'producer');
    const c = await enter(server, TOKEN, 'consumer');
    await c.subscribe({ event: 'e', producer: p.name, durable: true, ack: true });
    const before = server.resident();
    let most = before;
    let over = false;
    const exchange = async () => {
      let n = 0;
      for (; !over; n++) {
        assert.equal((await p.produce('e', n)).queued, 1);
        const delivery = await c.next(`CONSUME-${p.name}-e`);
        assert.deepEqual([delivery.message, delivery.delivery_attempt], [n, 1]);
        assert.equal((await c.ack(delivery.msgId)).ok, true);
        for (const client of [p, c]) client.events.length = client.packets.length = 0;
        most = Math.max(most, server.resident());
      }
      return n;
    };
    const storm = async () => {
      // In a process of their own: here they would be in the way of the clients that are in.
      const strangers = fork(__filename, ['strangers', String(server.port)], { execArgv: [] });
      const ended = new Promise((resolve) => strangers.once('exit', resolve));
      assert.equal(await deadline(ended, 120_000, 'the end of every stranger').finally(() => strangers.kill('SIGKILL')), 0);
      over = true;
    };
    const [exchanged] = await Promise.all([exchange(), storm()]);
    assert.ok(exchanged > 10, `only ${exchanged} messages meanwhile`);
    const grown = (most - before) / 1024;
    t.diagnostic(`${grown.toFixed(1)} MiB more, ${exchanged} messages meanwhile`);
    assert.ok(grown < 100, `${grown.toFixed(1)} MiB more`);
    await server.stop();
  });

  test('who is revoked is out within 5 s, whatever else goes on', { timeout: 60_000 }, async () => {
    const server = await guarded();
    const judge = await enter(server, ADMIN);
    const steady = await enter(server, TOKEN, 'consumer');
    const { token, token_hash } = await order(judge, { command: 'add_token', realm: 'steady', role: 'consumer' });
    const revoked = await enter(server, token, 'consumer');
    const silent = await enter(server, token);
    const strangers = Array.from({ length: 50 }, () => large(server));
    const { ok, disconnected_sockets } = await order(judge, { command: 'revoke_token', token_hash });
    assert.equal(ok, true);
    assert.equal(disconnected_sockets, 2);
    await Promise.all([revoked, silent].map((client) => client.gone(5000)));
    assert.equal((await revoked.next('AUTH_FAIL')).code, 401);
    const again = await Client.websocket(server);
    assert.equal((await again.call('AUTHENTICATION', { token })).code, 401);
    await steady.sync();
    await Promise.all(strangers);
    await server.stop();
  });
}
