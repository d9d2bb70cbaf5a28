'use strict';
// Stores that users write in JavaScript, end to end: what they are called with, what becomes of
// what they answer, and what happens when they fail (P2, P3, P4, P8, P20, P27).
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');
const { Worker } = require('node:worker_threads');
const { newFolder } = require('../helpers/folder');
const restante = require('../..');
const { child, startServer, until, inbox, quiet, within } = require('./helpers');

/** The three methods, as most users begin. */
class Shelf {
  rows = [];
  calls = [];

  async enqueue(realm, event, { consumer_id, payload, producer, ttl, id }) {
    this.calls.push('enqueue');
    this.rows.push({ id, realm, event, consumer: consumer_id, message: payload, producer, ttl });
    return id;
  }

  async dequeue(realm, event, consumer) {
    this.calls.push('dequeue');
    return this.rows.filter((row) => row.realm === realm && row.event === event && row.consumer === consumer);
  }

  async ack(id) {
    this.calls.push('ack');
    this.rows = this.rows.filter((row) => row.id !== id);
  }
}

/** Everything that a row got, kept as it came. */
class Whole extends Shelf {
  async enqueue(realm, event, row) {
    this.rows.push({ ...row, realm, event, consumer: row.consumer_id });
    return row.id;
  }
}

/** Rows leave the store when they are read. */
class Destructive extends Whole {
  async dequeue(...place) {
    const rows = await super.dequeue(...place);
    this.rows = this.rows.filter((row) => !rows.includes(row));
    return rows;
  }
}

const DURABLE = { durable: true, ack: true };

test('a store that refuses every third write: ten promises reject with its error, twenty messages arrive', async (t) => {
  class Shaky extends Shelf {
    count = 0;
    async enqueue(...args) {
      if (++this.count % 3 === 0) throw Object.assign(new Error('disk on fire'), { code: 'EFIRE' });
      return super.enqueue(...args);
    }
  }
  const store = new Shaky();
  const at = await startServer(t, { storage: store });
  const box = inbox();
  const consumer = await at.consumer('c');
  await consumer.subscribe('p', 'e', (message, from, ack) => (box.handler(message, from, ack), ack()), DURABLE);
  const producer = await at.producer('p');
  const refused = [];
  for (let n = 1; n <= 30; n++) {
    await producer.produce('e', { n }, { guaranteed: true, confirm: true }).catch((error) => refused.push([n, error]));
  }
  assert.deepEqual(refused.map(([n]) => n), [3, 6, 9, 12, 15, 18, 21, 24, 27, 30]);
  for (const [, error] of refused) {
    assert.equal(error.code, 'store_unavailable');
    assert.equal(error.cause.message, 'disk on fire');
  }
  await box.grown(20);
  assert.deepEqual(box.messages().map(({ n }) => n), Array.from({ length: 30 }, (_, i) => i + 1).filter((n) => n % 3 !== 0));
  await until(() => store.rows.length === 0, 'every row to be dropped');
  assert.equal(at.server.getStats().store.failures, 10);
  assert.equal(store.count, 30);
});

test('a row gets what it should, and comes back whole by its raw text', async (t) => {
  const store = new Whole();
  const at = await startServer(t, { storage: store });
  const consumer = await at.consumer('c');
  await consumer.subscribe('p', 'e', () => {}, DURABLE);
  await consumer.close();
  const producer = await at.producer('p');
  const data = { b: 1.5, a: [null, '\ud800', Buffer.from([0, 255])] };
  await producer.produce('e', data, { confirm: true, ttl: 60, headers: { x: 'y' } });
  const [row] = store.rows;
  assert.deepEqual(row.payload, data);
  assert.equal(JSON.parse(row.raw).message.a[1], '\ud800');
  assert.deepEqual([row.realm, row.event, row.consumer_id, row.producer], ['default', 'p-e', 'c', 'p']);
  assert.ok(row.ttl > 59 && row.ttl <= 60, `${row.ttl}`);
  assert.ok(Math.abs(Date.parse(row.created_at) + 60_000 - row.expires_at) <= 1);
  assert.equal(typeof row.id, 'string');
});

