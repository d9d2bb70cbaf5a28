// Compiled by tsc, never run. A line after @ts-expect-error must be an error.
import restante, { Authorization, Factory, MessageQueue, Publisher, RestanteError, Server, Storage, Subscriber, constants, events } from 'restante';
import type { Confirmation, CustomStore, ErrorCode, ManagementCommand, Message, NewRow, Refusal, Role, Subscribed } from 'restante';

interface Order {
  id: number;
  total: string;
}
interface Shop {
  'order.created': Order;
  'x/+': { level: number };
  'y/#': unknown;
}

async function typed(): Promise<void> {
  const factory = new Factory<Shop>({ host: 'localhost', port: 17352, connectTimeout: 300, offline: { policy: 'queue', max_messages: 5 } });
  const producer = await factory.createProducer('shop', { event: 'order.created', default_ttl: '1h' });
  const sent: boolean = producer.produce('order.created', { id: 1, total: '2.50' });
  const confirmed: Promise<Confirmation> = producer.produce('order.created', { id: 1, total: '' }, { confirm: true, ttl: '5m', signal: AbortSignal.timeout(5) });
  const { queued, delivered, duplicate } = await confirmed;
  producer.produce('x/7', { level: 1 }, 60);
  producer.produce('y/any/depth', new Uint8Array(3), { guaranteed: true, headers: { a: 'b' } });
  producer.produce({ event: 'order.created' }, { id: 1, total: '' }, 60, 'somebody');
  producer.produce({ default: 'event' });
  producer.onSubscribed((payload) => payload.events?.at(0));
  // @ts-expect-error: a wrong payload
  producer.produce('order.created', { id: 'one' });
  // @ts-expect-error: a wrong event
  producer.produce('order.creatd', { id: 1, total: '' });
  // @ts-expect-error: wrong payload of a pattern
  producer.produce('x/7', { level: 'high' });
  // @ts-expect-error: not a confirmation
  const wrong: Confirmation = producer.produce('order.created', { id: 1, total: '' });

  const consumer = await factory.createConsumer('billing', { consumer_id: 'b1' });
  const subscribed: Subscribed = await consumer.subscribe('order.created', async (order, from, ack, raw) => {
    const total: string = order.total + from + (raw.msgId ?? '') + raw.message.id;
    // @ts-expect-error: no such field
    order.price;
    ack.working();
    ack.signal.throwIfAborted();
    if (total === '') ack.nack({ delay: '5s', requeue: false, reason: 'none' });
    else ack();
  }, { durable: true, ack: true, retry: { max_attempts: 5, delay: '2s', backoff: 'exponential' } });
  await consumer.subscribe('shop', 'x/+', (data) => data.level, { mode: 'topic' });
  await consumer.subscribe({ sum: 0 }, 'shop', 'order.created', function (order) { this.sum += order.id; }, true);
  // @ts-expect-error: a wrong event
  consumer.subscribe('order.lost', () => {});
  // @ts-expect-error: a wrong option
  consumer.subscribe('order.created', () => {}, { durabel: true });
  for await (const item of consumer.messages('order.created', { ack: true, signal: AbortSignal.timeout(1) })) {
    const order: Order = item.message;
    item.nack({ reason: String(order.id) });
    const same: Message<Order> = item;
  }
  consumer.on('gap', (gap) => gap.keys.length).on('error', (error) => error.code).on('any other', () => {});
  consumer.socket.on('CONSUME-x', () => {}).emit('PING', {}, () => {});
  const left: number = (await consumer.unsubscribe('order.created', 'shop', { purge: true })).left;
  await consumer.close({ timeout: '2s' });
  void [sent, queued, delivered, duplicate, subscribed, left];
}

async function untyped(): Promise<void> {
  const consumer: Subscriber = await new MessageQueue().createConsumer();
  await consumer.subscribe('anything', (data) => {
    // @ts-expect-error: unknown, not any
    data.field;
    const known = data as { field: number };
    return known.field;
  });
  const producer: Publisher = await new Factory().createProducer();
  producer.produce('anything', { at: 'all' });
  // @ts-expect-error: a wrong option
  producer.produce('anything', 1, { guarantee: true });
  new Factory().createProducer('p', (socket, error) => socket.produce(1) && error?.message, 17352, 'localhost');
  new Factory().createConsumer(null, 'c', (socket) => socket.close(), 17352, 'localhost', 'http', {}, (message) => message);
}

async function broker(): Promise<void> {
  const server = new Server({ port: 0, storage: new Storage.MemoryStore({ default_ttl: '1h' }), pingInterval: 5000, max_queued: 100 });
  const onDisk = new Server({ storage: 'sqlite', storage_options: { filename: 'x.sqlite', synchronous: 'normal', busyTimeout: 50 } });
  const kept: string | undefined = Storage.createStore('sqlite', { filename: 'x.sqlite' }).options.filename;
  await onDisk.backup(`${kept}.copy`);
  const degraded: boolean = onDisk.getStats().store.degraded;
  void degraded;
  const { port } = await server.start();
  const taken: [boolean, number, number] = [server.send('id', 'note', { n: 1 }), server.broadcast('note'), server.volatile('note', null, 'id')];
  const swept: number = server.stopIdleEviction().sweepIdleRegistrations() + taken.length;
  const online: number = server.getStats().realms['default']!.producers.online;
  const waiting: number[] = (await server.getStats({ queues: true })).queues.map((queue) => queue.waiting);
  await server.stop({ timeout: 2 });
  new Server({ storage: 'redis', storage_options: { url: ['redis://a', 'redis://b'], cluster: true } });
  // @ts-expect-error: no such store
  new Server({ storage: 'postgres' });
  const rows: (NewRow & { realm: string; event: string })[] = [];
  const storage: CustomStore = {
    enqueue: (realm, event, row) => (rows.push({ ...row, realm, event }), row.id),
    dequeue: async (realm, event, consumer, { limit }) => rows.filter((row) => row.event === event && row.consumer_id === consumer).slice(0, limit),
    ack: (id) => void rows.findIndex((row) => row.id === id),
  };
  new Server({ storage, data_dir: '/tmp' });
  new Server({ storage: class implements CustomStore { enqueue = storage.enqueue; dequeue = storage.dequeue; ack = storage.ack; } });
  new Server({ storage: async () => storage });
  new Server({ storage: 'custom', storage_options: { module: './my-store' } });
  // @ts-expect-error: ack is missing
  new Server({ storage: { enqueue: storage.enqueue, dequeue: storage.dequeue } });
  const gaps: string[] = server.getStats().store.gaps.map(({ promise }) => promise);
  void gaps;
  void [port, online, waiting];
}

