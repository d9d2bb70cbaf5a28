// What fuzzing draws from: one generator a process, which a seed repeats. Knows nothing of the wire.
'use strict';

/** How long each fuzz test goes on. */
const seconds = Number(process.env.RESTANTE_FUZZ_SECONDS ?? (process.env.RESTANTE_LONG === '1' ? 60 : 10));
const seed = Number(process.env.RESTANTE_FUZZ_SEED ?? Date.now() % 2 ** 31);

/** mulberry32: a small generator that a seed repeats. */
function generator(state) {
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const random = generator(seed);
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];
const bytes = (n) => Buffer.from(Array.from({ length: n }, () => below(256)));

/** Some bytes of `buffer` changed, cut, doubled or inserted. */
function mutate(buffer) {
  const copy = Buffer.from(buffer);
  switch (below(4)) {
    case 0:
      for (let n = 0; n <= below(4) && copy.length; n++) copy[below(copy.length)] = below(256);
      return copy;
    case 1:
      return copy.subarray(0, below(copy.length + 1));
    case 2: {
      const at = below(copy.length + 1);
      return Buffer.concat([copy.subarray(0, at), bytes(below(6)), copy.subarray(at)]);
    }
    default: {
      const at = below(copy.length + 1);
      return Buffer.concat([copy.subarray(0, at), copy.subarray(below(at + 1))]);
    }
  }
}

module.exports = { below, bytes, mutate, pick, random, seconds, seed };
