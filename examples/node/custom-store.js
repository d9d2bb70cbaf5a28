'use strict';
// A store of your own, here one file of JSON: node examples/node/custom-store.js
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { Server, Factory } = require('restante');

/** Three methods make a store. What `enqueue` gets may be kept as it is: plain values and texts. */
class JsonFile {
  constructor(file) {
    this.file = file;
    this.rows = fs.existsSync(file) ? JSON.parse(fs.readFileSync(file, 'utf8')) : [];
  }

  enqueue(realm, event, row) {
    this.rows.push({ ...row, realm, event });
    this.save();
    return row.id;
  }

  dequeue(realm, event, consumer) {
    return this.rows.filter((row) => row.realm === realm && row.event === event && row.consumer_id === consumer);
  }

  ack(id) {
    this.rows = this.rows.filter((row) => row.id !== id);
    this.save();
  }

  save() {
    fs.writeFileSync(this.file, JSON.stringify(this.rows));
  }
}

async function main() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restante-'));
  // data_dir keeps the subscriptions, which are not the store's business.
  const start = async () => {
    const server = new Server({ host: '127.0.0.1', port: 0, storage: new JsonFile(path.join(folder, 'rows.json')), data_dir: folder });
    const { port } = await server.start();
    return { server, factory: new Factory({ host: '127.0.0.1', port }) };
  };

  let { server, factory } = await start();
  const consumer = await factory.createConsumer('billing');
  await consumer.subscribe('shop', 'paid', () => {}, { durable: true, ack: true });
  await consumer.close();
  const shop = await factory.createProducer('shop');
  for (const order of [1, 2]) await shop.produce('paid', { order }, { confirm: true });
  await shop.close();
  await server.stop();
  console.log('the server is gone, the file is not');

  ({ server, factory } = await start());
  const billing = await factory.createConsumer('billing');
  for await (const item of billing.messages('shop', 'paid', { durable: true, ack: true })) {
    console.log(`billing order ${item.message.order}`);
    await item.ack();
    if (item.message.order === 2) break;
  }
  await billing.close();
  await server.stop();
  console.log(`rows left: ${JSON.parse(fs.readFileSync(path.join(folder, 'rows.json'), 'utf8')).length}`);
  fs.rmSync(folder, { recursive: true });
}

main();
