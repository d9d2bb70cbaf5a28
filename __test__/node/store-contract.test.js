'use strict';
// The contract that users run on their own stores, on stores of every habit (N14).
const { storeContract } = require('restante/testing');

/** The three methods. */
class Minimal {
  rows = [];

  enqueue(realm, event, { id, consumer_id, payload, producer }) {
    this.rows.push({ msgId: id, realm, event, consumer: consumer_id, payload, producer });
    return id;
  }

  dequeue(realm, event, consumer) {
    return this.rows.filter((row) => row.realm === realm && row.event === event && row.consumer === consumer);
  }

  ack(id) {
    this.rows = this.rows.filter((row) => row.msgId !== id);
  }
}

class Destructive extends Minimal {
  async dequeue(...place) {
    const rows = super.dequeue(...place);
    this.rows = this.rows.filter((row) => !rows.includes(row));
    return rows;
  }
}

/** All of them, with numbers as ids and pages. */
class Full {
  rows = [];
  dead = [];
  last = 0;

  async enqueue(realm, event, row) {
    this.rows.push({ ...row, id: ++this.last, realm, event });
    return this.last;
  }

  async dequeue(realm, event, consumer, { limit = Infinity, after = 0 }) {
    const rows = this.rows.filter((row) => row.realm === realm && row.event === event && row.consumer_id === consumer && row.id > after);
    return rows.slice(0, limit);
  }

  async ack(id) {
    await this.ackMany([id]);
  }

  async enqueueMany(rows) {
    return Promise.all(rows.map(({ realm, event, ...row }) => this.enqueue(realm, event, row)));
  }

  async ackMany(ids) {
    this.rows = this.rows.filter((row) => !ids.includes(row.id));
  }

  async deadLetter(id, reason) {
    const row = this.rows.find((one) => one.id === id);
    await this.ack(id);
    this.dead.push({ ...row, reason, dead_lettered_at: new Date() });
  }

  async listDlq(realm) {
    return this.dead.filter((row) => realm === null || row.realm === realm);
  }

  async discardDlq(id) {
    this.dead = this.dead.filter((row) => row.id !== id);
  }

  async purgeRealm(realm) {
    this.rows = this.rows.filter((row) => row.realm !== realm);
  }

  async countQueued(realm) {
    return this.rows.filter((row) => row.realm === realm).length;
  }

  async import(rows) {
    this.rows.unshift(...rows);
  }
}

storeContract(() => new Minimal(), { name: 'minimal' });
storeContract(async () => new Destructive(), { name: 'destructive' });
storeContract(() => new Full(), { name: 'full', drop: (store) => void (store.rows = []) });
