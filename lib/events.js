'use strict';
// How keys and event names are spelt on the wire.
const { EVENT_ALL } = require('./constants');

/** `prefix-event-suffix`; `event` is a string or an object with a string `event`. */
function toEventString(event, prefix, suffix) {
  const name = typeof event === 'object' && event !== null ? event.event : event;
  if (typeof name !== 'string' || name === '') {
    throw Object.assign(new TypeError('an event is a non-empty string, or an object with one as `event`'), { code: 'bad_command' });
  }
  return (prefix ? `${prefix}-` : '') + name + (suffix ? `-${suffix}` : '');
}

const toConsumerEvent = (event, producer) => toEventString(event, producer).toLowerCase();
const toConsumeEvent = (key) => `CONSUME-${key}`;
const toConsumerEventAll = (producer) => `${String(producer).toLowerCase()}-${EVENT_ALL}`;
const toConsumeEventAll = (producer) => `${toConsumerEventAll(producer)}-CONSUME`;
const toOnSubscribeEvent = (id) => toEventString('SUBSCRIBE-TO', null, id);
const toOnConnectEvent = (id) => toEventString('CONNECT', null, id);
const toOnDisconnectEvent = (id) => toEventString('DISCONNECT', null, id);
const toOnUnsubscribeEvent = (event, id) => (event ? toEventString(event, 'UNSUBSCRIBE', id) : toEventString('UNSUBSCRIBE', null, id));

module.exports = Object.freeze({
  toEventString,
  toConsumerEvent,
  toConsumeEvent,
  toConsumerEventAll,
  toConsumeEventAll,
  toOnSubscribeEvent,
  toOnConnectEvent,
  toOnDisconnectEvent,
  toOnUnsubscribeEvent,
});
