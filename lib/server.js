'use strict';
// The broker in this process. It runs on threads of its own; this starts, stops and asks it.
// Options are read and checked by the core.
const { EventEmitter } = require('node:events');
const native = require('./native');
const { encode } = require('./binary');
const { RestanteError, call, refused } = require('./errors');
const log = require('./log');
const { closeOptions, milliseconds, read, kinds } = require('./options');
const { Port } = require('./port');
const { CustomStore } = require('./custom_store');
const { Settings } = require('./settings');
const { Validator } = require('./validator');
const { Storage, clientOf, isStore, nameOf, warningsOf } = require('./storage');

const STOP_TIMEOUT = 5000;
const PERSISTENCE = { storage: kinds.same, storage_options: kinds.same, force: kinds.sure };
const LETTERS = { realm: kinds.text, after: kinds.text, limit: kinds.count(1, 10_000) };

class Server extends EventEmitter {
  #wish;
  #store;
  #client;
  #dataDir;
  #validator;
  #calls = null;
  #giveUp = null;
  #port = null;
  #native = null;
  #starting = null;
  #stopping = null;

  constructor(options = {}) {
    super();
    this.options = options;
    this.logger = options?.logger ?? console;
    /** The port it listens on, once started. */
    this.port = null;
    const { wish, store, client, dataDir, validator, warnings } = plain(options);
    this.#wish = wish;
    this.#store = store;
    this.#client = client;
    this.#dataDir = dataDir;
    this.#validator = validator;
    // What is wrong is told now, not at start().
    this.#warn([...warnings, ...call(native.checkServerOptions, JSON.stringify(wish))]);
  }

  /** Opens the port (0: any that is free) and resolves `{port, host}`. */
  start(port) {
    if (this.#stopping) return this.#stopping.then(() => this.start(port));
    this.#starting ??= this.#start(port === undefined ? this.#wish : { ...this.#wish, port: portNumber(port) });
    return this.#starting;
  }

  listen(port, host) {
    if (host !== undefined) this.#wish.host = host;
    return this.start(port);
  }

  async #start(wish) {
    try {
      const warn = (message) => this.logger.error?.(`restante: ${message}`);
      let send = null;
      this.#port = new Port(([kind, ...rest], batch) => {
        if (kind === 'redis') send(rest[0], rest[1], batch.parts.shift());
        else if (kind === 'broken') warn(rest[0]);
        else if (kind === 'log') log.print(this, ...rest);
        else if (kind === 'call') this.#calls?.perform(...rest, warn);
        else if (kind === 'validate') void this.#validator.perform(this.#native, ...rest, warn);
      });
      this.#port.wake();
      log.join(this, this.logger);
      native.hearLog(this.#port.native);
      this.#native = call(native.openServer, this.#port.native, JSON.stringify(wish));
      if (wish.settings_file !== undefined) this.#warn(this.#now(native.serverWarnings));
      // What the file says of the store counts over what the program says.
      const isOfFile = this.#now(native.storeIsOfSettings);
      if (!isOfFile) send = this.#client?.attach(this.#native) ?? null;
      this.#validator?.attach(this.#native);
      if (this.#store !== null && !isOfFile) this.#calls = await this.#unlessStopped(this.#store.attach(this.#native, this.#dataDir));
      const [listening] = await this.#ask(native.startServer);
      if (this.#store !== null && !isOfFile) this.#tellGaps();
      this.port = listening.port;
      this.#tell('listening', listening);
      return listening;
    } catch (error) {
      this.#reset();
      throw error;
    }
  }

  /** A store of the user's own may never come. */
  #unlessStopped(work) {
    const stopped = new Promise((_, reject) => {
      this.#giveUp = () => reject(new RestanteError({ code: 'shutting_down', message: 'the server was stopped before its store was there' }));
    });
    return Promise.race([work, stopped]);
  }

