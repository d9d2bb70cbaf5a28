'use strict';
// Starting, stopping, losing and restoring connections; whole processes in children.
const assert = require('node:assert/strict');
const net = require('node:net');
const { once } = require('node:events');
const { test } = require('node:test');
const { Worker } = require('node:worker_threads');
const path = require('node:path');
const { startProxy } = require('../helpers/proxy');
const { startServer, restante, quiet, inbox, until, within, child, sleep, unique } = require('./helpers');

const { Server, Factory } = restante;
const LONG = process.env.RESTANTE_LONG === '1';
const free = async (port) => {
  const probe = net.createServer();
  await new Promise((resolve, reject) => probe.once('error', reject).listen(port, '127.0.0.1', resolve));
  await new Promise((resolve) => probe.close(resolve));
};

for (const [name, most] of [['everything-closed', 4000], ['nothing-open', 2000], ['unref', 3000], ['client-without-server', 3000]]) {
  test(`a process ends by itself: ${name} (TC-I01)`, async () => {
    const { code, output, ms } = await child(name).ended;
    assert.equal(code, 0, output);
    assert.ok(ms < most, `${ms} ms: ${output}`);
  });
}

test('an open client or a running server keeps the process alive', async () => {
  for (const what of ['client', 'server']) {
    const { running, said, ended } = child('stays', what);
    await said('open');
    await sleep(300);
    assert.equal(running.exitCode, null);
    running.send('close');
    const { code, output } = await ended;
    assert.equal(code, 0, output);
  }
});

test('what was closed is collected, with all that hangs on it (TC-E01)', async () => {
  const { code, output } = await child('collected').ended;
  assert.equal(code, 0, output);
});

test('process.exit in the middle of traffic keeps its code, and nothing crashes', async () => {
  for (let round = 0; round < (LONG ? 30 : 6); round++) {
    const { code, signal, output } = await child('exits', round).ended;
    assert.deepEqual([code, signal], [7, null], output);
  }
});

test('SIGTERM under load with the documented hook: exit 0 (TC-I08)', async () => {
  const { running, said, ended } = child('sigterm');
  await said('running');
  running.kill('SIGTERM');
  const { code, signal, output } = await ended;
  assert.deepEqual([code, signal], [0, null], output);
});

test('no listener for errors anywhere: the process lives (TC-I11)', async () => {
  const { code, output } = await child('no-error-listener').ended;
  assert.equal(code, 0, output);
  assert.match(output, /survived/);
});

test('workers: clients and servers in threads, ended and terminated (TC-H06)', async () => {
  const file = path.join(__dirname, 'fixtures', 'in-worker.js');
  for (let round = 0; round < (LONG ? 50 : 8); round++) {
    const worker = new Worker(file, { workerData: { finish: round % 2 === 0, fail: round % 4 === 1 }, stdout: true, stderr: true });
    worker.on('error', () => {});
    const [word] = await once(worker, 'message');
    assert.equal(word, 'busy');
    if (round % 2 === 0) assert.deepEqual(await within(10_000, once(worker, 'exit'), 'the end of a worker'), [0]);
    else await within(2000, worker.terminate(), 'terminate()');
  }
  const four = await Promise.all(Array.from({ length: 4 }, () => once(new Worker(file, { workerData: { finish: true } }), 'exit')));
  assert.deepEqual(four, [[0], [0], [0], [0]]);
});

test('a cleared require cache gives new classes over the same addon', async (t) => {
  const { port } = await startServer(t);
  const loaded = Object.keys(require.cache).filter((file) => file.includes(`${path.sep}lib${path.sep}`) || file.endsWith('index.js') || file.endsWith('binding.js'));
  const kept = loaded.map((file) => [file, require.cache[file]]);
  for (const file of loaded) delete require.cache[file];
  try {
    const again = require('../..');
    assert.notEqual(again.Factory, Factory);
    const c = await new again.Factory({ host: '127.0.0.1', port, logger: quiet }).createConsumer(unique('c'));
    await c.close();
  } finally {
    for (const [file, module] of kept) require.cache[file] = module;
  }
});

test('import gives the same classes as require', async () => {
  const esm = await import('../../index.mjs');
  for (const name of Object.keys(restante)) assert.equal(esm[name], restante[name], name);
  assert.equal(esm.default, restante);
  assert.deepEqual(Object.keys(esm).filter((name) => name !== 'default').sort(), Object.keys(restante).sort());
});

