// Every kind of secret through a whole life of a server on each store, over TLS, with its log at `trace`; then they are looked
// for in all that it said, answered and wrote (AF16, AF20, AF48; P30).
'use strict';
const assert = require('node:assert/strict');
const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');
const path = require('node:path');
const { test } = require('node:test');
const { Client, until, unique } = require('../helpers/client');
const { newFolder } = require('../helpers/folder');
const { jwt, signed } = require('../helpers/proof');
const { startRedis } = require('../helpers/redis');
const { root, startServer } = require('../helpers/server');

/** A secret of a kind, unlike any other text. */
const secret = (kind) => `hush-${kind}-${unique('')}-9c1e5a07b3d24f68`;

/** By kind. What is told to the program by its operator, in the file or the environment, is there and nowhere else. */
function secrets() {
  const kinds = [
    ...['admin', 'file-admin', 'token', 'added', 'unknown', 'requested', 'outside', 'key', 'key-set', 'management', 'management-added'],
    ...['monitor', 'jwt-secret', 'redis', 'redis-wrong', 'url', 'body', 'broken', 'misplaced'],
    // What has to be kept as it is.
    ...['manager', 'manager-set', 'jwt', 'jwt-set', 'validator', 'validator-set', 'validator-realm'],
  ];
  return Object.fromEntries(kinds.map((kind) => [kind, secret(kind)]));
}

/** What signs, or is sent on: it may be in the keeper of realms and tokens. */
const KEPT = ['manager', 'manager-set', 'jwt', 'jwt-set', 'validator', 'validator-set', 'validator-realm'];

/** What a command has set of that. */
const SIGNING = ['manager-set', 'jwt-set', 'validator-set'];