  #warn(warnings) {
    for (const warning of warnings) this.logger.warn?.(`restante: ${warning}`);
  }

  /** What the store cannot hold of the promises is said once. */
  #tellGaps() {
    for (const { promise, what } of this.getStats().store.gaps) this.logger.info?.(`restante: this store does not hold all of ${promise}: ${what}`);
  }

  #now(fn, ...args) {
    if (this.#native === null) throw new RestanteError({ code: 'shutting_down', message: 'the server is not running' });
    return call(fn, this.#native, ...args);
  }

  #ask(fn, ...args) {
    if (this.#native === null) return Promise.reject(new RestanteError({ code: 'shutting_down', message: 'the server is not running' }));
    return this.#port.promise((token) => call(fn, this.#native, ...args, token));
  }

  #reset() {
    log.leave(this);
    this.#port?.end();
    this.#calls = this.#port = this.#native = this.#starting = this.#stopping = this.port = null;
  }

  /** Takes no more, writes what is under way, ends the sessions. Any time, any number of times;
   *  resolves within `timeout` (5 s). */
  async stop(options) {
    const timeout = milliseconds(closeOptions(options).timeout, 'timeout', STOP_TIMEOUT);
    this.#stopping ??= this.#stop(Math.round(timeout));
    await this.#stopping;
  }

  async #stop(timeout) {
    try {
      // During a start: wait for it; a failed one has nothing to stop.
      const patience = setTimeout(() => this.#giveUp?.(), timeout);
      await this.#starting?.catch(() => {});
      clearTimeout(patience);
      if (this.#native === null) return;
      this.#port.ref(true);
      await this.#ask(native.stopServer, timeout);
    } catch (error) {
      // Everything is closed all the same.
      if (error.code !== 'timeout' && !error.code?.startsWith('store_')) throw error;
      this.logger.warn?.(`restante: ${error.message}`);
    } finally {
      const ran = this.port !== null;
      this.#reset();
      if (ran) this.#tell('close');
    }
  }

  close(options) {
    return this.stop(options);
  }

  async [Symbol.asyncDispose]() {
    await this.stop();
  }

  /** Numbers of this moment. `{queues: true}`: a promise of them and of each remembered queue. */
  getStats(options) {
    const { queues } = read(options, { queues: kinds.flag });
    const stats = JSON.parse(this.#now(native.serverStats));
    return queues ? this.#ask(native.queueStats).then((list) => ({ ...stats, queues: list })) : stats;
  }

  /** Sends an event to the session with this socket id, beside the broker; whether it has taken it. */
  send(socketId, event, payload) {
    return this.#emit(String(socketId), event, payload, false) > 0;
  }

  /** Sends an event to every session; how many have taken it. */
  broadcast(event, payload) {
    return this.#emit(null, event, payload, false);
  }

  /** To one session, or to all; not to those for which something waits to be sent. */
  volatile(event, payload, socketId) {
    return this.#emit(socketId === undefined || socketId === null ? null : String(socketId), event, payload, true);
  }

  #emit(to, event, payload, volatile) {
    const { text, parts } = encode(payload === undefined ? null : payload);
    return this.#now(native.serverEmit, to, String(event), text, parts, volatile);
  }

  /** Forgets names that nobody has held for as long as `idle_eviction` says; how many. */
  sweepIdleRegistrations() {
    return this.#now(native.sweepIdle);
  }

  /** Idle names stay until they are swept. */
  stopIdleEviction() {
    this.#now(native.stopIdleEviction);
    return this;
  }

  /** One page of dead letters, oldest first; go on with the last one's id as `after`. */
  async deadLetters(options) {
    const { realm = 'default', after = null, limit = 100 } = read(options, LETTERS);
    const letters = await this.#ask(native.deadLetters, realm, after, limit);
    const iso = (at) => new Date(at).toISOString();
    return letters.map((letter) => ({ ...letter, created_at: iso(letter.created_at), dead_lettered_at: iso(letter.dead_lettered_at) }));
  }

  async requeueDeadLetter(id, realm = 'default') {
    await this.#ask(native.requeueDeadLetter, realm, String(id));
  }

  async discardDeadLetter(id, realm = 'default') {
    await this.#ask(native.discardDeadLetter, realm, String(id));
  }

  /** Drops all dead letters of a realm; resolves how many those were. */
  async purgeDeadLetters(realm = 'default') {
    return this.#ask(native.purgeDeadLetters, realm);
  }

  /** Writes a copy of the store as of this moment to a new file, while work goes on. */
  async backup(path) {
    if (typeof path !== 'string' || path === '') throw refused('path must be a string');
    await this.#ask(native.backup, path);
  }

  /** Lets another store take the place of the one in force, with everything that waits, while work goes on. It is
   *  remembered in `restante.state.json` in `data_dir` and beats the options at the next start. */
  async setPersistence(options) {
    const { force, ...wish } = read(options, PERSISTENCE, '', (name) => this.#warn([`option ${name} is unknown and ignored`]));
    if (wish.storage === undefined) throw refused('storage must be given');
    const kept = Storage.createStore(wish.storage, isStore(wish.storage) ? undefined : wish.storage_options);
    if (kept instanceof CustomStore) throw new RestanteError({ code: 'unsupported', message: 'a store of your own cannot take the place of another one yet' });
    if (clientOf(kept) !== null) throw new RestanteError({ code: 'unsupported', message: 'a change of the store takes the address of a Redis, not a client' });
    this.#warn(warningsOf(kept));
    return this.#ask(native.setPersistence, JSON.stringify({ ...asked(kept), force }));
  }

  /** Reads the settings file again: all of what has changed counts from then on, or nothing. Resolves
   *  `{changed, needs_restart, warnings}`, the first two names of options. */
  async reloadSettings() {
    return this.#ask(native.reloadSettings);
  }

  /** Lets another settings file take the place of the one before, or of none. */
  async loadSettings(path) {
    if (typeof path !== 'string' || path === '') throw refused('path must be a string');
    return this.#ask(native.loadSettings, path);
  }

  ref() {
    this.#port?.ref(true);
    return this;
  }

  unref() {
    this.#port?.ref(false);
    return this;
  }

  /** A listener that is native cannot live inside another Socket.IO server. */
  create() {
    Server.create();
  }

  /** What is odd about these options and their settings file, one sentence each; changes nothing.
   *  @throws `config` with the path of what is wrong. */
  static check(options = {}) {
    const { wish, warnings } = plain(options);
    return [...warnings, ...call(native.checkSettings, JSON.stringify(wish))];
  }

  static create() {
    throw new RestanteError({
      code: 'unsupported',
      message: 'Server.create(io) is not supported: the broker has its own listener. Use `await new Server(options).start(port)`',
    });
  }

  #tell(name, ...args) {
    for (const listener of this.rawListeners(name)) {
      try {
        listener.apply(this, args);
      } catch (error) {
        this.logger.error?.('restante: a listener failed:', error);
      }
    }
  }
}