test('a server is closed oddly: before, during, after a failed start, twice, at once (TC-I04)', async () => {
  const never = new Server({ port: 0 });
  await never.stop();
  await never.close({ timeout: 1 });

  const during = new Server({ port: 0, host: '127.0.0.1' });
  const starting = during.start();
  await Promise.all([during.stop(), during.close(), during.stop()]);
  const { port } = await starting;
  await free(port);
  assert.equal(during.port, null);

  const taken = net.createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const failed = new Server({ port: taken.address().port, host: '127.0.0.1' });
  await assert.rejects(failed.start(), (error) => error instanceof restante.RestanteError && /in use/i.test(error.message));
  await failed.stop();
  taken.close();
  await once(taken, 'close');
  // It can be started after all, and again after a stop.
  for (let round = 0; round < 2; round++) {
    const where = await failed.start();
    assert.equal(where.port, failed.port);
    await Promise.all([failed.stop(), failed.stop()]);
    await free(where.port);
  }
});

test('Server: what is not there yet is refused, what is unknown warns, create() points to start()', () => {
  const warned = [];
  const logger = { log() {}, warn: (text) => warned.push(text) };
  new Server({ logger, pingIntervall: 5, perMessageDeflate: true, allowEIO3: true });
  assert.equal(warned.length, 3);
  assert.match(warned.join(), /pingIntervall/);
  for (const options of [{ storage: 'postgres' }, { cluster: { enabled: true } }]) {
    assert.throws(() => new Server(options), { code: 'unsupported' });
  }
  for (const options of [{ ack_timeout: 'soon' }, { ackTimeout: -1 }, { store_timeout: NaN }, { port: 70_000 }, { port: 'x' }, { max_queued: 'many' }, { overflow: 'explode' }, { dlq_ttl: {} }]) {
    assert.throws(() => new Server(options), { code: 'config' }, JSON.stringify(options));
  }
  new Server({ auth: { enabled: false }, cluster: null, storage: true });
  assert.throws(() => Server.create({}), /start\(port\)/);
  assert.throws(() => new Server().create({}), { code: 'unsupported' });
  assert.throws(() => new Server().getStats(), { code: 'shutting_down' });
});

test('a server for everybody says so once, one for this machine does not', async () => {
  for (const [host, times] of [[undefined, 1], ['127.0.0.1', 0]]) {
    const warned = [];
    const server = new Server({ port: 0, host, logger: { ...quiet, warn: (text) => warned.push(text) } });
    const { port } = await server.start();
    await server.stop();
    assert.equal(warned.filter((text) => text.includes(`anybody who reaches port ${port}`)).length, times, warned.join());
  }
});

test('Storage: memory, and clear words about the others', async () => {
  const store = restante.Storage.createStore('memory', { default_ttl: '1h' });
  assert.ok(store instanceof restante.Storage.MemoryStore);
  assert.equal((await restante.Storage.createStoreAsync('memory')).backend, 'memory');
  const sqlite = restante.Storage.createStore('sqlite', { filename: 'x.db', busyTimeout: 50 });
  assert.ok(sqlite instanceof restante.Storage.SqliteStore);
  assert.deepEqual({ ...sqlite.options }, { filename: 'x.db', busy_timeout: 50 });
  assert.equal((await restante.Storage.createStoreAsync(sqlite)).backend, 'sqlite');
  assert.throws(() => restante.Storage.createStore('sqlite', { synchronous: 'off' }), { code: 'config' });
  assert.throws(() => restante.Storage.createStore('custom'), { code: 'config' });
  const redis = restante.Storage.createStore('redis', { url: ['redis://a:1', 'redis://b:2'], cluster: true });
  assert.ok(redis instanceof restante.Storage.RedisStore);
  assert.deepEqual({ ...redis.options }, { url: 'redis://a:1,redis://b:2', cluster: true });
  assert.equal((await restante.Storage.createStoreAsync(redis)).backend, 'redis');
  await assert.rejects(restante.Storage.createStoreAsync('custom'), { code: 'config' });
  const server = new Server({ storage: store, port: 0, host: '127.0.0.1' });
  await server.start();
  await server.stop();
});

