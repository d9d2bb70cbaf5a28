'use strict';
// TLS through the package, and with the stock socket.io-client on both transports.
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { io } = require('socket.io-client');
const { startServer, inbox } = require('./helpers');

const fixture = (name) => path.join(__dirname, '..', '..', 'core', 'tests', 'fixtures', 'tls', name);
const tls = { cert: fixture('one.pem'), key: fixture('one.key') };
const ca = fs.readFileSync(fixture('ca.pem'), 'utf8');

test('our clients go through TLS with an authority as a file, a text or a Buffer, and not without', async (t) => {
  const { port, factory, keep } = await startServer(t, { tls });
  const secure = (ca) => factory({ protocol: 'https', host: 'localhost', ca });
  const consumer = keep(await secure(fixture('ca.pem')).createConsumer('c'));
  const box = inbox();
  await consumer.subscribe('paid', box.handler, { durable: true, ack: true });
  const producer = keep(await secure(ca).createProducer('p'));
  const bytes = Buffer.alloc(700_000, 7);
  for (const body of [1, 'x'.repeat(400_000), { bytes }]) await producer.produce('paid', body, { confirm: true });
  await box.grown(3);
  assert.deepEqual(box.messages()[2].bytes, bytes);
  keep(await secure(Buffer.from(ca)).createProducer('q'));
  await assert.rejects(factory({ protocol: 'https', host: 'localhost' }).createProducer('r'), { code: 'config', message: /not trusted/ });
  await assert.rejects(fetch(`http://127.0.0.1:${port}/`));
});

for (const transports of [['polling'], ['websocket'], ['polling', 'websocket']]) {
  test(`a stock client on ${transports.join(' and then ')} goes through TLS`, async (t) => {
    const text = (name) => fs.readFileSync(fixture(name), 'utf8');
    const { port } = await startServer(t, { tls: { cert: text('other.pem'), key: text('other.key') } });
    const socket = io(`https://localhost:${port}`, { ca, transports, forceNew: true });
    t.after(() => socket.disconnect());
    await new Promise((resolve, reject) => socket.once('connect', resolve).once('connect_error', reject));
    if (transports.length === 2) await new Promise((resolve) => (socket.io.engine.transport.name === 'websocket' ? resolve() : socket.io.engine.once('upgrade', resolve)));
    const ask = (name, payload) => socket.timeout(10_000).emitWithAck(name, payload);
    assert.equal((await ask('CONSUMER', { name: 'c' })).ok, true);
    assert.equal((await ask('SUBSCRIBE', { event: 'e', producer: 'p', consumer: 'c' })).ok, true);
    const got = new Promise((resolve) => socket.once('CONSUME-p-e', resolve));
    assert.equal((await ask('PRODUCER', { name: 'p' })).ok, true);
    const message = 'é'.repeat(100_000);
    assert.equal((await ask('PRODUCE', { event: 'e', from: 'p', message })).delivered, 1);
    assert.equal((await got).message, message);
  });
}

test('a certificate that does not fit its key stops the start', async (t) => {
  const wrong = { cert: fixture('one.pem'), key: fixture('other.key') };
  await assert.rejects(startServer(t, { tls: wrong }), { code: 'config', message: /tls\.key/ });
  await assert.rejects(startServer(t, { tls: { cert: wrong.cert } }).then(() => {}), { code: 'config', message: /tls\.key/ });
});