/** The options as JSON can carry them, and a store of the user's own. */
function plain(options) {
  if (typeof options !== 'object' || options === null) throw refused('options must be an object', 'config');
  const { logger, storage, store, storage_options, storageOptions, storage_module, storageModule, port, auth, settings_file, settingsFile, ...rest } = options;
  const given = storage ?? store ?? 'memory';
  const more = storage_options ?? storageOptions;
  const named = storage_module ?? storageModule;
  const kept = Storage.createStore(given, isStore(given) ? undefined : named === undefined ? more : { module: named, ...more });
  const warnings = warningsOf(kept);
  if (isStore(given) && more) warnings.push('option storage_options is ignored: the store has been made already');
  const dataDir = rest.data_dir ?? rest.dataDir ?? null;
  if (dataDir !== null && typeof dataDir !== 'string') throw refused('option data_dir must be a path', 'config');
  const isObject = typeof auth === 'object' && auth !== null && !Array.isArray(auth);
  const { validator, ...credentials } = isObject ? auth : {};
  if (auth !== undefined) rest.auth = isObject ? credentials : auth;
  let text;
  try {
    // NaN would become null, which is absent.
    text = JSON.stringify(rest, (_, value) => (typeof value === 'number' && !Number.isFinite(value) ? String(value) : value));
  } catch (error) {
    throw refused(`options must be plain values: ${error.message}`, 'config');
  }
  const file = settings_file ?? settingsFile;
  const wish = { ...JSON.parse(text), port: portNumber(port), ...asked(kept), settings_file: file instanceof Settings ? file.path : (file ?? undefined) };
  return { wish, store: kept instanceof CustomStore ? kept : null, client: clientOf(kept), dataDir, validator: validator === undefined ? null : new Validator(validator), warnings };
}

/** A store as the core is asked for it. */
function asked(store) {
  return { storage: nameOf(store), storage_options: store.options };
}

function portNumber(port) {
  if (port === undefined || port === null) return undefined;
  const number = typeof port === 'string' && port.trim() !== '' ? Number(port) : port;
  if (!Number.isInteger(number) || number < 0 || number > 65535) throw refused('option port must be a whole number from 0 to 65535', 'config');
  return number;
}

module.exports = { Server };
