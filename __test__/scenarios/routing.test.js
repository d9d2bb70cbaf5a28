// Scenarios 21 to 32: what reaches whom, under which name.
'use strict';
const assert = require('node:assert/strict');
const { Client, consumer, producer, unique } = require('../helpers/client');
const { scenario, sharedServer } = require('../helpers/scenario');

const server = sharedServer();
const ANY = 'TYO-MQ-ALL';

scenario(21, 'a plain delivery has event, message and from; the frame name is lower case, the event is not', async () => {
  const p = await producer(server, `P${unique('Rod')}`);
  const c = await consumer(server);
  const { key, consume_event: name } = await c.subscribe({ event: 'Paid', producer: p.name });
  assert.equal(key, `${p.name}-Paid`.toLowerCase());
  assert.equal(name, `CONSUME-${key}`);
  const message = { z: 1, a: [1.0, 'ü'], n: null };
  p.send(`42["PRODUCE",{"event":"Paid","message":{"z":1.0,"a":[1e2,"\\ud83d"],"big":12345678901234567890},"from":"${p.name}"}]`);
  await p.produce('PAID', message);
  const [first, second] = await c.take(name, 2);
  assert.deepEqual(second, { event: 'PAID', message, from: p.name });
  assert.deepEqual(Object.keys(first).sort(), ['event', 'from', 'message']);
  const frame = c.packets.find((packet) => packet.startsWith(`42["${name}"`));
  assert.ok(frame.includes('{"z":1.0,"a":[1e2,"\\ud83d"],"big":12345678901234567890}'), frame);
});

scenario(22, 'exact, any-producer and topic subscriptions of one consumer yield three frames', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  const event = unique('fleet/');
  const names = [];
  for (const wish of [
    { event, producer: p.name },
    { event, producer: ANY },
    { event: 'fleet/+', producer: ANY, mode: 'topic' },
  ]) {
    names.push((await c.subscribe(wish)).consume_event);
  }
  assert.deepEqual(names, [`CONSUME-${p.name}-${event}`, `CONSUME-tyo-mq-all-${event}`, 'CONSUME-tyo-mq-all-fleet/+']);
  assert.equal((await p.produce(event, 1)).delivered, 3);
  for (const name of names) assert.deepEqual(await c.next(name), { event, message: 1, from: p.name });
  assert.equal(c.seen(/^CONSUME-/).length, 3);
});

scenario(23, 'event names ignore case, producer names do not', async () => {
  const p = await producer(server);
  const loud = await producer(server, p.name.toUpperCase());
  const c = await consumer(server);
  await c.subscribe({ event: 'Straße/ΣΑΣ', producer: p.name });
  assert.equal((await loud.produce('Straße/ΣΑΣ', 'no')).delivered, 0);
  assert.equal((await p.produce('STRAßE/σας', 'yes')).delivered, 1);
  const delivery = await c.next(/^CONSUME-/);
  assert.deepEqual(delivery, { event: 'STRAßE/σας', message: 'yes', from: p.name });
});

for (const [who, wish, suffix] of [
  ['Python and C# compat', { event: 'TM-ALL', scope: 'all' }, 'TM-ALL'],
  ['Go', { event: 'whatever', scope: 'all' }, 'TM-ALL'],
  ['nobody yet, without an event', { scope: 'all' }, 'TM-ALL'],
  ['Java, Ruby, Rust', { event: 'TM-ALL', scope: 'default' }, 'tm-all'],
]) {
  scenario(24, `all events of one producer, as ${who} ask for them`, async () => {
    const [p, other] = [await producer(server), await producer(server)];
    const c = await consumer(server);
    const { ok, consume_event: name } = await c.subscribe({ producer: p.name, ...wish });
    assert.equal(ok, true);
    assert.equal(name, `CONSUME-${p.name}-${suffix}`);
    await other.produce('alpha', 'no');
    await p.produce('alpha', 1);
    await p.produce('Beta/gamma', 2);
    const got = await c.take(name, 2);
    assert.deepEqual(
      got.map(({ event, message }) => [event, message]),
      [
        ['alpha', 1],
        ['Beta/gamma', 2],
      ],
    );
    assert.equal(c.seen(/^CONSUME-/).length, 2);
  });
}

