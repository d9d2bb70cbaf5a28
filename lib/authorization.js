'use strict';
// Signed orders of managers, and the requests of clients who want to be let in. Each call is a
// connection of its own that is closed whatever comes of it. Holds no right: the broker decides.
const { createHmac, randomBytes } = require('node:crypto');
const { RestanteError, refused } = require('./errors');
const { milliseconds, read, kinds } = require('./options');
const { Socket } = require('./socket');

const TIMEOUT = 5000;
/** Longest that a timer of Node can wait. */
const FOREVER = 2 ** 31 - 1;
const GOODBYE = 1;
/** Pauses between tries while a decision is waited for, in milliseconds. */
const PAUSES = { first: 500, longest: 10_000 };
/** What ends one connection of a request that waits, and not the waiting. */
const MAY_PASS = new Set(['disconnected', 'rate_limited']);
const NEXT = 'AUTHORIZATION_NEXT';
const DECIDE = 'AUTHORIZATION_DECIDE';
const COMMAND = 'AUTH_MANAGEMENT_COMMAND';

const OPTIONS = {
  host: kinds.text,
  port: kinds.same,
  protocol: kinds.text,
  path: kinds.text,
  url: (value, name) => kinds.text(value instanceof URL ? value.href : value, name),
  ca: kinds.pem,
  timeout: kinds.count(1, FOREVER),
  wait: kinds.span,
  signal: kinds.same,
  on_pending: kinds.same,
};
/** What a broker that says no code of ours means by its number. */
const BY_NUMBER = { 400: 'bad_command', 401: 'proof_rejected', 403: 'forbidden', 429: 'rate_limited', 501: 'unsupported', 503: 'store_unavailable' };

/** JSON as it is signed: members in the order of their UTF-16 units, no blanks. Takes plain values. */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const member = (name) => `${JSON.stringify(name)}:${canonical(value[name])}`;
  return `{${Object.keys(value).sort().map(member).join(',')}}`;
}

/** What JSON leaves of a body; `check` may refuse parts of it. */
function plain(body, check) {
  let text;
  try {
    text = JSON.stringify(body || {}, check);
  } catch (error) {
    if (error.code === 'bad_command') throw error;
    throw refused(`the body must be plain JSON: ${error.message}`, 'not_carriable');
  }
  const value = text === undefined ? null : JSON.parse(text);
  if (value === null || typeof value !== 'object') throw refused('the body must be an object');
  return value;
}

/** What we send is what was meant: NaN would become null, which is absent; half a surrogate pair is no text to others. */
function carried(name, value) {
  if (typeof value === 'number') kinds.finite(value, name);
  if (!name.isWellFormed() || (typeof value === 'string' && !value.isWellFormed())) {
    throw refused(`the body holds half a surrogate pair${name.isWellFormed() ? ` in ${name}` : ''}`);
  }
  return value;
}

/** Signs an order: what goes beside its body. Nonce and timestamp are for tests. */
function createAdminProof(token, action, body, options) {
  return sign(token, action, plain(body), options);
}

function sign(secret, action, body, { timestamp = Date.now(), nonce = randomBytes(16).toString('hex') } = {}) {
  // The text of the refusal must not hold what was given.
  if (typeof secret !== 'string' || secret === '') throw refused('the secret to sign with must be a string that is not empty');
  if (!Number.isSafeInteger(timestamp)) throw refused('timestamp must be whole milliseconds since 1970');
  const base = [kinds.text(action, 'action'), timestamp, kinds.text(nonce, 'nonce'), canonical(body)].join('\n');
  return { timestamp, nonce, signature: createHmac('sha256', secret).update(base).digest('hex') };
}

/** Where to connect. */
function target(given) {
  const { url, host, port, protocol, path, ca, timeout = TIMEOUT } = given;
  const where = { host: host ?? null, port: port ?? null, protocol: protocol ?? null, path, ca, timeout };
  if (url === undefined) return where;
  let parsed;
  try {
    parsed = new URL(url);
  } catch {
    throw refused('url must be a URL such as http://localhost:17352');
  }
  const scheme = parsed.protocol.slice(0, -1);
  const usual = { https: 443, wss: 443 }[scheme] ?? 80;
  return { ...where, host: parsed.hostname.replace(/^\[|\]$/g, ''), port: parsed.port === '' ? (port ?? usual) : Number(parsed.port), protocol: scheme };
}

