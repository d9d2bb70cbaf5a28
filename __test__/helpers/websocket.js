// A websocket client that does only what it is told: no ping of its own, frames cut as the test
// wants, the socket open to be stalled or reset. Knows no Engine.IO.
'use strict';
const crypto = require('node:crypto');
const net = require('node:net');
const tls = require('node:tls');
const { EventEmitter } = require('node:events');

const OPCODES = { text: 1, binary: 2, close: 8, ping: 9, pong: 10 };

/** One masked client frame. */
function frame(opcode, payload, { fin = true, mask = crypto.randomBytes(4), rsv = 0 } = {}) {
  const length = payload.length;
  const head = [(fin ? 0x80 : 0) | (rsv << 4) | opcode];
  if (length < 126) head.push((mask ? 0x80 : 0) | length);
  else if (length < 65536) head.push((mask ? 0x80 : 0) | 126, length >> 8, length & 255);
  else {
    const wide = Buffer.alloc(8);
    wide.writeBigUInt64BE(BigInt(length));
    head.push((mask ? 0x80 : 0) | 127, ...wide);
  }
  if (!mask) return Buffer.concat([Buffer.from(head), payload]);
  const body = Buffer.from(payload);
  for (let at = 0; at < length; at++) body[at] ^= mask[at & 3];
  return Buffer.concat([Buffer.from(head), mask, body]);
}

/**
 * Emits `text` (string), `binary` (Buffer), `control` (opcode, payload) and `close` (`{ code, clean }`).
 * `clean`: the server said goodbye with a close frame before the socket ended.
 */
class WebSocket extends EventEmitter {
  constructor(socket) {
    super();
    this.socket = socket;
    // Bytes that are no whole frame yet, how many, and how many the next step needs.
    this.waiting = [];
    this.size = 0;
    this.need = 2;
    this.parts = [];
    this.closed = false;
    this.closeCode = null;
    socket.on('data', (data) => this.feed(data));
    socket.on('error', (error) => {
      this.error = error;
    });
    socket.on('close', () => {
      this.closed = true;
      this.emit('close', { code: this.closeCode, clean: this.closeCode !== null });
    });
  }

  /** Opens `ws://host:port/path`, or over TLS with a certificate that nobody asks about; rejects with `{ status, body }` when the server answers otherwise. */
  static open({ port, host = '127.0.0.1', path, headers = {}, secure = false }) {
    return new Promise((resolve, reject) => {
      const socket = secure ? tls.connect({ port, host, rejectUnauthorized: false }) : net.connect({ port, host, noDelay: true });
      const key = crypto.randomBytes(16).toString('base64');
      const lines = [
        `GET ${path} HTTP/1.1`,
        `Host: ${host}:${port}`,
        'Upgrade: websocket',
        'Connection: Upgrade',
        `Sec-WebSocket-Key: ${key}`,
        'Sec-WebSocket-Version: 13',
        ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
      ];
      let head = Buffer.alloc(0);
      const ended = () => reject(Object.assign(new Error(`no upgrade: ${head}`), { body: head.toString() }));
      socket.once('error', reject).once('close', ended);
      socket.once(secure ? 'secureConnect' : 'connect', () => socket.write(lines.join('\r\n') + '\r\n\r\n'));
      const read = (data) => {
        head = Buffer.concat([head, data]);
        const end = head.indexOf('\r\n\r\n');
        if (end < 0) return;
        const text = head.subarray(0, end).toString();
        const status = Number(text.split(' ')[1]);
        if (status !== 101) {
          socket.end();
          reject(Object.assign(new Error(`status ${status}`), { status, body: head.subarray(end + 4).toString() }));
          return;
        }
        socket.off('data', read).off('error', reject).off('close', ended);
        const accept = crypto
          .createHash('sha1')
          .update(key + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11')
          .digest('base64');
        if (!text.toLowerCase().includes(`sec-websocket-accept: ${accept.toLowerCase()}`)) {
          reject(new Error('wrong Sec-WebSocket-Accept'));
          return;
        }
        const socketOfFrames = new WebSocket(socket);
        socketOfFrames.head = text;
        resolve(socketOfFrames);
        const rest = head.subarray(end + 4);
        if (rest.length) setImmediate(() => socketOfFrames.feed(rest));
      };
      socket.on('data', read);
    });
  }

  text(text, options) {
    return this.socket.write(frame(OPCODES.text, Buffer.from(text), options));
  }
  binary(bytes, options) {
    return this.socket.write(frame(OPCODES.binary, Buffer.from(bytes), options));
  }
  raw(bytes) {
    return this.socket.write(bytes);
  }

  /** Says goodbye properly. */
  close(code = 1000) {
    const payload = Buffer.alloc(2);
    payload.writeUInt16BE(code);
    this.socket.write(frame(OPCODES.close, payload));
    this.socket.end();
  }

  /** Ends the socket with FIN or RST and without a close frame, as a crashing process does. */
  cut({ reset = false } = {}) {
    reset ? this.socket.resetAndDestroy() : this.socket.destroy();
  }

  /** Stops reading: the kernel's buffers fill, then the server's line. */
  pause() {
    this.socket.pause();
  }
  resume() {
    this.socket.resume();
  }

  feed(data) {
    this.waiting.push(data);
    this.size += data.length;
    while (this.take());
  }

  take() {
    if (this.size < this.need) return false;
    if (this.waiting.length > 1) this.waiting = [Buffer.concat(this.waiting)];
    const bytes = this.waiting[0];
    let length = bytes[1] & 127;
    let header = 2;
    if (length === 126) {
      header = 4;
    } else if (length === 127) {
      header = 10;
    }
    if (bytes.length < header) {
      this.need = header;
      return false;
    }
    if (header === 4) length = bytes.readUInt16BE(2);
    if (header === 10) length = Number(bytes.readBigUInt64BE(2));
    if (bytes.length < header + length) {
      this.need = header + length;
      return false;
    }
    this.need = 2;
    this.waiting = [bytes.subarray(header + length)];
    this.size -= header + length;
    this.deliver(bytes[0], bytes[1], bytes.subarray(header, header + length));
    return true;
  }

  deliver(first, second, payload) {
    if (second & 0x80) throw new Error('the server masked a frame');
    if (first & 0x70) throw new Error('the server set a reserved bit');
    const opcode = first & 15;
    if (opcode >= 8) {
      if (opcode === OPCODES.close) {
        this.closeCode = payload.length >= 2 ? payload.readUInt16BE(0) : 1005;
        this.socket.end();
      }
      this.emit('control', opcode, payload);
      return;
    }
    this.parts.push(payload);
    if (opcode) this.kind = opcode;
    if (!(first & 0x80)) return;
    const whole = this.parts.length === 1 ? this.parts[0] : Buffer.concat(this.parts);
    this.parts = [];
    if (this.kind === OPCODES.text) this.emit('text', new TextDecoder('utf-8', { fatal: true }).decode(whole));
    else this.emit('binary', Buffer.from(whole));
  }
}

module.exports = { WebSocket, frame, OPCODES };
