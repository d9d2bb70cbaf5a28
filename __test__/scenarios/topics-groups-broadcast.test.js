// Scenarios 33 to 40.
'use strict';
const assert = require('node:assert/strict');
const { Client, consumer, producer, unique } = require('../helpers/client');
const { scenario, sharedServer } = require('../helpers/scenario');

const server = sharedServer();
const ANY = 'TYO-MQ-ALL';

/** Messages that a consumer of `pattern` gets when `events` are produced, each with its name as body. */
async function matched(pattern, events) {
  const p = await producer(server);
  const c = await consumer(server);
  await c.subscribe({ event: pattern, producer: p.name, mode: 'topic' });
  for (const event of events) await p.produce(event, event);
  await c.sync();
  return c.seen(/^CONSUME-/).map(({ message }) => message);
}

for (const [pattern, yes, no] of [
  ['a/+/c', ['a/x/c', 'A/X/C', 'a//c'], ['a/x/y/c', 'a/c', 'a/x/d']],
  ['a/#', ['a', 'a/', 'a/b/c', 'A/B'], ['b', 'ab', 'b/a']],
  ['#', ['x', 'x/y/z', '/'], []],
  ['+', ['x', 'X'], ['x/y']],
  ['a/+', ['a/', 'a/b'], ['a', 'a/b/c']],
  ['a/#/b', [], ['a/b', 'a/x/b', 'a/x/y/b', 'a']],
  ['a+/b', ['a+/b'], ['ax/b', 'a/b']],
  ['orders', ['orders', 'Orders'], ['orders/x']],
  ['$sys/#', ['$SYS/a', '$sys'], ['sys/a']],
]) {
  scenario(33, `topic ${pattern} matches ${yes.join(', ') || 'nothing'}, not ${no.join(', ') || 'less'}`, async () => {
    assert.deepEqual(await matched(pattern, [...yes, ...no]), yes);
  });
}

scenario(34, 'a topic with a producer ignores others; unsubscribing removes the pattern', async () => {
  const [p, other] = [await producer(server), await producer(server)];
  const c = await consumer(server);
  const stem = unique('t');
  const { consume_event: name } = await c.subscribe({ event: `${stem}/+`, producer: p.name, mode: 'topic' });
  assert.equal(name, `CONSUME-${p.name}-${stem}/+`);
  assert.equal((await other.produce(`${stem}/x`, 'no')).delivered, 0);
  assert.equal((await p.produce(`${stem}/x`, 'yes')).delivered, 1);
  assert.equal((await c.next(name)).message, 'yes');
  const gone = await c.call('UNSUBSCRIBE', { event: `${stem}/+`, producer: p.name, mode: 'topic' });
  assert.equal(gone.removed, 1);
  assert.equal((await p.produce(`${stem}/x`, 'no')).delivered, 0);
});

scenario(34, 'a plain subscription takes + and # literally', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  await c.subscribe({ event: 'a/+', producer: p.name });
  assert.equal((await p.produce('a/x', 'no')).delivered, 0);
  assert.equal((await p.produce('a/+', 'yes')).delivered, 1);
});

scenario(35, 'a durable topic replays under the pattern, with the concrete topic in event', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  const stem = unique('t');
  const wish = { event: `${stem}/+/cmd`, producer: ANY, mode: 'topic', durable: true };
  const { consume_event: name } = await c.subscribe(wish);
  assert.equal(name, `CONSUME-tyo-mq-all-${stem}/+/cmd`);
  await c.leave();
  assert.equal((await p.produce(`${stem}/Seven/cmd`, 1)).queued, 1);
  assert.equal((await p.produce(`${stem}/seven/other`, 2)).queued, 0);
  const back = await consumer(server, c.name);
  assert.equal((await back.subscribe(wish)).queued, 1);
  assert.deepEqual(await back.next(name), { event: `${stem}/Seven/cmd`, message: 1, from: p.name });
});

/** `count` members of a fresh group, all subscribed to each of `events` of `p`. */
async function group(p, events, count, more = {}) {
  const name = unique('g');
  const members = [];
  for (let n = 0; n < count; n++) {
    const member = await consumer(server);
    for (const event of events) await member.subscribe({ event, producer: p.name, group: name, ...more });
    members.push(member);
  }
  return { name, members };
}

const bodies = (client) => client.seen(/^CONSUME-/).map(({ message }) => message);

scenario(36, 'a group takes each message once, all members get some; an observer gets all', async () => {
  const p = await producer(server);
  const { members } = await group(p, ['e'], 2);
  const observer = await consumer(server);
  await observer.subscribe({ event: 'e', producer: p.name });
  for (let n = 0; n < 4; n++) await p.produce('e', n);
  await observer.take(`CONSUME-${p.name}-e`, 4);
  for (const member of members) await member.sync();
  assert.deepEqual(members.flatMap(bodies).sort(), [0, 1, 2, 3]);
  for (const member of members) assert.ok(bodies(member).length >= 1, 'each member gets a share');
});

scenario(37, 'two members, two alternating events: both members get both events', async () => {
  const p = await producer(server);
  const { members } = await group(p, ['one', 'two'], 2);
  for (let n = 0; n < 8; n++) await p.produce(n % 2 ? 'two' : 'one', n);
  for (const member of members) await member.sync();
  assert.deepEqual(members.flatMap(bodies).sort(), [0, 1, 2, 3, 4, 5, 6, 7]);
  for (const member of members) {
    assert.ok(member.seen(`CONSUME-${p.name}-one`).length > 0, 'some of one');
    assert.ok(member.seen(`CONSUME-${p.name}-two`).length > 0, 'some of two');
  }
});

