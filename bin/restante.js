#!/usr/bin/env node
'use strict';
// The broker as a command: `restante serve`, `restante store …` for a store that no broker uses, and
// `restante admin …` for orders to one that runs, whose words the addon reads.
const fs = require('node:fs');
const { parseArgs } = require('node:util');

const STORE = `  --storage NAME  where durable messages wait (RESTANTE_STORAGE): sqlite (default), redis or memory
  --filename F    the file of sqlite (RESTANTE_FILENAME, or restante.sqlite); also --file
  --synchronous S what confirmed messages survive (RESTANTE_SYNCHRONOUS): full (default), power
                  loss too; normal, the process being killed
  --url U         where redis is (RESTANTE_REDIS_URL, or redis://127.0.0.1:6379)
  --prefix P      what our keys in redis begin with (RESTANTE_REDIS_PREFIX, or restante)
  --options JSON  more options (RESTANTE_OPTIONS), as \`new Server(options)\` takes them`;

const USAGE = `usage: restante serve [options]
       restante store stats | check | export | import [options]
       restante admin COMMAND [options]

restante serve runs the broker.
  --port N        TCP port (RESTANTE_PORT, TYO_MQ_PORT, or 17352); 0 takes a free one
  --host H        address to listen on (RESTANTE_HOST, or all interfaces)
  --settings F    the settings file (RESTANTE_SETTINGS_FILE): what it says counts over --options, and
                  again when it has changed or at SIGHUP; made if it is not there
  --env-file F    variables to read first (RESTANTE_ENV_FILE, or .env if that is there)
  --check-config  says what is wrong with all of this, and starts nothing
  --data-dir D    where restante.state.json is (RESTANTE_DATA_DIR, or the working directory)
  --tls-cert F    the certificate with its chain (RESTANTE_TLS_CERT): connections are secured by it
  --tls-key F     its private key (RESTANTE_TLS_KEY)
  --auth          clients must show who they are (RESTANTE_AUTH_ENABLED=true)
  --auth-store F  where realms and tokens are kept (RESTANTE_AUTH_STORE)
  --fallback S    where messages wait if redis is away at the start (RESTANTE_FALLBACK): sqlite
  --fallback-filename F  in which file then (RESTANTE_FALLBACK_FILENAME, or restante.fallback.sqlite)
  --threads N     I/O threads (RESTANTE_THREADS); 1 up to two cores, else half of them, at most 4
  --grace T       how long a shutdown may take: seconds, or a text like 500ms, 2s, 1m (10s)
${STORE}

restante store works on a store that no broker uses: which one is said as for serve.
  stats           tells what it holds, queue by queue
  check           looks for damage; exit code 1 if there is any
  export          writes everything to standard output, a JSON object a line
  import          fills an empty store with such lines from standard input
  import --from tyo-mq-sqlite FILE | --from tyo-mq-redis URL
                  fills it with what tyo-mq has left
  --json          results as JSON
  --tyo-prefix P  what tyo-mq's keys in redis begin with (tyo-mq:queue)
  --skip-unreadable  names and leaves out rows of tyo-mq that cannot be read

restante admin orders a running broker about: see restante admin --help.

  --help  --version`;

/** Options of stores and their variables; one that the store in question does not have is told, not dropped. */
const FLAGS = {
  filename: 'RESTANTE_FILENAME',
  synchronous: 'RESTANTE_SYNCHRONOUS',
  url: 'RESTANTE_REDIS_URL',
  prefix: 'RESTANTE_REDIS_PREFIX',
  fallback: 'RESTANTE_FALLBACK',
  fallback_filename: 'RESTANTE_FALLBACK_FILENAME',
};
/** What tyo-mq has left. */
const FOREIGN = ['tyo-mq-sqlite', 'tyo-mq-redis'];
const WHICH = ['storage', 'filename', 'file', 'synchronous', 'url', 'prefix', 'options'];
const SERVE = ['port', 'host', 'settings', 'env-file', 'check-config', 'data-dir', 'tls-cert', 'tls-key', 'auth', 'auth-store', 'fallback', 'fallback-filename', 'threads', 'grace'];
const COMMANDS = { serve: [...SERVE, ...WHICH], store: ['json', 'from', 'tyo-prefix', 'skip-unreadable', ...WHICH] };
const TASKS = ['stats', 'check', 'export', 'import'];
const BOOLEAN = ['json', 'skip-unreadable', 'check-config', 'auth', 'help', 'version'];
const SHORT = { help: 'h', version: 'v' };

