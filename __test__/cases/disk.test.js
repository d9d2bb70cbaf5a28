// Case A05: a disk that is full, and has room again.
'use strict';
const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { pair, until } = require('../helpers/client');
const { numbered } = require('../helpers/scenario');
const { startServer } = require('../helpers/server');

const MIB = 1 << 20;

/** A small file system of its own, `{ folder, end() }`; null for who may not mount one. */
function smallDisk(size) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restante-disk-'));
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', folder]);
  const end = () => {
    if (mounted.status === 0) assert.equal(spawnSync('umount', [folder]).status, 0);
    fs.rmdirSync(folder);
  };
  if (mounted.status === 0) return { folder, end };
  end();
  return null;
}

numbered('A05', 'a full disk refuses messages and takes acks, then goes on by itself; a kill loses nothing confirmed (P2, P27)', async (t) => {
  const disk = smallDisk(40 * MIB);
  // Where everything is to be tested, this is too.
  if (disk === null && process.env.CI) assert.fail('only root may mount a small disk');
  if (disk === null) return t.diagnostic('only root may mount a small disk; the tests of the core limit the size of the file instead');
  const filler = path.join(disk.folder, 'filler');
  fs.writeFileSync(filler, Buffer.alloc(12 * MIB, 1));
  const server = await startServer({ storage: 'sqlite', storage_options: { filename: path.join(disk.folder, 'full.sqlite') } });
  t.after(async () => {
    await server.stop();
    disk.end();
  });
  const { p, c, again, name } = await pair(server, { durable: true, ack: true, prefetch: 5 });
  await c.leave();
  const body = 'x'.repeat(40_000);
  const waiting = [];
  let n = 0;
  const produce = async () => {
    const answer = await p.produce('e', [n, body]);
    if (answer.ok) waiting.push(n);
    else assert.equal(answer.error, 'store_full');
    n++;
    return answer.ok;
  };
  while (await produce());
  assert.ok(waiting.length > 100, `${waiting.length} found room`);

  let back = await again();
  const settle = async () => {
    const { message, msgId } = await back.next(name);
    assert.equal(message[0], waiting.shift());
    assert.equal((await back.ack(msgId)).ok, true);
  };
  for (let acks = 0; acks < 20; acks++) await settle();

  fs.rmSync(filler);
  await until(produce, 'it takes messages again');
  await server.restart();
  back = await again();
  assert.equal(back.subscribed.queued, waiting.length);
  while (waiting.length > 0) await settle();
});