scenario(24, 'any producer and all events mean everything in the realm', async () => {
  const c = await consumer(server);
  await c.subscribe({ producer: ANY, scope: 'all', event: 'TM-ALL' });
  const p = await producer(server);
  const event = unique('e');
  await p.produce(event, 1);
  const name = 'CONSUME-tyo-mq-all-TM-ALL';
  await c.when(() => c.seen(name).find((delivery) => delivery.event === event), { what: 'the message' });
  // Other scenarios count their copies: this one must not go on listening to them.
  assert.equal((await c.call('UNSUBSCRIBE', { producer: ANY, scope: 'all', event: 'TM-ALL' })).removed, 1);
});

scenario(25, 'names that join to the same text are kept apart', async () => {
  const stem = unique('a');
  const [a, ab] = [await producer(server, stem), await producer(server, `${stem}-b`)];
  const c = await consumer(server);
  await c.subscribe({ event: 'c', producer: `${stem}-b` });
  await c.subscribe({ event: 'other', producer: stem });
  assert.equal((await a.produce('b-c', 'no')).delivered, 0);
  assert.equal((await ab.produce('c', 'yes')).delivered, 1);
  assert.equal((await c.next(/^CONSUME-/)).message, 'yes');
});

scenario(26, 'a producer subscribed to itself receives its own message', async () => {
  const p = await producer(server);
  await p.subscribe({ event: 'e', producer: p.name });
  assert.equal((await p.produce('e', 'me')).delivered, 1);
  assert.equal((await p.next(`CONSUME-${p.name}-e`)).message, 'me');
});

scenario(27, 'a message without a registration is delivered, without from as ANONYMOUS', async () => {
  const stranger = await Client.websocket(server);
  const c = await consumer(server);
  const [name, event] = [unique('p'), unique('e')];
  await c.subscribe({ event, producer: name });
  await c.subscribe({ event, producer: 'ANONYMOUS' });
  await stranger.call('PRODUCE', { event, message: 1, from: name });
  await stranger.call('PRODUCE', { event, message: 2 });
  await stranger.call('PRODUCE', { event, message: 3, from: '' });
  assert.deepEqual(await c.next(`CONSUME-${name}-${event}`), { event, message: 1, from: name });
  const anonymous = await c.take(`CONSUME-anonymous-${event}`, 2);
  assert.deepEqual(
    anonymous.map(({ message, from }) => [message, from]),
    [
      [2, 'ANONYMOUS'],
      [3, 'ANONYMOUS'],
    ],
  );
});

scenario(27, 'a message without a body has no message field', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  await c.subscribe({ event: 'e', producer: p.name });
  await p.produce('e', undefined);
  assert.deepEqual(await c.next(`CONSUME-${p.name}-e`), { event: 'e', from: p.name });
});

scenario(29, 'enc, to and headers pass through, and to filters nobody', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  await c.subscribe({ event: 'e', producer: p.name });
  const more = { enc: { v: 1, ct: 'x', keys: [{ kid: 'k' }] }, to: 'somebody-else', headers: { trace: 'ü1' } };
  await p.produce('e', 'cipher', more);
  assert.deepEqual(await c.next(`CONSUME-${p.name}-e`), { event: 'e', message: 'cipher', from: p.name, ...more });
});

scenario(30, '10,000 messages of one producer arrive in order', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  await c.subscribe({ event: 'e', producer: p.name });
  const count = 10_000;
  for (let n = 0; n < count; n++) {
    p.emitEvent('PRODUCE', { event: 'e', message: n, from: p.name });
    if (n % 500 === 499) await p.sync();
  }
  const name = `CONSUME-${p.name}-e`;
  await c.when(() => (c.events.length >= count && c.seen(name).length === count ? true : undefined), {
    timeout: 20_000,
    what: `${count} messages`,
  });
  c.seen(name).forEach(({ message }, n) => assert.equal(message, n));
});

