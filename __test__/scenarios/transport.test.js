// Scenarios 1 to 7: opening, upgrading, heartbeat, sizes, binary.
'use strict';
const assert = require('node:assert/strict');
const { Client, Polling, consumer, producer, unique, deadline } = require('../helpers/client');
const { scenario, sharedServer, sleep } = require('../helpers/scenario');

const server = sharedServer();

scenario(1, 'a websocket gets the open packet, then exactly the connect reply, nothing in between', async () => {
  const client = await Client.websocket(server, { join: false });
  const { sid, upgrades, pingInterval, pingTimeout, maxPayload } = client.open;
  assert.equal(typeof sid, 'string');
  assert.deepEqual({ upgrades, pingInterval, pingTimeout }, { upgrades: [], pingInterval: 25000, pingTimeout: 20000 });
  assert.ok(maxPayload >= 52428800, `maxPayload ${maxPayload}`);
  await client.join();
  await client.sync();
  assert.equal(client.packets.length, 3);
  assert.match(client.packets[1], /^40\{"sid":"[A-Za-z0-9_-]{20}"\}$/);
  assert.match(client.packets[2], /^431\[/);
});

scenario(1, 'an event sent before the connect packet is dropped', async () => {
  const client = await Client.websocket(server, { join: false });
  const name = unique('early');
  client.send(`42["CONSUMER",{"name":"${name}"}]`);
  await client.join();
  await client.sync();
  const second = await consumer(server, name);
  assert.deepEqual(second.seen('ERROR'), []);
});

scenario(2, 'events produced during an upgrade arrive once and in order', async () => {
  const polling = await Polling.open(server);
  assert.deepEqual(polling.open.upgrades, ['websocket']);
  assert.equal(polling.answer.headers['content-type'].split(';')[0], 'text/plain');
  const sent = await polling.post('40');
  assert.equal(sent.body.toString(), 'ok');
  await polling.until((packet) => packet.startsWith('40{'));
  const p = await producer(server);
  const c = unique('c');
  await polling.post(`42["CONSUMER",{"name":"${c}"}]`, `420["SUBSCRIBE",{"event":"e","producer":"${p.name}","consumer":"${c}"}]`);
  const got = [];
  const note = (packets) => {
    for (const packet of packets) if (String(packet).startsWith('42["CONSUME')) got.push(JSON.parse(packet.slice(2))[1].message);
  };
  note(await polling.until((packet) => packet.startsWith('430[')));
  for (let n = 0; n < 10; n++) await p.produce('e', n);
  const hanging = (async () => {
    for (;;) {
      const packets = await polling.poll();
      note(packets);
      if (packets.includes('6')) return;
    }
  })();
  const client = await polling.upgrade({
    before: async () => {
      for (let n = 10; n < 30; n++) await p.produce('e', n);
      await hanging;
      for (let n = 30; n < 50; n++) await p.produce('e', n);
    },
  });
  for (let n = 50; n < 60; n++) await p.produce('e', n);
  await client.when(() => (got.length + client.seen(/^CONSUME-/).length >= 60 ? true : undefined), { what: '60 messages' });
  const all = [...got, ...client.seen(/^CONSUME-/).map(({ message }) => message)];
  assert.deepEqual(
    all,
    Array.from({ length: 60 }, (_, n) => n),
  );
});

scenario(2, 'a session that stays on long polling sends and receives, binary included', async () => {
  const polling = await Polling.open(server, `&t=${unique('t')}`);
  await polling.post('40');
  const [c, p] = [unique('c'), unique('p')];
  await polling.post(
    `42["CONSUMER",{"name":"${c}"}]`,
    `42["PRODUCER",{"name":"${p}"}]`,
    `420["SUBSCRIBE",{"event":"e","producer":"${p}","consumer":"${c}"}]`,
  );
  await polling.until((packet) => String(packet).startsWith('430['));
  await polling.post(
    `451-["PRODUCE",{"event":"e","from":"${p}","message":{"_placeholder":true,"num":0}}]`,
    `b${Buffer.from([0, 255, 30, 7]).toString('base64')}`,
  );
  const packets = await polling.until((packet) => Buffer.isBuffer(packet));
  assert.ok(packets.find((packet) => String(packet).startsWith(`451-["CONSUME-${p}-e"`)));
  assert.deepEqual(packets.find(Buffer.isBuffer), Buffer.from([0, 255, 30, 7]));
});

scenario(3, 'an upgrade without a post, then a stray pong, then 40, works', async () => {
  const polling = await Polling.open(server, '&t=123');
  const client = await polling.upgrade();
  client.send('3');
  await client.join();
  await client.consumer(unique('c'));
  assert.equal(client.isClosed, false);
});

scenario(4, '40{} joins as 40 does; an unknown namespace is refused with 44 and the connection stays', async () => {
  const client = await Client.websocket(server, { join: false });
  await client.join('40{}');
  client.send('40/elsewhere,');
  const refusal = await client.packet((packet) => packet.startsWith('44/elsewhere,'));
  assert.equal(typeof JSON.parse(refusal.slice('44/elsewhere,'.length)).message, 'string');
  await client.sync();
});

scenario(5, 'a client that answers no ping is closed after interval and timeout, and its peers are told', async (t) => {
  const quick = await server.another(t, { pingInterval: 300, pingTimeout: 200 });
  const p = await producer(quick);
  const c = await consumer(quick);
  await c.subscribe({ event: 'e', producer: p.name });
  c.autoPong = false;
  const silentSince = Date.now();
  const told = await p.next(`DISCONNECT-${p.id}`);
  assert.equal(told.consumer, c.name);
  assert.ok(Date.now() - silentSince >= 450, 'not before interval and timeout');
  await deadline(c.closed, 2000, 'close');
  await sleep(600);
  await p.sync();
});

scenario(6, 'one frame of 5 MiB is accepted with the defaults', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  await c.subscribe({ event: 'big', producer: p.name });
  const message = 'ü€😀x'.repeat((5 * 1024 * 1024) / 10);
  const answer = await p.produce('big', message);
  assert.equal(answer.ok, true, JSON.stringify(answer));
  assert.equal((await c.next(`CONSUME-${p.name}-big`, { timeout: 15_000 })).message, message);
});

