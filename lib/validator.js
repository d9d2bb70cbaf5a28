'use strict';
// `auth.validator`: a function of the user's that says whose token it is. The core bounds how many
// calls are under way and how long each may take; what fails here is a no.
const native = require('./native');
const { reasonOf, refused } = require('./errors');
const { kinds } = require('./options');

class Validator {
  #validate;
  #wasTold = false;

  /** @throws TypeError `config` for what is no function. */
  constructor(validate) {
    if (typeof validate !== 'function') throw refused('option auth.validator must be a function', 'config');
    this.#validate = validate;
  }

  /** The server is about to start with it. */
  attach(broker) {
    native.useValidator(broker);
  }

  /** Never throws. `{realm, role, sub?, allow?, names?, exp?}` lets in, anything else does not. */
  async perform(broker, id, token, warn) {
    let answer;
    try {
      const said = await (0, this.#validate)(token);
      if (typeof said === 'object' && said !== null) answer = JSON.stringify(said, finite);
      this.#wasTold = false;
    } catch (error) {
      // Once, until it works again: whoever fails does so for every token.
      if (!this.#wasTold) warn(`auth.validator failed, and the token was refused: ${hidden(reasonOf(error), token)}`);
      this.#wasTold = true;
    }
    native.validatorAnswer(broker, id, answer?.toWellFormed());
  }
}

/** An `exp` that is no number would be none, and let in for ever. */
function finite(name, value) {
  return typeof value === 'number' ? kinds.finite(value, name) : value;
}

/** What was thrown may hold the token. */
function hidden(text, token) {
  return token === '' ? text : text.replaceAll(token, '<token>');
}

module.exports = { Validator };
