// Random credentials, proofs, requests and orders against a server with authentication on, while a pair that
// is logged in exchanges messages. Nobody is let in by any of it, and what an administrator signs harms nobody.
// RESTANTE_FUZZ_SECONDS and RESTANTE_FUZZ_SEED as in `live.test.js`.
'use strict';
const assert = require('node:assert/strict');
const { createHmac } = require('node:crypto');
const { test } = require('node:test');
const { Client, unique, until } = require('../helpers/client');
const { signed } = require('../helpers/proof');
const { startServer } = require('../helpers/server');
const { below, mutate, pick, random, seconds, seed } = require('./random');

const ADMIN = 'the administrator of this server, whoever that is';
const MANAGER = 'the manager of acme, who is somebody else again';
const TOKEN = 'a token of realm steady, that nobody can guess';

const VERBS = ['AUTHENTICATION', 'AUTHORIZATION_REQUEST', 'AUTHORIZATION_NEXT', 'AUTHORIZATION_DECIDE', 'AUTH_MANAGEMENT_COMMAND'];
const FIELDS = [
  ...['token', 'realm', 'role', 'key', 'client_id', 'client_name', 'client_token', 'challenge_response', 'challengeResponse'],
  ...['body', 'proof', 'timestamp', 'nonce', 'signature', 'request_id', 'approved', 'reason', 'command', 'required', 'manager_key'],
  ...['ephemeral', 'temporary', 'ttl', 'e2ee', 'create', 'auth_url', 'auth_secret', 'realm_prefix', 'token_hash', 'allow_admin', 'allow'],
  ...['names', 'msg_id', 'cursor', 'limit', 'socket_id', 'queue', 'max_ttl', 'from', 'to', 'policy', '__proto__', 'constructor', 'toString'],
];
// Not those that switch authentication, stores or settings of the server under test.
const COMMANDS = [
  ...['get', 'stats', 'add_realm', 'rename_realm', 'remove_realm', 'set_realm_auth', 'set_realm_manager_key', 'set_realm_key'],
  ...['set_realm_acceptance', 'set_realm_e2ee', 'set_realm_lifetime', 'set_external_auth', 'add_management_token'],
  ...['revoke_management_token', 'revoke_token', 'dlq_list', 'dlq_replay', 'dlq_discard', 'dlq_purge', 'add_token', 'list_sessions'],
  ...['disconnect', 'authorization_list', 'queue_stats', 'queue_release', 'set_realm_jwt_key', '__proto__', 'constructor', ''],
];
const TEXTS = [
  ...['', 'acme', 'default', '*', '.', '..', '__proto__', 'constructor', 'producer', 'consumer', 'both', 'manager', 'admin'],
  ...['\u0000', '\ud800', '😀', ' acme', 'acme ', '1s', '-1', '1e999', '0', 'http://127.0.0.1:1/', 'file:///etc/passwd', '[object Object]'],
];
const base64 = (value) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
const nested = (depth) => '['.repeat(depth) + ']'.repeat(depth);

/** A text where a token is expected: nothing like one, nearly a JWT, or one that somebody else has signed. */
function token() {
  const header = { alg: pick(['HS256', 'none', 'hs256', 'RS256', 'HS512', null, 1, ['HS256']]), typ: pick(['JWT', null]), ...value(2) };
  const claims = { realm: pick(TEXTS), role: pick(TEXTS), exp: pick([1, 2e9, 1e308, 'x', null, [2e9]]), nbf: pick([0, null, '0', -1e308]), ...value(2) };
  const text = `${base64(header)}.${base64(claims)}`;
  const signed = (key) => `${text}.${createHmac('sha256', key).update(text).digest('base64url')}`;
  switch (below(8)) {
    case 0:
      return signed(pick(['', 'guess', 'undefined', 'null', 'acme']));
    case 1:
      return `${text}.`;
    case 2:
      return pick(['..', '.', 'a.b.c', '....', `${base64('[')}.${base64(']')}.x`, `${base64(nested(600))}.${base64(nested(600))}.x`]);
    case 3:
      return mutate(Buffer.from(signed('guess'))).toString('latin1');
    case 4:
      return TOKEN.slice(0, below(TOKEN.length));
    case 5:
      return `${TOKEN}${pick(TEXTS) || ' '}`;
    case 6:
      return 'x'.repeat(pick([1, 511, 8191, 8193, 60_000]));
    default:
      return pick(TEXTS);
  }
}

