// Scenarios 41 to 44: messages cut in pieces, both ways.
'use strict';
const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { chunked, pair, producer, sendChunks: send, unique, deadline } = require('../helpers/client');
const { scenario, sharedServer, long, sleep } = require('../helpers/scenario');
const { python, script } = require('../helpers/python');

const server = sharedServer();
const UNITS = 262_144;

for (const [size, bytes] of [
  ['300 kB', 300_000],
  ['2 MiB', 2 * 1024 * 1024],
]) {
  for (const [form, deliver] of [
    ['one frame', (p, message) => p.produce('e', message)],
    ['chunks', (p, message) => send(p, chunked({ event: 'e', message, from: p.name }))],
  ]) {
    scenario(41, `${size} sent as ${form} arrive whole, in frames of at most ${UNITS} units`, async () => {
      const { p, c, name } = await pair(server);
      const message = { text: '0123456789ü'.repeat(bytes / 11), n: 1 };
      const answer = await deliver(p, message);
      assert.equal(answer.ok, true, JSON.stringify(answer));
      assert.deepEqual((await c.next(name)).message, message);
      assert.ok(c.chunks.length >= 2, 'it came in chunks');
      c.chunks.forEach(({ event, index, total, data, transferId }, at) => {
        assert.equal(event, name);
        assert.equal(index, at);
        assert.equal(total, c.chunks.length);
        assert.equal(typeof transferId, 'string');
        assert.ok(data.length <= UNITS);
      });
    });
  }
}

scenario(41, 'chunks carry msgId and attempt of an acknowledged delivery', async () => {
  const { p, c, name } = await pair(server, { durable: true, ack: true });
  await p.produce('e', 'x'.repeat(400_000));
  const delivery = await c.next(name);
  assert.equal(delivery.delivery_attempt, 1);
  assert.equal((await c.ack(delivery.msgId)).ok, true);
});

scenario(41, 'order holds between small messages and chunked ones', async () => {
  const { p, c, name } = await pair(server);
  for (let n = 0; n < 6; n++) {
    const produce = { event: 'e', message: [n, n % 2 ? 'x'.repeat(300_000) : ''], from: p.name };
    if (n % 2) for (const chunk of chunked(produce)) p.emitEvent('PRODUCE_CHUNK', chunk);
    else p.emitEvent('PRODUCE', produce);
  }
  const got = await c.take(name, 6);
  assert.deepEqual(
    got.map(({ message }) => message[0]),
    [0, 1, 2, 3, 4, 5],
  );
});

scenario(42, 'chunks in reverse order assemble', async () => {
  const { p, c, name } = await pair(server);
  const message = Array.from({ length: 60_000 }, (_, n) => `item ${n}`).join();
  assert.equal((await send(p, chunked({ event: 'e', message, from: p.name }, 100_000).reverse())).ok, true);
  assert.equal((await c.next(name)).message, message);
});

scenario(42, 'a chunk that comes twice neither breaks nor shortens the message', async () => {
  const { p, c, name } = await pair(server);
  const message = Array.from({ length: 60_000 }, (_, n) => `item ${n}`).join();
  const chunks = chunked({ event: 'e', message, from: p.name }, 100_000);
  p.emitEvent('PRODUCE_CHUNK', chunks[0]);
  p.emitEvent('PRODUCE_CHUNK', chunks[1]);
  assert.equal((await send(p, chunks)).ok, true);
  assert.equal((await c.next(name)).message, message);
  assert.ok(await c.quiet(name));
});

const emoji = '😀🚀é'.repeat(80_000);

scenario(43, 'a message cut inside a surrogate pair arrives intact, and our own cuts split none', async () => {
  const { p, c, name } = await pair(server);
  for (const shift of ['', 'x', 'xx', 'xxx']) {
    const message = shift + emoji;
    const chunks = chunked({ event: 'e', message, from: p.name });
    assert.equal((await send(p, chunks)).ok, true);
    assert.equal((await c.next(name)).message, message);
  }
  for (const { data } of c.chunks) {
    assert.ok(!/^[\udc00-\udfff]/.test(data) && !/[\ud800-\udbff]$/.test(data), 'a cut split a pair');
    assert.ok(data.length <= UNITS);
  }
});

