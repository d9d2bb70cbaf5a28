'use strict';
// Realms, tokens, requests and management over `Authorization`, against a real server with
// authentication on; and what a client does when its credential goes.
const assert = require('node:assert/strict');
const { createHash, createHmac, randomBytes } = require('node:crypto');
const { execFile } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { promisify } = require('node:util');
const { test } = require('node:test');
const { io } = require('socket.io-client');
const { restante, quiet, startServer, unique, until, within } = require('./helpers');
const { startProxy } = require('../helpers/proxy');
const { python, script } = require('../helpers/python');

const { Authorization } = restante;
const ADMIN = 'an administrator, quite certainly';
const hash = (token) => createHash('sha256').update(token).digest('hex');
const base64 = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

function jwt(key, claims) {
  const text = `${base64({ alg: 'HS256', typ: 'JWT' })}.${base64(claims)}`;
  return `${text}.${createHmac('sha256', key).update(text).digest('base64url')}`;
}

/** A server with authentication on; `order` sends a command to it. */
async function guarded(t, auth = {}, more = {}) {
  const broker = await startServer(t, { auth: { enabled: true, tokens: [{ token: ADMIN, realm: '*', role: 'admin' }], ...auth }, ...more });
  const at = { host: '127.0.0.1', port: broker.port };
  const order = (command) => Authorization.authManagementCommand(ADMIN, command, at);
  const client = (kind, credential, name = unique('x')) => broker.factory({ auth: credential, connectTimeout: 10_000 })[kind](name).then(broker.keep);
  return { ...broker, at, order, client };
}

const refusedWith = (code) => (error) => {
  assert.equal(error.code, code, error.message);
  return true;
};

test('a token, a JWT and a key let into their realm, and others do not', async (t) => {
  const { order, client } = await guarded(t);
  await order({ command: 'add_realm', realm: 'acme', key: 'the key of acme', jwt_key: 'signs for acme, and only that' });
  const { token, token_hash } = await order({ command: 'add_token', realm: 'acme', role: 'producer' });
  assert.equal(hash(token), token_hash);
  const exp = Math.floor(Date.now() / 1000) + 600;
  const producer = await client('createProducer', { token });
  assert.deepEqual(producer.authInfo, { realm: 'acme', role: 'producer' });
  const byKey = await client('createConsumer', { realm: 'acme', role: 'consumer', key: 'the key of acme' });
  const byJwt = await client('createConsumer', { token: jwt('signs for acme, and only that', { realm: 'acme', role: 'consumer', exp }) });
  const got = [];
  for (const consumer of [byKey, byJwt]) await consumer.subscribe('paid', (message) => got.push(message));
  await producer.produce('paid', 7, { confirm: true });
  await until(() => got.length === 2, 'both to get it');

  const wrong = [{ token: 'no such token' }, { realm: 'acme', role: 'consumer', key: 'wrong' }, { role: 'manager' }, { token: jwt('wrong', { realm: 'acme', role: 'both', exp }) }];
  for (const credential of wrong) await assert.rejects(client('createConsumer', credential), refusedWith('unauthenticated'));
  await assert.rejects(client('createProducer', { token, realm: 'other' }), refusedWith('forbidden'));
  await assert.rejects(client('createProducer', { realm: 'acme', role: 'producer' }), refusedWith('forbidden'));
});

test('whose token is revoked is told why and stays down, and others stay', async (t) => {
  const { order, client } = await guarded(t);
  await order({ command: 'add_realm', realm: 'acme' });
  const [one, other] = await Promise.all([1, 2].map((n) => order({ command: 'add_token', realm: 'acme', client_id: `c${n}` })));
  const [gone, stays] = await Promise.all([one, other].map(({ token }) => client('createConsumer', { token })));
  const errors = [];
  gone.on('error', (error) => errors.push(error));
  const { revoked, disconnected_sockets } = await order({ command: 'revoke_token', realm: 'acme', client_id: 'c1' });
  assert.deepEqual([revoked.length, revoked[0].token_hash, disconnected_sockets], [1, one.token_hash, 1]);
  await until(() => !gone.connected && !gone._isOpen, 'it stays down');
  assert.ok(errors.length > 0 && errors.every(({ code }) => code === 'unauthenticated'), JSON.stringify(errors));
  assert.ok(!JSON.stringify(errors.map(({ message }) => message)).includes(one.token));
  await assert.rejects(client('createConsumer', { token: one.token }), refusedWith('unauthenticated'));
  assert.equal(stays.connected, true);
});