function value(depth = 0) {
  switch (below(depth > 3 ? 9 : 12)) {
    case 0:
      return null;
    case 1:
      return pick([0, -1, 1, 1e308, -1e308, 0.5, 2 ** 53, Date.now()]);
    case 2:
      return random() < 0.5;
    case 3:
    case 4:
      return pick(TEXTS);
    case 5:
      return token();
    case 6:
      return pick(COMMANDS);
    case 7:
      return {};
    case 8:
      return 'x'.repeat(below(3000));
    case 9:
      return Array.from({ length: below(4) }, () => value(depth + 1));
    default:
      return Object.fromEntries(Array.from({ length: below(8) }, () => [pick(FIELDS), value(depth + 1)]));
  }
}

function proof() {
  const good = { timestamp: Date.now(), nonce: unique('0123456789abcdef'), signature: pick(['0', 'f', 'F', 'é']).repeat(64) };
  return random() < 0.5 ? good : { ...good, [pick(Object.keys(good))]: value() };
}

/** The payload of a verb, as a client would send it or not at all so. */
function payload(verb) {
  if (random() < 0.2) return value();
  if (verb === 'AUTHENTICATION') return { ...value(), token: token(), ...(random() < 0.5 && { realm: value(3), role: value(3), key: value(3) }) };
  if (verb === 'AUTHORIZATION_REQUEST') {
    const fields = { realm: pick(TEXTS), role: pick(TEXTS), client_id: unique('id'), client_name: pick(TEXTS), client_token: unique('token'.repeat(8)) };
    return { ...fields, [pick(FIELDS)]: value() };
  }
  return { body: { ...value(), command: pick(COMMANDS), [pick(FIELDS)]: value() }, proof: proof() };
}

/** A frame with a verb of strangers: arguments too many, none, what is no JSON, or too large to be heard. */
function packet() {
  const verb = pick(VERBS);
  const text = JSON.stringify(payload(verb)) ?? 'null';
  const head = pick(['42', '427', '42', `42${below(1e6)}`, '4299999999999999999999']);
  switch (below(12)) {
    case 0:
      return `${head}["${verb}"]`;
    case 1:
      return `${head}["${verb}",${text},${pick(['"no function"', '7', 'null', '{}', '[]', nested(100)])}]`;
    case 2:
      return `${head}["${verb}",${JSON.stringify(text)}]`;
    case 3:
      return `${head}["${verb}",${nested(pick([10, 512, 513, 5000]))}]`;
    case 4:
      return `${head}["${verb}",{"__proto__":${text},"constructor":{"prototype":${text}}}]`;
    case 5:
      return mutate(Buffer.from(`${head}["${verb}",${text}]`)).toString('latin1');
    case 6:
      return `451-${head.slice(2)}["${verb}",{"token":{"_placeholder":true,"num":0}}]`;
    default:
      return `${head}["${verb}",${text}]`;
  }
}

const stranger = (server) =>
  Client.websocket(server, { headers: { 'X-Forwarded-For': `10.${below(256)}.${below(256)}.${below(256)}` } });

