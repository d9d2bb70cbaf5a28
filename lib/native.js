'use strict';
// Loads the addon; a failure names its true cause and the next step (P36).
const { version } = require('../package.json');

const NEXT_STEP =
  'Run `npx restante-build` (needs Rust, https://rustup.rs). If your package manager skipped the install ' +
  'script, allow it (npm: `npm install-scripts approve restante`) and run `npm rebuild restante`.';

function load() {
  let native;
  try {
    native = require('../node-binding/binding.js');
  } catch (error) {
    throw failure(`the addon for ${process.platform}-${process.arch} does not load`, error);
  }
  const built = native.nativeVersion();
  if (built !== version) throw failure(`the addon was built from version ${built}, this is ${version}`);
  return native;
}

function failure(what, error) {
  const causes = [];
  // The loader tries several places and chains the errors; the first that is not "no such file"
  // is the one that matters.
  for (let e = error; e; e = e.cause) causes.push(e);
  const cause = causes.find((e) => e.code === 'ERR_DLOPEN_FAILED') ?? causes.at(-1);
  const said = cause ? `: ${cause.message.split('\n')[0]}` : '';
  return Object.assign(new Error(`restante: ${what}${said}\n${NEXT_STEP}`, { cause }), { code: 'addon_unavailable' });
}

module.exports = load();
