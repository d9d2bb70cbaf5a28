// Medians, spreads and verdicts. Knows no server.
'use strict';

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const round = (value) => Number(value.toPrecision(4));

/** `{ median, min, max }` of some numbers. */
const spread = (values) => ({
  median: round(median(values)),
  min: round(Math.min(...values)),
  max: round(Math.max(...values)),
});

/** `target` is `{ max }` or `{ min }`; true when the value keeps it. */
const keeps = (value, target) =>
  Number.isFinite(value) && (target.max === undefined || value <= target.max) && (target.min === undefined || value >= target.min);

module.exports = { median, spread, keeps };
