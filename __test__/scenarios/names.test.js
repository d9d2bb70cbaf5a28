// Scenarios 9 to 20: registration, takeover, awareness.
'use strict';
const assert = require('node:assert/strict');
const { Client, consumer, producer, unique } = require('../helpers/client');
const { scenario, sharedServer, sleep } = require('../helpers/scenario');

const server = sharedServer();

scenario(9, 'payloads given as JSON text behave like objects', async () => {
  const [p, c] = [await Client.websocket(server), await Client.websocket(server)];
  const [pn, cn] = [unique('p'), unique('c')];
  p.emitEvent('PRODUCER', JSON.stringify({ name: pn }));
  c.emitEvent('CONSUMER', JSON.stringify({ name: cn, id: cn }));
  const subscribed = await c.call(
    'SUBSCRIBE',
    JSON.stringify({ event: 'e', producer: pn, consumer: cn, consumer_id: cn, durable: true, ack: true }),
  );
  assert.equal(subscribed.ok, true, JSON.stringify(subscribed));
  assert.equal(subscribed.consume_event, `CONSUME-${pn}-e`);
  const produced = await p.call('PRODUCE', JSON.stringify({ event: 'e', message: { n: 1 }, from: pn }));
  assert.equal(produced.ok, true, JSON.stringify(produced));
  const delivery = await c.next(`CONSUME-${pn}-e`);
  assert.deepEqual(delivery.message, { n: 1 });
  const settled = await c.call('ACK', JSON.stringify({ msgId: delivery.msgId }));
  assert.equal(settled.ok, true);
});

scenario(10, 'a consumer whose name is no text gets ERROR -1 and stays connected', async () => {
  const client = await Client.websocket(server);
  for (const name of [7, null, {}, [], '', undefined]) {
    client.emitEvent('CONSUMER', { name });
    assert.equal((await client.next('ERROR')).code, -1);
    client.emitEvent('PRODUCER', { name });
    assert.equal((await client.next('ERROR')).code, -1);
  }
  await client.sync();
});

scenario(11, 'a second live consumer of a name is refused as duplicate and closed; the first still receives', async () => {
  const p = await producer(server);
  const first = await consumer(server);
  await first.subscribe({ event: 'e', producer: p.name });
  const second = await Client.websocket(server);
  second.emitEvent('CONSUMER', { name: first.name, id: first.name, consumer_id: first.name });
  const error = await second.next('ERROR', { timeout: 8000 });
  assert.equal(error.code, -3);
  assert.match(JSON.stringify(error), /duplicate/i);
  await second.gone();
  assert.equal((await p.produce('e', 1)).delivered, 1);
  assert.equal((await first.next(`CONSUME-${p.name}-e`)).message, 1);
});

scenario(11, 'a consumer that registers again on its own connection is welcome', async () => {
  const c = await consumer(server);
  await c.consumer(c.name);
  assert.deepEqual(c.seen('ERROR'), []);
});

for (const [title, options, least, most] of [
  ['that had been silent for a ping interval is replaced after a second', { pingInterval: 1000, pingTimeout: 20_000 }, 800, 4000],
  ['whose TCP still acknowledges is replaced after five seconds', {}, 4000, 9000],
]) {
  scenario(12, `a frozen holder ${title}, and nothing is lost`, async (t) => {
    const own = await server.another(t, options);
    const p = await producer(own);
    const holder = await consumer(own);
    const wish = { event: 'e', producer: p.name, durable: true, ack: true };
    await holder.subscribe(wish);
    holder.link.pause();
    t.after(() => holder.link.cut());
    await sleep((options.pingInterval ?? 0) + 200);
    await p.produce('e', 1);
    const begin = Date.now();
    const back = await Client.websocket(own);
    back.emitEvent('CONSUMER', { name: holder.name, id: holder.name, consumer_id: holder.name });
    back.name = holder.name;
    const subscribed = back.call('SUBSCRIBE', { consumer: holder.name, consumer_id: holder.name, ...wish }, { timeout: 10_000 });
    await p.produce('e', 2);
    assert.equal((await subscribed).ok, true);
    const took = Date.now() - begin;
    const got = await back.take(`CONSUME-${p.name}-e`, 2, { timeout: 10_000 });
    assert.deepEqual(
      got.map(({ message }) => message),
      [1, 2],
    );
    assert.equal(got[0].delivery_attempt >= 2, true, 'a repeat says so');
    assert.deepEqual(back.seen('ERROR'), []);
    assert.ok(took >= least && took <= most, `took ${took} ms`);
  });
}

