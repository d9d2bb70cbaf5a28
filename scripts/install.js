'use strict';
// Run by npm after the package is unpacked. A published package comes with an addon: if it loads,
// there is nothing to do. From a checkout (or a git dependency) cargo builds it; it knows best
// whether anything changed, and says so in a tenth of a second.
const fs = require('node:fs');
const path = require('node:path');

const checkout = fs.existsSync(path.join(__dirname, '..', '.git'));

function loads() {
  try {
    const { nativeVersion } = require('../node-binding/binding.js');
    return nativeVersion() === require('../package.json').version;
  } catch {
    return false; // the true cause is told by lib/native.js, should the build fail too
  }
}

if (checkout || process.env.RESTANTE_FORCE_BUILD === '1' || !loads()) {
  try {
    require('./build.js').build();
  } catch (error) {
    console.error(error.message);
    process.exit(1);
  }
}
