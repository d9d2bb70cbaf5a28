'use strict';
// A Redis client of the user's (ioredis, node-redis): packets of the core become its calls, and what it
// answers goes back packed. Every reply keeps its bytes; what the connection does is the client's business.
const native = require('./native');
const { reasonOf, refused } = require('./errors');

/** Replies of node-redis come as Buffers: version 4 by the first, later ones by the second (`$`). */
const AS_BYTES = { returnBuffers: true, typeMapping: { 36: Buffer } };

/** How a client is called with the Buffers of one command. @throws for what is none. */
function callOf(client) {
  if (typeof client?.callBuffer === 'function') return ([name, ...args]) => client.callBuffer(String(name), ...args);
  if (typeof client?.sendCommand === 'function') return (command) => client.sendCommand(command, AS_BYTES);
  throw refused('storage_options.client must have callBuffer(), as of ioredis, or sendCommand(), as of node-redis', 'config');
}

class RedisClient {
  #call;

  constructor(client) {
    this.#call = callOf(client);
  }

  /** The server is about to start with it. */
  attach(broker) {
    native.useRedis(broker);
    return (id, count, packed) => void this.#perform(broker, id, count, packed);
  }

  /** Never rejects: what fails is told. */
  async #perform(broker, id, count, packed) {
    let answers = null;
    let failure = '';
    try {
      // All of a packet go out before the first answer, in their order.
      const called = unpack(packed, count).map((command) => new Promise((resolve) => resolve(this.#call(command))).then(pack, packRefusal));
      const parts = await Promise.all(called);
      answers = Buffer.concat([Buffer.from(`*${count}\r\n`), ...parts.flat(Infinity)]);
    } catch (error) {
      failure = reasonOf(error).toWellFormed();
    }
    native.redisAnswer(broker, id, answers, failure);
  }
}

/** The commands of a packet, each an array of Buffers. */
function unpack(packed, count) {
  let at = 0;
  const number = () => {
    const end = packed.indexOf(13, at);
    const read = Number(packed.latin1Slice(at + 1, end));
    at = end + 2;
    return read;
  };
  const part = () => {
    const size = number();
    const bytes = packed.subarray(at, at + size);
    at += size + 2;
    return bytes;
  };
  const command = () => Array.from({ length: number() }, part);
  return Array.from({ length: count }, command);
}

const line = (mark, text) => Buffer.from(`${mark}${String(text).replace(/[\r\n]+/g, ' ')}\r\n`);

/** A reply in RESP; texts are told from bytes. */
function pack(reply) {
  if (reply === null || reply === undefined) return [Buffer.from('$-1\r\n')];
  if (reply instanceof Uint8Array) return [Buffer.from(`$${reply.length}\r\n`), reply, Buffer.from('\r\n')];
  if (typeof reply === 'number' || typeof reply === 'bigint' || typeof reply === 'boolean') return [line(':', Number(reply))];
  if (reply instanceof Error) return packRefusal(reply);
  if (Array.isArray(reply)) return [Buffer.from(`*${reply.length}\r\n`), ...reply.map(pack)];
  if (reply instanceof Map) return pack([...reply].flat());
  if (typeof reply === 'object') return pack(Object.entries(reply).flat());
  return [line('+', reply)];
}

/** What Redis refused, a word in capitals first; all else is a failure of the connection. */
function packRefusal(error) {
  const text = reasonOf(error);
  if (!/^[A-Z]{2,} /.test(text) || typeof error?.code === 'string') throw error;
  return [line('-', text)];
}

module.exports = { RedisClient };
