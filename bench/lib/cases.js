// What is measured, and what we hold ourselves to. Each case yields one line; see bench/README.md.
'use strict';
const { start, measure } = require('./peers');
const { spread, median, keeps } = require('./figures');
const { nodeToNode } = require('./node-clients');
const { STORES, round } = require('./stores');

/** One measurement against a server started for it alone. */
async function once(name, mode, options) {
  const server = await start(name);
  try {
    return await measure(server, mode, options);
  } finally {
    await server.stop();
  }
}

/** Both sides `pairs` times, in turn, the first one alternating; `probe(side)` gives a number. */
async function interleaved(pairs, peer, probe, side = 'restante') {
  const values = { [side]: [], [peer]: [] };
  for (let pair = 0; pair < pairs; pair++) {
    const order = pair % 2 ? [peer, side] : [side, peer];
    for (const name of order) values[name].push(await probe(name));
  }
  const ratios = values[side].map((value, pair) => value / values[peer][pair]);
  return { [side]: spread(values[side]), [peer]: spread(values[peer]), ratio: spread(ratios), pairs };
}

/** Server CPU seconds per million deliveries, ours against a peer's. */
const cpuAgainst = (peer, options, target) => ({
  needs: ['load', 'ours', peer === 'nats' ? 'nats' : 'node'],
  unit: 'server CPU seconds per million deliveries',
  target,
  async run({ pairs, cpu }) {
    const result = await interleaved(pairs, peer, async (side) => {
      const line = await once(side, 'thr', { ...options, ...(side === 'socketio' && { window: 1000 }), cpu, secs: 60 });
      if (line.reordered || line.closed) throw new Error(`${side}: ${JSON.stringify(line)}`);
      return line.cpu_s_per_1m_delivered;
    });
    return { ...result, value: result.ratio.median };
  },
});

/** CPU per message at growing sizes against the first one; rounds are interleaved. */
const growth = (sizes, unit, probe, target = { max: 1.5 }) => ({
  needs: ['load', 'ours'],
  unit,
  target,
  async run({ pairs, cpu, quick }) {
    const used = quick && sizes.length > 2 ? sizes.slice(0, -1) : sizes;
    const measured = used.map(() => []);
    for (let round = 0; round < pairs; round++) {
      for (const [at, size] of used.entries()) measured[at].push(await probe(size, { cpu, quick }));
    }
    const figures = Object.keys(measured[0][0]);
    const medians = (figure) => measured.map((rounds) => median(rounds.map((round) => round[figure])));
    const worst = figures.map((figure) => {
      const [first, ...rest] = medians(figure);
      return Math.max(...rest.map((value) => value / first));
    });
    const sizesOut = Object.fromEntries(
      used.map((size, at) => [
        size,
        Object.fromEntries(figures.map((figure) => [figure, spread(measured[at].map((round) => round[figure]))])),
      ]),
    );
    return { sizes: sizesOut, rounds: pairs, value: Number(Math.max(...worst).toPrecision(4)) };
  },
});

/** Server CPU with authentication, rights and limits on, against the same load with all of it off. */
const guarded = (options) => ({
  needs: ['load', 'ours'],
  unit: 'server CPU seconds per million deliveries, with authentication, rights and limits on against off',
  target: { max: 1.1 },
  async run({ pairs, cpu }) {
    const probe = async (side) => {
      const line = await once(side, 'thr', { ...options, cpu, secs: 60 });
      if (line.reordered || line.closed) throw new Error(`${side}: ${JSON.stringify(line)}`);
      return line.cpu_s_per_1m_delivered;
    };
    const result = await interleaved(pairs, 'restante', probe, 'restante-auth');
    return { ...result, value: result.ratio.median };
  },
});

const one = (payload) => ({ payload, consumers: 1, window: 4000 });
const hundred = (payload) => ({ payload, consumers: 100, window: 64 });

