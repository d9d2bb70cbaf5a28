'use strict';
// The generated loader node-binding/binding.{js,d.ts} is committed, so that an install needs no CLI.
//   node scripts/binding.js           generates it again (maintainers; runs @napi-rs/cli through npx)
//   node scripts/binding.js --check   fails if it does not name exactly what the built addon exports
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { triple } = require('./build.js');

const root = path.join(__dirname, '..');
const folder = path.join(root, 'node-binding');
const CLI = '@napi-rs/cli@3';

function generate() {
  const args = ['--yes', '--package', CLI, 'napi', 'build', '--platform', '--profile', 'profiling', '--package', 'restante-node',
    '--manifest-path', 'node-binding/Cargo.toml', '--output-dir', 'node-binding', '--js', 'binding.js', '--dts', 'binding.d.ts'];
  return spawnSync('npx', args, { cwd: root, stdio: 'inherit' }).status ?? 1;
}

function check() {
  const built = Object.keys(require(path.join(folder, `restante.${triple()}.node`))).sort();
  const named = (file, pattern) =>
    [...fs.readFileSync(path.join(folder, file), 'utf8').matchAll(pattern)].map((match) => match[1])
      .filter((name) => name !== '__napiBindingTarget').sort();
  const lists = {
    'binding.js': named('binding.js', /^module\.exports\.(\w+) =/gm),
    'binding.d.ts': named('binding.d.ts', /^export declare (?:function|const|class) (\w+)/gm).filter((name) => name !== 'ExternalObject'),
  };
  let stale = 0;
  for (const [file, names] of Object.entries(lists)) {
    const differ = [...built.filter((n) => !names.includes(n)), ...names.filter((n) => !built.includes(n))];
    if (differ.length > 0) {
      console.error(`node-binding/${file} is not current (${differ.join(', ')}): run npm run build:binding`);
      stale = 1;
    }
  }
  return stale;
}

process.exit(process.argv.includes('--check') ? check() : generate());
