// A consumer in a process of its own, over the stock socket.io-client, so that a test can freeze it,
// kill it, or let it die on a message. Started by `startConsumer`; tells its parent what came.
'use strict';
const { fork } = require('node:child_process');
const { deadline, PATIENCE } = require('./client');

/**
 * Starts a consumer: `{ url, name, fields, fatal }`, where `fields` are SUBSCRIBE's and `fatal` is the
 * message that it exits on. Resolves when it has subscribed or ended: `{ child, got, until(test), exited }`.
 */
async function startConsumer(t, wish) {
  const child = fork(__filename, { env: { ...process.env, RESTANTE_CONSUMER: JSON.stringify(wish) } });
  t.after(() => child.kill('SIGKILL'));
  const got = [];
  let subscribed;
  const exited = new Promise((resolve) => child.once('exit', (code, signal) => resolve({ code, signal })));
  child.on('message', (said) => {
    if (said.subscribed) subscribed = said.subscribed;
    else got.push(said.delivery);
    child.emit('said');
  });
  const until = (test, what = 'a message of the consumer', ms = 2 * PATIENCE) => {
    let look;
    const seen = new Promise((resolve) => {
      look = () => test(got) && resolve();
      child.on('said', look);
      look();
    });
    return deadline(seen, ms, () => `${what}; it got ${JSON.stringify(got).slice(-500)}`).finally(() => child.off('said', look));
  };
  const consumer = { child, got, until, exited };
  // A fatal message may come before the answer.
  await Promise.race([until(() => subscribed, 'subscribed'), exited]);
  consumer.subscribed = subscribed;
  return consumer;
}

function consume({ url, name, fields, fatal }) {
  const { io } = require('socket.io-client');
  const socket = io(url, { transports: ['websocket'], forceNew: true });
  socket.on('connect', async () => {
    socket.emit('CONSUMER', { name, id: name, consumer_id: name });
    const subscribed = await socket.emitWithAck('SUBSCRIBE', { consumer: name, consumer_id: name, ...fields });
    process.send({ subscribed });
  });
  socket.onAny((event, delivery) => {
    if (!event.startsWith('CONSUME-')) return;
    const told = () => {
      if (fatal !== undefined && delivery.message === fatal) process.exit(1);
      if (delivery.msgId) socket.emit('ACK', { msgId: delivery.msgId, delivery_attempt: delivery.delivery_attempt });
    };
    process.send({ delivery }, told);
  });
}

if (process.env.RESTANTE_CONSUMER && require.main === module) consume(JSON.parse(process.env.RESTANTE_CONSUMER));

module.exports = { startConsumer };
