'use strict';
// What a store in JavaScript costs, with one that answers at once and one that answers later:
// calls per second in one queue and in 256. "stored" is the way to the store alone: consumers that
// are away, so that one message is a row for each. "whole way" has producer, consumers and acks in
// the same process beside it.
//   node bench/custom-store.js [seconds]
const { Server, Factory } = require('..');

const seconds = Number(process.argv[2] ?? 3);

/** As cheap as a store can be, so that the way to it is what is measured. */
function shelf(later) {
  const queues = new Map();
  const places = new Map();
  let calls = 0;
  const answer = later ? async (value) => value : (value) => value;
  return {
    get calls() {
      return calls;
    },
    enqueue(realm, event, row) {
      calls++;
      let queue = queues.get(event + row.consumer_id);
      if (queue === undefined) queues.set(event + row.consumer_id, (queue = new Map()));
      queue.set(row.id, row);
      places.set(row.id, queue);
      return answer(row.id);
    },
    dequeue(realm, event, consumer) {
      calls++;
      return answer([...(queues.get(event + consumer)?.values() ?? [])]);
    },
    ack(id) {
      calls++;
      places.get(id)?.delete(id);
      places.delete(id);
      return answer();
    },
  };
}

/** Messages for so many consumers that are away. */
async function stored(queues, later) {
  const store = shelf(later);
  const server = new Server({ host: '127.0.0.1', port: 0, storage: store, logger: {} });
  const { port } = await server.start();
  const factory = new Factory({ host: '127.0.0.1', port, logger: {} });
  for (let n = 0; n < queues; n++) {
    const consumer = await factory.createConsumer(`c${n}`);
    await consumer.subscribe('p', 'e', () => {}, { durable: true, ack: true });
    await consumer.close();
  }
  const producer = await factory.createProducer('p');
  const before = store.calls;
  const cpu = process.cpuUsage();
  const start = performance.now();
  const worker = async () => {
    while (performance.now() < start + seconds * 1000) await producer.produce('e', { text: 'x'.repeat(100) }, { confirm: true });
  };
  await Promise.all(Array.from({ length: queues === 1 ? 256 : 64 }, worker));
  const calls = store.calls - before;
  const rate = Math.round(calls / ((performance.now() - start) / 1000));
  const { user, system } = process.cpuUsage(cpu);
  console.log(`stored,    ${String(queues).padStart(3)} queues, ${later ? 'promises' : 'values  '}: ${rate} calls/s, ${((user + system) / calls).toFixed(1)} us CPU each in all threads`);
  await producer.close();
  await server.stop();
}

async function whole(queues, later) {
  const store = shelf(later);
  const server = new Server({ host: '127.0.0.1', port: 0, storage: store, logger: {}, prefetch: 4096 });
  const { port } = await server.start();
  const factory = new Factory({ host: '127.0.0.1', port, logger: {} });
  const consumer = await factory.createConsumer('c');
  let got = 0;
  for (let n = 0; n < queues; n++) {
    await consumer.subscribe('p', `e${n}`, () => void got++, { durable: true, ack: true });
  }
  const producer = await factory.createProducer('p');
  const end = performance.now() + seconds * 1000;
  const start = performance.now();
  const before = store.calls;
  let sent = 0;
  const worker = async () => {
    while (performance.now() < end) await producer.produce(`e${sent++ % queues}`, { n: sent, text: 'x'.repeat(80) }, { confirm: true });
  };
  await Promise.all(Array.from({ length: Math.min(1000, queues * 4) }, worker));
  const took = (performance.now() - start) / 1000;
  const rate = Math.round((store.calls - before) / took);
  console.log(`whole way, ${String(queues).padStart(3)} queues, ${later ? 'promises' : 'values  '}: ${rate} calls/s, ${Math.round(sent / took)} messages/s, ${got} delivered`);
  await consumer.close();
  await producer.close();
  await server.stop();
}

async function main() {
  for (const measure of [stored, whole]) {
    for (const later of [false, true]) for (const queues of [1, 256]) await measure(queues, later);
  }
}

main();
