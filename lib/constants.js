'use strict';
// Names that stand on the wire.
module.exports = Object.freeze({
  ANONYMOUS: 'ANONYMOUS',
  EVENT_DEFAULT: 'tyo-mq-mt-default',
  EVENT_ALL: 'TM-ALL',
  SYSTEM: 'TYO-MQ-SYSTEM',
  ALL_PUBLISHERS: 'TYO-MQ-ALL',
  SCOPE_ALL: 'all',
  SCOPE_DEFAULT: 'default',
  DEFAULT_PORT: 17352,
});