async function management(): Promise<void> {
  const at = { host: 'localhost', port: 17352, timeout: 500 };
  const { token, settings } = await Authorization.authManagementCommand('t', { command: 'add_token', realm: 'r', role: 'producer' }, at);
  const once: string | undefined = token;
  const realms: boolean = settings.realms['r']!.key_configured;
  const { sessions } = await Authorization.authManagementCommand('t', { command: 'list_sessions' });
  const names: string[] = sessions.flatMap((session) => session.consumers);
  const { entries, cursor } = await Authorization.realmManagementCommand('k', 'r', { command: 'dlq_list', limit: 5 });
  const reasons: string[] = entries.map((entry) => entry.reason + (cursor ?? ''));
  const { stats } = await Authorization.authManagementCommand('t', 'stats');
  const connections: number = stats.connections_current;
  const order: ManagementCommand = { command: 'revoke_token', realm: 'r', client_id: 'c' };
  await Authorization.authManagementCommand('t', order);
  // @ts-expect-error: which token
  const lost: ManagementCommand = { command: 'revoke_token', realm: 'r' };
  // @ts-expect-error: no such command
  await Authorization.authManagementCommand('t', { command: 'drop_realm', realm: 'r' });
  // @ts-expect-error: not of a realm
  await Authorization.realmManagementCommand('k', 'r', { command: 'rename_realm', from: 'a', to: 'b' });
  const pending = await Authorization.submitAuthorizationRequest({ realm: 'r' });
  const approved = await Authorization.submitAuthorizationRequest({ realm: 'r' }, { ...at, wait: '10m', onPending: ({ request_id }) => request_id.length });
  const role: 'pending' | Role = approved.role ?? pending.status;
  const { request } = await Authorization.nextAuthorizationRequest('t', { realm: 'r' }, { url: 'https://localhost', ca: Buffer.of() });
  await Authorization.decideAuthorizationRequest('t', { request_id: request?.request_id ?? '', approved: true, role: 'both' }).catch((refusal: Refusal) => refusal.response.code);
  const { signature } = Authorization.createAdminProof('t', 'AUTH_MANAGEMENT_COMMAND', order, { timestamp: 1, nonce: 'n' });
  new Server({ auth: { enabled: true, validator: async (token) => (token === '' ? null : { realm: 'r', role: 'both', sub: token }) } });
  new Server({ auth: { validator: () => ({ realm: 'r', role: 'consumer' }) } });
  // @ts-expect-error: no such role
  new Server({ auth: { validator: () => ({ realm: 'r', role: 'emperor' }) } });
  const rules = { default: { required: false, preshared_key: 'k', expiresAt: 1 } };
  const tokens = [{ tokenHash: 'ab', clientId: 'c' }];
  new Server({ auth: { enabled: true, jwt_max_ttl: '1h', allowSuperadminJwt: false, enforce_expiry: true, timeout: 1, env_file: '.env', adminTokenEnv: 'T', auto_admin_token: false, monitor_tokens: [], allow_insecure_management: true, realms: rules, tokens } });
  // @ts-expect-error: no such setting
  new Server({ auth: { enabeld: true } });
  // @ts-expect-error: no such member of a realm
  new Server({ auth: { realms: { r: { requird: true } } } });
  // @ts-expect-error: no such member of a token
  new Server({ auth: { tokens: [{ token: 't', rolle: 'both' }] } });
  // @ts-expect-error: no such role
  new Factory({ auth: { role: 'emperor' } });
  new Factory({ token: undefined, auth: { role: 'manager', realm: undefined } });
  const { authInfo } = await new Factory().createConsumer('c');
  const where: [string, Role] | undefined = authInfo === null ? undefined : [authInfo.realm, authInfo.role];
  const code = (error: RestanteError) => error.response?.code;
  const reloaded = await Authorization.authManagementCommand('t', { command: 'reload_settings' });
  const on: boolean = reloaded.settings.enabled;
  void [where, code, on];
  void [once, realms, names, reasons, connections, lost, role, signature];
}

function codes(error: unknown): boolean {
  if (!(error instanceof RestanteError)) return false;
  const code: ErrorCode = error.code;
  // @ts-expect-error: no such code
  return code === 'disk_full';
}

const name: string = events.toConsumeEvent(events.toConsumerEvent('Paid', 'orders')) + constants.EVENT_ALL;
void [typed, untyped, broker, management, codes, name, restante.Factory === Factory];
