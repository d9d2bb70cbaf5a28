'use strict';
// What JavaScript signs: the vectors of the specification, and what may not be signed.
const assert = require('node:assert/strict');
const { createHmac } = require('node:crypto');
const { test } = require('node:test');
const { restante } = require('./helpers');
const { canonical } = require('../../lib/authorization');

const { createAdminProof } = restante.Authorization;
const NONCE = '00112233445566778899aabbccddeeff';

test('the signatures of the specification come out', () => {
  const vectors = [
    ['adm-token', 'AUTHORIZATION_NEXT', {}, 1760000000000, NONCE, '8eb4ea20af8588a610a8d580a8f275cfee9e68aaee7b491aaa5f49d6808fa624'],
    [
      'adm-token', 'AUTH_MANAGEMENT_COMMAND', { ttl: null, required: true, realm: 'org:acme', more: undefined, command: 'add_realm' },
      1760000000000, NONCE, '1e96c5046911fc6496fb48e5fb4e7a0ab0a8f02a63f03f4e299d4e8f1412c122',
    ],
    [
      'rk', 'AUTHORIZATION_DECIDE',
      { request_id: 'r1', approved: false, reason: 'café <b>&"\\/\u2028\u0001\n', n: [1, 1.0, 1e21, -0, 0.1, 1e-7] },
      1760000000001, 'n', '795b769dcc8f8ef2be10488d472decea656bf7dbe0bc13bdd81eea02ef8e8767',
    ],
    ['rk', 'X', { a: 3, '\ufb33': 1, 10: 5, '\u{1f600}': 2, 9: 6, B: 4 }, 1, 'n', '40f2e544ff9e81ff62fe349af29987956e5ef80424a070de14b5424daef321e1'],
  ];
  for (const [secret, action, body, timestamp, nonce, signature] of vectors) {
    assert.deepEqual(createAdminProof(secret, action, body, { timestamp, nonce }), { timestamp, nonce, signature });
  }
});

test('a body that is absent is signed as an empty object', () => {
  const how = { timestamp: 1, nonce: 'n' };
  const empty = createAdminProof('s', 'X', {}, how);
  for (const body of [undefined, null, 0, '', false]) assert.deepEqual(createAdminProof('s', 'X', body, how), empty);
});

test('what is signed is what JSON leaves of a body', () => {
  const how = { timestamp: 1, nonce: 'n' };
  const date = new Date(0);
  const body = { at: date, list: [undefined, () => {}], no: NaN, gone: undefined, deep: { b: 1, a: '\ud800' } };
  const text = '{"at":"1970-01-01T00:00:00.000Z","deep":{"a":"\\ud800","b":1},"list":[null,null],"no":null}';
  assert.equal(canonical(JSON.parse(JSON.stringify(body))), text);
  const expected = createHmac('sha256', 's').update(`X\n1\nn\n${text}`).digest('hex');
  assert.equal(createAdminProof('s', 'X', body, how).signature, expected);
  assert.equal(canonical(JSON.parse('{"__proto__":{"x":1},"constructor":2}')), '{"__proto__":{"x":1},"constructor":2}');
});

test('nonce and time are made, and each nonce once', () => {
  const before = Date.now();
  const [one, other] = [1, 2].map(() => createAdminProof('s', 'X', {}));
  assert.match(one.nonce, /^[A-Za-z0-9_-]{16,128}$/);
  assert.notEqual(one.nonce, other.nonce);
  assert.ok(one.timestamp >= before && one.timestamp <= Date.now());
  assert.match(one.signature, /^[0-9a-f]{64}$/);
});

test('what cannot be signed is refused, and no secret is repeated', () => {
  const circular = {};
  circular.self = circular;
  for (const [secret, body, how] of [['', {}], [undefined, {}], [7, {}], [{ hush: 1 }, {}], ['s', circular], ['s', 'text'], ['s', 7], ['s', {}, { timestamp: 1.5 }], ['s', {}, { nonce: 7 }]]) {
    assert.throws(() => createAdminProof(secret, 'X', body, how), (error) => error instanceof TypeError && !error.message.includes('hush'));
  }
});

test('a broker that is not there rejects soon, whichever call it was', async () => {
  const { Authorization } = restante;
  const at = { host: '127.0.0.1', port: 1, timeout: 3000 };
  const calls = [
    () => Authorization.authManagementCommand('hush', { command: 'get' }, at),
    () => Authorization.nextAuthorizationRequest('hush', {}, { ...at, url: 'http://127.0.0.1:1' }),
    () => Authorization.decideAuthorizationRequest('hush', { request_id: 'r', approved: true }, at),
    () => Authorization.nextRealmAuthorizationRequest('hush', 'r', at),
    () => Authorization.realmManagementCommand('hush', 'r', { command: 'dlq_list' }, at),
    () => Authorization.submitAuthorizationRequest({ client_token: 'hush'.repeat(8) }, at),
    () => Authorization.submitAuthorizationRequest({ client_token: 'hush'.repeat(8) }, { ...at, wait: '10m' }),
  ];
  for (const call of calls) {
    await assert.rejects(call(), (error) => ['disconnected', 'timeout'].includes(error.code) && !JSON.stringify([error, error.message, error.stack]).includes('hushhush'));
  }
});

test('what is wrong with a call is told before anything is opened', async () => {
  const { Authorization } = restante;
  const wrong = [
    () => Authorization.authManagementCommand('', { command: 'get' }),
    () => Authorization.authManagementCommand('s', [1n]),
    () => Authorization.authManagementCommand('s', 'get', { url: 'no url' }),
    () => Authorization.authManagementCommand('s', 'get', { timeout: 0 }),
    () => Authorization.nextRealmAuthorizationRequest('s', undefined),
    () => Authorization.submitAuthorizationRequest({ client_id: 7 }),
    () => Authorization.submitAuthorizationRequest({}, { wait: 'soon' }),
    () => Authorization.submitAuthorizationRequest({ client_token: 7 }),
  ];
  for (const call of wrong) await assert.rejects(call(), TypeError);
});