for (const [name, make] of Object.entries({
  'with three methods': () => new Shelf(),
  'that keeps rows whole': () => new Whole(),
  'whose dequeue takes rows out': () => new Destructive(),
  'that answers at once': () => {
    let rows = [];
    return {
      enqueue: (realm, event, row) => (rows.push({ ...row, event }), row.id),
      dequeue: (realm, event, consumer) => rows.filter((row) => row.event === event && row.consumer_id === consumer),
      ack: (id) => void (rows = rows.filter((row) => row.id !== id)),
    };
  },
  'that answers thenables, numbers as ids and payload or msgId in rows': () => {
    let rows = [];
    let last = 0;
    const thenable = (value) => ({ then: (resolve) => setImmediate(resolve, value) });
    return {
      enqueue: (realm, event, { consumer_id, payload, producer }) => (rows.push({ msgId: ++last, event, consumer: consumer_id, payload, producer }), thenable(last)),
      dequeue: (realm, event, consumer) => thenable(rows.filter((row) => row.event === event && row.consumer === consumer)),
      ack: (id) => ((rows = rows.filter((row) => row.msgId !== id)), thenable()),
    };
  },
})) {
  test(`a store ${name}: what waits survives its server and comes in order, once`, async (t) => {
    const store = make();
    const data_dir = newFolder();
    const options = { host: '127.0.0.1', port: 0, storage: store, data_dir, logger: { warn() {}, error: assert.fail } };
    const first = new restante.Server(options);
    const { port } = await first.start();
    const factory = new restante.Factory({ host: '127.0.0.1', port });
    const consumer = await factory.createConsumer('c');
    await consumer.subscribe('p', 'e', () => {}, DURABLE);
    await consumer.close();
    const producer = await factory.createProducer('p');
    for (let n = 1; n <= 5; n++) await producer.produce('e', { n }, { confirm: true });
    await producer.close();
    await first.stop();

    // Another object over the same rows is another process to the server: only the file knows.
    const again = { enqueue: (...args) => store.enqueue(...args), dequeue: (...args) => store.dequeue(...args), ack: (id) => store.ack(id) };
    const second = new restante.Server({ ...options, storage: again });
    const listening = await second.start();
    t.after(() => second.stop());
    const later = new restante.Factory({ host: '127.0.0.1', port: listening.port });
    const producer2 = await later.createProducer('p');
    t.after(() => producer2.close());
    // The subscription is remembered before anybody is back.
    const { queued } = await producer2.produce('e', { n: 6 }, { confirm: true });
    assert.equal(queued, 1);
    const back = await later.createConsumer('c');
    t.after(() => back.close());
    const box = inbox();
    await back.subscribe('p', 'e', (message, from, ack, raw) => (box.handler(message, from, ack, raw), ack()), DURABLE);
    await producer2.produce('e', { n: 7 }, { confirm: true });
    await box.grown(7);
    await sleep(50);
    assert.deepEqual(box.messages().map(({ n }) => n), [1, 2, 3, 4, 5, 6, 7]);
    await until(async () => (await store.dequeue('default', 'p-e', 'c')).length === 0, 'every row to be dropped');
  });
}

test('a store object remembers its subscriptions without a file, as long as it lives', async (t) => {
  const store = new Shelf();
  const first = await startServer(t, { storage: store });
  const consumer = await first.consumer('c');
  await consumer.subscribe('p', 'e', () => {}, DURABLE);
  await consumer.close();
  await first.server.stop();
  const second = await startServer(t, { storage: store });
  const producer = await second.producer('p');
  assert.equal((await producer.produce('e', 1, { confirm: true })).queued, 1);
  // Another store knows nothing of it.
  const third = await startServer(t, { storage: new Shelf() });
  const other = await third.producer('p');
  assert.equal((await other.produce('e', 1, { confirm: true, guaranteed: true })).queued, 0);
});

