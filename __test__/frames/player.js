// Plays a frame sequence against a server; see README.md. Answers pings, as every client does.
'use strict';
const assert = require('node:assert/strict');
const { Client, request, unique } = require('../helpers/client');

const HTTP = { 'content-type': 'text/plain;charset=UTF-8' };
const filler = (count) => 'x'.repeat(count);

class Player {
  constructor(server, script) {
    this.server = server;
    this.script = script;
    this.kept = { consumer: unique('c'), producer: unique('p'), nonce: unique('n') };
    this.sessions = {};
  }

  fill(text) {
    return text.replace(/\{\{fill:(\d+)\}\}/g, (_, count) => filler(Number(count))).replace(/\{\{(\w+)\}\}/g, (_, name) => this.kept[name]);
  }

  /** Matches `text` against a template and keeps what stands at `<<name>>`. */
  match(template, text) {
    const names = [];
    const escaped = this.fill(template)
      .split(/<<(\w+)>>/)
      .map((part, at) => {
        if (at % 2 === 0) return part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
        names.push(part);
        return '(.+)';
      });
    const found = new RegExp(`^${escaped.join('')}$`, 's').exec(text);
    if (!found) return false;
    names.forEach((name, at) => {
      this.kept[name] = found[at + 1];
    });
    return true;
  }

  async play() {
    try {
      for (const [number, step] of this.script.steps.entries()) {
        try {
          await this.step(step);
        } catch (error) {
          error.message = `step ${number + 1} ${JSON.stringify(step).slice(0, 200)}: ${error.message}`;
          throw error;
        }
      }
    } finally {
      for (const { client } of Object.values(this.sessions)) client?.link?.cut();
    }
  }

  async step(step) {
    if (step.barrier) return Promise.all(step.barrier.map((name) => this.sessions[name].client.sync()));
    const session = (this.sessions[step.as] ??= {});
    const kind = ['get', 'post', 'poll', 'hang', 'hung', 'websocket', 'send', 'sendBinary', 'event', 'chunked', 'drop', 'expect'].find(
      (name) => step[name] !== undefined,
    );
    return this[kind](session, step);
  }

  async get(session, step) {
    const answer = await request(this.server, this.fill(step.get));
    assert.equal(answer.status, 200);
    assert.ok(this.match(step.expect, answer.body.toString()), `got ${answer.body}`);
    if (step.sid) session.sid = this.kept.sid = JSON.parse(answer.body.toString().slice(1)).sid;
  }

  path(session, query) {
    return `/socket.io/?EIO=4&transport=polling${this.fill(query)}&sid=${session.sid}`;
  }

  async post(session, step) {
    const answer = await request(this.server, this.path(session, step.post), { method: 'POST', body: step.body, headers: HTTP });
    assert.deepEqual([answer.status, answer.body.toString()], [200, 'ok']);
  }

  async poll(session, step) {
    const answer = await request(this.server, this.path(session, step.poll));
    assert.ok(this.match(step.expect, answer.body.toString()), `got ${answer.body}`);
  }

  hang(session, step) {
    session.hanging = request(this.server, this.path(session, step.hang));
  }

  async hung(session, step) {
    assert.equal((await session.hanging).body.toString(), step.hung);
  }

  async websocket(session, step) {
    const { WebSocket } = require('../helpers/websocket');
    const client = (session.client = new Client());
    session.read = 0;
    client.autoAssemble = false;
    client.adopt(await WebSocket.open({ port: this.server.port, path: this.fill(step.websocket), headers: step.headers }));
    assert.doesNotMatch(client.link.head, /sec-websocket-extensions/i, 'compression must be declined');
    client.link.on('control', (opcode) => {
      if (opcode === 9) session.fault = 'the server sent a websocket ping';
    });
    if (step.as !== 'consumer') return;
    const { textOnly, maxFrame = Infinity } = this.script;
    client.link.on('binary', () => {
      if (textOnly) session.fault = 'the server sent a binary frame';
    });
    client.link.on('text', (text) => {
      if (Buffer.byteLength(text) >= maxFrame) session.fault = `a frame of ${text.length} units`;
    });
  }

  send({ client }, step) {
    client.send(this.fill(step.send));
  }

  sendBinary({ client }, step) {
    client.link.binary(Buffer.from(step.sendBinary, 'hex'));
  }

  async expect(session, step) {
    const packet = await session.client.when(() => session.client.packets[session.read], { what: step.expect });
    session.read++;
    assert.ok(this.match(step.expect, packet), `got ${packet}`);
  }

  async event(session, step) {
    const { client } = session;
    const found = await client.when(() => client.events.find((event) => !event.taken && this.match(step.event, event.name)), {
      what: this.fill(step.event),
    });
    found.taken = true;
    this.compare(step.fields, found.args[0]);
    assert.equal(session.fault, undefined);
  }

  async chunked(session, step) {
    const { client } = session;
    const name = this.fill(step.chunked);
    const pieces = () => client.events.filter((event) => !event.taken && event.name === 'CONSUME_CHUNK' && event.args[0].event === name);
    const all = await client.when(() => (pieces().length > 0 && pieces().length === pieces()[0].args[0].total ? pieces() : undefined), {
      timeout: 15_000,
      what: `chunks of ${name}`,
    });
    all.forEach((event, at) => {
      event.taken = true;
      const { index, data } = event.args[0];
      assert.equal(index, at);
      assert.ok(data.length <= 262_144);
    });
    this.compare(step.fields, JSON.parse(all.map((event) => event.args[0].data).join('')));
    assert.equal(session.fault, undefined);
  }

  compare(wanted, got) {
    if (typeof wanted === 'string') {
      if (wanted.startsWith('hex:')) return assert.deepEqual(got, Buffer.from(wanted.slice(4), 'hex'));
      if (wanted.startsWith('fill:')) return assert.ok(got === filler(Number(wanted.slice(5))), 'the filling differs');
      assert.equal(typeof got, 'string');
      return assert.ok(this.match(wanted, got), `${got} instead of ${this.fill(wanted)}`);
    }
    if (wanted === null || typeof wanted !== 'object' || Array.isArray(wanted)) {
      return assert.deepEqual(
        got,
        Array.isArray(wanted) ? wanted.map((item) => (typeof item === 'string' ? this.fill(item) : item)) : wanted,
      );
    }
    for (const [name, value] of Object.entries(wanted)) this.compare(value, got[name]);
  }

  async drop({ client }, step) {
    await (step.drop === 'close' ? client.leave() : client.cut());
  }
}

module.exports = { Player };
