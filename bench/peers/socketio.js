// A plain socket.io server that relays the same frames: what one would write in an afternoon.
// Arguments: the port. Run from the folder in which socket.io is installed.
'use strict';
const { createRequire } = require('node:module');
const { Server } = createRequire(process.cwd() + '/')('socket.io');

const io = new Server(Number(process.argv[2]), {
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
  socket.on('PRODUCE', ({ from, event, message }) => {
    const name = key(from, event);
    io.to(name).emit(`CONSUME-${name}`, { event, message, from });
  });
});
