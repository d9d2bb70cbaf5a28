// Scenarios 13 and 70 to 72: our own Node client and Server object.
'use strict';
const assert = require('node:assert/strict');
const net = require('node:net');
const { Factory, Server } = require('../..');
const { consumer, producer, unique, deadline } = require('../helpers/client');
const { startProxy } = require('../helpers/proxy');
const { scenario, sharedServer, sleep } = require('../helpers/scenario');

const server = sharedServer();
const logger = { log() {}, info() {}, warn() {}, error() {}, debug() {} };
const factory = (options = {}) => new Factory({ host: '127.0.0.1', port: server.port, logger, ...options });

/** Resolves when `list` has `count` items. */
async function grown(list, count, what = 'messages') {
  const end = Date.now() + 10_000;
  while (list.length < count) {
    if (Date.now() > end) throw new Error(`${list.length} of ${count} ${what}: ${JSON.stringify(list).slice(0, 300)}`);
    await sleep(10);
  }
  return list;
}

scenario(13, 'two unnamed consumers coexist under names of their own', async (t) => {
  const both = [await factory().createConsumer(), await factory().createConsumer()];
  t.after(() => both.forEach((one) => one.disconnect()));
  const p = await producer(server);
  const got = [];
  for (const one of both) {
    assert.match(one.name, /^ANONYMOUS-[0-9a-f-]{36}$/);
    await one.subscribe(p.name, 'e', (message) => got.push([one.name, message]));
  }
  assert.notEqual(both[0].name, both[1].name);
  assert.equal((await p.produce('e', 1)).delivered, 2);
  await grown(got, 2);
});

scenario(70, 'four broken connections: each message is handled once, each subscription sent once a reconnect', async (t) => {
  const proxy = await startProxy(server);
  t.after(() => proxy.close());
  const p = await producer(server);
  const c = await factory({ port: proxy.port }).createConsumer(unique('c'));
  t.after(() => c.disconnect());
  const got = [];
  for (const event of ['one', 'two']) {
    await c.subscribe(
      p.name,
      event,
      (message) => {
        got.push(message);
      },
      { durable: true, ack: true },
    );
  }
  const subscribed = () => p.seen(`SUBSCRIBE-TO-${p.id}`).length;
  assert.equal(subscribed(), 2);
  for (let round = 0; round < 4; round++) {
    await p.produce('one', `${round} before`);
    await grown(got, round * 3 + 1);
    // The acknowledgement has left the process when it is in the server: the next kill must not race it.
    await sleep(50);
    proxy.kill();
    await p.produce('one', `${round} away 1`);
    await p.produce('two', `${round} away 2`);
    await grown(got, round * 3 + 3);
    await p.when(() => (subscribed() >= 2 + (round + 1) * 2 ? true : undefined), { what: 'subscriptions again' });
    await sleep(50);
  }
  await p.sync();
  assert.equal(subscribed(), 10);
  assert.equal(new Set(got).size, 12);
  assert.equal(got.length, 12);
});

scenario(70, 'a producer hears of its subscribers also after its connection broke', async (t) => {
  const proxy = await startProxy(server);
  t.after(() => proxy.close());
  const p = await factory({ port: proxy.port }).createProducer(unique('p'));
  t.after(() => p.disconnect());
  const told = [];
  const lost = [];
  p.setOnSubscriptionListener((payload) => told.push(payload.name));
  p.setOnSubscriberLostListener((payload) => lost.push(payload.consumer));
  const first = await consumer(server);
  await first.subscribe({ event: 'e', producer: p.name });
  await grown(told, 1, 'subscriptions');
  proxy.kill();
  await grown(told, 2, 'subscriptions');
  const second = await consumer(server);
  await second.subscribe({ event: 'e', producer: p.name });
  await grown(told, 3, 'subscriptions');
  assert.deepEqual(told, [first.name, first.name, second.name]);
  await second.leave();
  await grown(lost, 1, 'losses');
  assert.deepEqual(lost, [second.name]);
});

scenario(70, 'one ERROR is one callback; a duplicate stays down', async (t) => {
  const holder = await consumer(server);
  const errors = [];
  const c = await factory()
    .createConsumer({ logger }, holder.name, null, null, null, null, null, (error) => errors.push(error))
    .catch((error) => error);
  t.after(() => c.disconnect?.());
  if (c instanceof Error) assert.equal(c.code, 'duplicate_consumer');
  else {
    await grown(errors, 1, 'errors');
    assert.match(JSON.stringify(errors[0]?.message ?? errors[0]), /duplicate/i);
  }
  await sleep(500);
  assert.ok(errors.length <= 1);
  await holder.sync();
});

scenario(71, 'connectTimeout rejects when there is no server', async () => {
  const probe = net.createServer();
  await new Promise((resolve) => probe.listen(0, '127.0.0.1', resolve));
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  const begin = performance.now();
  await assert.rejects(
    deadline(factory({ port, connectTimeout: 300 }).createProducer(unique('p')), 5000, 'a rejection'),
    (error) => error.code === 'timeout',
  );
  assert.ok(performance.now() - begin < 3000);
});