test('a connection that breaks comes back with its subscriptions, and says where messages may be missing', async (t) => {
  const { port, producer, factory, keep } = await startServer(t);
  const proxy = await startProxy({ port });
  t.after(() => proxy.close());
  const p = await producer('p');
  const c = keep(await factory({ port: proxy.port }).createConsumer('c'));
  const { handler, grown, messages } = inbox();
  const log = [];
  for (const event of ['connect', 'disconnect', 'gap']) c.on(event, () => log.push(event));
  let raw = 0;
  c.socket.on('connect', () => raw++);
  await c.subscribe('p', 'plain', handler);
  await c.subscribe('p', 'kept', handler, { durable: true, ack: true });
  await c.subscribeOnce('p', 'once', handler);
  const id = c.getId();
  proxy.hold();
  proxy.kill();
  await once(c, 'disconnect');
  assert.equal(c.isConnected(), false);
  await p.produce('kept', 'while away', { confirm: true });
  proxy.release();
  await once(c, 'gap');
  await grown(1);
  await until(async () => (await p.produce('plain', 'again', { confirm: true })).delivered === 1, 'the plain subscription');
  await grown(2);
  assert.deepEqual(messages().slice(0, 2), ['while away', 'again']);
  assert.notEqual(c.getId(), id);
  assert.deepEqual(log.slice(0, 3), ['disconnect', 'connect', 'gap']);
  assert.equal(raw, 1);
});

test('the callback of a factory runs again after each reconnect, and nothing multiplies', async (t) => {
  const { port, producer, factory, keep, server } = await startServer(t);
  const proxy = await startProxy({ port });
  t.after(() => proxy.close());
  const p = await producer('p');
  const { handler, got, grown } = inbox();
  let calls = 0;
  factory({ port: proxy.port }).createConsumer('c', (c) => {
    if (++calls === 1) keep(c);
    c.subscribe('p', 'e', handler, { durable: true });
  });
  for (let round = 1; round <= 3; round++) {
    await until(() => calls === round, `call ${round}`);
    await until(() => server.getStats().realms.default.consumers.online === 1, 'online');
    proxy.kill();
  }
  await until(() => calls === 4, 'the last call');
  await p.produce('e', 'once', { confirm: true });
  await grown(1);
  await sleep(50);
  assert.equal(got.length, 1);
});

test('forms of createProducer, createConsumer and createSocket', async (t) => {
  const { port, factory, keep } = await startServer(t);
  const plain = factory();
  assert.match(keep(await plain.createProducer()).name, /^ANONYMOUS-/);
  assert.match(keep(await plain.createConsumer()).name, /^ANONYMOUS-/);
  const a = keep(await plain.createProducer('a', 'event', { default_ttl: '1m' }));
  const b = keep(await plain.createProducer('b', { event: 'event', defaultTtl: '1m' }));
  assert.deepEqual([a.eventDefault, a.default_ttl, b.eventDefault, b.default_ttl], ['event', '1m', 'event', '1m']);
  const elsewhere = new Factory({ logger: quiet });
  const forms = [
    (done) => elsewhere.createProducer('c', done, port, '127.0.0.1', 'http', {}),
    (done) => elsewhere.createProducer('d', 'event', done, port, '127.0.0.1'),
    (done) => elsewhere.createConsumer('e', done, port, '127.0.0.1'),
    (done) => elsewhere.createConsumer({ logger: quiet }, 'f', done, String(port), '127.0.0.1', null, null, () => {}),
    (done) => elsewhere.createSubscriber(null, 'g', done, port, '127.0.0.1'),
    (done) => elsewhere.createSocket(done, port, '127.0.0.1'),
  ];
  for (const form of forms) {
    const socket = await new Promise((resolve, reject) => form((made, error) => (error ? reject(error) : resolve(made))));
    keep(socket);
    assert.equal(socket.isConnected(), true);
    assert.match(socket.generateConnectionUrl(), new RegExp(`^http://127.0.0.1:${port}/$`));
  }
  keep(await elsewhere.createConsumer('h', null, port, '127.0.0.1'));
  keep(await elsewhere.createConsumer(null, 'i', undefined, port, '127.0.0.1', 'http', {}, () => {}));
  const socket = plain.createSocket();
  assert.equal(socket.isConnected(), false);
  assert.throws(() => socket.sendMessage('x', {}), { code: 'disconnected' });
  await socket.close();
  const refused = await new Promise((resolve) => new Factory({ host: '127.0.0.1', port: 1, connectTimeout: 50, logger: quiet }).createConsumer('x', (made, error) => resolve([made, error])));
  assert.equal(refused[0], null);
  assert.equal(refused[1].code, 'timeout');
  for (const options of [{ port: 'x' }, { port: 0 }, { offline: 'never' }, { connectTimeout: 'x' }, { host: 5 }]) {
    await assert.rejects(async () => new Factory({ logger: quiet, ...options }).createConsumer('x'), { code: 'bad_command' });
  }
});

