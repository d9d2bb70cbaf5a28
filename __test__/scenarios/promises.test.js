// Promises that the numbered scenarios do not touch: ordering keys, failures and returns, isolation of
// a bad message, windows, takeover by the same client.
'use strict';
const assert = require('node:assert/strict');
const { test } = require('node:test');
const { Client, consumer, deadline, pair, producer, unique } = require('../helpers/client');
const { onEachStore, sleep } = require('../helpers/scenario');

onEachStore((server) => {
  const ACKED = { durable: true, ack: true };
  const promise = (number, sentence, body) => test(`P${number}: ${sentence}`, { timeout: 60_000 }, body);
  const bodies = (client, name) => client.seen(name).map(({ message }) => message);

  promise(5, 'leaving is not unsubscribing, however it happens', async () => {
    const { p, c, again, name } = await pair(server, { durable: true });
    let current = c;
    for (const [n, leave] of [
      () => current.leave(),
      () => current.cut(),
      () => current.cut({ reset: true }),
      () => current.link.close(),
    ].entries()) {
      await leave();
      await deadline(current.closed, 5000, 'close');
      await p.when(() => (p.seen(`DISCONNECT-${p.id}`).length > n ? true : undefined), { what: 'DISCONNECT' });
      assert.equal((await p.produce('e', n)).queued, 1);
      current = await again();
      assert.equal((await current.next(name)).message, n);
      await current.confirmed();
    }
  });

  promise(8, 'a retry does not hold up later messages; with an ordering key the rest of that key waits', async () => {
    const { p, c, name } = await pair(server, { ...ACKED, retry: { delay: '300ms', max_attempts: 5 } });
    for (const [body, key] of [['a1', 'a'], ['a2', 'a'], ['b1', 'b'], ['free'], ['a3', 'a']]) await p.produce('e', body, { key });
    const first = await c.take(name, 3);
    assert.deepEqual(first.map(({ message }) => message).sort(), ['a1', 'b1', 'free']);
    await c.nack(first.find(({ message }) => message === 'a1').msgId);
    assert.ok(await c.quiet(name, 100), 'a2 waits for a1');
    for (const body of ['a1', 'a2', 'a3']) {
      const delivery = await c.next(name);
      assert.equal(delivery.message, body);
      await c.ack(delivery.msgId);
    }
  });

  promise(10, 'a close gives the message back without a failure, and the attempt goes on', async () => {
    const { p, c, again, name } = await pair(server, { ...ACKED, retry: { max_attempts: 2, delay: '10ms' } });
    await p.produce('e', 'kept');
    let current = c;
    for (let attempt = 1; attempt <= 6; attempt++) {
      assert.equal((await current.next(name)).delivery_attempt, attempt);
      await current.leave();
      current = await again();
    }
    const { msgId } = await current.next(name);
    assert.equal((await current.ack(msgId)).ok, true);
  });

  promise(10, 'failures are kept over sessions: one timeout and one crash make two', async () => {
    const { p, c, again, name } = await pair(server, { ...ACKED, ack_timeout: '150ms', retry: { max_attempts: 2, delay: '10ms' } });
    await p.produce('e', 'poison');
    assert.equal((await c.next(name)).delivery_attempt, 1);
    assert.equal((await c.next(name)).delivery_attempt, 2);
    await c.cut();
    const back = await again();
    assert.ok(await back.quiet(name, 400));
  });

  promise(11, 'one bad message cannot bury its neighbours or stop its group', async () => {
    const p = await producer(server);
    const group = unique('g');
    const wish = { event: 'e', producer: p.name, group, ...ACKED, retry: { max_attempts: 3, delay: '10ms' } };
    const name = `CONSUME-${p.name}-e`;
    const join = async () => {
      const member = await consumer(server);
      await member.subscribe(wish);
      return member;
    };
    const done = [];
    const work = (member) =>
      member.on('event', (event, delivery) => {
        if (event !== name || member.isClosed) return;
        if (delivery.message === 'poison') return void member.link.cut();
        done.push(delivery.message);
        member.emitEvent('ACK', { msgId: delivery.msgId });
      });
    const keeper = await join();
    await keeper.leave();
    for (let n = 0; n < 50; n++) await p.produce('e', n === 20 ? 'poison' : n);
    let crashes = 0;
    const end = Date.now() + 20_000;
    while (new Set(done).size < 49 && Date.now() < end) {
      const member = await Client.websocket(server);
      work(member);
      await member.consumer(unique('c'));
      await member.subscribe(wish).catch(() => {});
      await Promise.race([member.closed, sleep(400)]);
      if (member.isClosed) crashes++;
      else await member.leave();
    }
    assert.deepEqual(
      [...new Set(done)].sort((a, b) => a - b),
      Array.from({ length: 50 }, (_, n) => n).filter((n) => n !== 20),
    );
    assert.ok(crashes <= 6, `${crashes} crashes`);
  });

  promise(12, 'without acknowledgements the window counts what is not confirmed', async () => {
    const { p, c, name } = await pair(server, { durable: true, prefetch: 5 });
    c.autoPong = false;
    for (let n = 0; n < 20; n++) await p.produce('e', n);
    await c.take(name, 5);
    assert.ok(await c.quiet(name));
    assert.equal(c.seen(name).length, 5);
    c.autoPong = true;
    c.send('3');
    await c.when(() => (c.seen(name).length === 20 ? true : undefined), { what: '20 messages' });
    assert.deepEqual(
      bodies(c, name),
      Array.from({ length: 20 }, (_, n) => n),
    );
  });

  promise(16, 'a refused message leaves no mark: it may be sent again', async () => {
    const { p, c } = await pair(server, { durable: true });
    await c.leave();
    const uid = unique('uid');
    assert.equal((await p.produce('e', 1, { msg_uid: uid, ttl: 'soon' })).ok, false);
    const answer = await p.produce('e', 1, { msg_uid: uid });
    assert.deepEqual([answer.ok, answer.queued, Boolean(answer.duplicate)], [true, 1, false]);
  });

  promise(20, 'nesting over 512 levels is refused, 500 levels are carried', async () => {
    const { p, c, name } = await pair(server);
    const nested = (levels) => `${'['.repeat(levels)}${']'.repeat(levels)}`;
    const send = (levels) => {
      const answered = new Promise((resolve) => p.replies.set(++p.lastReply, resolve));
      p.send(`42${p.lastReply}["PRODUCE",{"event":"e","from":"${p.name}","message":${nested(levels)}}]`);
      return deadline(answered, 5000, 'a reply');
    };
    assert.equal((await send(500)).ok, true);
    assert.equal(JSON.stringify((await c.next(name)).message), nested(500));
    assert.equal((await send(600)).ok, false);
    await p.sync();
  });

  promise(22, 'the same client instance replaces its own older connection at once', async () => {
    const p = await producer(server);
    const name = unique('c');
    const instance = unique('instance');
    const first = await consumer(server, name, { instance });
    const wish = { event: 'e', producer: p.name, ...ACKED };
    await first.subscribe(wish);
    await p.produce('e', 1);
    await first.next(`CONSUME-${p.name}-e`);
    const begin = Date.now();
    const second = await consumer(server, name, { instance });
    assert.equal((await second.subscribe(wish)).ok, true);
    assert.ok(Date.now() - begin < 900, 'at once');
    const delivery = await second.next(`CONSUME-${p.name}-e`);
    assert.deepEqual([delivery.message, delivery.delivery_attempt], [1, 2]);
    await first.gone();
    assert.deepEqual(second.seen('ERROR'), []);
  });

  promise(24, 'a flood of durable messages from one producer delays no other session', async () => {
    const { c } = await pair(server, { durable: true });
    const flooder = await producer(server);
    const sink = await consumer(server);
    await sink.subscribe({ event: 'flood', producer: flooder.name, durable: true });
    await sink.leave();
    const body = 'x'.repeat(1000);
    for (let n = 0; n < 20_000; n++) flooder.emitEvent('PRODUCE', { event: 'flood', message: body, from: flooder.name });
    const begin = performance.now();
    await c.sync();
    assert.ok(performance.now() - begin < 3000, 'a round trip during the flood');
    assert.equal((await flooder.call('PRODUCE', { event: 'flood', message: 'last', from: flooder.name }, { timeout: 30_000 })).queued, 1);
  });
});
