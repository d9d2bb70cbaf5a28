// BullMQ: jobs added with so many under way, then worked off. Prints one JSON line.
// Arguments: the port of Redis, and JSON `{ count, window, payload }`. Run from the folder in which bullmq is installed.
'use strict';
const { createRequire } = require('node:module');
const { Queue, Worker } = createRequire(process.cwd() + '/')('bullmq');

const connection = { host: '127.0.0.1', port: Number(process.argv[2]) };
const { count, window, payload } = JSON.parse(process.argv[3]);
const perSecond = (begin) => Math.round((count / (performance.now() - begin)) * 1000);

async function main() {
  const queue = new Queue('bench', { connection });
  await queue.waitUntilReady();
  const data = { pad: 'x'.repeat(Math.max(0, payload - 10)) };
  let next = 0;
  const begin = performance.now();
  const adder = async () => {
    while (next++ < count) await queue.add('job', data, { removeOnComplete: true });
  };
  await Promise.all(Array.from({ length: window }, adder));
  const confirmed = perSecond(begin);
  const back = performance.now();
  let done = 0;
  await new Promise((resolve) => {
    const worker = new Worker('bench', async () => ++done === count && resolve(worker), { connection, concurrency: window });
  });
  console.log(JSON.stringify({ confirmed_per_s: confirmed, drain_per_s: perSecond(back) }));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
