'use strict';
// A folder of a test, with what a test leaves in it. Gone when its process ends: hooks run in the order they were set, so one
// that removed it would run before those that stop what still writes there.
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const made = [];
process.once('exit', () => made.forEach((folder) => fs.rmSync(folder, { recursive: true, force: true })));

/** The path of a new folder. */
function newFolder() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restante-test-'));
  made.push(folder);
  return folder;
}

module.exports = { newFolder };