/** A connection that is not restored; what happens to it is told by the call that waits. */
function open({ host, port, protocol, path, ca, timeout }, auth = null) {
  const socket = new Socket(null);
  const settings = { connect_timeout_ms: timeout, once: true, ...(ca !== undefined && { ca }) };
  Object.assign(socket, { host, port, protocol, auth, settings, args: { path } });
  socket.on('error', () => {});
  return socket;
}

async function over(where, act) {
  const socket = open(where);
  try {
    await socket.connect();
    return await act(socket);
  } finally {
    await socket.close({ timeout: GOODBYE });
  }
}

/** The reply to an event. @throws RestanteError with `response` if it says no. */
async function ask(socket, event, payload, timeout) {
  const reply = await socket.socket._request(socket._link, event, payload, timeout);
  if (reply === null || typeof reply !== 'object') throw new RestanteError({ code: 'server_error', message: `the server's answer to ${event} is none` });
  if (reply.ok === false) throw refusal(reply);
  return reply;
}

function refusal(response) {
  const { error, code, message } = response;
  const known = typeof error === 'string' ? error : (BY_NUMBER[code] ?? 'server_error');
  const told = new RestanteError({ code: known, number: code, message: typeof message === 'string' ? message : 'the server refused' });
  return Object.assign(told, { response });
}

function signed(secret, action, body, opts) {
  const where = target(read(opts, OPTIONS));
  const sent = plain(body, carried);
  // Before anything is opened: what cannot be signed is refused at the call.
  sign(secret, action, sent);
  return over(where, (socket) => ask(socket, action, { body: sent, proof: sign(secret, action, sent) }, where.timeout));
}

/** The oldest pending request, or null as `request`; of one realm if `filter` says so. */
async function nextAuthorizationRequest(token, filter, opts) {
  return signed(token, NEXT, filter, opts);
}

/** Approves or rejects a request. */
async function decideAuthorizationRequest(token, decision, opts) {
  return signed(token, DECIDE, decision, opts);
}

/** Orders something of the broker. */
async function authManagementCommand(token, command, opts) {
  return signed(token, COMMAND, typeof command === 'string' ? { command } : command, opts);
}

async function nextRealmAuthorizationRequest(managerKey, realm, opts) {
  return signed(managerKey, NEXT, { realm: kinds.text(realm, 'realm') }, opts);
}

async function decideRealmAuthorizationRequest(managerKey, decision, opts) {
  return signed(managerKey, DECIDE, decision, opts);
}

async function realmManagementCommand(managerKey, realm, command, opts) {
  const body = typeof command === 'string' ? { command } : command;
  return signed(managerKey, COMMAND, { ...body, realm: kinds.text(realm, 'realm') }, opts);
}

/** A request with an id and a token of its own, if it has none: then the caller knows what to log in with. */
function wish(request) {
  const { client_id = request?.clientId, client_name = request?.clientName, client_token = request?.clientToken, ...more } = plain(request, carried);
  const { realm = 'default', role, challenge_response = more.challengeResponse } = more;
  const id = kinds.text(client_id ?? `client-${randomBytes(6).toString('hex')}`, 'client_id');
  const token = client_token ?? randomBytes(32).toString('hex');
  if (typeof token !== 'string') throw refused('client_token must be a string');
  return { realm: kinds.text(realm, 'realm'), role, client_id: id, client_name: kinds.text(client_name ?? id, 'client_name'), client_token: token, challenge_response };
}

/** Asks to be let in. With `wait`, resolves when a manager has approved, and rejects `forbidden` when it said no. */
async function submitAuthorizationRequest(request, opts) {
  const { wait, signal, on_pending: onPending, ...given } = read(opts, OPTIONS);
  const where = target(given);
  const asked = wish(request ?? {});
  const mine = { client_id: asked.client_id, client_token: asked.client_token };
  if (wait === undefined) return over(where, async (socket) => ({ ...(await ask(socket, 'AUTHORIZATION_REQUEST', asked, where.timeout)), ...mine }));
  const patience = new Patience(milliseconds(wait, 'wait'), signal);
  try {
    return await decision(asked, where, patience, onPending);
  } finally {
    patience.end();
  }
}

