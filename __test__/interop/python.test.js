// Scenario 8 with stock python-socketio, websocket and long polling: the checks are in client.py.
'use strict';
const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { test, before, after } = require('node:test');
const { startServer } = require('../helpers/server');
const { python, script } = require('../helpers/python');
const { unique } = require('../helpers/client');

let server;
before(async () => {
  server = await startServer();
});
after(() => server.stop());

/** Runs client.py; what it printed, line by line. Fails when it ends with a traceback. */
function run(...args) {
  return new Promise((resolve, reject) => {
    const child = spawn(python(), [script('client.py'), String(server.port), ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    let [out, err] = ['', ''];
    child.stdout.on('data', (data) => {
      out += data;
    });
    child.stderr.on('data', (data) => {
      err += data;
    });
    const timer = setTimeout(() => child.kill('SIGKILL'), 150_000);
    child.once('exit', (code) => {
      clearTimeout(timer);
      if (code === 0) resolve(out.trim().split('\n'));
      else reject(new Error(`client.py ${args.join(' ')} ended with ${code}\n${out}${err}`));
    });
  });
}

const CHECKS = ['subscriptions', 'acknowledge', 'large', 'binary', 'backlog', 'awareness'];

for (const transport of ['websocket', 'polling']) {
  for (const check of CHECKS) {
    test(`scenario 8: python-socketio over ${transport}: ${check}`, { timeout: 180_000 }, async () => {
      assert.deepEqual(await run(transport, check, unique('py')), ['ok']);
    });
  }
}
