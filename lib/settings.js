'use strict';
// A settings file, to be looked at before a server goes by it. It is read and checked by the core.
const path = require('node:path');
const native = require('./native');
const { call, refused } = require('./errors');

class Settings {
  /** @param {string} file a JSON object of the options of `Server`. */
  constructor(file) {
    if (typeof file !== 'string' || file === '') throw refused('path must be a string');
    /** Absolute. */
    this.path = path.resolve(file);
    Object.freeze(this);
  }

  /** Reads and checks the file; what is odd about it, one sentence each. Changes nothing.
   *  @throws `config` with the path of a wrong value. */
  check() {
    return call(native.checkSettings, JSON.stringify({ settings_file: this.path }));
  }
}

module.exports = { Settings };