const CASES = {
  'one-to-one-128': cpuAgainst('nats', one(128), { max: 1.0 }),
  'one-to-one-4k': cpuAgainst('nats', one(4096), { max: 1.0 }),
  'fan-out-100-128': cpuAgainst('nats', hundred(128), { max: 0.3 }),
  'fan-out-100-4k': cpuAgainst('nats', hundred(4096), { max: 0.5 }),
  'one-to-one-128-socketio': cpuAgainst('socketio', one(128), { max: 0.1 }),
  'auth-on': guarded(one(128)),
  latency: {
    needs: ['load', 'ours', 'nats'],
    unit: 'p99 in microseconds at 500 messages a second',
    target: { max: 1.5 },
    async run({ quick }) {
      const secs = quick ? 5 : 20;
      const probe = async (side) => (await once(side, 'lat', { payload: 128, rate: 500, secs })).p99_us;
      const result = await interleaved(quick ? 2 : 5, 'nats', probe);
      return { ...result, secs, value: result.ratio.median };
    },
  },
  'node-to-node': {
    needs: ['ours', 'nats', 'node'],
    unit: 'messages a second, producer and consumer in a Node process each, 128 B',
    target: { min: 1.3 },
    async run({ pairs, quick }) {
      const count = quick ? 100_000 : 400_000;
      const result = await interleaved(pairs, 'nats', (side) => nodeToNode(side, { count, payload: 128 }));
      return { ...result, value: result.ratio.median };
    },
  },
  connections: {
    needs: ['load', 'ours'],
    unit: 'KiB resident for each connection, registered and subscribed',
    target: { max: 8 },
    async run({ quick }) {
      const line = await once('restante', 'idle', { conns: quick ? 2000 : 10_000, secs: 3 });
      return { ...line, value: line.closed ? Infinity : line.kb_per_conn };
    },
  },
  'confirmed-memory': confirmed('confirmed_per_s', 'confirmed messages a second, 1,000 in flight'),
  'drained-memory': confirmed('drain_per_s', 'messages a second drained by a consumer without acknowledgements'),
  'cpu-by-subscriptions': growth(
    [10, 100, 1000, 10_000, 100_000],
    'server CPU seconds per million messages',
    async (subscriptions, { cpu }) => {
      const line = await once('restante', 'thr', { ...one(128), subscriptions, cpu, secs: 60 });
      return { thr: line.cpu_s_per_1m_delivered };
    },
  ),
  'cpu-by-queued': growth([0, 10_000, 100_000, 1_000_000], 'server CPU seconds per million messages', async (size, { quick }) => {
    const count = quick ? 100_000 : 400_000;
    // A queue holds a million at most: the counted messages are its last ones.
    const queued = Math.max(0, Math.min(size, 1_000_000 - count));
    const line = await once('restante', 'conf', { payload: 128, count, queued, window: 1000, max: 60 });
    if (line.confirmed !== count || line.drained !== count + queued) throw new Error(JSON.stringify(line));
    return { enqueue: line.enq_cpu_s_per_1m, drain: line.drain_cpu_s_per_1m };
  }),
  ...STORES,
  'cpu-by-queued-sqlite': growth(
    [0, 1_000_000],
    'server CPU seconds per million confirmed messages',
    async (size, { quick }) => {
      const count = quick ? 50_000 : 100_000;
      const queued = Math.max(0, (quick ? size / 10 : size) - count);
      const line = await round('restante-sqlite', { queued, drain: 0 }, count);
      return { enqueue: line.enq_cpu_s_per_1m };
    },
    { max: 1.2 },
  ),
};

/** Rates over sockets with the memory store. */
function confirmed(figure, unit) {
  return {
    needs: ['load', 'ours'],
    unit,
    target: { min: 150_000 },
    async run({ pairs, quick }) {
      const count = quick ? 200_000 : 900_000;
      const rates = [];
      for (let round = 0; round < pairs; round++) {
        const line = await once('restante', 'conf', { payload: 128, count, window: 1000, max: 60 });
        if (line.confirmed !== count || line.drained !== count || line.reordered) throw new Error(JSON.stringify(line));
        rates.push(line[figure]);
      }
      const result = spread(rates);
      return { restante: result, rounds: pairs, count, value: result.median };
    },
  };
}

/** Runs one case: the line that is printed for it. */
async function runCase(name, options) {
  const { unit, target, run } = CASES[name];
  const result = await run(options);
  return { case: name, unit, target, ok: keeps(result.value, target), ...result };
}

module.exports = { CASES, runCase };
