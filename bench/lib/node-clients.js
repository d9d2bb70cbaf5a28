// Node to Node: a server, a producer process and a consumer process. Ours through the addon, the
// peer's through its own Node client; at most WINDOW messages are on the way.
'use strict';
const { fork } = require('node:child_process');
const { createRequire } = require('node:module');
const { start, node, root } = require('./peers');

const WINDOW = 4096;
const REPORT = 256;

const CLIENTS = {
  restante(port) {
    const { Factory } = require(root);
    const quiet = { log() {}, info() {}, warn: console.error, error: console.error, debug() {} };
    const factory = new Factory({ host: '127.0.0.1', port, logger: quiet });
    return {
      async consume(handler) {
        const consumer = await factory.createConsumer('c1');
        await consumer.subscribe('p1', 'bench', handler);
      },
      async produce() {
        const producer = await factory.createProducer('p1');
        return (message) => producer.produce('bench', message);
      },
    };
  },
  nats(port) {
    const { connect } = createRequire(node + '/')('@nats-io/transport-node');
    const servers = `127.0.0.1:${port}`;
    return {
      async consume(handler) {
        const link = await connect({ servers });
        link.subscribe('bench', { callback: (error, message) => handler(message.json()) });
        await link.flush();
      },
      async produce() {
        const link = await connect({ servers });
        return (message) => link.publish('bench', JSON.stringify(message));
      },
    };
  },
};

function message(bytes) {
  const body = { seq: 0, pad: '' };
  body.pad = 'x'.repeat(Math.max(0, bytes - JSON.stringify(body).length));
  return body;
}

async function consume(client, count) {
  let got = 0;
  let begin = 0;
  const warm = Math.floor(count / 5);
  await client.consume(({ seq }) => {
    if (seq !== got) throw new Error(`message ${got} expected, ${seq} came`);
    got++;
    if (got === warm) begin = performance.now();
    if (got % REPORT === 0 || got === count) process.send({ got });
    if (got === count) process.send({ rate: ((count - warm) / (performance.now() - begin)) * 1000 });
  });
  process.send({ ready: true });
}

async function produce(client, count, payload) {
  let seen = 0;
  process.on('message', ({ got }) => {
    seen = got ?? seen;
  });
  const publish = await client.produce();
  const body = message(payload);
  for (let sent = 0; sent < count; sent++) {
    while (sent - seen >= WINDOW) await new Promise(setImmediate);
    body.seq = sent;
    publish(body);
    // A turn of the event loop now and then, as any program that also reads would give.
    if (sent % 64 === 63) await new Promise(setImmediate);
  }
}

/** Messages a second from a producer process to a consumer process through a server of its own. */
async function nodeToNode(side, { count, payload }) {
  const server = await start(side);
  const children = [];
  const child = (role) => {
    const process_ = fork(__filename, [role, side, server.port, count, payload].map(String));
    children.push(process_);
    return process_;
  };
  try {
    return await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${side}: not finished in 120 s`)), 120_000);
      const fail = (code) => reject(new Error(`${side}: a client ended early (${code})`));
      const consumer = child('consume').once('exit', fail);
      let producer;
      consumer.on('message', (told) => {
        if (told.ready) producer = child('produce').once('exit', fail);
        if (told.got) producer.send(told);
        if (told.rate) {
          clearTimeout(timer);
          resolve(told.rate);
        }
      });
    });
  } finally {
    for (const process_ of children) process_.removeAllListeners('exit').kill();
    await server.stop();
  }
}

if (require.main === module) {
  const [role, side, port, count, payload] = process.argv.slice(2);
  const client = CLIENTS[side](Number(port));
  const work = role === 'consume' ? consume(client, Number(count)) : produce(client, Number(count), Number(payload));
  work.catch((error) => {
    console.error(error);
    process.exit(1);
  });
}

module.exports = { nodeToNode };