test('what a role does not allow is told to onError and to the promise', async (t) => {
  const { order, client } = await guarded(t);
  await order({ command: 'add_realm', realm: 'acme' });
  const { token } = await order({ command: 'add_token', realm: 'acme', role: 'consumer' });
  const consumer = await client('createConsumer', { token });
  const told = [];
  consumer.on('error', (error) => told.push(error.code));
  const answer = await new Promise((resolve) => consumer.socket.emit('PRODUCE', { event: 'e', message: 1, from: 'somebody' }, resolve));
  assert.equal(answer.ok, false);
  assert.equal(answer.code, 403);
  await until(() => told.includes('forbidden'), 'the error');
});

test('the settings that managers see hold no secret', async (t) => {
  const secrets = ['key-of-r-xxxxxxxx', 'manager-of-r-xxxxxxx', 'jwt-of-r-xxxxxxxx', 'global-jwt-secret-xxxx', 'shown-to-the-validator', 'a-token-of-the-settings-xxxxxxxx', ADMIN];
  const { order } = await guarded(t, {
    jwt_secret: secrets[3],
    auth_url: 'https://127.0.0.1:9/validate',
    auth_secret: secrets[4],
    tokens: [{ token: ADMIN, realm: '*', role: 'admin' }, { token: secrets[5], realm: 'r' }],
  });
  const [key, manager_key, jwt_key] = secrets;
  const added = await order({ command: 'add_realm', realm: 'r', key, manager_key, jwt_key });
  const { settings } = await order('get');
  const { realms, tokens } = settings;
  assert.deepEqual(
    [realms.r.key_configured, realms.r.manager_key_configured, realms.r.jwt_key_configured, realms.r.auth_secret_configured],
    [true, true, true, false],
  );
  assert.ok(tokens.some(({ token_hash }) => token_hash === hash(secrets[5])));
  for (const secret of secrets) assert.ok(!JSON.stringify([added, settings]).includes(secret), secret);
});

test('a no of the broker rejects with its code and its whole answer', async (t) => {
  const { order, at } = await guarded(t);
  const refusals = [
    [() => order({ command: 'remove_realm', realm: 'none' }), 'realm_unknown', 404],
    [() => order({ command: 'revoke_token', token_hash: '0'.repeat(64) }), 'token_unknown', 404],
    [() => Authorization.authManagementCommand('not the token', 'get', at), 'proof_rejected', 401],
    [() => Authorization.nextAuthorizationRequest('not the token', null, at), 'proof_rejected', 401],
    [() => Authorization.decideAuthorizationRequest(ADMIN, { request_id: 'none', approved: true }, at), 'request_unknown', 404],
    [() => Authorization.realmManagementCommand(ADMIN.slice(1), 'r', { command: 'dlq_list' }, at), 'proof_rejected', 401],
  ];
  for (const [call, code, number] of refusals) {
    await assert.rejects(call(), (error) => {
      assert.ok(error instanceof restante.RestanteError);
      assert.deepEqual([error.code, error.number, error.response.ok], [code, number, false], error.message);
      return true;
    });
  }
});

test('who asks to be let in waits for the decision, and logs in', async (t) => {
  const { order, at, client } = await guarded(t);
  await order({ command: 'add_realm', realm: 'acme' });
  const sent = [];
  const wish = { realm: 'acme', role: 'producer', client_name: 'Rita', challenge_response: { code: 42 } };
  const asked = Authorization.submitAuthorizationRequest(wish, { ...at, wait: '1m', onPending: (pending) => sent.push(pending) });
  await until(() => sent.length === 1, 'the request to wait');
  const { request } = await Authorization.nextAuthorizationRequest(ADMIN, { realm: 'acme' }, at);
  assert.deepEqual([request.client_name, request.status, request.role, request.challenge_response], ['Rita', 'pending', 'producer', { code: 42 }]);
  await Authorization.decideAuthorizationRequest(ADMIN, { request_id: request.request_id, approved: true, role: 'both' }, at);
  const approved = await within(10_000, asked, 'the approval');
  assert.deepEqual([approved.status, approved.realm, approved.role], ['approved', 'acme', 'both']);
  assert.equal(hash(approved.client_token), request.client_token_hash);
  const producer = await client('createProducer', { token: approved.client_token });
  assert.deepEqual(producer.authInfo, { realm: 'acme', role: 'both' });
});