test('a store without answers: produces time out, others go on, and the server stops', async (t) => {
  const never = new Promise(() => {});
  class Silent extends Shelf {
    enqueue(realm, event, row) {
      return row.payload === 'stuck' ? never : super.enqueue(realm, event, row);
    }
    close() {
      return never;
    }
  }
  const at = await startServer(t, { storage: new Silent(), store_timeout: 0.3 });
  const consumer = await at.consumer('c');
  await consumer.subscribe('p', 'slow', () => {}, DURABLE);
  const box = inbox();
  await consumer.subscribe('p', 'fast', (message, from, ack) => (box.handler(message, from, ack), ack()), DURABLE);
  const producer = await at.producer('p');
  const stuck = producer.produce('slow', 'stuck', { confirm: true });
  const other = await at.producer('q');
  const bystander = await at.consumer('d');
  await bystander.subscribe('q', 'fast', (message, from, ack) => (box.handler(message, from, ack), ack()), DURABLE);
  await other.produce('fast', 'goes', { confirm: true });
  await box.grown(1);
  await assert.rejects(stuck, { code: 'store_timeout' });
  await producer.produce('slow', 'fine again', { confirm: true });
  await within(5000, at.server.stop({ timeout: 2 }), 'stop()');
});

test('whatever a store answers, no process dies and the next message goes through', async (t) => {
  const odd = [
    undefined, null, true, NaN, Infinity, 1.5, -0, 10n, Symbol('x'), {}, [], [1], '', () => 1, new Date(NaN), new Proxy({}, {}),
    { then: 1 }, { get then() { throw new Error('a getter'); } }, { then: (_, reject) => reject(undefined) }, Object.create(null),
    (() => { const circle = []; circle.push(circle); return circle; })(), [null], [{}], [{ id: {} }], [{ id: 1 }], [{ id: 1, message: 10n }],
    [{ id: 1, raw: 'damaged' }], [{ id: 1, raw: '{}', message: 1 }], { length: 3 }, Buffer.from('x'), 2 ** 60, '\ud800',
  ];
  let next = null;
  const step = () => {
    const value = next;
    next = null;
    if (value === null) return [false];
    return [true, value.value, value.how];
  };
  const give = (value, how) => {
    if (how === 0) return value;
    if (how === 1) return Promise.resolve().then(() => value);
    if (how === 2) throw value;
    return Promise.reject(value);
  };
  class Odd extends Shelf {
    enqueue(...args) {
      const [is, value, how] = step();
      return is ? give(value, how) : super.enqueue(...args);
    }
    dequeue(...args) {
      const [is, value, how] = this.oddReads ?? [false];
      return is ? give(value, how) : super.dequeue(...args);
    }
  }
  const store = new Odd();
  const at = await startServer(t, { storage: store, store_timeout: 0.5 });
  const consumer = await at.consumer('c');
  const box = inbox();
  await consumer.subscribe('p', 'e', (message, from, ack) => (box.handler(message, from, ack), ack()), DURABLE);
  const producer = await at.producer('p');
  let good = 0;
  for (const value of odd) {
    for (const how of [0, 1, 2, 3]) {
      next = { value, how };
      const isId = how < 2 && ((typeof value === 'string' && value.isWellFormed()) || Number.isSafeInteger(value));
      const produced = producer.produce('e', { odd: true }, { confirm: true });
      if (!isId) await assert.rejects(produced, ({ code }) => code === 'store_unavailable' || code === 'store_timeout');
      else await produced;
      store.oddReads = [true, value, how];
      const reader = await at.consumer();
      await reader.subscribe('p', 'other', () => {}, { durable: true }).catch(({ code }) => assert.match(code, /^store_/));
      store.oddReads = undefined;
      await reader.unsubscribe('p', 'other', { purge: true }).catch(({ code }) => assert.match(code, /^store_/));
      await reader.close();
    }
    await producer.produce('e', { good: ++good }, { confirm: true });
  }
  await until(() => box.messages().filter((message) => message.good).length === odd.length, 'the good ones');
});

test('what is no store is refused at the call, by the name of what is missing', (t) => {
  const refusal = (storage, storage_options) => {
    try {
      new restante.Server({ storage, storage_options, logger: {} });
    } catch (error) {
      return [error.constructor.name, error.code, error.message];
    }
    return null;
  };
  for (const missing of ['enqueue', 'dequeue', 'ack']) {
    const store = new Shelf();
    store[missing] = undefined;
    const [kind, code, message] = refusal(store);
    assert.deepEqual([kind, code], ['TypeError', 'config']);
    assert.match(message, new RegExp(`${missing}\\(\\)`));
  }
  assert.match(refusal(() => null)[2], /must be an object/);
  assert.match(refusal('custom')[2], /storage_options\.module/);
  assert.match(refusal('custom', { module: './no-such-store' })[2], /no-such-store/);
  assert.equal(refusal('redis-ish')[1], 'unsupported');
  const dir = newFolder();
  fs.writeFileSync(path.join(dir, 'broken.js'), 'throw new Error("on load")');
  const thrown = ({ code, cause }) => code === 'config' && cause.message === 'on load';
  assert.throws(() => new restante.Server({ storage: 'custom', storage_options: { module: path.join(dir, 'broken.js') } }), thrown);
});

