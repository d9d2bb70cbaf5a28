'use strict';
// `restante store …` of the package: streams, exit codes, a store in use.
const assert = require('node:assert/strict');
const { spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { newFolder } = require('../helpers/folder');
const { startServer, inbox, until } = require('./helpers');

const command = path.join(__dirname, '..', '..', 'bin', 'restante.js');

const store = (args, input = '') => spawnSync(process.execPath, [command, 'store', ...args], { input, encoding: 'utf8', timeout: 60_000, maxBuffer: 1 << 28 });

test('a store goes through lines of text into another one, and is served from there', async (t) => {
  const made = newFolder();
  const [one, other] = ['one.sqlite', 'other.sqlite'].map((name) => path.join(made, name));
  const first = await startServer(t, { storage: 'sqlite', storage_options: { filename: one } });
  const away = await first.consumer('billing');
  await away.subscribe('paid', () => {}, { durable: true, ack: true });
  await away.close();
  const producer = await first.producer('orders');
  const bytes = Buffer.from([0, 1, 255]);
  for (const n of [1, 2, 3]) await producer.produce('paid', { n, bytes }, { confirm: true });
  const inUse = store(['export', '--file', one]);
  assert.deepEqual([inUse.status, inUse.stdout], [1, '']);
  assert.match(inUse.stderr, new RegExp(`process ${process.pid} uses it`));
  await first.server.stop();

  const lines = store(['export', '--file', one]).stdout;
  assert.match(lines, /^\{"restante":"store","version":1\}\n/);
  const cut = store(['import', '--file', other], lines.slice(0, lines.length / 2));
  assert.equal(cut.status, 1);
  assert.match(cut.stderr, /line \d+:/);
  const taken = store(['import', '--file', other, '--json'], lines);
  assert.deepEqual([taken.status, JSON.parse(taken.stdout).messages], [0, 3]);
  assert.equal(store(['export', '--filename', other]).stdout, lines);
  const stats = JSON.parse(store(['stats', '--filename', other, '--json']).stdout);
  assert.deepEqual([stats.messages, stats.queues.map(({ name, waiting }) => [name, waiting])], [3, [['billing', 3]]]);

  const second = await startServer(t, { storage: 'sqlite', storage_options: { filename: other } });
  const back = await second.consumer('billing');
  const box = inbox();
  await back.subscribe('paid', box.handler, { durable: true, ack: true });
  await box.grown(3);
  assert.deepEqual(box.messages().map(({ n }) => n), [1, 2, 3]);
  assert.deepEqual(box.messages()[0].bytes, bytes);
});

test('what is wrong is wrong usage, and leaves no file', (t) => {
  const cwd = newFolder();
  const run = (...args) => spawnSync(process.execPath, [command, ...args], { cwd, input: '', encoding: 'utf8', timeout: 60_000 });
  const bogus = run('store', 'import', '--file', 'q.sqlite', '--from', 'bogus', 'x');
  assert.deepEqual([bogus.status, fs.readdirSync(cwd)], [2, []]);
  for (const wrong of ['--grace=soon', '--grace=-1', '--threads=x']) assert.equal(run('serve', '--port', '0', '--storage', 'memory', wrong).status, 2, wrong);
  assert.deepEqual([run('store', 'import', '--file', 'q.sqlite').status, fs.readdirSync(cwd)], [1, []]);
});

test('serve tells what its store does not read, and stops within its grace', async (t) => {
  const cwd = newFolder();
  const args = ['serve', '--host', '127.0.0.1', '--port', '0', '--storage', 'memory', '--filename', 'q.sqlite', '--grace', '2s', '--threads', '1'];
  const child = spawn(process.execPath, [command, ...args], { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  t.after(() => child.kill('SIGKILL'));
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (said += data));
  await until(() => /listening on/.test(said), () => said);
  const ended = new Promise((resolve) => child.once('close', resolve));
  child.kill('SIGTERM');
  assert.equal(await ended, 0, said);
  assert.equal(said.match(/option storage_options\.filename is unknown and ignored/g)?.length, 1, said);
  assert.deepEqual(fs.readdirSync(cwd), []);
});

test('damage and failure have codes of their own', (t) => {
  const file = path.join(newFolder(), 'notes.sqlite');
  fs.writeFileSync(file, 'these are notes\n'.repeat(900));
  const check = store(['check', '--file', file, '--json']);
  assert.deepEqual([check.status, JSON.parse(check.stdout).ok], [1, false]);
  for (const wrong of [['what'], ['import', '--from', 'tyo-mq-sqlite'], ['check', 'file'], ['stats', '--port', '1'], ['export', '--from', 'x', 'y']]) {
    assert.equal(store(wrong).status, 2, wrong.join(' '));
  }
  const none = store(['stats', '--storage', 'memory']);
  assert.equal(none.status, 1);
  assert.match(none.stderr, /in memory ends with its broker/);
});
