// What is measured of the stores over sockets, beside peers that also keep what they say they have.
'use strict';
const { bullmq, fsync, measure, start } = require('./peers');
const { spread } = require('./figures');

/** Messages of a round: as many as a side works off in some seconds. */
const COUNTS = { 'jetstream-always': 10_000, 'one-transaction': 10_000, redis: 20_000 };

/** One round of a side, with a server of its own. */
async function round(side, options, count) {
  const server = await start(side);
  try {
    if (side === 'redis') return await bullmq(server, { ...options, count });
    const line = await measure(server, 'conf', { payload: 128, window: 256, max: 120, ...options, count });
    const drains = options.drain !== 0;
    if (line.confirmed !== count || line.reordered || (drains && line.drained !== count + (options.queued ?? 0))) {
      throw new Error(`${side}: ${JSON.stringify(line)}`);
    }
    return line;
  } finally {
    await server.stop();
  }
}

/** A rate of ours, with the same figure of the peers, which have no target. */
const rate = (side, peers, figure, unit, target, options, size = 200_000) => ({
  needs: ['load', 'ours', 'nats', 'node', ...(side === 'restante-redis' ? ['redis'] : [])],
  unit,
  target,
  async run({ pairs, quick }) {
    const values = Object.fromEntries([side, ...peers].map((name) => [name, []]));
    for (let turn = 0; turn < pairs; turn++) {
      for (const name of Object.keys(values)) {
        const count = Math.ceil((COUNTS[name] ?? size) / (quick ? 4 : 1));
        values[name].push((await round(name, { payload: 128, window: 256, ...options }, count))[figure]);
      }
    }
    const spreads = Object.fromEntries(Object.entries(values).map(([name, rates]) => [name, spread(rates)]));
    return { ...spreads, rounds: pairs, value: spreads[side].median };
  },
});

const confirmed = 'confirmed messages a second, 256 in flight';
const drained = 'messages a second drained by a consumer without acknowledgements';
const acked = 'messages a second drained and acknowledged one by one';
const FILES = ['jetstream-always', 'jetstream', 'one-transaction'];

const STORES = {
  'confirmed-sqlite': rate('restante-sqlite', FILES, 'confirmed_per_s', confirmed, { min: 20_000 }, { drain: 0 }),
  'drained-sqlite': rate('restante-sqlite', ['jetstream'], 'drain_per_s', drained, { min: 150_000 }, {}),
  'acked-sqlite': rate('restante-sqlite', ['jetstream'], 'drain_per_s', acked, { min: 60_000 }, { ack: 1 }),
  'one-in-flight-sqlite': {
    needs: ['load', 'ours'],
    unit: 'p50 of a confirmed message alone, against fsync and a round trip of the memory store',
    target: { max: 2 },
    async run({ pairs, quick }) {
      const count = quick ? 500 : 3000;
      const values = { fsync_us: [], memory_us: [], sqlite_us: [], ratio: [] };
      for (let turn = 0; turn < pairs; turn++) {
        const alone = async (side) => (await round(side, { window: 1, drain: 0 }, count)).p50_us;
        const [disk, memory, sqlite] = [await fsync(), await alone('restante'), await alone('restante-sqlite')];
        values.fsync_us.push(disk);
        values.memory_us.push(memory);
        values.sqlite_us.push(sqlite);
        values.ratio.push(sqlite / (disk + memory));
      }
      const spreads = Object.fromEntries(Object.entries(values).map(([name, all]) => [name, spread(all)]));
      return { ...spreads, rounds: pairs, value: spreads.ratio.median };
    },
  },
  'offline-1000-sqlite': rate(
    'restante-sqlite',
    [],
    'confirmed_per_s',
    'confirmed messages of 4 KiB a second for 1,000 durable consumers that are away',
    { min: 1000 },
    { payload: 4096, consumers: 1000, drain: 0 },
    20_000,
  ),
  'memory-sqlite': {
    needs: ['load', 'ours'],
    unit: 'MiB resident at most while 1,000,000 messages queue and drain',
    target: { max: 50 },
    async run({ quick }) {
      const queued = quick ? 200_000 : 900_000;
      const line = await round('restante-sqlite', { queued }, 100_000);
      return { ...line, value: Math.round(line.peak_kb / 102.4) / 10 };
    },
  },
  'confirmed-redis': rate('restante-redis', ['redis'], 'confirmed_per_s', confirmed, { min: 20_000 }, { drain: 0 }, 100_000),
  'drained-redis': rate('restante-redis', ['redis'], 'drain_per_s', acked, {}, { ack: 1 }, 100_000),
};

module.exports = { STORES, round };
