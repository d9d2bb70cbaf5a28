// A redis-server of a test or of several: on a free port, in a folder of its own. Needs `redis-server` on the path.
'use strict';
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const readline = require('node:readline');

async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/** `{ url, stop(), start(), close() }`: `stop` kills it, `close` removes its folder too. */
async function redisServer(...options) {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'restante-redis-'));
  const port = await freePort();
  let child = null;
  const redis = {
    url: `redis://127.0.0.1:${port}`,
    async start() {
      const args = ['--port', port, '--bind', '127.0.0.1', '--dir', dir, '--save', '', ...options].map(String);
      child = spawn('redis-server', args, { stdio: ['ignore', 'pipe', 'inherit'] });
      const lines = readline.createInterface({ input: child.stdout });
      const said = [];
      for await (const line of lines) {
        said.push(line);
        if (/eady to accept connections/.test(line)) break;
      }
      if (child.exitCode !== null) throw new Error(`redis-server did not start:\n${said.join('\n')}`);
      child.stdout.resume();
    },
    async stop() {
      if (child === null) return;
      const gone = once(child, 'exit');
      child.kill('SIGKILL');
      child = null;
      await gone;
    },
    async close() {
      await redis.stop();
      fs.rmSync(dir, { recursive: true });
    },
  };
  await redis.start();
  return redis;
}

/** One that is gone after the test. */
async function startRedis(t, ...options) {
  const redis = await redisServer(...options);
  t.after(() => redis.close());
  return redis;
}

module.exports = { redisServer, startRedis };