scenario(31, 'SUBSCRIBE with the name of another live consumer is refused and closed; its deliveries stay', async () => {
  const p = await producer(server);
  const victim = await consumer(server);
  await victim.subscribe({ event: 'mine', producer: p.name });
  const thief = await Client.websocket(server);
  const outcome = await Promise.race([
    thief.call('SUBSCRIBE', { event: 'theirs', producer: p.name, consumer: victim.name }, { timeout: 10_000 }),
    thief.next('ERROR', { timeout: 10_000 }),
  ]);
  assert.equal(outcome.code, -3, JSON.stringify(outcome));
  await thief.gone();
  await p.produce('theirs', 1);
  await p.produce('mine', 2);
  assert.equal((await victim.next(/^CONSUME-/)).message, 2);
  assert.ok(await victim.quiet(/^CONSUME-/));
  assert.equal(thief.seen(/^CONSUME-/).length, 0);
});

for (const [form, payload] of [
  ['text', (p) => `${p}-e`],
  ['an object', (p) => ({ event: 'e', producer: p })],
]) {
  scenario(32, `UNSUBSCRIBE given as ${form} stops deliveries, tells the producer, and lasts`, async () => {
    const p = await producer(server);
    const c = await consumer(server);
    await c.subscribe({ event: 'e', producer: p.name });
    await c.subscribe({ event: 'kept', producer: p.name });
    const answer = await c.call('UNSUBSCRIBE', payload(p.name));
    assert.equal(answer.ok, true);
    assert.equal(answer.removed, 1);
    const told = await p.next(`UNSUBSCRIBE-${p.id}`);
    assert.equal(told.consumer, c.name);
    assert.equal(told.event, 'UNSUBSCRIBE');
    await p.next(`UNSUBSCRIBE-e-${p.id}`);
    assert.equal((await p.produce('e', 'no')).delivered, 0);
    await c.leave();
    const back = await consumer(server, c.name);
    assert.equal((await p.produce('e', 'no')).delivered, 0);
    assert.equal((await p.produce('kept', 'yes')).delivered, 1);
    assert.equal((await back.next(/^CONSUME-/)).message, 'yes');
    assert.equal((await back.call('UNSUBSCRIBE', payload(p.name))).removed, 0);
  });
}

scenario(32, "another consumer's subscription cannot be removed", async () => {
  const p = await producer(server);
  const [victim, other] = [await consumer(server), await consumer(server)];
  await victim.subscribe({ event: 'e', producer: p.name });
  const answer = await other.call('UNSUBSCRIBE', { event: 'e', producer: p.name, consumer: victim.name });
  assert.deepEqual([answer.ok, answer.code], [false, 403]);
  assert.equal((await p.produce('e', 1)).delivered, 1);
});

scenario(32, 'a durable subscription ends only with UNSUBSCRIBE; its backlog stays unless purged', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  const wish = { event: 'e', producer: p.name, durable: true, ack: true };
  await c.subscribe(wish);
  await p.produce('e', 1);
  await c.next(`CONSUME-${p.name}-e`);
  const left = await c.call('UNSUBSCRIBE', { event: 'e', producer: p.name });
  assert.deepEqual([left.ok, left.removed, left.left], [true, 1, 1]);
  assert.equal((await p.produce('e', 2)).queued, 0);
  assert.equal((await c.subscribe(wish)).queued, 1);
  assert.equal((await c.next(`CONSUME-${p.name}-e`)).message, 1);
  const purged = await c.call('UNSUBSCRIBE', { event: 'e', producer: p.name, purge: true });
  assert.equal(purged.ok, true);
  assert.equal((await c.subscribe(wish)).queued, 0);
});