function parse() {
  if (process.argv[2] === 'admin') return { words: process.argv.slice(3) };
  const names = [...new Set([...COMMANDS.serve, ...COMMANDS.store, 'help', 'version'])];
  const options = Object.fromEntries(
    names.map((name) => [name, { type: BOOLEAN.includes(name) ? 'boolean' : 'string', ...(SHORT[name] && { short: SHORT[name] }) }]),
  );
  const { values, positionals } = parseArgs({ allowPositionals: true, options });
  if (values.version) return { print: require('../package.json').version };
  if (values.help) return { print: USAGE };
  const [command, ...rest] = positionals;
  if (!Object.hasOwn(COMMANDS, command)) throw new Error(USAGE);
  const strange = Object.keys(values).find((name) => !COMMANDS[command].includes(name));
  if (strange) throw new Error(`restante ${command} takes no --${strange}\n\n${USAGE}`);
  if (command === 'store') return { job: job(values, rest) };
  if (rest.length > 0) throw new Error(USAGE);
  readEnvironment(values['env-file']);
  return { options: serving(values), isCheck: values['check-config'] ?? false, grace: values.grace === undefined ? { timeout: '10s' } : grace(values.grace) };
}

/** Variables of a file; those that are set already count. */
function readEnvironment(named) {
  const file = named ?? process.env.RESTANTE_ENV_FILE;
  let text;
  try {
    text = fs.readFileSync(file || '.env', 'utf8');
  } catch (error) {
    if (!file && error.code === 'ENOENT') return;
    throw config(`environment file ${file || '.env'}: cannot be read: ${error.message}`);
  }
  const { call } = require('../lib/errors');
  for (const [name, value] of Object.entries(call(require('../lib/native').readEnvFile, text))) process.env[name] ??= value;
}

function config(message) {
  return Object.assign(new Error(message), { code: 'config' });
}

/** The options, and over the settings file what flags and variables say. */
function serving(values) {
  const { env } = process;
  const base = parsed(values.options ?? (env.RESTANTE_OPTIONS || '{}'));
  const storage = values.storage ?? env.RESTANTE_STORAGE;
  // What the options say of a store is meant for the one that the flag names.
  if (base.storage === undefined && base.store === undefined) base.storage = storage ?? 'sqlite';
  const given = { ...values, filename: values.filename ?? values.file };
  const settings_file = values.settings ?? (env.RESTANTE_SETTINGS_FILE || undefined);
  const said = {};
  for (const [name, variable] of Object.entries(FLAGS)) said[name] = given[name.replace('_', '-')] ?? env[variable];
  const tls = { cert: values['tls-cert'] ?? env.RESTANTE_TLS_CERT, key: values['tls-key'] ?? env.RESTANTE_TLS_KEY };
  const auth = values.auth ?? switched('RESTANTE_AUTH_ENABLED', env.RESTANTE_AUTH_ENABLED || undefined);
  const store = values['auth-store'] ?? env.RESTANTE_AUTH_STORE;
  const bytes = env.RESTANTE_MAX_HTTP_BUFFER_SIZE;
  const overrides = {
    port: number(values.port ?? (env.RESTANTE_PORT || env.TYO_MQ_PORT || undefined), '--port'),
    host: values.host ?? (env.RESTANTE_HOST || env.TYO_MQ_HOST || undefined),
    threads: threads(values.threads ?? (env.RESTANTE_THREADS || undefined)),
    data_dir: values['data-dir'] ?? env.RESTANTE_DATA_DIR,
    max_message_bytes: bytes ? number(bytes, 'RESTANTE_MAX_HTTP_BUFFER_SIZE') : undefined,
    storage,
    storage_options: some(said),
    tls: some(tls),
    auth: auth === undefined ? undefined : { enabled: auth },
    auth_store: store === undefined ? undefined : switchOrFile(store),
  };
  return { ...base, settings_file, overrides };
}

/** Without what is not said; undefined if nothing is. */
function some(object) {
  const given = Object.entries(object).filter(([, value]) => value !== undefined);
  return given.length > 0 ? Object.fromEntries(given) : undefined;
}