scenario(37, 'several keys of a group match: only the first takes the message', async () => {
  const p = await producer(server);
  const g = unique('g');
  const event = unique('x/');
  const [exact, pattern] = [await consumer(server), await consumer(server)];
  await pattern.subscribe({ event: 'x/+', producer: p.name, mode: 'topic', group: g });
  await exact.subscribe({ event, producer: p.name, group: g });
  for (let n = 0; n < 4; n++) assert.equal((await p.produce(event, n)).delivered, 1);
  await exact.take(`CONSUME-${p.name}-${event}`, 4);
  assert.ok(await pattern.quiet(/^CONSUME-/));
});

scenario(38, 'with one member away all go to the other', async () => {
  const p = await producer(server);
  const {
    members: [stays, leaves],
  } = await group(p, ['e'], 2);
  await leaves.leave();
  for (let n = 0; n < 4; n++) await p.produce('e', n);
  await stays.take(`CONSUME-${p.name}-e`, 4);
  assert.deepEqual(bodies(stays), [0, 1, 2, 3]);
});

scenario(38, 'a durable group with everybody away: whoever returns first drains it', async () => {
  const p = await producer(server);
  const { name, members } = await group(p, ['e'], 2, { durable: true });
  for (const member of members) await member.leave();
  for (let n = 0; n < 4; n++) assert.equal((await p.produce('e', n)).queued, 1);
  const back = await consumer(server, members[1].name);
  assert.equal((await back.subscribe({ event: 'e', producer: p.name, group: name, durable: true })).queued, 4);
  await back.take(`CONSUME-${p.name}-e`, 4);
  assert.deepEqual(bodies(back), [0, 1, 2, 3]);
});

scenario(38, 'a member that goes gives what it had not acknowledged to the others', async () => {
  const p = await producer(server);
  const {
    members: [first, second],
  } = await group(p, ['e'], 2, { durable: true, ack: true });
  for (let n = 0; n < 6; n++) await p.produce('e', n);
  await first
    .when(() => (bodies(first).length + bodies(second).length >= 6 ? true : undefined), { what: 'six deliveries' })
    .catch(() => {});
  await Promise.all([first.sync(), second.sync()]);
  const held = bodies(first);
  assert.ok(held.length > 0 && bodies(second).length > 0, 'both hold some');
  await first.leave();
  await second.when(() => (held.every((n) => bodies(second).includes(n)) ? true : undefined), { what: 'the others messages' });
  for (const delivery of second.seen(/^CONSUME-/)) assert.equal((await second.ack(delivery.msgId)).ok, true);
});

scenario(39, 'a realm broadcast reaches members once a subscription, and under CONSUME-<Event>', async () => {
  const p = await producer(server);
  const event = `Notice${unique('')}`;
  const [bare, subscribed, anybody] = [await consumer(server), await consumer(server), await consumer(server)];
  await subscribed.subscribe({ event, producer: p.name });
  await anybody.subscribe({ event, producer: ANY });
  const outsider = await Client.websocket(server);
  await p.produce(event, 'all', { method: 'broadcast', broadcast: 'realm' });
  const body = { event, message: 'all', from: p.name };
  assert.deepEqual(await bare.next(`CONSUME-${event}`), body);
  assert.deepEqual(await subscribed.next(`CONSUME-${p.name}-${event}`.replace(event, event.toLowerCase())), body);
  assert.deepEqual(await anybody.next(`CONSUME-tyo-mq-all-${event.toLowerCase()}`), body);
  for (const [client, frames] of [
    [bare, 1],
    [subscribed, 2],
    [anybody, 2],
    [outsider, 0],
  ]) {
    await client.sync();
    assert.equal(client.seen(/CONSUME/).filter((delivery) => delivery.event === event).length, frames);
  }
  assert.deepEqual(await p.next(`CONSUME-${event}`), body);
});

scenario(40, 'a group broadcast reaches every member once on its own key, and no outsider', async () => {
  const p = await producer(server);
  const { name, members } = await group(p, ['mine'], 3);
  const outsider = await consumer(server);
  await outsider.subscribe({ event: 'mine', producer: p.name });
  await p.produce('other', 'hi', { method: 'broadcast', broadcast: 'group', group: name });
  for (const member of members) {
    assert.equal((await member.next(`CONSUME-${p.name}-mine`)).message, 'hi');
    assert.ok(await member.quiet(/CONSUME/, 50));
  }
  assert.ok(await outsider.quiet(/CONSUME/));
  assert.equal(outsider.seen(/CONSUME/).length, 0);
});

scenario(40, 'a group broadcast without a group is refused and reaches nobody', async () => {
  const p = await producer(server);
  const c = await consumer(server);
  await c.subscribe({ event: 'e', producer: p.name });
  const answer = await p.produce('e', 'no', { method: 'broadcast', broadcast: 'group' });
  assert.equal(answer.ok, false);
  p.emitEvent('PRODUCE', { event: 'e', message: 'no', from: p.name, method: 'broadcast', broadcast: 'group' });
  assert.equal((await p.next('ERROR')).code, -5);
  assert.ok(await c.quiet(/CONSUME/));
  assert.equal(c.seen(/CONSUME/).length, 0);
});
