'use strict';
// The settings file through the package: what counts over what, and what an edit changes.
const assert = require('node:assert/strict');
const { spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { newFolder } = require('../helpers/folder');
const { restante, quiet, startServer, inbox, until } = require('./helpers');
const { startRedis } = require('../helpers/redis');

const command = path.join(__dirname, '..', '..', 'bin', 'restante.js');

function place(t, settings) {
  const folder = newFolder();
  const file = path.join(folder, 'settings.json');
  const write = (value) => {
    fs.writeFileSync(`${file}.part`, typeof value === 'string' ? value : JSON.stringify(value));
    fs.renameSync(`${file}.part`, file);
  };
  if (settings !== undefined) write(settings);
  return { folder, file, write, options: { settings_file: file, data_dir: folder } };
}

const storage = (server) => server.getStats().store.storage;

test('the file counts over the program, what an option overrides over both, and a bad one stops the start', async (t) => {
  const { options, write, file, folder } = place(t, { port: 1, allow_anonymous: false, colour: 'red' });
  const warned = [];
  const logger = { ...quiet, warn: (text) => warned.push(text) };
  const { server, factory } = await startServer(t, { ...options, logger, allow_anonymous: true, overrides: { port: 0 } });
  await assert.rejects(factory().createConsumer('ANONYMOUS'), { code: 'anonymous_refused' });
  assert.match(warned.join('\n'), /colour/);
  await server.stop();
  for (const [text, where] of [['{', 'settings.json'], ['{"limits": {"message_burst": "x"}}', 'limits.message_burst'], ['{"storage": "sqlite", "storage_options": {"filename": 1}}', 'storage_options.filename']]) {
    write(text);
    const refused = new restante.Server({ ...options, logger: quiet });
    await assert.rejects(refused.start(0), (error) => error.code === 'config' && error.message.includes(where));
    assert.throws(() => new restante.Settings(file).check(), { code: 'config' });
    assert.throws(() => restante.Server.check(options), { code: 'config' });
  }
  write({ colour: 1 });
  assert.equal(new restante.Settings(file).check().length, 1);
  const made = new restante.Server({ settings_file: path.join(folder, 'new.json'), data_dir: folder, host: '127.0.0.1', logger: quiet });
  await made.start(0);
  await made.stop();
  assert.equal(fs.statSync(path.join(folder, 'new.json')).mode & 0o077, 0);
  assert.throws(() => new restante.Settings(''), { code: 'bad_command' });
});

test('an edit counts by itself, a bad one changes nothing and is told, its repair is taken', async (t) => {
  const { options, write, file } = place(t, { allow_anonymous: false });
  const { server, factory, keep } = await startServer(t, options);
  const letsIn = () => factory().createConsumer('ANONYMOUS-x').then((consumer) => keep(consumer).close().then(() => true), () => false);
  assert.equal(await letsIn(), false);
  write('{"allow_anonymous": true, "limits": {"realms": {"a": 1}}}');
  await until(() => server.getStats().settings_error !== null, 'the error');
  assert.match(server.getStats().settings_error, /limits\.realms\.a /);
  assert.equal(await letsIn(), false);
  assert.ok(server.getStats().counters.settings_reload_failures_total >= 1);
  fs.rmSync(file);
  await assert.rejects(server.reloadSettings(), { code: 'config' });
  write({ allow_anonymous: true, threads: 7 });
  await until(() => server.getStats().settings_error === null, 'the repair');
  assert.equal(await letsIn(), true);
  const { changed, needs_restart } = await server.reloadSettings();
  assert.deepEqual([changed, needs_restart], [[], ['threads']]);
});

test('another file takes the place of the one before', async (t) => {
  const one = place(t, {});
  const other = place(t, { strict_from: true });
  const { server, producer } = await startServer(t, one.options);
  await assert.rejects(server.loadSettings(''), { code: 'bad_command' });
  assert.deepEqual((await server.loadSettings(other.file)).changed, ['strict_from']);
  one.write('{');
  other.write({});
  assert.deepEqual(await server.reloadSettings().then(({ warnings }) => warnings), []);
  const p = await producer();
  await p.produce('x', 1, { confirm: true });
  const { server: none } = await startServer(t);
  await assert.rejects(none.reloadSettings(), { code: 'config' });
});

test('a store goes from memory to a file to Redis by edits under load, and the next start opens the last', async (t) => {
  const { options, write, folder } = place(t, {});
  const redis = await startRedis(t);
  const first = await startServer(t, options);
  const away = await first.consumer('billing');
  await away.subscribe('paid', () => {}, { durable: true, ack: true });
  await away.close();
  const producer = await first.producer('orders');
  let sent = 0;
  let isOver = false;
  const load = (async () => {
    while (!isOver) {
      const results = await Promise.all(Array.from({ length: 20 }, () => producer.produce('paid', sent++, { confirm: true })));
      assert.ok(results.every(({ queued }) => queued === 1));
    }
  })();
  const more = (count) => until(() => sent >= count, `${count} messages`);
  await more(200);
  write({ storage: 'sqlite', storage_options: { filename: path.join(folder, 'queue.sqlite') } });
  await until(() => storage(first.server) === 'sqlite', 'the file in force');
  await more(sent + 200);
  write({ storage: 'redis', storage_options: { url: redis.url } });
  await until(() => storage(first.server) === 'redis', 'Redis in force');
  await more(sent + 200);
  isOver = true;
  await load;
  await first.server.stop();

  const second = await startServer(t, options);
  assert.equal(storage(second.server), 'redis');
  const box = inbox();
  await (await second.consumer('billing')).subscribe('paid', ({ message }, ...rest) => box.handler(message, ...rest), { durable: true, ack: true });
  await until(() => box.got.length >= sent, () => `${sent} messages, got ${box.got.length}`);
  assert.equal(box.got.length, sent);
});

test('the file counts over a store of the program when it names one', async (t) => {
  const { options, write, folder } = place(t, {});
  const own = new restante.Storage.MemoryStore();
  const { server } = await startServer(t, { ...options, storage: own });
  assert.equal(storage(server), 'memory');
  await server.stop();
  write({ storage: 'sqlite', storage_options: { filename: path.join(folder, 'a.sqlite') } });
  const rows = { enqueue: async () => assert.fail('it is not used'), dequeue: async () => [], ack: async () => {} };
  const second = await startServer(t, { ...options, storage: rows });
  assert.equal(storage(second.server), 'sqlite');
});

test('the command checks, goes by the file, and reads it again when told by a signal', async (t) => {
  const { folder, file, write } = place(t, { storage: 'paper' });
  const run = (...more) => spawnSync(process.execPath, [command, 'serve', '--settings', file, ...more], { cwd: folder, encoding: 'utf8', timeout: 60_000 });
  for (const more of [[], ['--check-config']]) {
    const { status, stdout, stderr } = run(...more);
    assert.equal(status, 1);
    assert.match(stderr, /paper/);
    assert.doesNotMatch(stdout, /listening/);
  }
  write({ host: '127.0.0.1', storage: 'memory' });
  assert.equal(run('--check-config').status, 0);
  fs.writeFileSync(path.join(folder, 'vars'), "RESTANTE_PORT='0'\n# a comment\n");
  assert.match(run('--env-file', path.join(folder, 'none')).stderr, /none/);
  const broker = spawn(process.execPath, [command, 'serve', '--settings', file, '--env-file', path.join(folder, 'vars')], { cwd: folder });
  t.after(() => broker.kill('SIGKILL'));
  let said = '';
  for (const stream of [broker.stdout, broker.stderr]) stream.on('data', (data) => (said += data));
  const says = (pattern) => until(() => pattern.test(said), () => `${pattern}, it said: ${said}`);
  await says(/listening on 127\.0\.0\.1:\d+/);
  fs.writeFileSync(file, '{');
  broker.kill('SIGHUP');
  await says(/no valid JSON/);
  broker.kill('SIGTERM');
  await until(() => broker.exitCode !== null, 'its end');
  assert.equal(broker.exitCode, 0);
});

test('what goes wrong when the file is read again by itself is told to the logger, once, and by the command', async (t) => {
  const { options, write } = place(t, {});
  const said = [];
  const logger = { ...quiet, error: (text) => said.push(text) };
  // Two servers with one logger are still one log.
  const { server } = await startServer(t, { ...options, logger });
  await startServer(t, { logger });
  const wrong = { limits: { realms: { acme: { message_burst: 'x' } } } };
  write(wrong);
  await until(() => server.getStats().settings_error !== null, 'the reading');
  await until(() => said.length > 0, 'the error');
  assert.match(said[0], /restante: settings stay as they were: .*limits\.realms\.acme\.message_burst/);
  await assert.rejects(server.reloadSettings(), { code: 'config' });
  await until(() => said.length > 1, 'the error of the second reading');
  assert.equal(said.length, 2, said.join('\n'));

  const other = place(t, { host: '127.0.0.1', storage: 'memory' });
  const broker = spawn(process.execPath, [command, 'serve', '--settings', other.file, '--port', '0'], { cwd: other.folder });
  t.after(() => broker.kill('SIGKILL'));
  let told = '';
  for (const stream of [broker.stdout, broker.stderr]) stream.on('data', (data) => (told += data));
  await until(() => /listening on/.test(told), () => `its start, it said: ${told}`);
  other.write(wrong);
  await until(() => /stay as they were.*message_burst/.test(told), () => `the error, it said: ${told}`);
});

test('a switch in the environment is said by the usual words, and anything else stops the command', (t) => {
  const { folder } = place(t);
  const check = (more, ...flags) => spawnSync(process.execPath, [command, 'serve', '--check-config', '--storage', 'memory', ...flags], { cwd: folder, encoding: 'utf8', env: { ...process.env, ...more } });
  for (const word of ['1', 'YES', 'true', 'off', '']) assert.equal(check({ RESTANTE_AUTH_ENABLED: word }).status, 0, word);
  for (const word of ['2', 'enabled']) {
    const { status, stderr } = check({ RESTANTE_AUTH_ENABLED: word });
    assert.equal(status, 1);
    assert.match(stderr, /RESTANTE_AUTH_ENABLED must be/);
  }
  const missing = path.join(folder, 'none.json');
  const { status, stdout, stderr } = check({}, '--settings', missing);
  assert.equal(status, 0, stderr);
  assert.match(stderr + stdout, /none\.json is not there/);
  assert.equal(fs.existsSync(missing), false);
  assert.equal(check({}, '--settings', path.join(folder, 'none', 'none.json')).status, 1);
});

test('authentication that the environment switches on is on', async (t) => {
  const { folder } = place(t);
  const broker = spawn(process.execPath, [command, 'serve', '--storage', 'memory', '--host', '127.0.0.1', '--port', '0'], { cwd: folder, env: { ...process.env, RESTANTE_AUTH_ENABLED: 'Yes' } });
  t.after(() => broker.kill('SIGKILL'));
  let said = '';
  for (const stream of [broker.stdout, broker.stderr]) stream.on('data', (data) => (said += data));
  const [, port] = await until(() => /listening on 127\.0\.0\.1:(\d+)/.exec(said), () => `its start, it said: ${said}`);
  // The core's own word of it, which nobody in Node heard before.
  await until(() => /a secret was made and written to \.env/.test(said), () => `the warning, it said: ${said}`);
  await assert.rejects(new restante.Factory({ host: '127.0.0.1', port: Number(port), logger: quiet }).createProducer('p'), { code: 'unauthenticated' });
});
