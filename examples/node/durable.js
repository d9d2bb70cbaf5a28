'use strict';
// Messages wait until their subscriber comes back: node examples/node/durable.js
const { Server, Factory } = require('restante');

async function main() {
  const server = new Server({ host: '127.0.0.1', port: 0 });
  const { port } = await server.start();
  const factory = new Factory({ host: '127.0.0.1', port });
  const shop = await factory.createProducer('shop');

  // Subscribe once, then go away. The subscription is remembered.
  const first = await factory.createConsumer('billing');
  await first.subscribe('shop', 'paid', () => {}, { durable: true, ack: true });
  await first.close();

  for (const order of [1, 2, 3]) {
    const { queued } = await shop.produce('paid', { order }, { confirm: true });
    console.log(`order ${order}: stored in ${queued} queue`);
  }

  // Back under the same name: what was missed comes first.
  const billing = await factory.createConsumer('billing');
  for await (const item of billing.messages('shop', 'paid', { durable: true, ack: true })) {
    console.log(`billing order ${item.message.order}`);
    item.ack();
    if (item.message.order === 3) break;
  }

  await billing.close();
  await shop.close();
  await server.stop();
}

main();
