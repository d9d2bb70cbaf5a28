#!/usr/bin/env node
'use strict';
// The broker as a command: `restante serve [--port N] [--host H]`.
const { parseArgs } = require('node:util');

const USAGE = `usage: restante serve [options]

  --port N        TCP port (RESTANTE_PORT, TYO_MQ_PORT, or 17352); 0 takes a free one
  --host H        address to listen on (RESTANTE_HOST, or all interfaces)
  --storage NAME  where durable messages wait (RESTANTE_STORAGE): sqlite (default), redis or memory
  --filename F    the file of sqlite (RESTANTE_FILENAME, or restante.sqlite)
  --synchronous S what confirmed messages survive (RESTANTE_SYNCHRONOUS): full (default), power
                  loss too; normal, the process being killed
  --url U         where redis is (RESTANTE_REDIS_URL, or redis://127.0.0.1:6379)
  --fallback S    where messages wait if redis is away at the start (RESTANTE_FALLBACK): sqlite
  --fallback-filename F  in which file then (RESTANTE_FALLBACK_FILENAME, or restante.fallback.sqlite)
  --options JSON  more options (RESTANTE_OPTIONS), as \`new Server(options)\` takes them
  --help  --version`;

/** Flags and variables of each store. */
const FLAGS = {
  sqlite: { filename: 'RESTANTE_FILENAME', synchronous: 'RESTANTE_SYNCHRONOUS' },
  redis: { url: 'RESTANTE_REDIS_URL', fallback: 'RESTANTE_FALLBACK', fallback_filename: 'RESTANTE_FALLBACK_FILENAME' },
};

function settings() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      port: { type: 'string' },
      host: { type: 'string' },
      storage: { type: 'string' },
      filename: { type: 'string' },
      synchronous: { type: 'string' },
      url: { type: 'string' },
      fallback: { type: 'string' },
      'fallback-filename': { type: 'string' },
      options: { type: 'string' },
      help: { type: 'boolean', short: 'h' },
      version: { type: 'boolean', short: 'v' },
    },
  });
  if (values.version) return { print: require('../package.json').version };
  if (values.help) return { print: USAGE };
  if (positionals.length !== 1 || positionals[0] !== 'serve') throw new Error(USAGE);
  const { env } = process;
  const port = values.port ?? env.RESTANTE_PORT ?? env.TYO_MQ_PORT;
  const host = values.host ?? env.RESTANTE_HOST ?? env.TYO_MQ_HOST;
  const more = JSON.parse(values.options ?? env.RESTANTE_OPTIONS ?? '{}');
  const { store, storageOptions, ...rest } = more;
  const storage = values.storage ?? env.RESTANTE_STORAGE ?? more.storage ?? store ?? 'sqlite';
  const said = {};
  for (const [name, variable] of Object.entries(FLAGS[storage] ?? {})) said[name] = values[name.replace('_', '-')] ?? env[variable];
  const storage_options = { ...(more.storage_options ?? storageOptions), ...JSON.parse(JSON.stringify(said)) };
  return { options: { ...rest, port: port ?? more.port, host: host ?? more.host, storage, storage_options } };
}

async function main() {
  let wish;
  try {
    wish = settings();
  } catch (error) {
    console.error(error.message);
    process.exitCode = 2;
    return;
  }
  const { print, options } = wish;
  if (print) return console.log(print);
  const { Server } = require('../index.js');
  const server = new Server(options);
  // The first signal stops in good order, a second one at once.
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => void server.stop());
  const { port, host } = await server.start();
  console.log(`restante: listening on ${host.includes(':') ? `[${host}]` : host}:${port}`);
  if (process.send && process.connected) process.send('Server started');
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
