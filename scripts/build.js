#!/usr/bin/env node
'use strict';
// Builds the addon with cargo and puts it where node-binding/binding.js looks for it.
//   --dev     the same with symbols kept, for profiles (profile `profiling`)
//   --debug   the quickest build, slow to run
// Also installed as `restante-build`. Honours CARGO, CARGO_TARGET_DIR.
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const root = path.join(__dirname, '..');

/** The platform part of the file name, as the loader spells it. */
function triple() {
  const { platform, arch } = process;
  if (platform === 'linux') {
    const glibc = process.report?.getReport().header.glibcVersionRuntime;
    return `linux-${arch}-${glibc ? 'gnu' : 'musl'}`;
  }
  return platform === 'win32' ? `win32-${arch}-msvc` : `${platform}-${arch}`;
}

/** The file that cargo makes. */
function library(directory) {
  const names = { darwin: 'librestante_node.dylib', win32: 'restante_node.dll' };
  return path.join(directory, names[process.platform] ?? 'librestante_node.so');
}

function build({ profile = 'release' } = {}) {
  const cargo = process.env.CARGO || 'cargo';
  const args = ['build', '--locked', '--package', 'restante-node', '--profile', profile];
  const run = spawnSync(cargo, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
  if (run.error) {
    throw new Error(
      run.error.code === 'ENOENT'
        ? 'restante: no prebuilt addon fits this platform, and `cargo` was not found to build one.\n' +
          'Install Rust (https://rustup.rs), then run `npx restante-build`.'
        : `restante: could not run ${cargo}: ${run.error.message}`,
    );
  }
  if (run.status !== 0) throw new Error(`restante: cargo ended with ${run.signal ?? run.status}, see above`);

  const target = path.resolve(root, process.env.CARGO_TARGET_DIR || 'target');
  const from = library(path.join(target, profile === 'dev' ? 'debug' : profile));
  const to = path.join(root, 'node-binding', `restante.${triple()}.node`);
  if (same(from, to)) return to;
  // A running process may have the old file mapped: never write into it, replace it.
  const half = `${to}.${process.pid}.tmp`;
  fs.copyFileSync(from, half);
  fs.renameSync(half, to);
  return to;
}

/** Whether the copy is already that build: same size, and not older. */
function same(from, to) {
  const [a, b] = [from, to].map((file) => fs.statSync(file, { throwIfNoEntry: false }));
  return Boolean(a && b) && a.size === b.size && a.mtimeMs <= b.mtimeMs;
}

module.exports = { build, triple };

if (require.main === module) {
  try {
    const profile = { '--dev': 'profiling', '--debug': 'dev' }[process.argv[2]];
    console.log(path.relative(process.cwd(), build({ profile })));
  } catch (error) {
    console.error(error.message);
    process.exit(1);
  }
}
