'use strict';
// Validators over https, on the addresses and with the authorities that users have (P19).
const assert = require('node:assert/strict');
const fs = require('node:fs');
const https = require('node:https');
const { once } = require('node:events');
const path = require('node:path');
const { test } = require('node:test');
const { Client } = require('../helpers/client');
const { root, startServer } = require('../helpers/server');

const fixture = (name) => path.join(root, 'core', 'tests', 'fixtures', 'tls', name);

/** Says yes to the token `good`, and at `broken` that it cannot say, behind a certificate of a private authority; what it was sent. */
async function validator(t) {
  const asked = [];
  const tls = { cert: fs.readFileSync(fixture('one.pem')), key: fs.readFileSync(fixture('one.key')) };
  const server = https.createServer(tls, async (request, response) => {
    const body = JSON.parse((await request.toArray()).join(''));
    asked.push({ ...body, secret: request.headers['x-mq-auth-secret'] });
    const answer = body.token === 'good' ? { valid: true, realm: 'acme', role: 'producer' } : { valid: false };
    if (body.token === 'broken') response.statusCode = 503;
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(answer));
  });
  t.after(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return { asked, url: `https://localhost:${server.address().port}/validate` };
}

async function enters(t, server, token) {
  const client = await Client.websocket(server);
  t.after(() => client.leave());
  return client.call('AUTHENTICATION', { token });
}

const guarded = (auth_url) => ({ auth: { enabled: true, auto_admin_token: false, auth_url, auth_secret: 'shared' } });

test('a validator over https is asked, if its authority is one that this machine trusts', async (t) => {
  const { asked, url } = await validator(t);
  const server = await startServer(guarded(url), { env: { SSL_CERT_FILE: fixture('ca.pem') } });
  t.after(() => server.stop());
  const answer = await enters(t, server, 'good');
  assert.deepEqual([answer.ok, answer.realm], [true, 'acme'], JSON.stringify(answer));
  assert.equal((await enters(t, server, 'bad')).ok, false);
  assert.deepEqual(asked, [
    { token: 'good', secret: 'shared' },
    { token: 'bad', secret: 'shared' },
  ]);
});

test('a validator that cannot say lets nobody in, and the log says so', async (t) => {
  const { url } = await validator(t);
  const server = await startServer(guarded(url), { env: { SSL_CERT_FILE: fixture('ca.pem') } });
  t.after(() => server.stop());
  assert.equal((await enters(t, server, 'broken')).ok, false);
  assert.match(server.said, /the validator https:\/\/localhost:\d+\/validate answered 503/);
});

test('a validator whose certificate nobody vouches for hears nothing, lets nobody in, and the log says why', async (t) => {
  const { asked, url } = await validator(t);
  const server = await startServer(guarded(url));
  t.after(() => server.stop());
  assert.equal((await enters(t, server, 'good')).ok, false);
  assert.deepEqual(asked, []);
  assert.match(server.said, /the validator https:\/\/localhost.*certificate/);
  assert.doesNotMatch(server.said, /good|shared/);
});