scenario(13, 'where anonymous names are not allowed, one is refused with -4 and its session ends', async (t) => {
  const own = await server.another(t, { allow_anonymous: false });
  for (const [verb, name] of [
    ['CONSUMER', 'ANONYMOUS'],
    ['CONSUMER', 'ANONYMOUS-1'],
    ['PRODUCER', 'ANONYMOUS-2'],
  ]) {
    const client = await Client.websocket(own);
    client.emitEvent(verb, { name });
    assert.equal((await client.next('ERROR')).code, -4);
    await client.gone();
  }
  await consumer(own, 'ANONYMOUSE');
});

scenario(14, 'a producer name goes to the newest: the old one is told, the new one gets the list, consumers hear of it', async () => {
  const name = unique('p');
  const old = await producer(server, name);
  const c = await consumer(server);
  await c.subscribe({ event: 'e', producer: name });
  await old.next(`SUBSCRIBE-TO-${old.id}`);
  await c.sync();
  const before = c.seen(`CONNECT-${c.name}`).length;
  const fresh = await producer(server, name);
  assert.equal(await old.next('ERROR'), 'The same producer newly joined');
  const listed = await fresh.next(`SUBSCRIBE-TO-${fresh.id}`);
  assert.deepEqual(listed.events, [`${name}-e`]);
  await c.when(() => (c.seen(`CONNECT-${c.name}`).length > before ? true : undefined), { what: 'CONNECT again' });
  assert.equal(c.seen(`CONNECT-${c.name}`).at(-1).producer, name);
  assert.equal(old.isClosed, false);
});

scenario(15, 'a producer that is online is told of a subscription once, with five fields', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  await c.subscribe({ event: 'Paid', producer: p.name });
  const told = await p.next(`SUBSCRIBE-TO-${p.id}`);
  assert.deepEqual(told, { name: c.name, id: c.name, socket: c.id, events: [`${p.name}-paid`], online: true });
  assert.ok(await p.quiet(/^SUBSCRIBE-TO/));
});

scenario(15, 'a producer that comes later is told who is there and who is away', async () => {
  const name = unique('p');
  const here = await consumer(server);
  await here.subscribe({ event: 'e', producer: name });
  const away = await consumer(server);
  await away.subscribe({ event: 'e', producer: name });
  await away.leave();
  const p = await producer(server, name);
  const told = await p.take(`SUBSCRIBE-TO-${p.id}`, 2);
  const of = (client) => told.find((payload) => payload.name === client.name);
  assert.deepEqual(of(here), { name: here.name, id: here.name, socket: here.id, events: [`${name}-e`], online: true });
  assert.deepEqual(of(away), { name: away.name, id: away.name, socket: null, events: [`${name}-e`], online: false });
});

scenario(15, 'a producer with an id of its own is addressed by it', async () => {
  const id = unique('uuid');
  const p = await producer(server, unique('p'), { id });
  const c = await consumer(server);
  await c.subscribe({ event: 'e', producer: p.name });
  assert.equal((await p.next(`SUBSCRIBE-TO-${id}`)).name, c.name);
});

scenario(16, 'a consumer that leaves and returns is seen as DISCONNECT, CONNECT, SUBSCRIBE-TO', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  await c.subscribe({ event: 'e', producer: p.name });
  await p.next(`SUBSCRIBE-TO-${p.id}`);
  await c.leave();
  const gone = await p.next(`DISCONNECT-${p.id}`);
  assert.equal(gone.event, 'DISCONNECT');
  assert.equal(gone.consumer, c.name);
  assert.equal(gone.socket, c.id);
  const back = await consumer(server, c.name);
  await back.subscribe({ event: 'e', producer: p.name });
  await p.next(`SUBSCRIBE-TO-${p.id}`);
  const names = p.events.map(({ name }) => name).filter((name) => /^(DISCONNECT|CONNECT|SUBSCRIBE-TO)-/.test(name));
  assert.deepEqual(
    names.slice(1).map((name) => name.replace(`-${p.id}`, '')),
    ['DISCONNECT', 'CONNECT', 'SUBSCRIBE-TO'],
  );
  const connected = p.seen(`CONNECT-${p.id}`)[0];
  assert.deepEqual([connected.event, connected.consumer, connected.socket, connected.id], ['CONNECT', c.name, back.id, c.name]);
});

