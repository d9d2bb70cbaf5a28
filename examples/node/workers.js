'use strict';
// A group of workers shares the jobs; what fails is tried again: node examples/node/workers.js
const { Server, Factory } = require('restante');

async function main() {
  const server = new Server({ host: '127.0.0.1', port: 0 });
  const { port } = await server.start();
  const factory = new Factory({ host: '127.0.0.1', port });

  let left = 9;
  let done;
  const finished = new Promise((resolve) => (done = resolve));
  const workers = [];
  for (const name of ['ann', 'bob', 'eve']) {
    const worker = await factory.createConsumer(name);
    worker.on('error', (error) => console.log(`${name}: ${error.message}`));
    const work = async (job, from, ack, raw) => {
      if (job.n === 5 && raw.delivery_attempt === 1) throw new Error('job 5 goes wrong the first time');
      console.log(`${name} did job ${job.n}${raw.delivery_attempt > 1 ? ' at the second attempt' : ''}`);
      if (--left === 0) done();
    };
    await worker.subscribe('jobs', work, { group: 'workers', durable: true, ack: true, prefetch: 1, retry: { max_attempts: 5, delay: '100ms' } });
    workers.push(worker);
  }

  const boss = await factory.createProducer('boss');
  for (let n = 1; n <= 9; n++) await boss.produce('jobs', { n }, { confirm: true });
  await finished;

  await Promise.all([...workers, boss].map((client) => client.close()));
  await server.stop();
}

main();
