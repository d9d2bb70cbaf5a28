'use strict';
// What the program around a broker says to its sessions itself, and what it sweeps.
const assert = require('node:assert/strict');
const { test } = require('node:test');
const { startServer, restante, quiet, until, sleep } = require('./helpers');

const heard = (client) => {
  const got = [];
  client.socket.on('note', (payload) => got.push(payload));
  return { got, grown: (n) => until(() => got.length >= n, () => `${n} notes, got ${got.length}`) };
};

test('send reaches one session, broadcast and volatile all of them, bytes and all', async (t) => {
  const { server, consumer, producer } = await startServer(t);
  const [c, p] = [await consumer('c'), await producer('p')];
  const [atC, atP] = [heard(c), heard(p)];
  assert.equal(server.send(c.id(), 'note', { n: 1, bytes: Buffer.from([1, 2]) }), true);
  await atC.grown(1);
  assert.deepEqual(atC.got, [{ n: 1, bytes: Buffer.from([1, 2]) }]);
  assert.equal(server.broadcast('note', 'all'), 2);
  await Promise.all([atC.grown(2), atP.grown(1)]);
  assert.deepEqual([atC.got[1], atP.got[0]], ['all', 'all']);
  await until(() => server.volatile('note') === 2, 'two sessions with nothing waiting');
  await until(() => server.volatile('note', 3, p.id()) === 1, 'a session with nothing waiting');
  await until(() => atP.got.includes(3), 'the last note');
  assert.equal(atP.got.includes(null), true);
  assert.equal(atC.got.includes(3), false);
});

test('send to nobody, of what cannot be carried, or by a server that does not run', async (t) => {
  const { server, consumer } = await startServer(t);
  const c = await consumer('c');
  const id = c.id();
  assert.equal(server.send('nobody', 'note', 1), false);
  assert.throws(() => server.send(id, 'note', 1n), { code: 'not_carriable' });
  assert.throws(() => server.send(id, '', 1), { code: 'bad_command' });
  await c.close();
  await until(() => !server.send(id, 'note', 1), 'the session to be gone');
  const idle = new restante.Server({ port: 0, logger: quiet });
  for (const ask of ['broadcast', 'sweepIdleRegistrations', 'stopIdleEviction']) {
    assert.throws(() => idle[ask]('note'), { code: 'shutting_down' }, ask);
  }
});

test('idle names are swept on demand, and only so once the timer is stopped', async (t) => {
  const { server, consumer, producer } = await startServer(t, { idle_eviction: { enabled: true, ttl_ms: 20, interval_ms: 10 } });
  assert.equal(server.stopIdleEviction(), server);
  const [c, p] = [await consumer('c'), await producer('p')];
  assert.equal(server.sweepIdleRegistrations(), 0);
  await Promise.all([c.close(), p.close()]);
  const total = () => server.getStats().realms.default.consumers.total;
  await sleep(200); // many rounds of a timer that would run
  assert.equal(total(), 1);
  let swept = 0;
  await until(() => (swept += server.sweepIdleRegistrations()) === 2, 'both names to be idle');
  assert.equal(total(), 0);
});
