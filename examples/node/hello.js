'use strict';
// A broker, a producer and a consumer in one process: node examples/node/hello.js
const { Server, Factory } = require('restante');

async function main() {
  const server = new Server({ host: '127.0.0.1', port: 0 });
  const { port } = await server.start();
  const factory = new Factory({ host: '127.0.0.1', port });

  const consumer = await factory.createConsumer('greeter');
  const hellos = consumer.messages('hello');
  await hellos.ready;

  const producer = await factory.createProducer('world');
  producer.produce('hello', { name: 'you' });

  for await (const { message, from } of hellos) {
    console.log(`${from} says hello to ${message.name}`);
    break;
  }

  await consumer.close();
  await producer.close();
  await server.stop();
}

main();
