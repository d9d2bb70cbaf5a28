// Signs orders as the specification says (admin.md 3.2), independently of the package. Knows no command.
'use strict';
const { createHmac, randomBytes } = require('node:crypto');

/** The canonical text of what JSON has left of a body. */
function canonical(body) {
  if (Array.isArray(body)) return `[${body.map(canonical).join()}]`;
  if (body === null || typeof body !== 'object') return JSON.stringify(body);
  const members = Object.keys(body).sort();
  return `{${members.map((name) => `${JSON.stringify(name)}:${canonical(body[name])}`).join()}}`;
}

/** A body with a proof by `secret`, as the verb's payload. */
function signed(verb, body, secret) {
  const plain = JSON.parse(JSON.stringify(body));
  const proof = { timestamp: Date.now(), nonce: randomBytes(16).toString('hex') };
  proof.signature = createHmac('sha256', secret).update(`${verb}\n${proof.timestamp}\n${proof.nonce}\n${canonical(plain)}`).digest('hex');
  return { body: plain, proof };
}

const base64 = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

/** A JWT with these claims, signed by `key`. */
function jwt(key, claims) {
  const text = `${base64({ alg: 'HS256', typ: 'JWT' })}.${base64(claims)}`;
  return `${text}.${createHmac('sha256', key).update(text).digest('base64url')}`;
}

module.exports = { signed, jwt };