scenario(6, 'above the limit the message is refused and the connection stays; far above it only this one closes', async (t) => {
  const small = await server.another(t, { max_message_bytes: 1024 * 1024 });
  const p = await producer(small);
  const c = await consumer(small);
  await c.subscribe({ event: 'e', producer: p.name });
  const mebibytes = (n) => 'x'.repeat(n * 1024 * 1024);
  const answer = await p.produce('e', mebibytes(1.2));
  assert.equal(answer.ok, false);
  assert.equal(answer.error, 'payload_too_large');
  assert.match(JSON.stringify(answer), /1048576/);
  p.emitEvent('PRODUCE', { event: 'e', message: mebibytes(2.6), from: p.name });
  const error = await p.next('ERROR');
  assert.equal(error.error, 'payload_too_large');
  assert.equal((await p.produce('e', 'still here')).delivered, 1);
  assert.equal((await c.next(`CONSUME-${p.name}-e`)).message, 'still here');
  p.emitEvent('PRODUCE', { event: 'e', message: mebibytes(9), from: p.name });
  await deadline(p.closed, 5000, 'close');
  await c.sync();
  assert.equal(c.seen(`CONSUME-${p.name}-e`).length, 1);
});

scenario(7, 'bytes arrive as bytes: small, 200 kB, nested, and after a durable replay', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  const wish = { event: 'bytes', producer: p.name, durable: true };
  await c.subscribe(wish);
  const name = `CONSUME-${p.name}-bytes`;
  const small = Buffer.from([0, 1, 2, 254, 255]);
  const large = Buffer.alloc(200_000, 'r\0s');
  await p.produce('bytes', small);
  assert.deepEqual((await c.next(name)).message, small);
  await p.produce('bytes', { list: [large, { deep: small }], text: 'with' });
  assert.deepEqual((await c.next(name)).message, { list: [large, { deep: small }], text: 'with' });
  await c.confirmed();
  await c.leave();
  assert.equal((await p.produce('bytes', [small, large])).queued, 1);
  const back = await consumer(server, c.name);
  await back.subscribe(wish);
  assert.deepEqual((await back.next(name)).message, [small, large]);
});