test('the wait for a decision outlives lost connections', async (t) => {
  const { order, at, port } = await guarded(t);
  await order({ command: 'add_realm', realm: 'acme' });
  const proxy = await startProxy({ port });
  t.after(() => proxy.close());
  const sent = [];
  const asked = () => Authorization.submitAuthorizationRequest({ realm: 'acme', role: 'consumer' }, { ...at, port: proxy.port, wait: '1m', onPending: (pending) => sent.push(pending) });
  const approve = ({ request_id }) => Authorization.decideAuthorizationRequest(ADMIN, { request_id, approved: true }, at);

  // Asked again: the same token takes the place of the request before.
  const first = asked();
  await until(() => sent.length === 1, 'the request to wait');
  proxy.kill();
  await until(() => sent.length === 2, 'the request to be made again');
  const { requests } = await order({ command: 'authorization_list', realm: 'acme', status: 'pending' });
  assert.deepEqual(requests.map(({ request_id }) => request_id), [sent[1].request_id]);
  await approve(sent[1]);
  assert.equal((await within(10_000, first, 'the approval')).status, 'approved');

  // Approved while it was away: its token is one by now.
  const second = asked();
  await until(() => sent.length === 3, 'the request to wait');
  proxy.hold();
  proxy.kill();
  await approve(sent[2]);
  proxy.release();
  const { status, realm, role, request_id } = await within(20_000, second, 'the approval');
  assert.deepEqual([status, realm, role, request_id], ['approved', 'acme', 'consumer', sent[2].request_id]);
});

test('who is rejected is told the reason, and who is forgotten the time', async (t) => {
  const { order, at } = await guarded(t);
  await order({ command: 'add_realm', realm: 'acme', manager_key: 'manages acme alone' });
  const asked = Authorization.submitAuthorizationRequest({ realm: 'acme' }, { ...at, wait: '1m' });
  const late = assert.rejects(asked, (error) => error.code === 'forbidden' && error.message.includes('not today') && error.response.request_id !== undefined);
  const next = () => Authorization.nextRealmAuthorizationRequest('manages acme alone', 'acme', at);
  const request = await until(async () => (await next()).request, 'the request');
  await Authorization.decideRealmAuthorizationRequest('manages acme alone', { request_id: request.request_id, approved: false, reason: 'not today' }, at);
  await within(10_000, late, 'the rejection');

  const nobody = Authorization.submitAuthorizationRequest({ realm: 'acme' }, { ...at, wait: 0.3 });
  await assert.rejects(nobody, (error) => error.code === 'timeout' && typeof error.request_id === 'string');
  const signal = AbortSignal.timeout(200);
  await assert.rejects(Authorization.submitAuthorizationRequest({ realm: 'acme' }, { ...at, wait: '1m', signal }), { name: 'AbortError' });
  await assert.rejects(Authorization.submitAuthorizationRequest({ realm: 'acme', client_token: 'short' }, at), refusedWith('bad_command'));
});

test('a validator in JavaScript lets in whom it names, and nobody when it fails', async (t) => {
  const said = [];
  const logger = { ...quiet, error: (text) => said.push(String(text)) };
  const calls = [];
  const validator = (token) => {
    calls.push(token);
    if (token === 'later') return new Promise((resolve) => setImmediate(resolve, { realm: 'acme', role: 'both', sub: 'u1' }));
    if (token === 'throws-hush') throw new Error('no answer about throws-hush');
    if (token === 'rejects') return Promise.reject(new Error('none'));
    if (token === 'wrong') return { realm: 'acme', role: 'emperor' };
    if (token === 'super') return { realm: '*', role: 'admin' };
    return token === 'now' ? { realm: 'acme', role: 'producer' } : null;
  };
  const { client } = await guarded(t, { validator }, { logger });
  assert.deepEqual((await client('createProducer', { token: 'now' })).authInfo, { realm: 'acme', role: 'producer' });
  assert.deepEqual((await client('createConsumer', { token: 'later' })).authInfo, { realm: 'acme', role: 'both' });
  for (const token of ['throws-hush', 'rejects', 'wrong', 'super', 'unknown']) {
    await assert.rejects(client('createConsumer', { token }), refusedWith('unauthenticated'), token);
  }
  assert.ok(calls.includes('unknown'));
  const told = said.filter((text) => text.includes('auth.validator'));
  assert.equal(told.length, 1, said.join('\n'));
  assert.ok(!said.join().includes('throws-hush'));
  assert.throws(() => new restante.Server({ auth: { validator: 'no function' } }), { code: 'config' });
});

test('a validator that never answers refuses after a while, and the server stops all the same', async (t) => {
  const { client, server } = await guarded(t, { validator: () => new Promise(() => {}) });
  await assert.rejects(client('createConsumer', { token: 't', timeout: 20_000 }), refusedWith('unauthenticated'));
  const waiting = client('createConsumer', { token: 't', timeout: 20_000 }).catch(() => {});
  await within(10_000, server.stop({ timeout: 2 }), 'the stop');
  void waiting;
});

