'use strict';
// `restante admin …`, of the package and of the cargo binary alike, against a real server.
const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { randomBytes } = require('node:crypto');
const { once } = require('node:events');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const { newFolder } = require('../helpers/folder');
const { restante, startServer, unique, until } = require('./helpers');
const { startProxy } = require('../helpers/proxy');
const { script } = require('../helpers/python');

const ADMIN = 'an administrator of the command line';
const PACKAGE = [process.execPath, path.join(__dirname, '..', '..', 'bin', 'restante.js')];
/** The binary that is tested, as in `helpers/server.js`. */
function binary() {
  const built = ['release', 'debug'].map((profile) => path.join(__dirname, '..', '..', 'target', profile, 'restante')).filter((file) => fs.existsSync(file));
  return process.env.RESTANTE_BIN ?? built.sort((a, b) => fs.statSync(b).mtimeMs - fs.statSync(a).mtimeMs)[0];
}
const COMMANDS = { 'of the package': PACKAGE, 'of cargo': [binary()] };

/** Nothing of the environment that the tests run in. */
const bare = (more) => ({ PATH: process.env.PATH, HOME: os.tmpdir(), RESTANTE_ENV_FILE: '/dev/null', ...more });

/** Runs it without a terminal: `{code, out, err}`. */
function run([command, ...before], words, env, cwd) {
  const child = spawn(command, [...before, 'admin', ...words], { cwd, stdio: ['ignore', 'pipe', 'pipe'], env: bare(env) });
  const said = { out: '', err: '' };
  child.stdout.on('data', (data) => (said.out += data));
  child.stderr.on('data', (data) => (said.err += data));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, ...said }));
  });
}

async function guarded(t, command, more = {}) {
  const broker = await startServer(t, { auth: { enabled: true, tokens: [{ token: ADMIN, realm: '*', role: 'admin' }] }, ...more });
  const env = { RESTANTE_HOST: '127.0.0.1', RESTANTE_PORT: String(broker.port), RESTANTE_ADMIN_TOKEN: ADMIN };
  const admin = (words, extra) => run(command, typeof words === 'string' ? words.split(' ') : words, { ...env, ...extra });
  const json = async (words, extra) => {
    const { code, out, err } = await admin(`${words} --json --yes`, extra);
    assert.equal(code, 0, `${words}: ${err}${out}`);
    return JSON.parse(out.trim().split('\n').at(-1));
  };
  const client = (kind, auth, name = unique('x')) => broker.factory({ auth, connectTimeout: 10_000 })[kind](name).then(broker.keep);
  return { ...broker, env, admin, json, client };
}

