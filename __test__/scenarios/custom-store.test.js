// Scenario 64: stores that users write, with troubles of their own, seen from the wire.
'use strict';
const assert = require('node:assert/strict');
const { Server } = require('../..');
const { consumer, pair } = require('../helpers/client');
const { scenario } = require('../helpers/scenario');

const quiet = { log() {}, info() {}, warn() {}, error() {}, debug() {} };
const ACKED = { durable: true, ack: true };

/** The three methods over an array, all with plain values. */
function shelf(more) {
  let rows = [];
  return {
    enqueue: (realm, event, row) => (rows.push({ ...row, event, realm }), row.id),
    dequeue: (realm, event, of) => rows.filter((row) => row.realm === realm && row.event === event && row.consumer_id === of),
    ack: (id) => void (rows = rows.filter((row) => row.id !== id)),
    left: () => rows.length,
    ...more,
  };
}

async function start(t, storage) {
  const own = new Server({ host: '127.0.0.1', port: 0, storage, logger: quiet });
  const { port } = await own.start();
  t.after(() => own.stop());
  return { port };
}

const boom = () => {
  throw new Error('the shelf broke');
};
const TROUBLES = {
  'throws at once': boom,
  rejects: () => Promise.reject(new Error('the shelf broke')),
  'rejects with no error': () => Promise.reject(undefined),
  'throws later': async () => (await null, boom()),
};

for (const [how, enqueue] of Object.entries(TROUBLES)) {
  scenario(64, `with a store whose enqueue ${how} the server lives, and who asked is told`, async (t) => {
    const whole = shelf();
    let isBroken = true;
    const store = { ...whole, enqueue: (...args) => (isBroken ? enqueue() : whole.enqueue(...args)) };
    const own = await start(t, store);
    const { p, c, name } = await pair(own, ACKED);
    for (let n = 0; n < 3; n++) {
      const { ok, error, code } = await p.produce('e', n);
      assert.deepEqual([ok, error, code], [false, 'store_unavailable', -8]);
    }
    // What needs no store goes on, at others too.
    const plain = await consumer(own);
    await plain.subscribe({ event: 'other', producer: p.name });
    assert.equal((await p.produce('other', 'plain')).ok, true);
    assert.equal((await plain.next(`CONSUME-${p.name}-other`)).message, 'plain');
    isBroken = false;
    const answer = await p.produce('e', 'whole again');
    assert.deepEqual([answer.ok, answer.queued], [true, 1]);
    const delivery = await c.next(name);
    assert.equal(delivery.message, 'whole again');
    assert.equal((await c.ack(delivery.msgId)).ok, true);
    assert.ok(await c.quiet(name));
    assert.equal(whole.left(), 0);
  });
}

scenario(64, 'a store that returns plain values is one', async (t) => {
  const store = shelf();
  const own = await start(t, store);
  const { p, c, again, name } = await pair(own, ACKED);
  await c.leave();
  for (let n = 0; n < 3; n++) assert.deepEqual([(await p.produce('e', n)).queued, store.left()], [1, n + 1]);
  const back = await again();
  const got = await back.take(name, 3);
  assert.deepEqual(got.map(({ message }) => message), [0, 1, 2]);
  for (const { msgId } of got) assert.equal((await back.ack(msgId)).ok, true);
  assert.equal(store.left(), 0);
});

for (const [how, trouble] of Object.entries(TROUBLES)) {
  scenario(64, `with a store whose dequeue and ack ${how} at first the server lives and the message comes`, async (t) => {
    const whole = shelf();
    let isBroken = false;
    const shaky = (method) => (...args) => (isBroken ? trouble() : whole[method](...args));
    const store = { ...whole, dequeue: shaky('dequeue'), ack: shaky('ack') };
    const own = await start(t, store);
    const { p, c, again, name } = await pair(own, ACKED);
    await c.leave();
    assert.equal((await p.produce('e', 1)).queued, 1);
    isBroken = true;
    const back = await again();
    await p.sync();
    isBroken = false;
    const delivery = await back.next(name, { timeout: 20_000 });
    assert.equal(delivery.message, 1);
    isBroken = true;
    const settled = back.ack(delivery.msgId);
    await p.sync();
    isBroken = false;
    // Kept and written later, whatever the answer was (P27).
    await settled;
    assert.equal((await back.ack(delivery.msgId)).ok, true);
    assert.equal((await p.produce('e', 2)).ok, true);
    assert.equal((await back.next(name)).message, 2);
  });
}