test('a class, factory or module that throws or rejects is told with a code and its own error as cause', async (t) => {
  const cause = Object.assign(new Error('no such table'), { code: 'SQLITE_ERROR' });
  const thrown = (error) => error.code === 'config' && error.cause === cause && /could not be made: no such table/.test(error.message);
  const fails = () => {
    throw cause;
  };
  class Broken extends Shelf {
    constructor() {
      super();
      fails();
    }
  }
  for (const storage of [Broken, fails]) assert.throws(() => new restante.Server({ storage, logger: quiet }), thrown);
  const later = new restante.Server({ storage: async () => fails(), host: '127.0.0.1', port: 0, logger: quiet });
  await assert.rejects(later.start(), thrown);
  const file = path.join(newFolder(), 'esm.mjs');
  fs.writeFileSync(file, 'export default async () => { throw new Error("no such table"); };');
  const module = new restante.Server({ storage: 'custom', storage_options: { module: file }, host: '127.0.0.1', port: 0, logger: quiet });
  await assert.rejects(module.start(), ({ code, cause }) => code === 'config' && cause.message === 'no such table');
});

test('an object, a class, a factory, an async factory and modules of them are stores', async (t) => {
  const dir = newFolder();
  const code = `{ rows: [], async enqueue(r, e, row) { this.rows.push({ ...row, e }); return row.id; }, async dequeue(r, e, c) { return this.rows.filter((row) => row.e === e && row.consumer_id === c); }, async ack(id) { this.rows = this.rows.filter((row) => row.id !== id); } }`;
  fs.writeFileSync(path.join(dir, 'object.js'), `module.exports = ${code};`);
  fs.writeFileSync(path.join(dir, 'factory.js'), `module.exports = (options) => { if (options.color !== 'red') throw new Error('no color'); return ${code}; };`);
  fs.writeFileSync(path.join(dir, 'esm.mjs'), `export default () => (${code});`);
  const given = [
    [new Shelf()],
    [Shelf],
    [() => new Shelf()],
    [async () => new Shelf()],
    ['custom', { module: path.join(dir, 'object.js') }],
    ['custom', { module: path.join(dir, 'factory'), color: 'red' }],
    ['custom', { module_path: path.join(dir, 'esm.mjs') }],
  ];
  for (const [storage, storage_options] of given) {
    const at = await startServer(t, { storage, storage_options, data_dir: dir });
    const consumer = await at.consumer('c');
    const box = inbox();
    await consumer.subscribe('p', 'e', (message, from, ack) => (box.handler(message, from, ack), ack()), DURABLE);
    const producer = await at.producer('p');
    await producer.produce('e', 'x', { confirm: true });
    await box.grown(1);
    await at.server.stop();
  }
});

