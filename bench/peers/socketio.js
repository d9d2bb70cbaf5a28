// A plain socket.io server that relays the same frames: what one would write in an afternoon.
// Arguments: the port, and a SQLite file if a PRODUCE with an acknowledgement is stored in a
// transaction of its own before it is answered. Run from the folder in which socket.io is installed.
'use strict';
const { createRequire } = require('node:module');
const installed = createRequire(process.cwd() + '/');
const { Server } = installed('socket.io');

const [port, file] = process.argv.slice(2);
const insert = file && statement(file);

function statement(filename) {
  const db = new (installed('better-sqlite3'))(filename);
  db.pragma('journal_mode = WAL');
  db.pragma('synchronous = FULL');
  db.exec('CREATE TABLE message (id INTEGER PRIMARY KEY, event TEXT, body TEXT)');
  return db.prepare('INSERT INTO message (event, body) VALUES (?, ?)');
}

const io = new Server(Number(port), {
  serveClient: false,
  perMessageDeflate: false,
  transports: ['websocket', 'polling'],
});
io.on('connection', (socket) => {
  const key = (producer, event) => `${producer}-${event}`.toLowerCase();
  socket.on('CONSUMER', () => {});
  socket.on('PRODUCER', () => {});
  socket.on('PING', (payload, answer) => answer('{}'));
  socket.on('SUBSCRIBE', ({ producer, event }) => socket.join(key(producer, event)));
  socket.on('PRODUCE', ({ from, event, message }, answer) => {
    if (insert && answer) answer({ id: Number(insert.run(event, JSON.stringify(message)).lastInsertRowid) });
    const name = key(from, event);
    io.to(name).emit(`CONSUME-${name}`, { event, message, from });
  });
});
