// Scenarios 61 to 63: dead letters by signed commands, another store in the place of the one in force, and a
// Redis that is away when the server starts.
'use strict';
const assert = require('node:assert/strict');
const path = require('node:path');
const { Authorization, Server } = require('../..');
const { consumer, pair, producer, unique, until } = require('../helpers/client');
const { newFolder } = require('../helpers/folder');
const { redisServer } = require('../helpers/redis');
const { scenario, onEachStore } = require('../helpers/scenario');
const { startServer } = require('../helpers/server');
const { PLACES } = require('../helpers/stores');

const ADMIN = 'an administrator, quite certainly';
const AUTH = { auth: { enabled: false, tokens: [{ token: ADMIN, realm: '*', role: 'admin' }] } };
const ACKED = { durable: true, ack: true };
const quiet = { log() {}, info() {}, warn() {}, error() {}, debug() {} };

/** Signed orders to a server: `order(command)` resolves its answer. */
const orders = (server) => (command) => Authorization.authManagementCommand(ADMIN, command, { host: '127.0.0.1', port: server.port, timeout: 30_000 });

/** Produces these in one burst; all answers. */
const burst = (p, count, from = 0) => Promise.all(Array.from({ length: count }, (_, n) => p.produce('e', from + n)));

onEachStore((server) => {
  scenario(61, 'dead letters are listed, replayed to who is online, and discarded; an unknown id is 404', async (t) => {
    const own = await server.another(t, AUTH);
    const order = orders(own);
    const { p, c, name } = await pair(own, ACKED);
    const letters = async (more) => (await order({ command: 'dlq_list', ...more })).entries;
    for (const n of [1, 2]) {
      await p.produce('e', n);
      assert.equal((await c.nack((await c.next(name)).msgId, { requeue: false, reason: 'no use' })).ok, true);
    }
    const dead = await until(async () => (await letters()).length === 2 && (await letters({ realm: 'default' })), 'two dead letters');
    assert.deepEqual(dead.map(({ consumer: of, producer: from, realm }) => [of, from, realm]), Array(2).fill([c.name, p.name, 'default']));
    assert.deepEqual(await letters({ realm: 'other' }), []);
    const by = (n) => dead.find(({ message }) => message.message === n).id;

    // Looking has changed nothing, and only the one that is asked for comes.
    const replayed = await order({ command: 'dlq_replay', msg_id: by(1) });
    assert.equal(replayed.msg_id, by(1));
    const again = await c.next(name);
    assert.deepEqual([again.message, again.delivery_attempt], [1, 2]);
    assert.equal((await c.ack(again.msgId)).ok, true);
    assert.deepEqual((await letters()).map(({ id }) => id), [by(2)]);

    await order({ command: 'dlq_discard', msg_id: by(2) });
    assert.deepEqual(await letters(), []);
    for (const command of ['dlq_replay', 'dlq_discard']) {
      for (const msg_id of [by(1), by(2), 'nonsense']) {
        await assert.rejects(order({ command, msg_id }), { code: 'dead_letter_unknown', number: 404 });
      }
    }
    assert.ok(await c.quiet(name));
  });
});

/** From one store to another, by the options that name them. */
const MOVES = { memory: 'sqlite', sqlite: 'redis' };