test('every method keeps `this`, optional ones are used, and close() is called once', async (t) => {
  const used = new Set();
  class Full extends Whole {
    dead = [];
    enqueueMany(rows) {
      used.add('enqueueMany');
      return Promise.all(rows.map(({ realm, event, ...row }) => super.enqueue(realm, event, row)));
    }
    ackMany(ids) {
      used.add('ackMany');
      this.rows = this.rows.filter((row) => !ids.includes(row.id));
    }
    deadLetter(id, reason) {
      used.add('deadLetter');
      const row = this.rows.find((row) => row.id === id);
      this.rows = this.rows.filter((row) => row.id !== id);
      this.dead.push({ ...row, reason, dead_lettered_at: new Date().toISOString() });
    }
    listDlq() {
      used.add('listDlq');
      return this.dead;
    }
    discardDlq(id) {
      used.add('discardDlq');
      this.dead = this.dead.filter((row) => row.id !== id);
    }
    close() {
      assert.ok(this instanceof Full);
      used.add('close');
      this.closed = (this.closed ?? 0) + 1;
    }
  }
  const store = new Full();
  const at = await startServer(t, { storage: store });
  const consumer = await at.consumer('c');
  await consumer.subscribe('p', 'e', (message, from, ack) => ack.nack({ requeue: false, reason: 'no' }), DURABLE);
  const producer = await at.producer('p');
  await Promise.all(Array.from({ length: 50 }, (_, n) => producer.produce('e', n, { confirm: true })));
  await until(() => store.dead.length === 50, 'the dead letters');
  await at.server.stop();
  assert.equal(store.closed, 1);

  const again = await startServer(t, { storage: store });
  const letters = await again.server.deadLetters();
  assert.equal(letters.length, 50);
  assert.equal(letters[0].message.message, 0);
  await again.server.discardDeadLetter(letters[0].id);
  await until(() => store.dead.length === 49, 'the discard');
  assert.ok(['enqueueMany', 'deadLetter', 'listDlq', 'discardDlq', 'close'].every((name) => used.has(name)), [...used].join());
});

test('a destructive store gets back at stop what nobody settled', async (t) => {
  const store = new Destructive();
  const at = await startServer(t, { storage: store });
  const consumer = await at.consumer('c');
  await consumer.subscribe('p', 'e', () => {}, DURABLE);
  await consumer.close();
  const producer = await at.producer('p');
  for (let n = 1; n <= 3; n++) await producer.produce('e', n, { confirm: true });
  await at.server.stop();
  const second = await startServer(t, { storage: store });
  const holder = await second.consumer('c');
  const box = inbox();
  await holder.subscribe('p', 'e', box.handler, { ...DURABLE, manual_ack: true });
  await box.grown(3);
  assert.equal(store.rows.length, 0, 'they are in the hands of the consumer');
  await second.server.stop();
  assert.deepEqual(store.rows.map((row) => row.payload), [1, 2, 3]);
});

test('what was acknowledged just before the end of the server is settled', async (t) => {
  class Slow extends Shelf {
    async ack(id) {
      await sleep(20);
      await super.ack(id);
    }
  }
  const store = new Slow();
  const at = await startServer(t, { storage: store });
  const consumer = await at.consumer('c');
  const producer = await at.producer('p');
  const stream = consumer.messages('p', 'e', DURABLE);
  const first = stream.next();
  // The store is asked before the subscription counts.
  const queued = async () => (await producer.produce('e', 0, { confirm: true })).queued;
  while ((await queued()) === 0);
  (await first).value.ack();
  for (let n = 1; n <= 5; n++) await producer.produce('e', n, { confirm: true });
  for (let n = 1; n <= 5; n++) (await stream.next()).value.ack();
  await consumer.close();
  await at.server.stop();
  assert.equal(store.rows.length, 0);
});

test('a worker that ends with a store of its own takes nothing with it', async () => {
  for (let round = 0; round < 3; round++) {
    const worker = new Worker(path.join(__dirname, 'fixtures', 'custom-store-worker.js'));
    await within(20_000, new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject)), 'traffic');
    await worker.terminate();
  }
});

test('a process that exits inside a call of its store keeps its code', async () => {
  for (let round = 0; round < 3; round++) {
    const { code, signal } = await child('custom-store-exit').ended;
    assert.deepEqual([code, signal], [7, null]);
  }
});

test('a server says what its store cannot hold', async (t) => {
  const said = [];
  const at = await startServer(t, { storage: new Shelf(), logger: { info: (line) => said.push(line), warn() {}, error() {} } });
  const { gaps, level } = at.server.getStats().store;
  assert.deepEqual(gaps.map(({ promise }) => promise), ['P4', 'P7', 'P10', 'P16', 'P17', 'P28', 'P37']);
  assert.equal(said.length, gaps.length);
  assert.equal(level, 'process');
});

test('a store that never comes does not keep the server from stopping (P32)', async () => {
  const server = new restante.Server({ port: 0, host: '127.0.0.1', logger: quiet, storage: () => new Promise(() => {}) });
  const starting = assert.rejects(server.start(), { code: 'shutting_down' });
  await server.stop({ timeout: '100ms' });
  await starting;
});
