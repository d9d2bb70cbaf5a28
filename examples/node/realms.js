'use strict';
// Two realms, a token each, and a token that is revoked: node examples/node/realms.js
const { Server, Factory, Authorization } = require('restante');

// Whoever knows it may order anything. Usually it comes as RESTANTE_ADMIN_TOKEN, and is made if it is not there.
const ADMIN = 'known to administrators alone';

async function main() {
  const auth = { enabled: true, tokens: [{ token: ADMIN, realm: '*', role: 'admin' }] };
  const server = new Server({ host: '127.0.0.1', port: 0, auth });
  const { port } = await server.start();
  const at = { host: '127.0.0.1', port };
  const order = (command) => Authorization.authManagementCommand(ADMIN, command, at);

  // Names, messages and rights live inside one realm.
  for (const realm of ['acme', 'globex']) await order({ command: 'add_realm', realm });
  const { token } = await order({ command: 'add_token', realm: 'acme', role: 'both', client_id: 'billing' });
  const other = await order({ command: 'add_token', realm: 'globex', role: 'consumer' });

  const acme = new Factory({ ...at, token });
  const shop = await acme.createProducer('shop');
  const billing = await acme.createConsumer('billing');
  const spy = await new Factory({ ...at, token: other.token }).createConsumer('spy');
  await spy.subscribe('paid', () => console.log('this is never said'));
  const paid = new Promise((resolve) => void billing.subscribe('shop', 'paid', resolve));
  const { delivered } = await shop.produce('paid', { order: 1 }, { confirm: true });
  console.log(`acme's billing got order ${(await paid).order}; delivered: ${delivered}`);

  // A revoked token ends the sessions that it let in; they are told why and stay down.
  const ended = new Promise((resolve) => billing.once('error', ({ code }) => resolve(code)));
  shop.on('error', () => {});
  await order({ command: 'revoke_token', realm: 'acme', client_id: 'billing' });
  console.log(`billing is out: ${await ended}`);
  await new Factory({ ...at, token }).createConsumer('billing').catch(({ code }) => console.log(`and stays out: ${code}`));

  await Promise.all([shop, billing, spy].map((client) => client.close()));
  await server.stop();
}

main();
