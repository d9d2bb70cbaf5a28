'use strict';
// A failure to load names its true cause and the next step (P36).
const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { newFolder } = require('../helpers/folder');
const { triple } = require('../../scripts/build.js');

const root = path.join(__dirname, '..', '..');
const addon = `restante.${triple()}.node`;

/** What `require` says of a copy of the package whose addon `spoil(file)` has spoilt. */
function load(spoil) {
  const copy = newFolder();
  fs.cpSync(path.join(root, 'lib'), path.join(copy, 'lib'), { recursive: true });
  fs.mkdirSync(path.join(copy, 'node-binding'));
  for (const file of ['index.js', 'package.json', 'node-binding/binding.js', `node-binding/${addon}`]) fs.copyFileSync(path.join(root, file), path.join(copy, file));
  spoil(path.join(copy, 'node-binding', addon), copy);
  const script = 'try { require(process.argv[1]); console.log("loaded"); } catch (error) { console.log(JSON.stringify([error.code, error.message])); }';
  const { stdout } = spawnSync(process.execPath, ['-e', script, copy], { encoding: 'utf8' });
  return stdout.trim();
}

test('an unspoilt copy loads', (t) => {
  assert.equal(load(() => {}), 'loaded');
});

for (const [what, spoil, cause] of [
  ['no addon', (file) => fs.rmSync(file), /does not load: Cannot find module/],
  ['a damaged addon', (file) => fs.writeFileSync(file, 'not a library'), /does not load: .*(invalid ELF header|file too short|not a mach-o|not a valid Win32)/i],
  ['an addon of another version', (_, copy) => {
    const file = path.join(copy, 'package.json');
    fs.writeFileSync(file, fs.readFileSync(file, 'utf8').replace('"version": "', '"version": "9'));
  }, /was built from version \d.*, this is 9/],
]) {
  test(`${what}: the error says so, and what to do`, (t) => {
    const [code, message] = JSON.parse(load(spoil));
    assert.equal(code, 'addon_unavailable');
    assert.match(message, cause);
    assert.match(message, /npx restante-build/);
    assert.match(message, /npm rebuild restante/);
    assert.doesNotMatch(message, /wasm/);
  });
}