test('offline: queue keeps confirmed messages up to its bound, reject refuses at once (TC-D09)', async (t) => {
  const { port, factory, keep, consumer } = await startServer(t);
  const proxy = await startProxy({ port });
  t.after(() => proxy.close());
  const c = await consumer('c');
  const { handler, grown, messages } = inbox();
  await c.subscribe('e', handler);
  const p = keep(await factory({ port: proxy.port, offline: { policy: 'queue', max_messages: 100 } }).createProducer('p'));
  const r = keep(await factory({ port: proxy.port, offline: 'reject' }).createProducer('r'));
  const down = [once(p, 'disconnect'), once(r, 'disconnect')];
  proxy.hold();
  proxy.kill();
  await Promise.all(down);
  const began = performance.now();
  const rejected = await Promise.allSettled(Array.from({ length: 150 }, () => r.produce('e', 'never', { confirm: true })));
  assert.ok(rejected.every(({ reason }) => reason?.code === 'disconnected'));
  assert.ok(performance.now() - began < 1000);
  const errors = [];
  p.on('error', (error) => errors.push(error.code));
  assert.equal(p.produce('e', 'dropped'), false); // plain: lost with the link, and said so
  assert.deepEqual(errors, ['disconnected']);
  const queued = Promise.allSettled(Array.from({ length: 150 }, (_, i) => p.produce('e', i, { confirm: true, timeout: '20s' })));
  proxy.release();
  const outcomes = await within(20_000, queued, 'the queue');
  assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 100);
  assert.ok(outcomes.slice(100).every(({ reason }) => reason.code === 'queue_full'));
  await grown(100);
  assert.deepEqual(messages(), Array.from({ length: 100 }, (_, i) => i));
});

test('close drains: running handlers finish, the endless one is aborted and given back (TC-I03)', async (t) => {
  const { consumer, producer, server } = await startServer(t);
  const [c, p] = [await consumer('c'), await producer('p')];
  const started = [];
  let signal;
  await c.subscribe('p', 'e', async (how, _, ack) => {
    started.push(how);
    if (how === 'succeeds') return sleep(100);
    if (how === 'fails') {
      await sleep(100);
      throw new Error('failed');
    }
    signal = ack.signal;
    await new Promise(() => {});
  }, { durable: true, ack: true, prefetch: 3, retry: { delay: '1h' } });
  for (const how of ['succeeds', 'fails', 'endless']) p.produce('e', how);
  for (let i = 0; i < 100; i++) p.produce('e', `waiting ${i}`);
  await until(() => started.length === 3, 'three handlers');
  const began = performance.now();
  await c.close({ timeout: '500ms' });
  const ms = performance.now() - began;
  assert.ok(ms >= 300 && ms < 2000, `${ms} ms`);
  assert.equal(started.length, 3);
  assert.equal(signal.aborted, true);
  const [queue] = (await server.getStats({ queues: true })).queues;
  assert.equal(queue.waiting, 102); // one acked
  assert.equal(queue.in_flight, 0);
  const back = await consumer('c');
  const attempts = {};
  await back.subscribe('p', 'e', (how, _, ack, raw) => void (attempts[how] = raw.delivery_attempt), { durable: true, ack: true, retry: { delay: '1h' } });
  await until(() => Object.keys(attempts).length === 101, 'the rest');
  assert.equal(attempts.endless, 2);
  assert.equal(attempts.fails, undefined); // its failure is kept: it waits for its retry
});

test('clients are closed oddly: never connected, while connecting, twice, at once, from a handler', async (t) => {
  const { consumer, producer, factory } = await startServer(t);
  const never = factory().createConsumerPrivate(null, 'never');
  await never.close();
  never.disconnect();
  const connecting = factory({ port: 1 }).createConsumerPrivate(null, 'connecting');
  const ready = connecting.connect();
  await within(2000, connecting.close(), 'close');
  await assert.rejects(ready, { code: 'disconnected' });
  const c = await consumer('c');
  await Promise.all([c.close(), c.close(), c.close({ timeout: 0 })]);
  await c.close();
  assert.equal(c.isConnected(), false);
  // It can be opened again, with its subscriptions.
  const p = await producer('p');
  const { handler, grown } = inbox();
  c.subscribe('p', 'e', handler);
  await c.connect();
  await until(async () => (await p.produce('e', 1, { confirm: true })).delivered === 1, 'a subscription');
  await grown(1);
  const handlerCloses = consumer('h').then((h) => new Promise((resolve) => {
    h.subscribe('p', 'last', async () => {
      h.close({ timeout: '200ms' }).then(resolve);
    });
  }));
  await sleep(50);
  p.produce('last', 1);
  await within(3000, handlerCloses, 'close from a handler');
  {
    const disposed = await consumer('d');
    await disposed[Symbol.asyncDispose]();
    assert.equal(disposed.isConnected(), false);
  }
});