/** What a variable says of a switch, read by the core. */
function switched(name, text) {
  const { call } = require('../lib/errors');
  return text === undefined ? undefined : call(require('../lib/native').readSwitch, name, text);
}

function switchOrFile(text) {
  return text === '' ? false : (require('../lib/native').switchOf(text) ?? text);
}

function threads(text) {
  const count = number(text, '--threads');
  return count === undefined ? undefined : Math.max(1, count);
}

/** A duration as all options take it, read by the core. */
function grace(text) {
  const { milliseconds } = require('../lib/options');
  return { timeout: `${milliseconds(text, '--grace')}ms` };
}

function number(text, name) {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (text.trim() === '' || !Number.isInteger(value)) throw new Error(`${name} must be a whole number, not ${text}`);
  return value;
}

/** The object that `--options` says as JSON. */
function parsed(text) {
  let options = null;
  try {
    options = JSON.parse(text);
  } catch {
    // Said below, as for what is JSON and no object.
  }
  if (options === null || typeof options !== 'object' || Array.isArray(options)) throw new Error(`--options must be a JSON object, not ${text}`);
  return options;
}

/** The options that were given, with the store that flags and variables name. */
function which(values) {
  const { env } = process;
  const { store, storageOptions, ...more } = parsed(values.options ?? (env.RESTANTE_OPTIONS || '{}'));
  const storage = values.storage ?? env.RESTANTE_STORAGE ?? more.storage ?? store ?? 'sqlite';
  const said = {};
  const given = { ...values, filename: values.filename ?? values.file };
  for (const [name, variable] of Object.entries(FLAGS)) if (WHICH.includes(name)) said[name] = given[name.replace('_', '-')] ?? env[variable];
  const storage_options = { ...(more.storage_options ?? storageOptions), ...JSON.parse(JSON.stringify(said)) };
  return { ...more, storage, storage_options };
}

function job(values, [task, source, ...more]) {
  const isForeign = task === 'import' && values.from !== undefined;
  if (!TASKS.includes(task) || more.length > 0 || (source !== undefined) !== isForeign) throw new Error(USAGE);
  if (isForeign && !FOREIGN.includes(values.from)) throw new Error(`--from must be ${FOREIGN.join(' or ')}, not ${values.from}\n\n${USAGE}`);
  if (task !== 'import' && (values.from ?? values['tyo-prefix'] ?? values['skip-unreadable']) !== undefined) throw new Error(USAGE);
  return {
    task,
    options: which(values),
    json: values.json ?? false,
    from: values.from,
    source,
    tyo_prefix: values['tyo-prefix'],
    skip_unreadable: values['skip-unreadable'] ?? false,
  };
}

async function main() {
  let wish;
  try {
    wish = parse();
  } catch (error) {
    console.error(error.message);
    // What is said well and wrong all the same is no matter of usage.
    process.exitCode = error.code === 'config' ? 1 : 2;
    return;
  }
  const { print, job, options, isCheck, grace, words } = wish;
  if (print) return console.log(print);
  if (job) process.exitCode = (await work((native, port, token) => native.storeJob(port, JSON.stringify(job), token))) ? 0 : 1;
  if (words) process.exitCode = await work((native, port, token) => native.adminJob(port, words, token));
  if (job || words) return;
  const { Server } = require('../index.js');
  if (isCheck) {
    for (const warning of Server.check(options)) console.error(`restante: ${warning}`);
    return console.log('nothing is wrong');
  }
  const server = new Server(options);
  // The first signal stops in good order, a second one at once.
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => void server.stop(grace));
  // What is wrong is told by the broker's log.
  process.on('SIGHUP', () => void server.reloadSettings().catch(() => {}));
  const { port, host } = await server.start();
  console.log(`restante: listening on ${host.includes(':') ? `[${host}]` : host}:${port}`);
  if (process.send && process.connected) process.send('Server started');
}

/** The addon reads and writes the standard streams itself. */
async function work(start) {
  const native = require('../lib/native');
  const { Port } = require('../lib/port');
  const { call } = require('../lib/errors');
  const port = new Port(([kind, , text]) => kind === 'log' && console.error(`restante: ${text}`));
  port.wake();
  native.hearLog(port.native);
  try {
    return await port.promise((token) => call(start, native, port.native, token));
  } finally {
    port.end();
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
