'use strict';
// Errors as users see them: `code` is one of the stable names of P34.

/** What the broker, the store or the connection refused. */
class RestanteError extends Error {
  /** @param {{code: string, number?: number, message: string, cause?: string, retry_after?: number}} told */
  constructor({ code, number, message, cause, retry_after }) {
    // What somebody else's code said, such as a store's.
    super(message, cause === undefined ? undefined : { cause: new Error(cause) });
    this.code = code;
    if (number !== undefined) this.number = number;
    if (retry_after !== undefined) this.retry_after = retry_after;
  }
}
// On the prototype, so that it does not print as a field of every error.
Object.defineProperty(RestanteError.prototype, 'name', { value: 'RestanteError', writable: true, configurable: true });

/** A wrong argument or option: thrown at the call (P14). */
function refused(message, code = 'bad_command') {
  return Object.assign(new TypeError(message), { code });
}

/** What an aborted call rejects with: `cause` is the signal's reason. */
function aborted(signal) {
  const error = new Error('The operation was aborted', { cause: signal.reason });
  error.name = 'AbortError';
  error.code = 'ABORT_ERR';
  return error;
}

/** Native calls throw plain errors with our code. */
function call(fn, ...args) {
  try {
    return fn(...args);
  } catch (error) {
    const { code, message } = error;
    throw code === 'bad_command' ? refused(message) : new RestanteError({ code: code === 'GenericFailure' ? 'internal' : code, message });
  }
}

/** Any thrown value as a short text for a NACK; `undefined` and circular causes included. */
function reasonOf(thrown) {
  let text;
  try {
    text = String(thrown?.message ?? thrown);
  } catch {
    text = 'the handler failed with a value that has no text';
  }
  return text.slice(0, 1024);
}

module.exports = { RestanteError, refused, aborted, call, reasonOf };
