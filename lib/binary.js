'use strict';
// JSON with bytes in it: what Socket.IO does. Bytes leave the text and travel beside it; an object
// `{"_placeholder":true,"num":i}` stands where they were. They arrive as Buffers (P20).
const { refused } = require('./errors');

const isBytes = (value) => ArrayBuffer.isView(value) || value instanceof ArrayBuffer || value instanceof SharedArrayBuffer;

function toBuffer(bytes) {
  if (Buffer.isBuffer(bytes)) return bytes;
  return ArrayBuffer.isView(bytes) ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength) : Buffer.from(bytes);
}

/** `{text, parts}`: `JSON.stringify(data)` and the bytes it stands for (`null`: none).
 *  @throws TypeError `not_carriable`: undefined, functions, BigInt, cycles. */
function encode(data) {
  let parts = null;
  // `this[key]` is the value before its toJSON, which a Buffer has.
  function lift(key, value) {
    const original = this[key];
    if (typeof original !== 'object' || original === null || !isBytes(original)) return value;
    parts ??= [];
    return { _placeholder: true, num: parts.push(toBuffer(original)) - 1 };
  }
  let text;
  try {
    text = hasBytes(data) ? JSON.stringify(data, lift) : JSON.stringify(data);
  } catch (error) {
    throw Object.assign(new TypeError(`the data cannot be carried: ${error.message}`, { cause: error }), { code: 'not_carriable' });
  }
  if (text === undefined) throw refused('undefined and functions cannot be carried; send null', 'not_carriable');
  return { text, parts };
}

/** A replacer function makes JSON.stringify several times slower, so look first. What hides from
 *  this walk behind a toJSON or a getter is text. Depth is bounded by cycles being refused later. */
function hasBytes(value, depth = 0) {
  if (typeof value !== 'object' || value === null) return false;
  if (isBytes(value)) return true;
  if (depth > 1000) return true; // the replacer finds out, or JSON.stringify refuses
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) if (hasBytes(value[i], depth + 1)) return true;
    return false;
  }
  for (const key in value) if (hasBytes(value[key], depth + 1)) return true;
  return false;
}

/** Puts the bytes back, in place, and returns the value. */
function restore(value, parts) {
  if (typeof value !== 'object' || value === null) return value;
  if (value._placeholder === true && Number.isInteger(value.num) && value.num < parts.length) return parts[value.num];
  for (const key of Object.keys(value)) {
    const was = value[key];
    if (typeof was !== 'object' || was === null) continue;
    const now = restore(was, parts);
    // Not `value[key] = now`: the key may be `__proto__`.
    if (now !== was) Object.defineProperty(value, key, { value: now, writable: true, enumerable: true, configurable: true });
  }
  return value;
}

module.exports = { encode, restore };