/** A validator that knows one token. */
async function validator(t, s) {
  const asked = [];
  const server = http.createServer((request, response) => {
    let body = '';
    request.on('data', (data) => (body += data));
    request.on('end', () => {
      const { token } = JSON.parse(body);
      asked.push({ token, secret: request.headers['x-mq-auth-secret'] });
      response.end(JSON.stringify(token === s.outside ? { realm: 'acme', role: 'both' } : { ok: false }));
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  return { url: `http://127.0.0.1:${server.address().port}/`, asked };
}

/** All that Redis is told, as its MONITOR shows it. */
function monitor(t, url, password) {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  t.after(() => socket.destroy());
  const seen = { text: '' };
  socket.on('data', (data) => (seen.text += data.toString('latin1')));
  socket.write(`AUTH ${password}\r\nMONITOR\r\n`);
  return until(() => (seen.text.match(/\+OK/g) ?? []).length >= 2 && seen, 'MONITOR');
}

/** Each file below a folder with its content. */
function files(folder) {
  const names = fs.readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return names.map((entry) => path.join(entry.parentPath ?? entry.path, entry.name)).map((name) => ({ name, text: fs.readFileSync(name, 'latin1'), mode: fs.statSync(name).mode & 0o777 }));
}

/** What settings a server of this test has. */
const settings = (s, url, more) => ({
  auth: {
    enabled: true,
    tokens: [
      { token: s['file-admin'], realm: '*', role: 'admin' },
      { token: s.token, realm: 'acme', role: 'both', client_id: 'c1' },
    ],
    realms: { acme: { key: s.key, manager_key: s.manager, jwt_key: s.jwt }, keyed: { auth_url: url, auth_secret: s['validator-realm'] } },
    management_tokens: [{ token: s.management, realm_prefix: 'org:' }],
    monitor_tokens: [s.monitor],
    jwt_secret: s['jwt-secret'],
    auth_url: url,
    auth_secret: s.validator,
  },
  ...more,
});

/** Ways to come in, good and bad; all of them are heard. */
async function comeIn(connect, s) {
  const exp = Math.floor(Date.now() / 1000) + 600;
  const claims = { realm: 'acme', role: 'both', exp };
  const good = [{ token: s.token }, { token: s.admin }, { token: s['file-admin'] }, { token: s.outside, realm: 'acme' }, { token: jwt(s.jwt, claims) }, { token: jwt(s['jwt-secret'], claims) }, { realm: 'acme', role: 'consumer', key: s.key }];
  for (const payload of good) {
    const answer = await (await connect()).call('AUTHENTICATION', payload);
    assert.equal(answer.ok, true, JSON.stringify([Object.keys(payload), answer]));
  }
  const stranger = await connect();
  const bad = [{ token: s.unknown }, { realm: 'acme', role: 'both', key: s.unknown }, { token: { text: s.unknown } }, s.unknown, `{"token":"${s.unknown}"`, [s.unknown], { token: jwt(s.unknown, claims) }, { token: `${jwt(s.jwt, claims)}x` }];
  for (const payload of bad) {
    const client = await connect();
    await client.call('AUTHENTICATION', payload);
  }
  stranger.send(`42["AUTHENTICATION",{"token":"${s.unknown}]`);
  stranger.send(`42["AUTHENTICATION",{"token":"${s.unknown}"},7,"${s.unknown}"]`);
}

/** A pair that works, and its message. */
async function work(connect, s) {
  const enter = async (verb, name) => {
    const client = await connect();
    assert.equal((await client.call('AUTHENTICATION', { token: s.token })).ok, true);
    await client[verb](name);
    return client;
  };
  const p = await enter('producer', 'shop');
  const c = await enter('consumer', 'billing');
  await c.subscribe({ event: 'paid', producer: 'shop', durable: true, ack: true });
  assert.equal((await p.produce('paid', s.body)).queued, 1);
  const { msgId } = await c.next('CONSUME-shop-paid');
  assert.equal((await c.nack(msgId, { requeue: false, reason: 'no' })).ok, true);
  for (const broken of [{ message: s.body }, null, { event: s.body.repeat(40), message: 1 }]) await p.call('PRODUCE', broken);
}

/** Every command that takes a secret or tells of something that has one, done and failed. */
async function manage(order, request, s, url, persistence) {
  const commands = [
    { command: 'add_realm', realm: 'new', key: s['key-set'], manager_key: s['manager-set'], jwt_key: s['jwt-set'] },
    { command: 'add_realm', realm: 'new', key: s['key-set'], manager_key: s['manager-set'] },
    { command: 'add_realm', realm: '\u0001', key: s['key-set'] },
    { command: 'set_realm_key', realm: 'acme', key: s['key-set'] },
    { command: 'set_realm_manager_key', realm: 'acme', manager_key: s['manager-set'] },
    { command: 'set_realm_jwt_key', realm: 'nowhere', jwt_key: s['jwt-set'] },
    { command: 'set_realm_key', realm: 'acme', key: { text: s.misplaced } },
    { command: 'add_token', realm: 'new', role: 'both', token: s.added },
    { command: 'add_token', realm: 'new', role: 'both', token: s.added },
    { command: 'add_token', realm: 'new', role: 'none', token: s.added },
    { command: 'add_management_token', token: s['management-added'], realm_prefix: 'apps:' },
    { command: 'add_management_token', token: s['management-added'], realm_prefix: 'apps:' },
    { command: 'set_external_auth', realm: 'new', auth_url: url, auth_secret: s['validator-set'] },
    { command: 'set_external_auth', realm: 'new', auth_url: `https://user:${s.url}@example.org/`, auth_secret: s['validator-set'] },
    { command: 'set_external_auth', realm: 'new', auth_url: `gopher://${s.url}`, auth_secret: s['validator-set'] },
    { command: 'revoke_token', token: s.unknown },
    { command: 'set_persistence', storage: 'redis', url: `redis://:${s['redis-wrong']}@127.0.0.1:1`, probe_timeout: 100 },
    { command: 'set_persistence', storage: 'redis', url: `radish://:${s['redis-wrong']}@127.0.0.1:1` },
    { command: 'set_persistence', storage: 'redis', url: s['redis-wrong'] },
    ...(persistence ? [persistence] : []),
    ...['get', 'stats', 'list_sessions', 'authorization_list', 'queue_stats', 'dlq_list', 'reload_settings'].map((command) => ({ command })),
    { command: 'rename_realm', from: 'new', to: 'newer' },
  ];
  for (const command of commands) await order(command);
  await request({ realm: 'acme', client_id: 'r', client_name: 'R', client_token: s.requested, role: 'consumer' });
  await request({ realm: 'acme', client_id: 'r', client_name: 'R', client_token: [s.requested], role: 'consumer' });
  const { requests } = await order({ command: 'authorization_list' });
  assert.equal(requests.length, 1);
  return requests[0].request_id;
}

/** The life of a server, and where its secrets are then. */
async function life(t, { storage, options = {}, more = {}, persistence, redis }) {
  const s = secrets();
  if (redis) s.redis = redis.password;
  const folder = newFolder();
  const { url, asked } = await validator(t, s);
  const place = (name) => path.join(folder, name);
  const tls = path.join(root, 'core/tests/fixtures/tls');
  const configured = settings(s, url, { storage, storage_options: options(s, place), ...more(place) });
  const write = (value) => fs.writeFileSync(place('settings.json'), typeof value === 'string' ? value : JSON.stringify(value), { mode: 0o600 });
  write(configured);
  fs.writeFileSync(place('env'), `RESTANTE_ADMIN_TOKEN="${s.admin}"\n`, { mode: 0o600 });
  const started = [];
  t.after(() => started.map((server) => server.ended || server.kill()));
  const start = async () => {
    const server = await startServer(
      { data_dir: folder },
      {
        args: ['--settings', place('settings.json'), '--env-file', place('env'), '--tls-cert', path.join(tls, 'one.pem'), '--tls-key', path.join(tls, 'one.key')],
        env: { RESTANTE_LOG: 'trace' },
        keeps: 1 << 28,
        secure: true,
      },
    );
    started.push(server);
    return server;
  };
  const seen = redis && (await monitor(t, redis.url, redis.password));
  let server = await start();
  const answers = [];
  const connect = async () => {
    const client = await Client.websocket(server);
    answers.push(client);
    return client;
  };
  await comeIn(connect, s);
  await work(connect, s);
  const judge = await connect();
  const order = (command) => judge.call('AUTH_MANAGEMENT_COMMAND', signed('AUTH_MANAGEMENT_COMMAND', command, s.admin), { timeout: 20_000 });
  const request = (payload) => judge.call('AUTHORIZATION_REQUEST', payload);
  const request_id = await manage(order, request, s, url, persistence?.(s, place));
  const decided = await judge.call('AUTHORIZATION_DECIDE', signed('AUTHORIZATION_DECIDE', { request_id, approved: true }, s.admin));
  assert.equal(decided.ok, true, JSON.stringify(decided));
  assert.equal((await (await connect()).call('AUTHENTICATION', { token: s.requested })).ok, true);
  // Bad settings are told of, and what they said is not.
  const wrong = [
    `{"auth":{"tokens":[{"token":"${s.broken}"`,
    { auth: { tokens: [{ token: s.misplaced, role: 'none' }] } },
    { auth: { tokens: [{ token: [s.misplaced] }] } },
    { auth: { tokens: s.misplaced } },
    { auth: { jwt_secret: [s.misplaced] } },
    { auth: { realms: { acme: { manager_key: { text: s.misplaced } } } } },
    { auth: { auth_url: `ftp://u:${s.url}@h/` } },
    { storage: 'redis', storage_options: { url: `redis//${s.url}` } },
    { storage: 'redis', storage_options: { url: `redis://:${s['redis-wrong']}@127.0.0.1:1`, connect_timeout: 200 } },
  ];
  for (const content of wrong) {
    write(content);
    assert.equal((await order({ command: 'reload_settings' })).ok, false, JSON.stringify(content));
    await order({ command: 'get' });
  }
  write(configured);
  await order({ command: 'reload_settings' });
  const sqlite = files(folder);
  await server.stop();
  const said = [server.said];
  server = await start();
  await server.stop();
  said.push(server.said);
  assert.ok(asked.length > 0 && asked.every(({ secret }) => [s.validator, s['validator-realm'], s['validator-set']].includes(secret)));
  return { s, said: said.join('\n'), answers: answers.flatMap(({ packets }) => packets).join('\n'), files: [...files(folder), ...sqlite], redis: seen?.text };
}

/** Which of these secrets are in a text. */
const found = (s, text, kinds = Object.keys(s)) => kinds.filter((kind) => text.includes(s[kind]));

function judge({ s, said, answers, files }, isKeeper) {
  const pem = fs.readFileSync(path.join(root, 'core/tests/fixtures/tls/one.key'), 'utf8').split('\n')[2];
  assert.ok(said.includes('TRACE'), 'the log was at trace');
  assert.deepEqual(found({ ...s, pem }, said), [], 'in the log');
  // The consumer got its message.
  assert.deepEqual(found({ ...s, pem }, answers), ['body'], 'in answers');
  for (const { name, text, mode } of files) {
    const base = path.basename(name);
    if (base === 'settings.json' || base === 'env') continue;
    const kept = found({ ...s, pem }, text);
    const may = isKeeper(base) ? [...KEPT, 'body'] : [];
    const others = kept.filter((kind) => !may.includes(kind) && !(base === 'restante.state.json' && kind === 'redis'));
    assert.deepEqual(others, [], `in ${base}`);
    if (kept.length) assert.equal(mode, 0o600, `${base} is its owner's alone`);
  }
  const keepers = files.filter(({ name }) => isKeeper(path.basename(name)));
  // What signs is kept: whoever looks here would find the rest too.
  assert.deepEqual(found(s, keepers.map(({ text }) => text).join(), SIGNING), SIGNING);
}

const SLOW = { timeout: 120_000 };

test('secrets stay where they belong: realms and tokens in a file beside the settings', SLOW, async (t) => {
  const lived = await life(t, { storage: 'memory', options: () => ({}), more: () => ({}) });
  judge(lived, (name) => name.startsWith('settings.json.auth.json'));
});

test('secrets stay where they belong: realms and tokens in a database of their own', SLOW, async (t) => {
  const lived = await life(t, { storage: 'memory', options: () => ({}), more: (place) => ({ auth_store: place('auth.sqlite') }) });
  judge(lived, (name) => name.startsWith('auth.sqlite'));
});

test('secrets stay where they belong: realms and tokens where messages wait, in SQLite and then in Redis', SLOW, async (t) => {
  const password = secret('redis');
  const redis = await startRedis(t, '--requirepass', password);
  const url = redis.url.replace('redis://', `redis://:${password}@`);
  const lived = await life(t, {
    storage: 'sqlite',
    options: (_, place) => ({ filename: place('messages.sqlite') }),
    more: () => ({}),
    persistence: () => ({ command: 'set_persistence', storage: 'redis', url }),
    redis: { url: redis.url, password },
  });
  judge(lived, (name) => name.startsWith('messages.sqlite'));
  assert.deepEqual(found(lived.s, lived.redis).filter((kind) => !KEPT.includes(kind) && kind !== 'body' && kind !== 'redis'), [], 'in Redis');
  assert.deepEqual(found(lived.s, lived.redis, SIGNING), SIGNING);
});