for (const [from, to] of Object.entries(MOVES)) {
  scenario(62, `from ${from} to ${to} with 1,000 queued and 10 in flight nothing is lost, and ids in flight can be acknowledged`, async (t) => {
    const data_dir = newFolder();
    const target = await PLACES[to]();
    t.after(() => target.close());
    const { storage, storage_options } = from === 'sqlite' ? { storage: from, storage_options: { filename: path.join(data_dir, 'old.sqlite') } } : { storage: from };
    const own = await startServer({ ...AUTH, data_dir, storage, storage_options });
    t.after(() => own.stop());
    const order = orders(own);
    const { p, c, name } = await pair(own, { ...ACKED, prefetch: 10 });
    for (const answer of await burst(p, 1_010)) assert.deepEqual([answer.ok, answer.queued], [true, 1]);
    const inFlight = await c.take(name, 10);

    // A target that cannot be leaves what is there as it is.
    const nowhere = { storage: 'redis', storage_options: { url: 'redis://127.0.0.1:1', probe_timeout: 500 } };
    await assert.rejects(order({ command: 'set_persistence', ...nowhere }), { code: 'store_unavailable', number: 503 });
    await assert.rejects(order({ command: 'set_persistence', storage: 'papyrus' }), { code: 'bad_command', number: 400 });
    assert.equal((await order({ command: 'stats' })).stats.store.storage, from);
    assert.equal((await c.ack(inFlight[0].msgId)).ok, true);
    assert.equal((await c.next(name)).message, 10);

    const wish = to === 'sqlite' ? { storage: to, storage_options: { filename: path.join(data_dir, 'new.sqlite') } } : target.fresh();
    const { settings, migrated } = await order({ command: 'set_persistence', ...wish });
    assert.deepEqual(migrated, { messages: 1_009, dlq: 0, subscriptions: 1 });
    assert.equal(settings.persistence.storage, to);
    assert.equal((await order({ command: 'stats' })).stats.store.storage, to);
    for (const { msgId } of inFlight.slice(1)) assert.deepEqual(await c.ack(msgId), { ok: true, msgId });

    const got = [];
    const held = c.events.filter((event) => event.name === name).find((event) => event.args[0].message === 10);
    await c.ack(held.args[0].msgId);
    while (got.length < 999) {
      const { message, msgId, delivery_attempt } = await c.next(name);
      got.push([message, delivery_attempt]);
      assert.equal((await c.ack(msgId)).ok, true);
    }
    assert.deepEqual(got, Array.from({ length: 999 }, (_, n) => [n + 11, 1]));
    assert.equal((await p.produce('e', 'after')).queued, 1);
    assert.equal((await c.next(name)).message, 'after');
    assert.ok(await c.quiet(name));
  });
}

/** What a client sees of a server whose Redis is away, before and after a kill if it can be killed. */
async function withoutRedis(own, kill) {
  const p = await producer(own);
  const c = await consumer(own);
  const fields = { event: 'e', producer: p.name, ...ACKED };
  await c.subscribe(fields);
  await c.leave();
  for (const answer of await burst(p, 3)) assert.deepEqual([answer.ok, answer.queued], [true, 1]);
  await kill?.();
  const back = await consumer(own, c.name);
  assert.equal((await back.subscribe(fields)).queued, 3);
  const got = await back.take(`CONSUME-${p.name}-e`, 3);
  assert.deepEqual(got.map(({ message }) => message), [0, 1, 2]);
  for (const { msgId } of got) assert.equal((await back.ack(msgId)).ok, true);
}

async function away(t) {
  const redis = await redisServer('--appendonly', 'yes');
  t.after(() => redis.close());
  await redis.stop();
  const data_dir = newFolder();
  const storage_options = { url: redis.url, prefix: unique('s'), lease: '2s', probe_timeout: 500, fallback: 'sqlite', fallback_path: path.join(data_dir, 'meanwhile.sqlite') };
  return { redis, options: { ...AUTH, data_dir, storage: 'redis', storage_options } };
}

scenario(63, 'without its Redis at the start a server with a fallback is durable on disk, says so, and goes back', async (t) => {
  const { redis, options } = await away(t);
  const own = await startServer(options);
  t.after(() => own.stop());
  const store = async () => (await orders(own)({ command: 'stats' })).stats.store;
  assert.match(own.said, /Redis is away/);
  const { storage, degraded, fallback } = await store();
  assert.deepEqual([storage, degraded, fallback], ['sqlite', true, 1]);
  await withoutRedis(own, () => own.restart());
  assert.equal((await store()).storage, 'sqlite');
  await redis.start();
  // Every connection ends with the change, that of an order too.
  const isBack = () => store().then(({ storage: name }) => name === 'redis', () => false);
  await until(isBack, 'Redis in force', 30_000);
  assert.equal((await store()).degraded, false);
});

scenario(63, 'so does one that was made by its constructor', async (t) => {
  const { options } = await away(t);
  const said = [];
  const own = new Server({ host: '127.0.0.1', port: 0, ...options, logger: { ...quiet, error: (text) => said.push(text) } });
  const { port } = await own.start();
  t.after(() => own.stop());
  assert.match(said.join('\n'), /Redis is away/);
  const { storage, level, degraded } = own.getStats().store;
  assert.deepEqual([storage, level, degraded], ['sqlite', 'disk', true]);
  await withoutRedis({ port });
});
