// Scenarios 45 to 51: what waits, in which order, for how long; delayed and repeated messages.
'use strict';
const assert = require('node:assert/strict');
const { Client, consumer, pair, producer, unique, until } = require('../helpers/client');
const { scenario, onEachStore, sleep } = require('../helpers/scenario');

onEachStore((server) => {
  const DURABLE = { durable: true };

  scenario(45, 'a message waits for a durable consumer, comes once, without msgId, and not again', async () => {
    const { p, c, again, name } = await pair(server, DURABLE);
    await c.leave();
    assert.deepEqual(await p.produce('e', 1).then(({ ok, queued, delivered }) => ({ ok, queued, delivered })), {
      ok: true,
      queued: 1,
      delivered: 0,
    });
    const back = await again();
    assert.equal(back.subscribed.queued, 1);
    assert.deepEqual(await back.next(name), { event: 'e', message: 1, from: p.name });
    await back.confirmed();
    await back.leave();
    const third = await again();
    assert.ok(await third.quiet(name));
    await third.leave();
    assert.equal((await again()).subscribed.queued, 0);
  });

  const ALIASES = [
    { guaranteed: true },
    { guaranteed_delivery: 1 },
    { guaranteedDelivery: 'yes' },
    { durable: true },
    { delivery: 'guaranteed' },
    { delivery_mode: 'guaranteed' },
  ];

  scenario(46, 'without durable a plain message is lost, a guaranteed one waits, under each of its names', async () => {
    const { p, c, again, name } = await pair(server);
    await c.leave();
    assert.equal((await p.produce('e', 'plain')).queued, 0);
    // The store remembers a plain subscription a moment after its answer (P4).
    await until(async () => (await p.produce('e', ALIASES[0], ALIASES[0])).queued === 1, 'a queue');
    for (const alias of ALIASES.slice(1)) assert.equal((await p.produce('e', alias, alias)).queued, 1, JSON.stringify(alias));
    const back = await again();
    const got = await back.take(name, ALIASES.length);
    assert.deepEqual(
      got.map(({ message }) => message),
      ALIASES,
    );
    assert.ok(await back.quiet(name));
  });

  scenario(46, 'a guaranteed message that matches nobody says so', async () => {
    const p = await producer(server);
    const answer = await p.produce(unique('e'), 1, { guaranteed: true });
    assert.deepEqual([answer.ok, answer.queued, answer.delivered], [true, 0, 0]);
  });

  scenario(47, 'a durable consumer that is away longer than the idle time misses nothing', async (t) => {
    const own = await server.another(t, { idle_eviction: { enabled: true, ttl_ms: 200, interval_ms: 100 } });
    const { p, c, again, name } = await pair(own, DURABLE);
    await c.leave();
    await sleep(700);
    assert.equal((await p.produce('e', 'late')).queued, 1);
    const back = await again();
    assert.equal((await back.next(name)).message, 'late');
  });

  scenario(49, 'produced between CONSUMER and SUBSCRIBE: stored and new messages come in order, none lost', async () => {
    const { p, c, name, fields } = await pair(server, DURABLE);
    await c.leave();
    for (let n = 0; n < 5; n++) await p.produce('e', n);
    const back = await consumer(server, c.name);
    for (let n = 5; n < 10; n++) await p.produce('e', n);
    await back.subscribe(fields);
    for (let n = 10; n < 15; n++) await p.produce('e', n);
    const got = await back.take(name, 15);
    assert.deepEqual(
      got.map(({ message }) => message),
      Array.from({ length: 15 }, (_, n) => n),
    );
  });

  scenario(49, 'live messages that race with the backlog come behind it', async () => {
    const { p, c, again, name } = await pair(server, DURABLE);
    await c.leave();
    const [before, count] = [2000, 4000];
    for (let n = 0; n < before; n++) p.emitEvent('PRODUCE', { event: 'e', message: n, from: p.name });
    await p.sync();
    const returning = again();
    for (let n = before; n < count; n++) {
      p.emitEvent('PRODUCE', { event: 'e', message: n, from: p.name });
      if (n % 50 === 0) await p.sync();
    }
    const back = await returning;
    await back.when(() => (back.seen(name).length >= count ? true : undefined), { timeout: 15_000, what: `${count} messages` });
    assert.deepEqual(
      back.seen(name).map(({ message }) => message),
      Array.from({ length: count }, (_, n) => n),
    );
  });

  scenario(50, 'a link that dies silently right after the send: the message comes again, and says so', async (t) => {
    const own = await server.another(t, { pingInterval: 300, pingTimeout: 300 });
    const { p, c, again, name } = await pair(own, DURABLE);
    c.autoPong = false;
    c.link.pause();
    assert.equal((await p.produce('e', 'kept')).ok, true);
    await p.next(`DISCONNECT-${p.id}`);
    c.link.cut({ reset: true });
    const back = await again();
    const delivery = await back.next(name);
    assert.equal(delivery.message, 'kept');
    assert.equal(delivery.redelivered, true);
    assert.equal(delivery.msgId, undefined);
  });

  scenario(50, 'stray pongs confirm nothing', async () => {
    const { p, c, again, name } = await pair(server, DURABLE);
    c.autoPong = false;
    c.send('3');
    await c.sync();
    await p.produce('e', 'kept');
    await c.next(name);
    await c.leave();
    const back = await again();
    assert.equal((await back.next(name)).redelivered, true);
  });

  for (const [what, register, produce] of [
    ['ttl 1', {}, { ttl: 1 }],
    ['ttl "1"', {}, { ttl: '1' }],
    ['ttl "1000ms"', {}, { ttl: '1000ms' }],
    ['lifespan 1', {}, { lifespan: 1 }],
    ['a producer default_ttl of 1', { default_ttl: 1 }, {}],
    ['a producer default_ttl of 1 and lifespan -1', { default_ttl: 1 }, { lifespan: -1 }],
  ]) {
    scenario(51, `${what}: there at once, gone after 1.3 s`, async () => {
      const p = await producer(server, undefined, register);
      const c = await consumer(server);
      const wish = { event: 'e', producer: p.name, durable: true };
      const name = `CONSUME-${p.name}-e`;
      await c.subscribe(wish);
      await p.produce('e', 'seen', produce);
      assert.equal((await c.next(name)).message, 'seen');
      await c.confirmed();
      await c.leave();
      assert.equal((await p.produce('e', 'short', produce)).queued, 1);
      await p.produce('e', 'long', { ttl: 60 });
      await sleep(1300);
      const back = await consumer(server, c.name);
      await back.subscribe(wish);
      assert.equal((await back.next(name)).message, 'long');
      assert.ok(await back.quiet(name));
    });
  }

  for (const [what, produce] of [
    ['ttl 60 over the producer default of 1', { ttl: 60 }],
    ['"1h" is an hour', { ttl: '1h' }],
    ['"2M" is two minutes', { ttl: '2M' }],
  ]) {
    scenario(51, `${what}`, async () => {
      const p = await producer(server, undefined, { default_ttl: 1 });
      const c = await consumer(server);
      const wish = { event: 'e', producer: p.name, durable: true };
      await c.subscribe(wish);
      await c.leave();
      await p.produce('e', 'kept', produce);
      await sleep(1300);
      const back = await consumer(server, c.name);
      await back.subscribe(wish);
      assert.equal((await back.next(`CONSUME-${p.name}-e`)).message, 'kept');
    });
  }

  scenario(51, 'a ttl that is no duration is refused with -5; ttl 0 reaches only who is there', async () => {
    const { p, c, again, name } = await pair(server, DURABLE);
    for (const ttl of ['soon', '1 fortnight', -1, {}, true]) {
      const answer = await p.produce('e', 'no', { ttl });
      assert.deepEqual([answer.ok, answer.code], [false, -5], JSON.stringify(ttl));
    }
    p.emitEvent('PRODUCE', { event: 'e', message: 'no', from: p.name, ttl: 'soon' });
    assert.equal((await p.next('ERROR')).code, -5);
    await p.produce('e', 'now', { ttl: 0 });
    assert.equal((await c.next(name)).message, 'now');
    await c.confirmed();
    await c.leave();
    assert.equal((await p.produce('e', 'never', { ttl: 0 })).queued, 0);
    const back = await again();
    assert.ok(await back.quiet(name));
  });

  scenario(51, 'delayed messages come when they are due', async () => {
    const { p, c, name } = await pair(server, DURABLE);
    const begin = performance.now();
    const answer = await p.produce('e', 'later', { delay: '400ms' });
    assert.deepEqual([answer.queued, answer.delayed], [0, true]);
    await p.produce('e', 'now');
    const got = await c.take(name, 2);
    assert.deepEqual(
      got.map(({ message }) => message),
      ['now', 'later'],
    );
    assert.ok(performance.now() - begin >= 390);
  });

  scenario(45, 'a message with an id of its own is stored once', async () => {
    const { p, c, again, name } = await pair(server, DURABLE);
    await c.leave();
    const uid = unique('uid');
    const first = await p.produce('e', 1, { msg_uid: uid });
    const second = await p.produce('e', 1, { msg_uid: uid });
    assert.deepEqual([first.duplicate ?? false, first.queued, second.duplicate], [false, 1, true]);
    const seq = [unique('instance'), 1];
    await p.produce('e', 2, { instance_seq: seq });
    assert.equal((await p.produce('e', 2, { instance_seq: seq })).duplicate, true);
    const back = await again();
    assert.equal(back.subscribed.queued, 2);
    assert.deepEqual(
      (await back.take(name, 2)).map(({ message }) => message),
      [1, 2],
    );
  });

  scenario(46, 'anonymous consumers are remembered by nobody', async () => {
    const p = await producer(server);
    const c = await Client.websocket(server);
    const name = `ANONYMOUS-${unique('')}`;
    c.emitEvent('CONSUMER', { name });
    const wish = { event: 'e', producer: p.name, consumer: name, durable: true };
    await c.call('SUBSCRIBE', wish);
    await p.produce('e', 1);
    await c.next(`CONSUME-${p.name}-e`);
    await c.leave();
    assert.equal((await p.produce('e', 2, { guaranteed: true })).queued, 0);
  });
});
