'use strict';
// What operators see of a store of their own that fails and recovers.
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { newFolder } = require('../helpers/folder');
const { restante, quiet, startServer, until } = require('./helpers');

class Shelf {
  rows = [];
  broken = false;
  enqueue(realm, event, row) {
    if (this.broken) throw new Error('the shelf is full');
    this.rows.push({ ...row, realm, event });
    return row.id;
  }
  dequeue(realm, event, consumer) {
    return this.rows.filter((row) => row.realm === realm && row.event === event && row.consumer_id === consumer);
  }
  ack(id) {
    this.rows = this.rows.filter((row) => row.id !== id);
  }
}

test('a store of your own that fails is degraded with its last error, and recovers by itself', async (t) => {
  const storage = new Shelf();
  const { server, consumer, producer } = await startServer(t, { storage });
  const store = () => server.getStats().store;
  const away = await consumer('billing');
  await away.subscribe('paid', () => {}, { durable: true });
  await away.close();
  const p = await producer('orders');
  await p.produce('paid', 1, { confirm: true });
  assert.deepEqual([store().state, store().last_error, store().depth.messages], ['ok', null, 1]);
  storage.broken = true;
  await assert.rejects(p.produce('paid', 2, { confirm: true }), { code: 'store_unavailable' });
  assert.deepEqual([store().state, store().degraded], ['degraded', true]);
  assert.match(store().last_error.message, /the shelf is full/);
  storage.broken = false;
  await p.produce('paid', 3, { confirm: true });
  assert.equal(store().state, 'ok');

  storage.broken = true;
  await assert.rejects(p.produce('paid', 4, { confirm: true }));
  storage.broken = false;
  await until(() => store().state === 'ok', 'a store that nobody calls to be asked');
});

test('an empty file of subscriptions stops the start, and stays as it is', async (t) => {
  const data_dir = newFolder();
  const file = path.join(data_dir, 'restante.subscriptions.json');
  fs.writeFileSync(file, '');
  const server = new restante.Server({ port: 0, host: '127.0.0.1', logger: quiet, storage: new Shelf(), data_dir });
  await assert.rejects(server.start(), { code: 'store_corrupt', message: /restante\.subscriptions\.json.*empty/ });
  assert.equal(fs.readFileSync(file, 'utf8'), '');
});
