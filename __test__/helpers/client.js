// A raw Socket.IO 5 client over websocket or long polling: frames in, frames out, nothing restored
// and nothing assumed. Scenario tests speak to the server through it alone.
'use strict';
const http = require('node:http');
const { EventEmitter } = require('node:events');
const { setTimeout: sleep } = require('node:timers/promises');
const { WebSocket } = require('./websocket');

/** How long an event may take before its test fails. */
const PATIENCE = 5000;

/** Names that no other test uses. */
let minted = 0;
const unique = (stem) => `${stem}${process.pid.toString(36)}x${(++minted).toString(36)}`;

function deadline(promise, ms, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${ms} ms: ${typeof what === 'function' ? what() : what}`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Resolves when `find()` is truthy, with what it found. */
async function until(find, what, patience = 10_000) {
  const end = performance.now() + patience;
  for (;;) {
    const found = await find();
    if (found) return found;
    if (performance.now() > end) throw new Error(`waited ${patience} ms for ${typeof what === 'function' ? what() : what}`);
    await sleep(5);
  }
}

/** Puts binary attachments back in the place of their placeholders. */
function revive(value, attachments) {
  if (Array.isArray(value)) return value.map((item) => revive(item, attachments));
  if (value === null || typeof value !== 'object') return value;
  if (value._placeholder === true) return attachments[value.num];
  for (const key of Object.keys(value)) value[key] = revive(value[key], attachments);
  return value;
}

/** Takes Buffers out of a payload: `{ payload, attachments }`. */
function deconstruct(value, attachments = []) {
  const walk = (item) => {
    if (Buffer.isBuffer(item)) return { _placeholder: true, num: attachments.push(item) - 1 };
    if (Array.isArray(item)) return item.map(walk);
    if (item && typeof item === 'object') return Object.fromEntries(Object.entries(item).map(([k, v]) => [k, walk(v)]));
    return item;
  };
  return { payload: walk(value), attachments };
}

/** The default namespace of one connection. Everything received is kept in `packets` and `events`. */
class Client extends EventEmitter {
  constructor() {
    super();
    this.setMaxListeners(0);
    this.packets = [];
    /** `{ name, args, taken }` in order of arrival. */
    this.events = [];
    this.replies = new Map();
    this.lastReply = 0;
    this.transfers = new Map();
    this.chunks = [];
    this.autoPong = true;
    this.autoAssemble = true;
    this.closed = new Promise((resolve) => this.once('close', resolve));
    this.isClosed = false;
  }

  /** Opens a websocket and, unless `join: false`, the default namespace. */
  static async websocket(server, { join = true, query = '', headers } = {}) {
    const client = new Client();
    const link = await WebSocket.open({ port: server.port, path: `/socket.io/?EIO=4&transport=websocket${query}`, headers, secure: server.secure });
    client.adopt(link);
    await client.packet((packet) => packet.startsWith('0'));
    client.open = JSON.parse(client.packets[0].slice(1));
    if (join) await client.join();
    return client;
  }

  adopt(link) {
    this.link = link;
    link.on('text', (text) => this.receive(text));
    link.on('binary', (bytes) => this.receiveBinary(bytes));
    link.on('control', (opcode) => {
      this.controls = [...(this.controls ?? []), opcode];
    });
    link.on('close', (how) => {
      this.isClosed = true;
      this.emit('close', how);
      this.emit('activity');
    });
  }

  async join(connect = '40') {
    this.send(connect);
    const reply = await this.packet((packet) => packet.startsWith('40') || packet.startsWith('44'));
    if (!reply.startsWith('40')) throw new Error(`refused: ${reply}`);
    this.id = JSON.parse(reply.slice(2)).sid;
    return this;
  }

  send(packet) {
    this.link.text(packet);
  }

  /** Sends an event, with Buffers as binary attachments. */
  emitEvent(name, payload, { reply } = {}) {
    const { payload: plain, attachments } = deconstruct(payload);
    const id = reply ?? '';
    const text = JSON.stringify(payload === undefined ? [name] : [name, plain]);
    if (attachments.length === 0) return this.send(`42${id}${text}`);
    this.send(`45${attachments.length}-${id}${text}`);
    for (const attachment of attachments) this.link.binary(attachment);
  }

  /** Sends an event and waits for its reply (Socket.IO acknowledgement). */
  call(name, payload, { timeout = PATIENCE } = {}) {
    const reply = ++this.lastReply;
    const answered = new Promise((resolve) => this.replies.set(reply, resolve));
    this.emitEvent(name, payload, { reply });
    return deadline(answered, timeout, () => `reply to ${name} (${this.describe()})`);
  }

  receive(packet) {
    this.packets.push(packet);
    if (packet === '2') {
      if (this.autoPong) this.send('3');
    } else if (packet.startsWith('42')) this.receiveEvent(JSON.parse(packet.slice(2)));
    else if (packet.startsWith('45')) {
      const dash = packet.indexOf('-');
      this.partial = { count: Number(packet.slice(2, dash)), text: packet.slice(dash + 1), attachments: [] };
    } else if (packet.startsWith('43')) {
      const at = packet.indexOf('[');
      this.settleReply(Number(packet.slice(2, at)), JSON.parse(packet.slice(at)));
    }
    this.emit('activity');
  }

  receiveBinary(bytes) {
    if (!this.partial) throw new Error('a binary frame nobody announced');
    const { count, text, attachments } = this.partial;
    if (attachments.push(bytes) < count) return;
    this.partial = null;
    this.receiveEvent(revive(JSON.parse(text), attachments));
    this.emit('activity');
  }

  settleReply(id, args) {
    this.replies.get(id)?.(args[0]);
    this.replies.delete(id);
  }

  receiveEvent([name, ...args]) {
    if (name === 'CONSUME_CHUNK' && this.autoAssemble) {
      const chunk = args[0];
      this.chunks.push(chunk);
      const parts = this.transfers.get(chunk.transferId) ?? [];
      parts[chunk.index] = chunk.data;
      this.transfers.set(chunk.transferId, parts);
      if (parts.filter((part) => part !== undefined).length < chunk.total) return;
      this.transfers.delete(chunk.transferId);
      this.record(chunk.event, [JSON.parse(parts.join(''))]);
    } else this.record(name, args);
  }

  record(name, args) {
    this.events.push({ name, args, taken: false });
    this.emit('event', name, ...args);
  }

  describe() {
    const last = this.events.slice(-5).map(({ name, args }) => `${name} ${JSON.stringify(args)}`.slice(0, 200));
    return `${this.isClosed ? 'closed, ' : ''}${this.events.length} events, last: ${last.join(' | ') || 'none'}`;
  }

  /** Resolves with what `find` returns as soon as it is not undefined. */
  when(find, { timeout = PATIENCE, what = 'condition' } = {}) {
    let look;
    const seen = new Promise((resolve) => {
      look = () => {
        const found = find();
        if (found === undefined) return;
        // At once: `find` may take what it finds, and more may come in the same read.
        this.off('activity', look);
        resolve(found);
      };
      this.on('activity', look);
      look();
    });
    return deadline(seen, timeout, () => `${what} (${this.describe()})`).finally(() => this.off('activity', look));
  }

  packet(test, options) {
    return this.when(() => this.packets.find(test), { what: 'packet', ...options });
  }

  /** The first argument of the next event called `name` (text or RegExp) that was not taken yet. */
  next(name, options) {
    const matches = (event) => !event.taken && (name instanceof RegExp ? name.test(event.name) : event.name === name);
    return this.when(
      () => {
        const event = this.events.find(matches);
        if (!event) return undefined;
        event.taken = true;
        return event.args.length ? event.args[0] : null;
      },
      { what: `event ${name}`, ...options },
    );
  }

  /** The next `count` events called `name`. */
  async take(name, count, options) {
    const all = [];
    while (all.length < count) all.push(await this.next(name, options));
    return all;
  }

  /** First arguments of all events called `name` so far, taken or not. */
  seen(name) {
    return this.events
      .filter((event) => (name instanceof RegExp ? name.test(event.name) : event.name === name))
      .map((event) => event.args[0]);
  }

  /** Calls `handle(delivery)` for every event called `name`, past ones too, and keeps none: for many. */
  each(name, handle) {
    const past = this.events.filter((event) => event.name === name);
    this.record = (event, args) => {
      this.packets.length = 0;
      if (event === name) handle(args[0]);
      else this.events.push({ name: event, args, taken: false });
      this.emit('event', event, ...args);
    };
    for (const event of past) handle(event.args[0]);
  }

  /** Waits until the server has worked through all that this client sent. */
  async sync() {
    return this.call('PING', {});
  }

  /** True when nothing called `name` comes within `ms` (after a round trip). For what must not happen. */
  async quiet(name, ms = 200) {
    await this.sync();
    const before = this.seen(name).length;
    await new Promise((resolve) => setTimeout(resolve, ms));
    return this.seen(name).length === before;
  }

  // The verbs, with the fields most tests want.

  consumer(name, more = {}) {
    this.name = name;
    this.emitEvent('CONSUMER', { name, id: name, consumer_id: name, ...more });
    return this.sync();
  }

  producer(name, more = {}) {
    this.name = name;
    this.emitEvent('PRODUCER', { name, ...more });
    return this.sync();
  }

  subscribe(fields) {
    return this.call('SUBSCRIBE', { consumer: this.name, consumer_id: this.name, ...fields });
  }

  /** Produces and waits for the answer. */
  produce(event, message, more = {}) {
    return this.call('PRODUCE', { event, message, from: this.name, ...more });
  }

  ack(msgId, more = {}) {
    return this.call('ACK', { msgId, ...more });
  }
  nack(msgId, more = {}) {
    return this.call('NACK', { msgId, ...more });
  }

  /** Waits until the server has been told, by a pong, that all events so far were received (P6). */
  async confirmed() {
    const last = this.packets.findLastIndex((packet) => packet.startsWith('42["CONSUME') || packet.startsWith('45'));
    await this.when(() => (this.packets.findIndex((packet, at) => at > last && packet === '2') >= 0 ? true : undefined), {
      what: 'a ping behind the last delivery',
    });
    await this.sync();
  }

  /** Waits until the server has ended the session: `41`, or the connection. */
  gone(ms = PATIENCE) {
    return this.when(() => (this.isClosed || this.packets.includes('41') ? true : undefined), {
      timeout: ms,
      what: 'the end of the session',
    });
  }

  /** Leaves as a client that closes: `41`, then a websocket close. */
  async leave() {
    this.send('41');
    this.link.close();
    await deadline(this.closed, PATIENCE, 'close');
  }

  /** Ends the socket without a word. */
  async cut(options) {
    this.link.cut(options);
    await deadline(this.closed, PATIENCE, 'close');
  }
}

/** A consumer on a websocket of its own. */
async function consumer(server, name = unique('c'), more) {
  const client = await Client.websocket(server);
  await client.consumer(name, more);
  return client;
}

/** A producer on a websocket of its own. */
async function producer(server, name = unique('p'), more) {
  const client = await Client.websocket(server);
  await client.producer(name, more);
  return client;
}

/**
 * A producer and a consumer subscribed to event `e` of it, with `wish` on top: `{ p, c, name, fields, again }`. `again(more)` returns as
 * the same consumer, subscribed anew; its answer is in `subscribed`.
 */
async function pair(server, wish = {}) {
  const p = await producer(server);
  const c = await consumer(server);
  const fields = { event: 'e', producer: p.name, ...wish };
  await c.subscribe(fields);
  const again = async (more = {}) => {
    const back = await consumer(server, c.name);
    back.subscribed = await back.subscribe({ ...fields, ...more });
    return back;
  };
  return { p, c, again, name: `CONSUME-${p.name}-${fields.event}`, fields };
}

/** The `PRODUCE_CHUNK` payloads of a produce object, cut as the Node client cuts. */
function chunked(produce, size = 262_144) {
  const text = JSON.stringify(produce);
  const total = Math.ceil(text.length / size);
  const transferId = unique('x');
  return Array.from({ length: total }, (_, index) => ({ transferId, index, total, data: text.slice(index * size, (index + 1) * size) }));
}

/** Sends all chunks; the reply to the last one. */
async function sendChunks(client, chunks) {
  for (const chunk of chunks.slice(0, -1)) client.emitEvent('PRODUCE_CHUNK', chunk);
  return client.call('PRODUCE_CHUNK', chunks.at(-1), { timeout: 3 * PATIENCE });
}

/** One HTTP request: `{ status, headers, body }`. */
function request(server, path, { method = 'GET', body, headers = {}, timeout = PATIENCE } = {}) {
  return new Promise((resolve, reject) => {
    const ask = http.request({ port: server.port, host: '127.0.0.1', path, method, headers, timeout, agent: false }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(parts) }));
      response.on('error', reject);
    });
    ask.on('timeout', () => ask.destroy(new Error(`no answer to ${method} ${path}`)));
    ask.on('error', reject);
    ask.end(body);
  });
}

/** Long polling: `open()`, `post(...packets)`, `poll()` → packets (binary ones as Buffers). */
class Polling {
  constructor(server) {
    this.server = server;
  }

  static async open(server, query = '') {
    const polling = new Polling(server);
    const answer = await request(server, `/socket.io/?EIO=4&transport=polling${query}`);
    if (answer.status !== 200) throw new Error(`status ${answer.status}: ${answer.body}`);
    polling.answer = answer;
    polling.open = JSON.parse(answer.body.toString().slice(1));
    polling.sid = polling.open.sid;
    polling.path = `/socket.io/?EIO=4&transport=polling&sid=${polling.sid}`;
    return polling;
  }

  post(...packets) {
    const body = Buffer.from(packets.join('\x1e'));
    return request(this.server, this.path, {
      method: 'POST',
      body,
      headers: { 'content-type': 'text/plain;charset=UTF-8', 'content-length': body.length },
    });
  }

  async poll({ timeout = PATIENCE } = {}) {
    const answer = await request(this.server, this.path, { timeout });
    if (answer.status !== 200) throw new Error(`status ${answer.status}: ${answer.body}`);
    return answer.body
      .toString()
      .split('\x1e')
      .map((packet) => (packet.startsWith('b') ? Buffer.from(packet.slice(1), 'base64') : packet));
  }

  /** Polls until a packet passes `test`; all packets so far. */
  async until(test, { timeout = PATIENCE } = {}) {
    const all = [];
    const end = Date.now() + timeout;
    while (!all.some((packet) => test(packet))) {
      const packets = await this.poll({ timeout: Math.max(1, end - Date.now()) });
      if (packets.includes('2')) await this.post('3');
      all.push(...packets);
    }
    return all;
  }

  /** Upgrades to a websocket: the Client that goes on. `before(link)` runs between probe and `5`. */
  async upgrade({ probe = true, before } = {}) {
    const link = await WebSocket.open({ port: this.server.port, path: `/socket.io/?EIO=4&transport=websocket&sid=${this.sid}` });
    const client = new Client();
    client.adopt(link);
    if (probe) {
      client.send('2probe');
      await client.packet((packet) => packet === '3probe');
    }
    await before?.(client);
    client.send('5');
    return client;
  }
}

module.exports = { Client, Polling, consumer, producer, pair, chunked, sendChunks, request, unique, deadline, until, deconstruct, PATIENCE };