scenario(17, 'a producer that leaves and returns is seen by its consumers, also as <name>-ONLINE', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  await c.subscribe({ event: 'e', producer: p.name });
  await p.next(`SUBSCRIBE-TO-${p.id}`);
  await p.leave();
  const gone = await c.next(`DISCONNECT-${c.name}`);
  assert.deepEqual([gone.event, gone.producer, gone.socket], ['DISCONNECT', p.name, p.id]);
  const seen = c.events.length;
  const back = await producer(server, p.name);
  await c.when(() => c.events.slice(seen).find(({ name }) => name === `CONNECT-${c.name}`), { what: 'CONNECT' });
  await c.when(() => c.events.slice(seen).find(({ name }) => name === `${p.name}-ONLINE`), { what: 'ONLINE' });
  const online = c.seen(`${p.name}-ONLINE`).at(-1);
  assert.deepEqual([online.event, online.producer, online.socket], ['CONNECT', p.name, back.id]);
});

scenario(18, 'all three keys of a consumer are reported to a producer that joins later', async () => {
  const name = unique('p');
  const c = await consumer(server);
  for (const event of ['one', 'two', 'three']) await c.subscribe({ event, producer: name });
  const p = await producer(server, name);
  const keys = () => new Set(p.seen(`SUBSCRIBE-TO-${p.id}`).flatMap(({ events }) => events));
  await p.when(() => (keys().size >= 3 ? true : undefined), { what: 'three keys' });
  assert.deepEqual([...keys()].sort(), [`${name}-one`, `${name}-three`, `${name}-two`]);
});

scenario(19, 'a socket with two consumer names disconnects: both are away, a durable message for either is stored', async () => {
  const p = await producer(server);
  const both = await Client.websocket(server);
  const names = [unique('c'), unique('c')];
  for (const name of names) await both.consumer(name);
  for (const name of names) await both.subscribe({ event: name, producer: p.name, consumer: name, consumer_id: name, durable: true });
  await both.leave();
  for (const name of names) {
    assert.equal((await p.produce(name, name)).queued, 1);
    const back = await consumer(server, name);
    await back.subscribe({ event: name, producer: p.name, durable: true });
    assert.equal((await back.next(`CONSUME-${p.name}-${name}`)).message, name);
  }
});

scenario(20, 'PING answers JSON text with the sent fields; QUIT with the own id disconnects', async () => {
  const client = await Client.websocket(server);
  const answer = await client.call('PING', { seq: 7, text: 'ü' });
  assert.equal(typeof answer, 'string');
  const { seq, text, pong, timestamp } = JSON.parse(answer);
  assert.deepEqual({ seq, text, pong }, { seq: 7, text: 'ü', pong: 'PONG' });
  assert.ok(Math.abs(Date.now() - Date.parse(timestamp)) < 60_000);
  client.emitEvent('HELLO', { name: 'x', type: 'y' });
  client.emitEvent('DEBUG', {});
  client.emitEvent('QUIT', 'somebody else');
  await client.sync();
  client.emitEvent('QUIT', client.id);
  await client.gone();
});

scenario(20, 'with authentication off, AUTHENTICATION answers the default realm and both roles', async () => {
  const client = await Client.websocket(server);
  for (const shown of [{ token: 'x', realm: 'elsewhere' }, { token: 5 }, 'no json', null]) {
    client.emitEvent('AUTHENTICATION', shown);
    const { realm, role } = await client.next('AUTH_OK');
    assert.deepEqual({ realm, role }, { realm: 'default', role: 'both' });
  }
});
