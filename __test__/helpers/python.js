// The Python side of the interop tests: a virtual environment in the repository's folder with
// python-socketio, made on first use. Fails, with what pip said, when it cannot be made.
'use strict';
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { root } = require('./server');

const PACKAGES = ['python-socketio>=5.11,<6', 'requests>=2.31,<3', 'websocket-client>=1.7,<2', 'aiohttp>=3.9,<4'];
const venv = path.join(root, '.venv');
const ready = path.join(venv, '.packages');

/** Path of the interpreter, with everything installed. */
function python() {
  const interpreter = path.join(venv, 'bin/python');
  const wanted = PACKAGES.join('\n');
  if (fs.existsSync(ready) && fs.readFileSync(ready, 'utf8') === wanted) return interpreter;
  const run = (command, ...args) => execFileSync(command, args, { stdio: ['ignore', process.stderr, process.stderr] });
  run('python3', '-m', 'venv', venv);
  run(interpreter, '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', ...PACKAGES);
  fs.writeFileSync(ready, wanted);
  return interpreter;
}

const script = (name) => path.join(root, '__test__/interop', name);

module.exports = { python, script };

if (require.main === module) python();
