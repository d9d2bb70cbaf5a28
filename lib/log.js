'use strict';
// What the core logs of trouble, printed by the loggers of this process's servers: the core does not say
// which server it concerns, so each logger prints it once, however many servers share it.

/** Logger → the servers that have it; the first of them prints. */
const servers = new Map();

function join(server, logger) {
  const sharing = servers.get(logger) ?? new Set();
  servers.set(logger, sharing.add(server));
}

function leave(server) {
  for (const [logger, sharing] of servers) if (sharing.delete(server) && sharing.size === 0) servers.delete(logger);
}

function print(server, level, text) {
  for (const [logger, sharing] of servers) if (sharing.values().next().value === server) logger[level]?.(`restante: ${text}`);
}

module.exports = { join, leave, print };