for (const [whose, command] of Object.entries(COMMANDS)) {
  test(`the command ${whose} says by its exit code what became of it`, async (t) => {
    const { admin } = await guarded(t, command);
    const codes = [
      ['verify', {}, 0], ['verify', { RESTANTE_ADMIN_TOKEN: 'wrong' }, 2], ['realms paint', {}, 1], ['realms remove acme', {}, 1],
      ['realms remove acme --yes', {}, 2], ['verify', { RESTANTE_PORT: '1' }, 3], ['verify', { RESTANTE_ADMIN_TOKEN: '' }, 1], ['--help', {}, 0],
      ['verify -h 127.0.0.1 -s http', {}, 0], ['verify --token-env OTHER', { OTHER: ADMIN, RESTANTE_ADMIN_TOKEN: 'wrong' }, 0],
    ];
    for (const [words, env, wanted] of codes) {
      const { code, out, err } = await admin(words, env);
      assert.equal(code, wanted, `${words}: ${err}`);
      assert.ok(!(out + err).includes(ADMIN), words);
      assert.equal(out === '', wanted !== 0, `${words}: ${out}`);
    }
    const { out } = await admin('verify --json', { RESTANTE_ADMIN_TOKEN: 'wrong' });
    assert.equal(JSON.parse(out).error, 'proof_rejected');
  });

  test(`the command ${whose} goes through TLS`, async (t) => {
    const fixture = (name) => path.join(__dirname, '..', '..', 'core', 'tests', 'fixtures', 'tls', name);
    const { admin } = await guarded(t, command, { tls: { cert: fixture('one.pem'), key: fixture('one.key') } });
    const where = ['verify', '-s', 'https', '-h', 'localhost'];
    assert.equal((await admin([...where, '--ca', fixture('ca.pem')])).code, 0);
    assert.equal((await admin(where, { RESTANTE_CA: fixture('ca.pem') })).code, 0);
    const { code, err } = await admin(where);
    assert.equal(code, 3);
    assert.match(err, /not trusted/);
    assert.equal((await admin('verify -s gopher')).code, 1);
  });

  test(`the command ${whose} serves with a token that it makes, and finds it beside`, async (t) => {
    const cwd = newFolder();
    const env = bare({ RESTANTE_ENV_FILE: undefined });
    const [file, ...before] = command;
    const serving = spawn(file, [...before, ...'serve --auth --port 0 --host 127.0.0.1 --storage memory'.split(' ')], { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    for (const stream of [serving.stdout, serving.stderr]) stream.on('data', (data) => (said += data));
    t.after(async () => {
      serving.kill('SIGTERM');
      await once(serving, 'exit');
    });
    const [, port] = await until(() => /listening on 127\.0\.0\.1:(\d+)/.exec(said), () => `the port, it said: ${said}`);
    const { code, out, err } = await run(command, ['verify', '-h', '127.0.0.1', '-p', port], { RESTANTE_ENV_FILE: undefined }, cwd);
    assert.equal(code, 0, err);
    assert.equal(out, 'AUTH_OK realm *, role admin\n');
    assert.equal(fs.statSync(path.join(cwd, '.env')).mode & 0o777, 0o600);
    const [, token] = /^RESTANTE_ADMIN_TOKEN="([0-9a-f]{64})"$/m.exec(fs.readFileSync(path.join(cwd, '.env'), 'utf8'));
    assert.ok(!(said + out + err).includes(token));
  });

  test(`the command ${whose} makes realms and tokens, and ends them`, async (t) => {
    const { admin, json, client } = await guarded(t, command);
    const secrets = newFolder();
    fs.writeFileSync(path.join(secrets, 'key'), 'the key of acme\n');
    await json(`realms add acme --key file:${path.join(secrets, 'key')} --ttl 2h`);
    await json('realms set acme --manager-key env:MANAGER --acceptance yes --permanent', { MANAGER: 'manages acme and more' });
    const { realms } = await json('realms list');
    assert.deepEqual([realms.acme.key_configured, realms.acme.manager_key_configured, realms.acme.require_acceptance, realms.acme.ephemeral], [true, true, true, undefined]);
    const people = await admin('realms list');
    assert.match(people.out, /^name +required/m);
    assert.match(people.out, /^acme +yes/m);
    assert.equal((await admin('verify --realm acme', { RESTANTE_ADMIN_TOKEN: '', RESTANTE_REALM_MANAGER_KEY: 'manages acme and more' })).code, 0);
    const { jwt_key } = await json('realms set acme --jwt-key generate');
    assert.match(jwt_key, /^[0-9a-f]{64}$/);

    const minted = await admin('tokens add --realm acme --role consumer --client-id c1');
    const [, token] = /^token \(shown this once\): ([0-9a-f]{64})$/m.exec(minted.out);
    const consumer = await client('createConsumer', { token });
    assert.deepEqual(consumer.authInfo, { realm: 'acme', role: 'consumer' });
    assert.deepEqual((await json('tokens list --realm acme')).tokens.map(({ client_id }) => client_id), ['c1']);
    const { sessions } = await json('sessions list --realm acme');
    assert.deepEqual(sessions.map(({ role }) => role), ['consumer']);
    const { revoked } = await json('tokens revoke --realm acme --client-id c1');
    assert.equal(revoked.length, 1);
    await until(() => !consumer.connected, 'the session to end');

    await json('management-tokens add acme: --max-ttl 1h');
    const [{ token_hash }] = (await json('management-tokens list')).management_tokens;
    await json(`management-tokens revoke ${token_hash}`);
    await json('external set --url https://127.0.0.1:9/v --realm acme --secret generate');
    await json('external clear --realm acme');
    await json('realms rename acme acme:new');
    await json('realms remove acme:new');
    assert.deepEqual(Object.keys((await json('realms list')).realms).includes('acme:new'), false);
    const shown = await admin('settings show');
    for (const secret of [ADMIN, 'the key of acme', 'manages acme and more', jwt_key, token]) assert.ok(!shown.out.includes(secret));
  });

  test(`the command ${whose} shows requests, and decides them`, async (t) => {
    const { admin, json, client } = await guarded(t, command);
    await json('realms add acme');
    const waiting = admin('requests submit --realm acme --role producer --client-id r1 --wait 1m --json', { RESTANTE_ADMIN_TOKEN: '' });
    const request = await until(async () => (await json('requests next --realm acme')).request, 'the request');
    assert.deepEqual([request.client_id, request.role, request.status], ['r1', 'producer', 'pending']);
    assert.match((await admin('requests list')).out, /r1/);
    await json(`requests approve ${request.request_id}`);
    const { code, out } = await waiting;
    assert.equal(code, 0);
    const approved = JSON.parse(out);
    assert.equal(approved.status, 'approved');
    await client('createProducer', { token: approved.client_token });
    const again = await json('requests submit --realm acme --client-id r2');
    assert.match(again.client_token, /^[0-9a-f]{64}$/);
    const rejected = await admin(['requests', 'reject', again.request_id, '--reason', 'not today']);
    assert.equal(rejected.code, 0, rejected.err);
    assert.equal((await admin(`requests approve ${again.request_id}`)).code, 2);
    assert.equal((await json('requests list --status rejected')).requests.length, 1);
  });

  test(`the command ${whose} waits for a decision over lost connections`, async (t) => {
    const { admin, json, port } = await guarded(t, command);
    await json('realms add acme');
    const proxy = await startProxy({ port });
    t.after(() => proxy.close());
    const asking = () => admin('requests submit --realm acme --wait 1m --json', { RESTANTE_ADMIN_TOKEN: '', RESTANTE_PORT: String(proxy.port) });
    const pending = (other) => until(async () => {
      const { requests } = await json('requests list --realm acme --status pending');
      return requests.find(({ request_id }) => request_id !== other);
    }, 'a request');
    const again = asking();
    const { request_id } = await pending();
    proxy.kill();
    await json(`requests approve ${(await pending(request_id)).request_id}`);
    const approved = await again;
    assert.equal(approved.code, 0, approved.err);

    const away = asking();
    const asked = await pending();
    proxy.hold();
    proxy.kill();
    await json(`requests approve ${asked.request_id} --role consumer`);
    proxy.release();
    const { code, out, err } = await away;
    assert.equal(code, 0, err);
    const { status, realm, role, client_token } = JSON.parse(out);
    assert.deepEqual([status, realm, role], ['approved', 'acme', 'consumer']);
    assert.match(client_token, /^[0-9a-f]{64}$/);
  });

  test(`the command ${whose} tends queues, dead letters and the store`, async (t) => {
    const data_dir = newFolder();
    const { admin, json, client, port } = await guarded(t, command, { data_dir });
    await json('realms add acme');
    const { token } = await json('tokens add --realm acme --client-id c');
    const consumer = await client('createConsumer', { token }, 'billing');
    const producer = await client('createProducer', { token }, 'shop');
    await consumer.subscribe('shop', 'paid', (_, __, ack) => ack.nack({ requeue: false, reason: 'no\u001b[2J' }), { durable: true, manual_ack: true });
    for (const n of [1, 2, 3]) await producer.produce('paid', n, { confirm: true });
    const { entries } = await until(async () => {
      const list = await json('dlq list --realm acme');
      return list.entries.length === 3 && list;
    }, 'three dead letters');
    const people = await admin('dlq list');
    assert.match(people.out, /billing/);
    assert.ok(!people.out.includes('\u001b'), 'what strangers wrote is shown, not obeyed');
    const { queues } = await json('queues stats --realm acme');
    assert.equal(queues.length, 1);
    await consumer.close();
    await json(`dlq requeue ${entries[0].id} --realm acme`);
    await json(`dlq discard ${entries[1].id}`);
    assert.equal((await admin('dlq discard nonsense --yes')).code, 2);
    assert.equal((await json('dlq purge acme')).purged, 1);
    await json(`queues release acme ${queues[0].queue}`);
    assert.equal((await admin('persistence set redis --url redis://u:hush@127.0.0.1:1')).code, 1);
    const moved = await json(`persistence set sqlite --filename ${path.join(data_dir, 'moved.sqlite')}`);
    assert.equal(moved.settings.persistence.storage, 'sqlite');
    assert.equal(moved.levels.after, (await json('stats')).stats.store.level);
    assert.ok(fs.existsSync(path.join(data_dir, 'moved.sqlite')));
    assert.match((await admin('persistence show')).out, /^storage: sqlite$/m);
    assert.equal((await json('queues stats --realm acme')).queues[0].waiting, 1);
    assert.ok((await json('stats')).stats.realms.acme);
    const { disconnected_sockets } = await json('sessions disconnect --realm acme');
    assert.equal(disconnected_sockets, 1);
    assert.equal((await json('auth on')).settings.enabled, true);
    assert.equal((await json('auth off')).settings.enabled, false);
    assert.ok(port > 0);
  });

  test(`the command ${whose} asks at a terminal, without echo`, { skip: process.platform === 'win32' }, async (t) => {
    const { env } = await guarded(t, command);
    const { RESTANTE_ADMIN_TOKEN, ...others } = env;
    const realm = `r-${randomBytes(4).toString('hex')}`;
    const person = (words, answers) => {
      const task = { argv: [...command, 'admin', ...words], env: bare(others), answers: [...answers, ['token: ', RESTANTE_ADMIN_TOKEN, true]] };
      return new Promise((resolve) => {
        const child = spawn('python3', [script('terminal.py'), JSON.stringify(task)], { stdio: ['ignore', 'pipe', 'inherit'] });
        let seen = '';
        child.stdout.on('data', (data) => (seen += data));
        child.once('close', (code) => resolve({ code, seen }));
      });
    };
    const added = await person(['realms', 'add'], [['realm: ', realm, false]]);
    assert.equal(added.code, 0, added.seen);
    assert.ok(added.seen.includes(`realm ${realm} added`) && !added.seen.includes(ADMIN), added.seen);
    const keyed = await person(['realms', 'set', realm, '--key', 'prompt'], [[`key of ${realm}: `, 'hush-hush', true]]);
    assert.equal(keyed.code, 0, keyed.seen);
    assert.ok(!keyed.seen.includes('hush-hush'), keyed.seen);
    const doubtful = await person(['realms', 'remove', realm], [['Type its name: ', 'another', false]]);
    assert.equal(doubtful.code, 1, doubtful.seen);
    const removed = await person(['realms', 'remove', realm], [['Type its name: ', realm, false]]);
    assert.equal(removed.code, 0, removed.seen);
  });
}

test('both commands are one: they say the same about themselves', async () => {
  const [one, other] = await Promise.all(Object.values(COMMANDS).map((command) => run(command, ['--help'], {})));
  assert.equal(one.out, other.out);
  assert.equal(restante.constants.DEFAULT_PORT, 17352);
});
