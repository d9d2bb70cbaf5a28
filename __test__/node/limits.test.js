'use strict';
// Limits through the package: what our client is told of them.
const assert = require('node:assert/strict');
const { test } = require('node:test');
const { restante, startServer, until } = require('./helpers');

test('about a burst passes and every other message is refused by name, while others go on (TC-M20)', async (t) => {
  const { server, producer } = await startServer(t, { limits: { messages_per_second: 20, message_burst: 60 } });
  const [greedy, modest] = [await producer(), await producer()];
  const notices = [];
  greedy.socket.on('RATE_LIMITED', (notice) => notices.push(notice));
  const began = performance.now();
  const outcomes = await Promise.allSettled(Array.from({ length: 500 }, (_, n) => greedy.produce('x', n, { confirm: true })));
  const seconds = (performance.now() - began) / 1000;
  const refused = outcomes.filter(({ status }) => status === 'rejected').map(({ reason }) => reason);
  const passed = outcomes.length - refused.length;
  assert.ok(passed >= 60 && passed <= 60 + Math.ceil(seconds * 20), `${passed} in ${seconds} s`);
  for (const error of refused) assert.deepEqual([error.code, error.number, error.retry_after], ['rate_limited', 429, 1]);
  await modest.produce('x', 1, { confirm: true });
  assert.equal(server.getStats().counters.rate_limited_total, refused.length);
  await until(() => notices.length > 0, 'a notice');
  assert.ok(notices.length <= 1 + Math.ceil(seconds), `${notices.length} notices`);
  const { code, reason, retry_after } = notices[0];
  assert.deepEqual([code, reason, retry_after], [429, 'messages_per_second', 1]);
});

test('a message over the burst is refused without a hint to try again', async (t) => {
  const { producer } = await startServer(t, { limits: { bytes_per_second: 1000 } });
  const p = await producer();
  await assert.rejects(p.produce('x', 'y'.repeat(5000), { confirm: true }), (error) => error.code === 'rate_limited' && error.retry_after === undefined);
  await p.produce('x', 'y', { confirm: true });
});

test('a wrong limit is named when the server is made', () => {
  const { Server } = require('../..');
  for (const [limits, path] of [[{ messages_per_second: 'x' }, 'limits.messages_per_second'], [{ trust_proxy: true }, 'limits.trust_proxy'], [{ realms: { a: { message_burst: [] } } }, 'limits.realms.a.message_burst']]) {
    assert.throws(() => new Server({ limits }), (error) => error.code === 'config' && error.message.includes(path));
  }
});

test('a connection too many is told as rate_limited by a consumer and by a request to be let in', async (t) => {
  const { port, factory, producer } = await startServer(t, { limits: { max_connections_per_ip: 1 } });
  await producer();
  const told = { code: 'rate_limited', retry_after: 30, message: /max_connections_per_ip/ };
  await assert.rejects(factory().createConsumer('second'), told);
  const at = { host: '127.0.0.1', port };
  await assert.rejects(restante.Authorization.submitAuthorizationRequest({ realm: 'r' }, at), told);
});

