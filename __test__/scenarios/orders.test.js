// Orders that a signature alone does not make good: where they come from, where they point, what they are (AF38, AF49, AF59),
// and what strangers' names and events leave behind (AF34, AF35).
'use strict';
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { Client } = require('../helpers/client');
const { newFolder } = require('../helpers/folder');
const { signed } = require('../helpers/proof');
const { startServer } = require('../helpers/server');

const ADMIN = 'the administrator of this server, whoever that is';
const TOKEN = 'a token of realm acme, that nobody can guess';
const COMMAND = 'AUTH_MANAGEMENT_COMMAND';
const SOMEWHERE = { 'X-Forwarded-For': '192.0.2.7' };

const auth = {
  enabled: true,
  tokens: [
    { token: ADMIN, realm: '*', role: 'admin' },
    { token: TOKEN, realm: 'acme', role: 'both' },
  ],
  realms: { acme: {} },
};

async function guarded(t, more = {}) {
  const server = await startServer({ auth, limits: { trust_proxy: ['127.0.0.0/8'] }, ...more });
  t.after(() => server.stop());
  return server;
}

const order = (client, body) => client.call(COMMAND, signed(COMMAND, body, ADMIN), { timeout: 20_000 });

/** The commands that carry a secret, or are answered with one. */
const SECRETIVE = [
  { command: 'add_realm', realm: 'r', key: 'k'.repeat(32) },
  { command: 'set_realm_manager_key', realm: 'acme', manager_key: 'k'.repeat(32) },
  { command: 'set_realm_jwt_key', realm: 'acme', jwt_key: 'k'.repeat(32) },
  { command: 'set_realm_key', realm: 'acme', key: 'k'.repeat(32) },
  { command: 'add_token', realm: 'acme', role: 'both' },
  { command: 'add_token', realm: 'acme', role: 'both', token: 't'.repeat(32) },
  { command: 'add_management_token', token: 't'.repeat(32), realm_prefix: 'org:' },
  { command: 'set_external_auth', auth_url: 'https://example.org/', auth_secret: 's'.repeat(32) },
  { command: 'set_persistence', storage: 'redis', url: 'redis://:p@127.0.0.1:1' },
];

test('a secret does not go in clear over a network unless that is allowed, and nothing has changed', async (t) => {
  const server = await guarded(t);
  const far = await Client.websocket(server, { headers: SOMEWHERE });
  const before = (await order(far, { command: 'get' })).settings;
  for (const body of SECRETIVE) {
    const { ok, error } = await order(far, body);
    assert.deepEqual([ok, error], [false, 'forbidden'], JSON.stringify(body));
  }
  assert.deepEqual((await order(far, { command: 'get' })).settings, before);
  assert.equal((await order(far, { command: 'add_realm', realm: 'r' })).ok, true, 'what has no secret goes');
  const near = await Client.websocket(server);
  assert.equal((await order(near, SECRETIVE[1])).ok, true);
  const lenient = await guarded(t, { auth: { ...auth, allow_insecure_management: true } });
  assert.equal((await order(await Client.websocket(lenient, { headers: SOMEWHERE }), SECRETIVE[1])).ok, true);
});

test('a command puts a database where it may, and loads no module', async (t) => {
  const folder = newFolder();
  const data_dir = path.join(folder, 'data');
  fs.mkdirSync(data_dir);
  fs.symlinkSync(folder, path.join(data_dir, 'out'));
  const server = await guarded(t, { data_dir });
  const client = await Client.websocket(server);
  const outside = ['../x.sqlite', `${folder}/x.sqlite`, `${data_dir}/../x.sqlite`, `${data_dir}/out/x.sqlite`, `file:${folder}/x.sqlite`];
  for (const filename of outside) {
    const { ok } = await order(client, { command: 'set_persistence', storage: 'sqlite', filename });
    assert.equal(ok, false, filename);
    assert.ok(!fs.existsSync(path.join(folder, 'x.sqlite')), filename);
  }
  for (const module of ['./evil.js', '/tmp/evil.js', 'node:child_process']) {
    const { ok } = await order(client, { command: 'set_persistence', storage: 'custom', module });
    assert.equal(ok, false, module);
  }
  const { settings } = await order(client, { command: 'get' });
  assert.equal(settings.persistence.storage, 'memory');
});

test('what is no command fails as one, and does not use its proof up', async (t) => {
  const server = await guarded(t);
  const client = await Client.websocket(server);
  const unknown = signed(COMMAND, { command: 'paint' }, ADMIN);
  client.emitEvent(COMMAND, unknown);
  assert.equal((await client.next('AUTH_MANAGEMENT_FAIL')).code, 400);
  assert.equal((await client.call(COMMAND, unknown)).code, 400);
  const good = signed(COMMAND, { command: 'get' }, ADMIN);
  assert.equal((await client.call(COMMAND, good)).ok, true);
  const again = await client.call(COMMAND, good);
  assert.deepEqual([again.ok, again.code, again.error], [false, 401, 'proof_rejected']);
  client.emitEvent(COMMAND, { body: { command: 'remove_realm', realm: 'nowhere' }, proof: null });
  assert.equal((await client.next('AUTH_MANAGEMENT_FAIL')).code, 401);
  client.emitEvent(COMMAND, signed(COMMAND, { command: 'remove_realm', realm: 'nowhere' }, ADMIN));
  assert.equal((await client.next('AUTH_MANAGEMENT_FAIL')).code, 404);
});

test('names and events that nobody asked for leave nothing behind', { timeout: 60_000 }, async (t) => {
  const server = await guarded(t, { limits: { messages_per_second: 0, bytes_per_second: 0 } });
  const client = await Client.websocket(server);
  assert.equal((await client.call('AUTHENTICATION', { token: TOKEN })).ok, true);
  await client.producer('shop');
  const judge = await Client.websocket(server);
  const realm = async () => (await order(judge, { command: 'stats' })).stats;
  const before = await realm();
  const memory = server.resident();
  const spoofed = await Promise.all(Array.from({ length: 1000 }, (_, n) => client.call('PRODUCE', { event: `e${n}`, message: n, from: `bank${n}` }, { timeout: 20_000 })));
  assert.deepEqual([...new Set(spoofed.map(({ code }) => code))], [403]);
  for (let round = 0; round < 10; round++) {
    const answers = await Promise.all(Array.from({ length: 1000 }, (_, n) => client.produce(`event-${round}-${n}-${'x'.repeat(500)}`, n)));
    assert.ok(answers.every(({ ok }) => ok));
    client.packets.length = client.events.length = 0;
  }
  const after = await realm();
  assert.deepEqual(after.realms, before.realms);
  assert.deepEqual(Object.keys(after.counters), Object.keys(before.counters));
  assert.ok(server.resident() - memory < 20_000, `${server.resident() - memory} KiB more`);
});