scenario(43, 'a Python consumer gets the same text', async (t) => {
  const p = await producer(server);
  const name = unique('c');
  const child = spawn(python(), [script('consume.py'), String(server.port), name, p.name, 'e'], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill());
  let said = '';
  const line = (test) =>
    deadline(
      new Promise((resolve, reject) => {
        const look = () => {
          const found = said.split('\n').slice(0, -1).find(test);
          if (found) resolve(found);
        };
        child.stdout.on('data', look);
        child.once('exit', (code) => reject(new Error(`python ended with ${code}`)));
        look();
      }),
      20_000,
      'a line from python',
    );
  child.stdout.on('data', (data) => {
    said += data;
  });
  await line((text) => text === 'subscribed');
  await send(p, chunked({ event: 'e', message: `x${emoji}`, from: p.name }));
  const report = await line((text) => text.startsWith('{'));
  const crypto = require('node:crypto');
  const sha256 = crypto.createHash('sha256').update(`x${emoji}`).digest('hex');
  assert.deepEqual(JSON.parse(report), { sha256, characters: [...`x${emoji}`].length });
});

for (const [what, chunks] of [
  ['a total of 0', [{ index: 0, total: 0, data: 'x' }]],
  ['a total of -1', [{ index: 0, total: -1, data: 'x' }]],
  ['a total of 1e9', [{ index: 0, total: 1e9, data: 'x' }]],
  ['a total of 4097', [{ index: 0, total: 4097, data: 'x' }]],
  ['a total that is no integer', [{ index: 0, total: 1.5, data: 'x' }]],
  ['a total that is text', [{ index: 0, total: 'two', data: 'x' }]],
  ['an index out of range', [{ index: 2, total: 2, data: 'x' }]],
  ['a negative index', [{ index: -1, total: 2, data: 'x' }]],
  [
    'a total that changes',
    [
      { index: 0, total: 2, data: 'x' },
      { index: 1, total: 3, data: 'y' },
    ],
  ],
  ['data that is no text', [{ index: 0, total: 2, data: 7 }]],
  [
    'pieces that are no JSON together',
    [
      { index: 0, total: 2, data: '{"a' },
      { index: 1, total: 2, data: 'b' },
    ],
  ],
  [
    'a joined text that is no PRODUCE',
    [
      { index: 0, total: 2, data: '[1,' },
      { index: 1, total: 2, data: '2]' },
    ],
  ],
]) {
  scenario(44, `${what} is an ERROR, and the connection stays`, async () => {
    const { p, c, name } = await pair(server);
    const transferId = unique('x');
    for (const chunk of chunks) p.emitEvent('PRODUCE_CHUNK', { transferId, ...chunk });
    const { code } = await p.next('ERROR');
    assert.ok(code === -7 || code === -5, `code ${code}`);
    assert.equal((await send(p, chunked({ event: 'e', message: 'x'.repeat(300_000), from: p.name }))).ok, true);
    await c.next(name);
  });
}

scenario(44, 'a seventeenth open transfer is refused; the sixteen go on', async () => {
  const { p, c, name } = await pair(server);
  const all = Array.from({ length: 17 }, (_, n) => chunked({ event: 'e', message: [n, 'x'.repeat(200)], from: p.name }, 100));
  for (const chunks of all) p.emitEvent('PRODUCE_CHUNK', chunks[0]);
  assert.equal((await p.next('ERROR')).code, -7);
  await p.sync();
  assert.equal(p.seen('ERROR').length, 1);
  for (const chunks of all) for (const chunk of chunks.slice(1)) p.emitEvent('PRODUCE_CHUNK', chunk);
  await p.sync();
  await c.when(() => (c.seen(name).length >= 16 ? true : undefined), { what: '16 messages' });
  assert.equal(c.seen(name).length, 16);
});

if (long) {
  scenario(44, 'a transfer that is idle for 31 s is dropped', async () => {
    const { p } = await pair(server);
    p.emitEvent('PRODUCE_CHUNK', { transferId: unique('x'), index: 0, total: 2, data: '{' });
    await sleep(31_000);
    assert.equal((await p.next('ERROR')).code, -7);
    await p.sync();
  });
}
