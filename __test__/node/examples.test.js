'use strict';
// The examples run as they stand, and say what they should.
const assert = require('node:assert/strict');
const { spawn, spawnSync } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');

const root = path.join(__dirname, '..', '..');
const EXPECTED = {
  hello: /^world says hello to you$/m,
  durable: /billing order 1\nbilling order 2\nbilling order 3\n$/,
  workers: /did job 5 at the second attempt/,
  realms: /^acme's billing got order 1; delivered: 1\nbilling is out: unauthenticated\nand stays out: unauthenticated\n$/,
'custom-store': /billing order 1\nbilling order 2\nrows left: 0\n$/,
  demo: /orders that still wait: 0; handled: 10; handled twice: 0\n$/,
};

for (const [name, said] of Object.entries(EXPECTED)) {
  test(`examples/node/${name}.js`, () => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [path.join(root, 'examples', 'node', `${name}.js`)], { encoding: 'utf8', timeout: 60_000 });
    assert.equal(status, 0, stderr);
    assert.match(stdout, said);
  });
}

test('README begins with an example that runs', () => {
  const readme = fs.readFileSync(path.join(root, 'README.md'), 'utf8');
  const example = fs.readFileSync(path.join(root, 'examples', 'node', 'durable.js'), 'utf8');
  const body = example.slice(example.indexOf('const '));
  assert.ok(readme.includes(`\`\`\`js\n${body}\`\`\``));
});

test('the command: its help, a wrong argument, and a broker that ends by a signal', async () => {
  const command = path.join(root, 'bin', 'restante.js');
  const run = (...args) => spawnSync(process.execPath, [command, ...args], { encoding: 'utf8', timeout: 20_000 });
  assert.match(run('--help').stdout, /usage: restante serve/);
  assert.match(run('--version').stdout, /^\d+\.\d+\.\d+\n$/);
  for (const args of [[], ['srve'], ['serve', '--prot', '1'], ['serve', '--options', '{']]) assert.equal(run(...args).status, 2, args.join(' '));
  const { status, stderr } = run('serve', '--port', '0', '--storage', 'redis', '--url', 'redis://127.0.0.1:1');
  assert.equal(status, 1);
  assert.match(stderr, /127\.0\.0\.1:1\b/);

  const serving = spawn(process.execPath, [command, 'serve', '--port', '0', '--host', '127.0.0.1', '--storage', 'memory', '--options', '{"max_queued": 5}'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [said] = await once(serving.stdout, 'data');
  assert.match(String(said), /listening on 127\.0\.0\.1:\d+/);
  serving.kill('SIGTERM');
  assert.deepEqual(await once(serving, 'exit'), [0, null]);
});