/** The time that may pass, and the signal that ends it early. */
class Patience {
  #timer;
  #signal;
  #over;
  #stop;

  constructor(ms, signal) {
    this.#over = new Promise((_, reject) => {
      this.#stop = () => reject(Object.assign(new Error('The operation was aborted', { cause: signal.reason }), { name: 'AbortError', code: 'ABORT_ERR' }));
      this.#timer = setTimeout(() => reject(new RestanteError({ code: 'timeout', message: 'nobody has decided in time' })), Math.min(ms, FOREVER));
    });
    this.#over.catch(() => {}); // also when nobody waits at that moment
    this.#signal = signal;
    if (signal?.aborted) this.#stop();
    else signal?.addEventListener('abort', this.#stop, { once: true });
  }

  race(promise) {
    return Promise.race([promise, this.#over]);
  }

  async pause(ms) {
    let timer;
    try {
      await this.race(new Promise((resolve) => (timer = setTimeout(resolve, ms))));
    } finally {
      clearTimeout(timer);
    }
  }

  end() {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener('abort', this.#stop);
  }
}

/** Waits over lost connections: the same request from a new one takes the place of the old one. */
async function decision(asked, where, patience, onPending) {
  const { client_id, client_token } = asked;
  let pause = PAUSES.first;
  let pending = null;
  const submitted = (reply) => {
    pause = PAUSES.first;
    pending = { ...reply, client_id };
    if (typeof onPending === 'function') onPending(pending);
  };
  try {
    for (;;) {
      try {
        const told = await once(asked, where, patience, submitted);
        if (told !== null) return { ok: true, client_id, client_token, ...told };
      } catch (error) {
        // It was approved while nobody was told: its token is one by now.
        if (pending !== null && error.code === 'token_exists') {
          const principal = await login(asked, where, patience);
          return { ok: true, client_id, client_token, request_id: pending.request_id, ...principal, status: 'approved' };
        }
        if (pending === null || !MAY_PASS.has(error.code)) throw error;
      }
      await patience.pause(pause);
      pause = Math.min(pause * 2, PAUSES.longest);
    }
  } catch (error) {
    throw pending === null ? error : Object.assign(error, { request_id: pending.request_id });
  }
}

/** One connection: the decision, or null when it was lost. */
async function once(asked, where, patience, onPending) {
  const socket = open(where);
  const decided = {};
  decided.promise = new Promise((resolve) => (decided.resolve = resolve));
  socket.on('AUTHORIZATION_APPROVED', (told) => decided.resolve({ ...told, status: 'approved' }));
  socket.on('AUTHORIZATION_REJECTED', (told) => decided.resolve({ ...told, status: 'rejected' }));
  socket.on('disconnect', () => decided.resolve(null));
  try {
    await patience.race(socket.connect());
    onPending(await patience.race(ask(socket, 'AUTHORIZATION_REQUEST', asked, where.timeout)));
    const told = await patience.race(decided.promise);
    if (told?.status !== 'rejected') return told;
    const why = typeof told.reason === 'string' && told.reason !== '' ? `: ${told.reason}` : '';
    const error = new RestanteError({ code: 'forbidden', number: 403, message: `the request was rejected${why}` });
    throw Object.assign(error, { response: { ok: false, ...told } });
  } finally {
    await socket.close({ timeout: GOODBYE });
  }
}

/** The realm and the role of an approved token. */
async function login(asked, where, patience) {
  const socket = open(where, { token: asked.client_token });
  try {
    await patience.race(socket.connect());
    const { realm, role } = socket.authInfo ?? {};
    return { realm, role };
  } finally {
    await socket.close({ timeout: GOODBYE });
  }
}

const Authorization = Object.freeze({
  createAdminProof,
  submitAuthorizationRequest,
  nextAuthorizationRequest,
  decideAuthorizationRequest,
  authManagementCommand,
  nextRealmAuthorizationRequest,
  decideRealmAuthorizationRequest,
  realmManagementCommand,
});

module.exports = { Authorization, canonical };