/** What no stranger may be told: that it is in, or what only a proof shows. */
const IN = /^4[23]\d*\[(?:"(?:AUTH_OK|AUTH_MANAGEMENT_RESULT|AUTHORIZATION_NEXT_RESULT|AUTHORIZATION_DECIDE_RESULT|AUTHORIZATION_APPROVED)"|\{"ok":true,(?!"request_id")|\{"realm")/;

test(`nobody is let in by ${seconds} s of garbage, and nobody is disturbed (seed ${seed})`, { timeout: (seconds + 60) * 1000 }, async () => {
  const server = await startServer({
    auth: {
      enabled: true,
      keyless_consumers: 'deny',
      allow_insecure_management: true,
      jwt_secret: 'signs for every realm, if somebody has it',
      tokens: [
        { token: ADMIN, realm: '*', role: 'admin' },
        { token: TOKEN, realm: 'steady', role: 'both' },
      ],
      realms: { steady: {}, acme: { manager_key: MANAGER, key: 'the key of acme', require_acceptance: true } },
    },
    // Every stranger comes from an address of its own, so that counting failures hides nothing from them.
    limits: { trust_proxy: ['127.0.0.0/8'], max_pending_authorization_requests: 100, connections_per_minute_per_ip: 0 },
  });
  let panic = null;
  server.child.on('said', () => (panic ??= /panicked at[^\n]*/.exec(server.said)));
  const enter = async (verb) => {
    const client = await Client.websocket(server);
    assert.equal((await client.call('AUTHENTICATION', { token: TOKEN })).ok, true);
    await client[verb](unique('steady'));
    return client;
  };
  const p = await enter('producer');
  const c = await enter('consumer');
  await c.subscribe({ event: 'e', producer: p.name, durable: true, ack: true });
  const end = Date.now() + seconds * 1000;
  let rounds = 0;
  const told = (said) => assert.fail(`a stranger was told ${said.slice(0, 300)}`);

  const bad = async () => {
    const client = await stranger(server);
    client.receive = (said) => IN.test(said) && (client.entered ??= said);
    client.receiveBinary = () => {};
    for (let n = 0; n < 25 && !client.isClosed; n++) {
      const text = packet();
      client.send(text);
      if (text.startsWith('451-')) client.link.binary(Buffer.from(TOKEN));
      if (n % 8 === 0) await new Promise(setImmediate);
    }
    // What cannot be heard before somebody is in, at the end: a name of a MiB.
    if (random() < 0.05) client.send(`421["${pick(VERBS)}",{"realm":"${'r'.repeat(1 << 20)}","token":"${TOKEN}"}]`);
    if (!client.isClosed) await Promise.race([client.closed, new Promise((resolve) => setTimeout(resolve, below(20)))]);
    client.link.cut();
    if (client.entered) told(client.entered);
  };
  /** An administrator and a manager who sign nonsense. */
  const mad = async () => {
    const client = await stranger(server);
    for (let n = 0; n < 25 && !client.isClosed; n++) {
      const verb = pick(VERBS.slice(2));
      const body = { ...value(), command: pick(COMMANDS), ...(random() < 0.7 && { realm: pick(TEXTS), [pick(FIELDS)]: value() }) };
      if (body.realm === 'steady') continue;
      client.emitEvent(verb, signed(verb, body, pick([ADMIN, MANAGER])), random() < 0.5 ? { reply: n } : {});
      await client.sync().catch(() => {});
    }
    client.link.cut();
  };
  const storm = async (one) => {
    while (Date.now() < end) {
      await one().catch((error) => {
        if (error.code === 'ECONNREFUSED' || error.code === 'ERR_ASSERTION') throw error;
      });
      rounds++;
    }
  };
  const exchange = async () => {
    let n = 0;
    for (; Date.now() < end; n++) {
      assert.equal((await p.produce('e', n)).queued, 1);
      const delivery = await c.next(`CONSUME-${p.name}-e`);
      assert.deepEqual([delivery.message, delivery.delivery_attempt], [n, 1]);
      assert.equal((await c.ack(delivery.msgId)).ok, true);
      for (const client of [p, c]) client.events.length = client.packets.length = 0;
    }
    return n;
  };
  const [exchanged] = await Promise.all([exchange(), storm(bad), storm(bad), storm(bad), storm(mad)]);
  assert.equal(panic, null);
  assert.ok(exchanged > 10 * seconds, `only ${exchanged} messages in ${seconds} s`);
  assert.ok(rounds > 5 * seconds, `only ${rounds} strangers`);
  const judge = await Client.websocket(server);
  const order = (command) => judge.call('AUTH_MANAGEMENT_COMMAND', signed('AUTH_MANAGEMENT_COMMAND', { command }, ADMIN));
  const inside = await until(async () => {
    const { ok, sessions, ...rest } = await order('list_sessions');
    assert.equal(ok, true, JSON.stringify(rest));
    return sessions.length <= 2 && sessions;
  }, 'the strangers to be gone');
  assert.deepEqual(inside.map(({ realm }) => realm), ['steady', 'steady']);
  await server.stop();
});
