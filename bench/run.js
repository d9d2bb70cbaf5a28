#!/usr/bin/env node
// `npm run bench -- [--quick] [--pairs N] [--cpu SECONDS] [--list] [CASE…]`: one JSON line a case.
// Ends with status 1 when a case misses its target. Nothing else should be running meanwhile.
'use strict';
const { parseArgs } = require('node:util');
const { CASES, runCase } = require('./lib/cases');
const { install } = require('./lib/peers');

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      quick: { type: 'boolean', default: false },
      pairs: { type: 'string' },
      cpu: { type: 'string' },
      list: { type: 'boolean', default: false },
    },
  });
  if (values.list) return console.log(Object.keys(CASES).join('\n'));
  const unknown = positionals.filter((name) => !CASES[name]);
  if (unknown.length) throw new Error(`unknown case ${unknown.join(', ')}; known: ${Object.keys(CASES).join(', ')}`);
  const names = positionals.length ? positionals : Object.keys(CASES);
  const options = {
    quick: values.quick,
    pairs: Number(values.pairs ?? (values.quick ? 3 : 7)),
    cpu: Number(values.cpu ?? (values.quick ? 1 : 5)),
  };
  install(names.flatMap((name) => CASES[name].needs));
  for (const name of names) {
    try {
      const line = await runCase(name, options);
      if (!line.ok) process.exitCode = 1;
      console.log(JSON.stringify(line));
    } catch (error) {
      process.exitCode = 1;
      console.log(JSON.stringify({ case: name, ok: false, error: error.message }));
    }
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exit(2);
});
