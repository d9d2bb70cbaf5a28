'use strict';
// What the broker is for, told in plain lines: npm run demo
// A producer goes on while its durable consumer, a process of its own, is killed and started again.
const { fork } = require('node:child_process');
const { once } = require('node:events');
const { Server, Factory } = require('restante');

const SUBSCRIPTION = { durable: true, ack: true, retry: { delay: '100ms' } };

/** The consumer: tells its parent what it gets. */
async function consume(port) {
  const consumer = await new Factory({ host: '127.0.0.1', port }).createConsumer('billing');
  await consumer.subscribe('shop', 'paid', (order, from, ack, raw) => process.send({ order: order.n, attempt: raw.delivery_attempt }), SUBSCRIPTION);
  process.send('ready');
}

async function main() {
  const server = new Server({ host: '127.0.0.1', port: 0 });
  const { port } = await server.start();
  const shop = await new Factory({ host: '127.0.0.1', port }).createProducer('shop');
  const billed = new Map();
  let deliveries = 0;
  let consumer;

  function startConsumer() {
    consumer = fork(__filename, [String(port)]);
    return new Promise((resolve) => {
      consumer.on('message', (told) => {
        if (told === 'ready') return resolve();
        deliveries++;
        billed.set(told.order, told.attempt);
      });
    });
  }
  async function sell(from, to) {
    let waiting = 0;
    for (let n = from; n <= to; n++) waiting += (await shop.produce('paid', { n }, { confirm: true })).queued;
    console.log(`the shop sold orders ${from} to ${to}; the broker confirmed that it keeps ${waiting} of them for billing`);
  }
  async function until(count) {
    while (billed.size < count) await once(consumer, 'message');
    console.log(`billing has handled ${billed.size} orders: ${[...billed.keys()].join(' ')}`);
  }

  await startConsumer();
  console.log('billing is there, with a durable subscription');
  await sell(1, 5);
  await until(5);

  consumer.kill('SIGKILL');
  await once(consumer, 'exit');
  console.log('billing was killed (SIGKILL)');
  await sell(6, 10);

  await startConsumer();
  console.log('billing was started again; what it missed comes first');
  await until(10);

  // The last acks are on their way.
  let waiting;
  do [{ waiting }] = (await server.getStats({ queues: true })).queues;
  while (waiting > 0);
  console.log(`orders that still wait: ${waiting}; handled: ${billed.size}; handled twice: ${deliveries - billed.size}`);
  consumer.kill();
  await shop.close();
  await server.stop();
}

if (process.argv[2]) consume(Number(process.argv[2]));
else main();
