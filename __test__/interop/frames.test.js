// The frame sequences of the clients that are not run here, played from `__test__/frames`.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const { test, before, after } = require('node:test');
const { startServer } = require('../helpers/server');
const { Player } = require('../frames/player');

const folder = path.join(__dirname, '../frames');
let server;
before(async () => {
  server = await startServer();
});
after(() => server.stop());

for (const file of fs
  .readdirSync(folder)
  .filter((name) => name.endsWith('.json'))
  .sort()) {
  const script = JSON.parse(fs.readFileSync(path.join(folder, file), 'utf8'));
  test(`scenario 8: frames of ${script.client}`, { timeout: 60_000 }, () => new Player(server, script).play());
}
