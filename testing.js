'use strict';
// What a store must do, as tests for node:test: `require('restante/testing').storeContract(make)`.
// The store alone first, as the server calls it; then a server on it.
const assert = require('node:assert/strict');
const { test } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');
const { Factory } = require('./lib/factory');
const { Server } = require('./lib/server');

let last = 0;

/** What `enqueue` gets for this payload. */
function row(payload, consumer_id = 'c') {
  const id = `contract-${process.pid}-${++last}`;
  const raw = JSON.stringify({ message: payload });
  return { id, consumer_id, payload, raw, producer: 'p', ttl: 3600, created_at: new Date().toISOString(), expires_at: Date.now() + 3_600_000 };
}

const idOf = (row) => row.id ?? row.msgId;
const payloadOf = (row) => (typeof row.raw === 'string' ? JSON.parse(row.raw).message : row.payload !== undefined ? row.payload : row.message);
const all = {};

/**
 * Registers the tests of a store. `make()` answers an empty store, or a promise of one, apart from
 * all others made; `drop(store)`, if given, is called with each when its test is over.
 */
function storeContract(make, { name = 'store', drop } = {}) {
  const check = (what, run, needs = []) =>
    test(`${name}: ${what}`, async (t) => {
      const store = await make();
      if (drop) t.after(() => drop(store));
      const missing = needs.filter((method) => typeof store[method] !== 'function');
      if (missing.length > 0) return t.diagnostic(`has no ${missing.join(', ')}`);
      await run(store, t);
    });

  check('rows come in the order they were stored, each queue its own', async (store) => {
    for (let n = 1; n <= 5; n++) {
      await store.enqueue('r', 'p-e', row({ n }));
      await store.enqueue('r', 'p-e', row({ other: n }, 'd'));
      await store.enqueue('r', 'p-f', row({ other: n }));
      await store.enqueue('s', 'p-e', row({ other: n }));
    }
    const rows = await store.dequeue('r', 'p-e', 'c', all);
    assert.deepEqual(rows.map(payloadOf), [{ n: 1 }, { n: 2 }, { n: 3 }, { n: 4 }, { n: 5 }]);
  });

  check('enqueue answers the id that dequeue shows and ack takes', async (store) => {
    const ids = [];
    for (let n = 1; n <= 3; n++) ids.push(await store.enqueue('r', 'p-e', row(n)));
    assert.equal(new Set(ids).size, 3, 'ids are unique');
    const rows = await store.dequeue('r', 'p-e', 'c', all);
    assert.deepEqual(rows.map(idOf), ids);
    await store.ack(ids[1]);
    const left = await store.dequeue('r', 'p-e', 'c', all);
    // A destructive dequeue has taken them all.
    assert.ok(left.length === 0 || left.length === 2, `${left.length} rows are left`);
    assert.ok(!left.map(idOf).includes(ids[1]));
  });

  check('an ack of an unknown id is fine', async (store) => {
    const id = await store.enqueue('r', 'p-e', row(1));
    await store.ack(id);
    await store.ack(id);
  });

  check('a queue that nobody knows is empty', async (store) => {
    assert.deepEqual([...(await store.dequeue('r', 'nobody', 'nobody', all))], []);
  });

  check('names are taken as they are', async (store) => {
    for (const odd of ['__proto__', 'a%b', "a'b", 'a:b', '*', 'ünï ✓', 'a"b\\c']) {
      await store.enqueue(odd, odd, row(odd, odd));
      const rows = await store.dequeue(odd, odd, odd, all);
      assert.deepEqual(rows.map(payloadOf), [odd], odd);
    }
  });

  check('payloads come back as they were', async (store) => {
    const payloads = [null, 0, '', 'x', [], {}, { deep: [{ a: null }] }, '\ud800', 'x'.repeat(300_000)];
    for (const payload of payloads) await store.enqueue('r', 'p-e', row(payload));
    const rows = await store.dequeue('r', 'p-e', 'c', all);
    assert.deepEqual(rows.map(payloadOf), payloads);
  });

  check('many calls at once lose nothing', async (store) => {
    const ids = await Promise.all(Array.from({ length: 200 }, (_, n) => store.enqueue('r', `p-${n % 20}`, row(n))));
    assert.equal(new Set(ids).size, 200);
    const queues = await Promise.all(Array.from({ length: 20 }, (_, n) => store.dequeue('r', `p-${n}`, 'c', all)));
    assert.equal(queues.flat().length, 200);
    await Promise.all(ids.map((id) => store.ack(id)));
    assert.equal((await store.dequeue('r', 'p-0', 'c', all)).length, 0);
  });

  check('a dequeue with a fourth parameter heeds limit and after', async (store, t) => {
    if (store.dequeue.length < 4) return t.diagnostic('has no pages');
    const ids = [];
    for (let n = 1; n <= 5; n++) ids.push(await store.enqueue('r', 'p-e', row(n)));
    const first = await store.dequeue('r', 'p-e', 'c', { limit: 2 });
    assert.deepEqual(first.map(idOf), ids.slice(0, 2));
    const rest = await store.dequeue('r', 'p-e', 'c', { limit: 10, after: ids[1] });
    assert.deepEqual(rest.map(idOf), ids.slice(2));
  });

  check('enqueueMany keeps the order and answers every id', async (store) => {
    const rows = [1, 2, 3].map((n) => ({ realm: 'r', event: 'p-e', ...row(n) }));
    const ids = await store.enqueueMany(rows);
    assert.deepEqual((await store.dequeue('r', 'p-e', 'c', all)).map(idOf), ids);
  }, ['enqueueMany']);

  check('ackMany drops all it is given', async (store) => {
    const ids = [];
    for (let n = 1; n <= 3; n++) ids.push(await store.enqueue('r', 'p-e', row(n)));
    await store.ackMany(ids);
    assert.equal((await store.dequeue('r', 'p-e', 'c', all)).length, 0);
  }, ['ackMany']);

  check('a dead letter leaves its queue, is listed with its reason, and is discarded', async (store) => {
    const id = await store.enqueue('r', 'p-e', row('poison'));
    await store.deadLetter(id, 'max_attempts');
    assert.equal((await store.dequeue('r', 'p-e', 'c', all)).length, 0);
    for (const realm of ['r', null]) {
      const [letter] = await store.listDlq(realm);
      assert.equal(letter.reason, 'max_attempts');
      assert.deepEqual([letter.realm, letter.event, letter.consumer ?? letter.consumer_id], ['r', 'p-e', 'c']);
      assert.equal(payloadOf(letter), 'poison');
    }
    assert.equal((await store.listDlq('s')).length, 0);
    const [letter] = await store.listDlq('r');
    await store.discardDlq(idOf(letter), 'r');
    assert.equal((await store.listDlq('r')).length, 0);
  }, ['deadLetter', 'listDlq', 'discardDlq']);

  check('purgeRealm drops one realm', async (store) => {
    await store.enqueue('r', 'p-e', row(1));
    await store.enqueue('s', 'p-e', row(2));
    await store.purgeRealm('r');
    assert.equal((await store.dequeue('r', 'p-e', 'c', all)).length, 0);
    assert.equal((await store.dequeue('s', 'p-e', 'c', all)).length, 1);
  }, ['purgeRealm']);

  check('countQueued counts the rows of a realm', async (store) => {
    await store.enqueue('r', 'p-e', row(1));
    await store.enqueue('r', 'p-f', row(1));
    await store.enqueue('s', 'p-e', row(2));
    assert.equal(await store.countQueued('r'), 2);
  }, ['countQueued']);

  check('a server on it delivers what waited, in order, and leaves nothing behind', async (store, t) => {
    const server = new Server({ host: '127.0.0.1', port: 0, storage: store, logger: {} });
    const { port } = await server.start();
    t.after(() => server.stop());
    const factory = new Factory({ host: '127.0.0.1', port, logger: {} });
    const consumer = await factory.createConsumer('c');
    t.after(() => consumer.close({ timeout: 0 }));
    await consumer.subscribe('p', 'e', () => {}, { durable: true, ack: true });
    await consumer.close();
    const producer = await factory.createProducer('p');
    t.after(() => producer.close({ timeout: 0 }));
    for (let n = 1; n <= 20; n++) await producer.produce('e', { n }, { confirm: true });
    const back = await factory.createConsumer('c');
    t.after(() => back.close({ timeout: 0 }));
    const got = [];
    for await (const item of back.messages('p', 'e', { durable: true, ack: true })) {
      got.push(item.message.n);
      await item.ack();
      if (got.length === 20) break;
    }
    assert.deepEqual(got, Array.from({ length: 20 }, (_, n) => n + 1));
    const end = performance.now() + 5000;
    const left = async () => (await store.dequeue('default', 'p-e', 'c', all)).length;
    while ((await left()) > 0) {
      assert.ok(performance.now() < end, 'rows are left in the store 5 s after the last ack');
      await sleep(10);
    }
  });
}

module.exports = { storeContract };