const FORMS = {
  '(who, event, handler)': (c, p, fn) => c.subscribe(p, 'e', fn),
  '(who, event, handler, options)': (c, p, fn) => c.subscribe(p, 'e', fn, { durable: true }),
  '(who, event, handler, false)': (c, p, fn) => c.subscribe(p, 'e', fn, false),
  '(event, handler, options)': (c, p, fn, event) => c.subscribe(event, fn, { ack: true }),
  '(topic, handler, options)': (c, p, fn, event) => c.subscribe(`${event}/#`, fn, { mode: 'topic' }),
  '(context, who, event, handler)': (c, p, fn) =>
    c.subscribe({ here: 1 }, p, 'e', function (...args) {
      assert.equal(this.here, 1);
      fn(...args);
    }),
  '(event, handler)': (c, p, fn, event) => c.subscribe(event, fn),
  'once(who, event, handler)': (c, p, fn) => c.subscribeOnce(p, 'e', fn),
  'all(context, event, handler)': (c, p, fn, event) => c.subscribeAll({}, event, fn),
  'all(event, handler)': (c, p, fn, event) => c.subscribeAll(event, fn),
  'producer(who, handler)': (c, p, fn) => c.subscribeProducer(p, fn),
};

for (const [form, subscribe] of Object.entries(FORMS)) {
  scenario(72, `subscribe${form}`, async (t) => {
    const c = await factory().createConsumer(unique('c'));
    const p = await factory().createProducer(unique('p'));
    t.after(() => {
      c.disconnect();
      p.disconnect();
    });
    const got = [];
    const event = unique('e');
    await subscribe(c, p.name, (message, from, ack, raw) => got.push({ message, from, ack: typeof ack, raw }), event);
    for (const name of ['e', event]) await p.produce(name, { n: 1 }, { confirm: true });
    await grown(got, 1);
    const { message, from, ack, raw } = got[0];
    assert.deepEqual([message, from, ack], [{ n: 1 }, p.name, 'function']);
    assert.equal(raw.from, p.name);
  });
}

const PRODUCES = {
  '(data)': (p) => p.produce({ n: 1 }),
  '(event, data)': (p) => p.produce('e', { n: 1 }),
  '(event, data, seconds)': (p) => p.produce('e', { n: 1 }, 60),
  '(event, data, options)': (p) => p.produce('e', { n: 1 }, { ttl: '1h', guaranteed: true }),
  '(event, data, seconds, to)': (p) => p.produce('e', { n: 1 }, 60, 'somebody'),
};

for (const [form, produce] of Object.entries(PRODUCES)) {
  scenario(72, `produce${form}`, async (t) => {
    const p = await factory().createProducer(unique('p'), 'e');
    t.after(() => p.disconnect());
    const c = await consumer(server);
    await c.subscribe({ event: 'e', producer: p.name });
    await produce(p);
    const delivery = await c.next(`CONSUME-${p.name}-e`);
    assert.deepEqual([delivery.event, delivery.message, delivery.from], ['e', { n: 1 }, p.name]);
    assert.equal(delivery.to, form.includes('to') ? 'somebody' : undefined);
  });
}

scenario(72, 'what cannot be carried is refused at the call', async (t) => {
  const p = await factory().createProducer(unique('p'), 'e');
  t.after(() => p.disconnect());
  const cycle = {};
  cycle.self = cycle;
  for (const data of [undefined, () => {}, cycle, 10n, Symbol('x')]) {
    let refused;
    try {
      await p.produce('e', data);
    } catch (error) {
      refused = error;
    }
    assert.ok(refused instanceof Error, String(typeof data));
  }
});

scenario(72, 'getStats counts; the idle sweep removes who is away; stop frees the port', async (t) => {
  const own = new Server({ port: 0, host: '127.0.0.1', storage: 'memory', idle_eviction: { enabled: true, ttl_ms: 100, interval_ms: 50 } });
  const { port } = await own.start();
  t.after(() => own.stop());
  const [p, c] = [await producer({ port }), await consumer({ port })];
  await c.subscribe({ event: 'e', producer: p.name });
  const stats = await own.getStats();
  assert.deepEqual(stats.realms.default, {
    ...stats.realms.default,
    producers: { total: 1, online: 1 },
    consumers: { total: 1, online: 1 },
    subscriptions: 1,
  });
  assert.equal(stats.connections_current, 2);
  await c.leave();
  const end = Date.now() + 5000;
  while ((await own.getStats()).realms.default.consumers.total > 0 && Date.now() < end) await sleep(20);
  assert.equal((await own.getStats()).realms.default.consumers.total, 0);
  await own.stop();
  await deadline(p.closed, 2000, 'close');
  const again = net.createServer();
  await new Promise((resolve, reject) => again.once('error', reject).listen(port, '127.0.0.1', resolve));
  again.close();
  await own.stop();
});