test('a stock socket.io-client logs in by token, JWT and key', async (t) => {
  const { order, port } = await guarded(t);
  await order({ command: 'add_realm', realm: 'acme', key: 'the key of acme', manager_key: 'signs JWTs, too, for acme' });
  const { token } = await order({ command: 'add_token', realm: 'acme', role: 'consumer' });
  const exp = Math.floor(Date.now() / 1000) + 600;
  const credentials = [[{ token }, 'consumer'], [{ token: jwt('signs JWTs, too, for acme', { realm: 'acme', role: 'both', exp }) }, 'both'], [{ realm: 'acme', role: 'consumer', key: 'the key of acme' }, 'consumer']];
  for (const [credential, role] of credentials) {
    const socket = io(`http://127.0.0.1:${port}`, { transports: ['websocket'], reconnection: false });
    t.after(() => socket.disconnect());
    const answer = new Promise((resolve) => ['AUTH_OK', 'AUTH_FAIL'].forEach((name) => socket.on(name, (payload) => resolve([name, payload]))));
    socket.on('connect', () => socket.emit('AUTHENTICATION', credential));
    assert.deepEqual(await within(10_000, answer, 'the answer'), ['AUTH_OK', { realm: 'acme', role }]);
  }
});

test('python signs and sends every management command with its standard library', async (t) => {
  const { port } = await guarded(t);
  const { stdout } = await promisify(execFile)(python(), [script('management.py'), String(port), ADMIN], { timeout: 120_000 });
  assert.equal(stdout.trim(), 'ok');
});

test('orders go through TLS with an authority that is named, and not without', async (t) => {
  const fixture = (name) => path.join(__dirname, '..', '..', 'core', 'tests', 'fixtures', 'tls', name);
  const { port } = await guarded(t, {}, { tls: { cert: fixture('one.pem'), key: fixture('one.key') } });
  const url = `https://localhost:${port}`;
  for (const ca of [fixture('ca.pem'), fs.readFileSync(fixture('ca.pem'))]) {
    const { settings } = await Authorization.authManagementCommand(ADMIN, 'get', { url, ca });
    assert.equal(settings.enabled, true);
  }
  await assert.rejects(Authorization.authManagementCommand(ADMIN, 'get', { url }), refusedWith('config'));
  await assert.rejects(Authorization.authManagementCommand(ADMIN, 'get', { url: url.replace('https', 'http') }), refusedWith('disconnected'));
});

test('orders are taken with authentication off, too, if there is an administrator', async (t) => {
  const { port } = await startServer(t, { auth: { enabled: false, tokens: [{ token: ADMIN, realm: '*', role: 'admin' }] } });
  const at = { url: `http://127.0.0.1:${port}` };
  const { settings } = await Authorization.authManagementCommand(ADMIN, { command: 'get' }, at);
  assert.equal(settings.enabled, false);
  const realm = `r${randomBytes(3).toString('hex')}`;
  const added = await Authorization.authManagementCommand(ADMIN, { command: 'add_realm', realm }, at);
  assert.ok(Object.hasOwn(added.settings.realms, realm));
});

test('what JSON would make something else is refused at the call, and nothing is sent', async (t) => {
  const { order, at } = await guarded(t);
  for (const ttl of [NaN, Infinity, -Infinity]) {
    await assert.rejects(order({ command: 'add_realm', realm: 'short', ttl }), { code: 'bad_command', message: 'ttl must be a finite number' });
    await assert.rejects(Authorization.submitAuthorizationRequest({ client_id: 'c', challenge_response: { n: [ttl] } }, at), { code: 'bad_command' });
  }
  for (const body of [{ command: 'add_realm', realm: 'half \ud800' }, { command: 'get', ['\udc00']: 1 }, { command: 'get', more: { x: ['\ud83d'] } }]) {
    await assert.rejects(order(body), { code: 'bad_command', message: /half a surrogate pair/ });
  }
  const { settings } = await order({ command: 'get' });
  assert.deepEqual(Object.keys(settings.realms).filter((name) => /short|half/.test(name)), []);
  await order({ command: 'add_realm', realm: 'whole \ud83d\ude00' });
});

test('an answer of a validator whose exp is no number is a no', async (t) => {
  const said = [];
  const validator = (token) => ({ realm: 'acme', role: 'both', sub: 'u', exp: token === 'for ever' ? NaN : Date.now() / 1000 + 600 });
  const broker = await startServer(t, { auth: { enabled: true, validator, auto_admin_token: false }, logger: { ...quiet, error: (text) => said.push(text) } });
  const client = (token) => broker.factory({ auth: { token }, connectTimeout: 10_000 }).createProducer(unique('p')).then(broker.keep);
  await assert.rejects(client('for ever'), refusedWith('unauthenticated'));
  await until(() => said.some((text) => /exp must be a finite number/.test(text)), () => `the reason, it said: ${said}`);
  assert.equal((await client('for a while')).authInfo.realm, 'acme');
});

test('a time to connect within that is no number is refused', async (t) => {
  const { port } = await startServer(t);
  const factory = new restante.Factory({ host: '127.0.0.1', port, logger: quiet, args: { timeout: NaN } });
  await assert.rejects(async () => factory.createProducer('p'), { message: 'timeout must be a finite number' });
});
