// Starts the real server, the `restante` binary, for a test file. Knows nothing of the wire.
'use strict';
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { deadline } = require('./client');

const root = path.resolve(__dirname, '../..');

/** The binary that is tested: RESTANTE_BIN, else the newest of the release and debug builds. */
function binary() {
  if (process.env.RESTANTE_BIN) return process.env.RESTANTE_BIN;
  const built = ['release', 'debug'].map((profile) => path.join(root, 'target', profile, 'restante')).filter((file) => fs.existsSync(file));
  if (built.length === 0) throw new Error('no restante binary: cargo build -p restante --bin restante');
  return built.sort((a, b) => fs.statSync(b).mtimeMs - fs.statSync(a).mtimeMs)[0];
}

class Server {
  /**
   * `restante serve` with options as `new Server(options)` takes them; in memory if they say nothing. `env` and `args` are
   * added to its environment and flags, `keeps` is how much of what it says stays in `said`, `secure` that clients use TLS.
   */
  constructor(options, { env = {}, args = [], keeps = 20_000, secure = false } = {}) {
    this.options = { storage: 'memory', ...options };
    Object.assign(this, { env, args, keeps, secure });
  }

  /** Starts it, on a port that it chooses. */
  async start() {
    const args = ['serve', '--port', '0', '--host', '127.0.0.1', '--options', JSON.stringify(this.options), ...this.args];
    const child = spawn(binary(), args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, NO_COLOR: '1', ...this.env } });
    this.child = child;
    this.pid = child.pid;
    this.said = '';
    this.ended = null;
    const note = (data) => {
      this.said = (this.said + data).slice(-this.keeps);
      child.emit('said');
    };
    child.stdout.on('data', note);
    child.stderr.on('data', note);
    this.exited = new Promise((resolve) => {
      child.once('exit', (code, signal) => {
        this.ended = { code, signal };
        resolve(this.ended);
      });
      child.once('error', (error) => {
        this.said += error.message;
        this.ended ??= { error };
        resolve(this.ended);
      });
    });
    const port = () => /listening on 127\.0\.0\.1:(\d+)/.exec(this.said)?.[1];
    const listening = new Promise((resolve, reject) => {
      child.on('said', () => port() && resolve());
      this.exited.then((ended) => reject(new Error(`the server ended: ${JSON.stringify(ended)}\n${this.said}`)));
    });
    await deadline(listening, 10_000, () => `the server says where it listens; it said: ${this.said}`);
    this.port = Number(port());
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Stops it; fails when it had already ended or does not end properly. */
  async stop() {
    if (this.ended) throw new Error(`the server had ended: ${JSON.stringify(this.ended)}\n${this.said}`);
    this.child.kill('SIGTERM');
    const kill = setTimeout(() => this.child.kill('SIGKILL'), 10_000);
    const ended = await this.exited;
    clearTimeout(kill);
    if (ended.code !== 0) throw new Error(`the server ended with ${JSON.stringify(ended)}\n${this.said}`);
  }

  /** Ends it without a warning. */
  async kill() {
    this.child.kill('SIGKILL');
    await this.exited;
  }

  /** Killed, and started again on what it left. */
  async restart() {
    await this.kill();
    await this.start();
  }

  /** Resident memory in KiB. */
  resident() {
    return Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${this.pid}/status`, 'utf8'))[1]);
  }
}

async function startServer(options, more) {
  const server = new Server(options, more);
  await server.start();
  return server;
}

module.exports = { startServer, binary, root };