test('disconnect() sends what was produced, and is over at once', async (t) => {
  const { consumer, producer } = await startServer(t);
  const c = await consumer('c');
  const { handler, grown, messages } = inbox();
  await c.subscribe('p', 'e', handler);
  const p = await producer('p');
  const over = once(p, 'disconnect');
  for (let i = 0; i < 500; i++) p.produce('e', { i, pad: 'x'.repeat(2000) });
  p.disconnect();
  await over;
  assert.equal(p.isConnected(), false);
  assert.throws(() => p.produce('e', 1), { code: 'disconnected' });
  await grown(500);
  assert.equal(messages()[499].i, 499);
  // Called while it still closes: it opens again after that.
  p.disconnect();
  await p.connect();
  assert.equal((await p.produce('e', 'again', { confirm: true })).delivered, 1);
});

test('every promise settles when the connection closes under it', async (t) => {
  const { port, factory, keep } = await startServer(t);
  const proxy = await startProxy({ port });
  t.after(() => proxy.close());
  const p = keep(await factory({ port: proxy.port }).createProducer('p'));
  const down = once(p, 'disconnect');
  proxy.hold();
  proxy.kill();
  await down;
  const open = [p.produce('e', 1, { confirm: true, timeout: '1h' }), p.subscribe('e', () => {}), p.unsubscribe('x', 'y')];
  const outcomes = Promise.allSettled(open);
  await p.close({ timeout: '100ms' });
  for (const outcome of await within(2000, outcomes, 'all')) {
    assert.equal(outcome.status, 'rejected');
    assert.equal(typeof outcome.reason.code, 'string');
  }
});

test('a listener or handler that throws harms nobody else', async (t) => {
  const { producer, consumer, port } = await startServer(t);
  const said = [];
  const c = new restante.Subscriber('c');
  Object.assign(c, { host: '127.0.0.1', port, logger: { log() {}, warn() {}, error: (...words) => said.push(words) } });
  c.on('connect', () => {
    throw new Error('in connect');
  });
  c.on('connect', async () => Promise.reject(new Error('async in connect')));
  let called = 0;
  c.on('connect', () => called++);
  await c.connect();
  t.after(() => c.close());
  const p = await producer('p');
  const { handler, grown } = inbox();
  await c.subscribe('p', 'bad', () => {
    throw new Error('in handler');
  });
  await c.subscribe('p', 'good', handler);
  p.produce('bad', 1);
  p.produce('good', 1);
  await grown(1);
  assert.equal(called, 1);
  assert.equal(said.length, 2);
  await consumer('other');
});

test('the event loop keeps its turn under a flood of deliveries', async (t) => {
  const { consumer, producer } = await startServer(t);
  const [c, p] = [await consumer('c'), await producer('p')];
  let got = 0;
  const total = LONG ? 300_000 : 60_000;
  await c.subscribe('p', 'e', () => void got++);
  const flood = (async () => {
    for (let i = 0; i < total; i++) {
      if (!p.produce('e', { i, pad: 'x'.repeat(100) })) await within(10_000, once(p, 'drain'), 'drain');
      if (i % 64 === 63) await new Promise(setImmediate);
    }
  })();
  const lags = [];
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    lags.push(now - last - 1);
    last = now;
  }, 1);
  await flood;
  await until(() => got === total, 'all', 60_000);
  clearInterval(timer);
  lags.sort((a, b) => a - b);
  const p99 = lags[Math.floor(lags.length * 0.99)];
  assert.ok(p99 < 40, `99 % of ${lags.length} timer turns were late by less than ${p99} ms`);
});

test('a panic in the addon is an error, not the end', async () => {
  const { code, output } = await child('panics').ended;
  assert.equal(code, 0, output);
  assert.match(output, /caught: asked to/);
});
