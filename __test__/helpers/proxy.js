// A TCP relay in front of a server, so that a test can break connections in the middle.
'use strict';
const net = require('node:net');

/**
 * With `lifetime` it accepts every connection and resets it after so many ms; `opened` has the times of all.
 * `{ port, opened, kill(), freeze(), thaw(), hold(), release(), close() }`; `kill` resets all at once.
 */
function startProxy(target, { lifetime } = {}) {
  const pairs = new Set();
  let held = false;
  const opened = [];
  const proxy = net.createServer((near) => {
    opened.push(performance.now());
    if (held) return near.resetAndDestroy();
    const far = net.connect(target.port, '127.0.0.1');
    const pair = { near, far };
    pairs.add(pair);
    const end = () => {
      pairs.delete(pair);
      near.destroy();
      far.destroy();
    };
    for (const socket of [near, far]) socket.on('error', end).on('close', end);
    near.pipe(far);
    far.pipe(near);
    if (lifetime) setTimeout(() => near.resetAndDestroy(), lifetime);
  });
  const kill = () => {
    for (const { near, far } of [...pairs]) {
      near.resetAndDestroy();
      far.resetAndDestroy();
    }
  };
  // Paused sockets are read by nobody: the peers' systems take bytes, no peer ever sees them.
  const flow = (forward) => {
    for (const { near, far } of pairs) {
      near[forward ? 'pipe' : 'unpipe'](far);
      far[forward ? 'pipe' : 'unpipe'](near);
      if (forward) continue;
      near.pause();
      far.pause();
    }
  };
  return new Promise((resolve, reject) => {
    proxy.once('error', reject);
    proxy.listen(0, '127.0.0.1', () =>
      resolve({
        port: proxy.address().port,
        opened,
        kill,
        /** Forwards nothing more on the connections there are, and closes none; new ones work. */
        freeze: () => flow(false),
        thaw: () => flow(true),
        /** Refuses new connections until `release()`. */
        hold() {
          held = true;
        },
        release() {
          held = false;
        },
        close() {
          kill();
          proxy.close();
        },
      }),
    );
  });
}

module.exports = { startProxy };
