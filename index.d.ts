// The public types of Restante. Hand-written; __test__/types compares them with the run time.
/// <reference types="node" />
import { EventEmitter } from 'node:events';

// ---- values ------------------------------------------------------------------------------------

/** Seconds, or a text with a unit: `'250ms'`, `'1.5s'`, `'15m'`, `'2h'`, `'7d'` (any case). A text
 *  without a unit is seconds. Anything else, and negatives, are refused at the call. */
export type Duration = number | string;

/** What `err.code` can be. Never reused, never renamed; match on it, not on the text. */
export type ErrorCode =
  | 'addon_unavailable'
  | 'anonymous_refused'
  | 'bad_command'
  | 'bad_frame'
  | 'bad_name'
  | 'chunk_dropped'
  | 'config'
  | 'conflict'
  | 'consumer_id_taken'
  | 'dead_letter_unknown'
  | 'delivery_unknown'
  | 'disconnected'
  | 'duplicate_consumer'
  | 'e2ee_required'
  | 'expired'
  | 'fenced'
  | 'forbidden'
  | 'handler_failed'
  | 'internal'
  | 'not_carriable'
  | 'payload_too_large'
  | 'proof_rejected'
  | 'queue_full'
  | 'rate_limited'
  | 'realm_exists'
  | 'realm_unknown'
  | 'request_unknown'
  | 'server_error'
  | 'session_unknown'
  | 'shutting_down'
  | 'stale_ack'
  | 'store_corrupt'
  | 'store_full'
  | 'store_locked'
  | 'store_timeout'
  | 'store_unavailable'
  | 'store_unsupported'
  | 'swap_in_progress'
  | 'timeout'
  | 'token_exists'
  | 'token_unknown'
  | 'too_many_matches'
  | 'unauthenticated'
  | 'unsupported';

/** What the broker, its store or the connection refused. Wrong arguments throw a `TypeError` with
 *  the same kind of `code`; an aborted call rejects with an error named `AbortError` whose `cause`
 *  is the signal's reason. */
export class RestanteError extends Error {
  constructor(told: { code: ErrorCode; number?: number; message: string; cause?: string; retry_after?: number });
  readonly name: string;
  readonly code: ErrorCode;
  /** The number that stands beside the code on the wire. */
  readonly number?: number;
  /** Seconds after which trying again has a chance, if the server said so. */
  readonly retry_after?: number;
  /** What somebody else's code said, such as a store of your own: an error with its message. */
  readonly cause?: unknown;
  /** The broker's whole answer, where it said no to a call of `Authorization`. */
  readonly response?: Refusal['response'];
}

/** Something with `log`, and perhaps the other levels; `console` is one. */
export interface Logger {
  log(...args: any[]): void;
  info?(...args: any[]): void;
  warn?(...args: any[]): void;
  error?(...args: any[]): void;
  debug?(...args: any[]): void;
}

// ---- events and what they carry ------------------------------------------------------------------

/** Without a map of events, every name is allowed and what it carries is unknown. */
export interface AnyEvents {
  [event: string]: unknown;
}

/** The concrete names that a topic pattern stands for: `'x/+'` → `` `x/${string}` ``. */
export type Concrete<Name extends string> = string extends Name
  ? string
  : Name extends `${infer Before}+${infer After}`
    ? `${Before}${string}${Concrete<After>}`
    : Name extends `${infer Before}#`
      ? `${Before}${string}`
      : Name;

/** The names (and patterns) of a map of events. */
export type EventName<Events extends object> = keyof Events & string;

/** What an event carries. */
export type Data<Events extends object, Name extends string> = Name extends keyof Events
  ? Events[Name]
  : { [Key in EventName<Events>]: Name extends Concrete<Key> ? Events[Key] : never }[EventName<Events>];

/** An event by name, or an object that has one. */
export type EventLike<Name extends string> = Name | { event: Name };

// ---- deliveries --------------------------------------------------------------------------------

/** A delivery as it came. */
export interface RawDelivery<T = unknown> {
  event: string;
  /** The data; bytes arrive as `Buffer`, wherever they are. */
  message: T;
  /** The producer's name. */
  from: string;
  to?: string;
  enc?: unknown;
  headers?: Record<string, string>;
  content_type?: string;
  /** Only on deliveries that must be acked. */
  msgId?: string;
  msg_id?: string;
  /** Times sent, from 1; only on deliveries that must be acked. */
  delivery_attempt?: number;
  /** A repeat without ack. */
  redelivered?: boolean;
}

export interface NackOptions {
  /** Try again after this; default: as the subscription's `retry` says. */
  delay?: Duration;
  /** `false`: a dead letter at once. Default true. */
  requeue?: boolean;
  /** Kept with the message. */
  reason?: string;
}

/** Settles a delivery. On deliveries without ack it does nothing. */
export interface Ack {
  /** Done. Only the first settlement counts; `callback` is called when the ack is on its way. */
  (callback?: () => void): void;
  /** Gives it back: a failed attempt. */
  nack(options?: NackOptions): void;
  /** Starts the ack timeout anew: still at it. */
  working(): void;
  /** Aborted when `close()` does not wait for handlers any longer. */
  readonly signal: AbortSignal;
}

/** Handles deliveries. In ack mode (without `manual_ack`) the delivery is acked when it returns or
 *  its promise resolves; when it throws or rejects, that is a failed attempt. */
export type Handler<T = unknown, This = undefined> = (
  this: This,
  message: T,
  from: string,
  ack: Ack,
  raw: RawDelivery<T>,
) => unknown;

/** A delivery of `messages()`. */
export interface Message<T = unknown> {
  readonly message: T;
  readonly from: string;
  readonly event: string;
  readonly headers?: Record<string, string>;
  readonly msgId?: string;
  readonly delivery_attempt?: number;
  /** It has, or may have, been delivered before. */
  readonly redelivered: boolean;
  readonly raw: RawDelivery<T>;
  ack(): void;
  nack(options?: NackOptions): void;
  working(): void;
}

/** Deliveries, one after the other. In ack mode (without `manual_ack`) an item is acked when the
 *  next one is asked for. Leaving the loop (`break`, an error, an abort) detaches: what was not
 *  acked is delivered again later, and a durable subscription stays in place. */
export interface Messages<T = unknown> extends AsyncIterableIterator<Message<T>> {
  /** The server's answer to the subscription. */
  readonly ready: Promise<Subscribed>;
  next(): Promise<IteratorResult<Message<T>, undefined>>;
  return(value?: unknown): Promise<IteratorResult<Message<T>, undefined>>;
  throw(error?: unknown): Promise<IteratorResult<Message<T>, undefined>>;
  [Symbol.asyncIterator](): Messages<T>;
  [Symbol.asyncDispose](): Promise<void>;
}

// ---- options -----------------------------------------------------------------------------------

export interface RetryOptions {
  /** Failures before it is a dead letter, 1–1000. Default 3. */
  max_attempts?: number;
  maxAttempts?: number;
  /** Default 5 s. */
  delay?: Duration;
  /** Default `'fixed'`. */
  backoff?: 'fixed' | 'exponential';
  /** Default 1 h, or `delay` if that is more. */
  max_delay?: Duration;
  maxDelay?: Duration;
}

export interface SubscribeOptions {
  /** Messages wait while the consumer is away. Default false. */
  durable?: boolean;
  /** Durable identity; default: the consumer's. */
  consumer_id?: string;
  consumerId?: string;
  /** Deliveries are settled by ack, and come again if they are not. Default false. */
  ack?: boolean;
  require_ack?: boolean;
  requireAck?: boolean;
  /** Like `ack`, but only the handler's own `ack()` counts. */
  manual_ack?: boolean;
  manualAck?: boolean;
  /** How long one attempt may take. Default: the server's, 30 s. */
  ack_timeout?: Duration;
  ackTimeout?: Duration;
  retry?: RetryOptions;
  /** `'topic'`: the event is a pattern; `+` is one level, `#` at the end any number. */
  mode?: 'topic';
  /** Each message reaches one member of the group. */
  group?: string;
  /** Most messages that may be unsettled at a time. Default 1,024. */
  prefetch?: number;
  /** Only from this producer; the argument of the same meaning is the usual way. */
  producer?: string;
  /** `'all'`: all events of the producer. */
  scope?: 'all' | 'default';
  /** Subscribe again after each reconnect. Default true. */
  reconnect?: boolean;
  /** Abort: takes no more, as `close()` does for all; a durable subscription stays. */
  signal?: AbortSignal;
  /** How long to wait for the server's answer; the subscription stays in force. Default 10 s. */
  timeout?: Duration;
}

/** What the server answered to a subscription. */
export interface Subscribed {
  key: string;
  consume_event: string;
  /** Messages that waited for it. */
  queued: number;
}

export interface UnsubscribeOptions {
  /** Drop the backlog too. Default false: it waits until its TTL for a later subscription. */
  purge?: boolean;
  mode?: 'topic';
  scope?: 'all' | 'default';
}

export interface Unsubscribed {
  removed: number;
  /** Unsettled messages that stay. */
  left: number;
}

export interface ProduceOptions {
  /** Kept for every remembered matching subscription, online or not. Default false. */
  guaranteed?: boolean;
  guaranteed_delivery?: boolean;
  guaranteedDelivery?: boolean;
  durable?: boolean;
  delivery?: 'guaranteed' | (string & {});
  delivery_mode?: 'guaranteed' | (string & {});
  deliveryMode?: 'guaranteed' | (string & {});
  /** How long it may wait. Default: the producer's `default_ttl`, else the store's, else 24 h. */
  ttl?: Duration;
  /** Older spelling of `ttl`; -1: none. */
  lifespan?: Duration;
  /** To every connected member of the realm, or of `group`. */
  broadcast?: 'realm' | 'group' | boolean;
  group?: string;
  /** Your own id: what is stored under it is stored once, and a second one is answered `duplicate` (five minutes). A message that nothing stores leaves no mark (P16). */
  id?: string;
  /** At most 8 KiB. */
  headers?: Record<string, string>;
  /** Messages of one key are handled one after the other, also through retries. */
  key?: string;
  /** Hold it this long. */
  delay?: Duration;
  /** Hold it until then. */
  deliver_at?: Date | number | string;
  deliverAt?: Date | number | string;
  /** Passed through. */
  enc?: unknown;
  /** Passed through; does not restrict who gets it. */
  to?: string;
  /** Resolve when every durable copy is stored. */
  confirm?: boolean;
  /** With `confirm`: how long to wait. Default 10 s. */
  timeout?: Duration;
  /** With `confirm`: stop waiting. What was sent may still arrive. */
  signal?: AbortSignal;
}

/** What the server answered to a confirmed message: every durable copy is stored. */
export interface Confirmation {
  id: string | null;
  /** Stored copies. */
  queued: number;
  /** Live copies. */
  delivered: number;
  /** Queues that were full. */
  refused: number;
  duplicate: boolean;
  delayed: boolean;
}

export interface ProducerOptions {
  /** The event of `produce(data)`. */
  event?: string;
  /** `ttl` of messages that say none. */
  default_ttl?: Duration;
  defaultTtl?: Duration;
  ttl?: Duration;
  /** When it subscribes, too. */
  consumer_id?: string;
  consumerId?: string;
}

export interface ConsumerOptions {
  /** Durable identity. Default: the name. */
  consumer_id?: string;
  consumerId?: string;
}

export interface AuthOptions {
  token?: string | undefined;
  realm?: string | undefined;
  role?: Role | undefined;
  key?: string | undefined;
  /** Milliseconds. Default 5000. */
  timeout?: number | undefined;
}

/** Who a session is. */
export interface AuthInfo {
  realm: string;
  role: Role;
}

/** Of the options of socket.io-client, those that mean something here; times in milliseconds. */
export interface SocketArgs {
  path?: string;
  reconnection?: boolean;
  reconnectionDelay?: number;
  reconnectionDelayMax?: number;
  timeout?: number;
  [other: string]: unknown;
}

/** What confirmed and guaranteed messages do while there is no connection. */
export interface OfflineOptions {
  /** Default `'queue'`. */
  policy?: 'queue' | 'reject';
  /** More are refused `queue_full`. Default 1,000. */
  max_messages?: number;
  maxMessages?: number;
  /** Default 16 MiB. */
  max_bytes?: number;
  maxBytes?: number;
}

export interface FactoryOptions {
  /** Default: `RESTANTE_HOST`, `TYO_MQ_HOST`, `'localhost'`. */
  host?: string | undefined;
  /** Default: `RESTANTE_PORT`, `TYO_MQ_PORT`, 17352. */
  port?: number | string | undefined;
  /** `'http'` (default) or `'ws'`; `'https'` or `'wss'` for TLS. */
  protocol?: string | undefined;
  /** Whose signature the server's certificate must have under TLS: PEM, or the path of a file of it.
   *  Default: the authorities of the web. */
  ca?: string | Buffer | undefined;
  args?: SocketArgs | undefined;
  auth?: AuthOptions | null | undefined;
  /** Short for `auth: {token}`. */
  token?: string | undefined;
  logger?: Logger | undefined;
  /** Milliseconds that the first connection may take. Default: for ever; after three failed tries `'error'`,
   *  `onError` or the logger is told why, once. */
  connect_timeout?: number | undefined;
  connectTimeout?: number | undefined;
  offline?: 'queue' | 'reject' | OfflineOptions | undefined;
  /** Pauses between tries. Default 100 ms, doubled up to 10 s. */
  reconnect?: { min?: Duration; max?: Duration } | undefined;
  /** Largest message in bytes. Default 50 MiB. */
  max_message_bytes?: number | undefined;
  maxMessageBytes?: number | undefined;
}

export interface CloseOptions {
  /** Default 5 s. */
  timeout?: Duration;
}

// ---- connections -------------------------------------------------------------------------------

/** Plain live messages may have been missed. */
export interface Gap {
  keys: string[];
  dropped: number | null;
}

/** What a producer is told of a consumer, and a consumer of a producer. */
export interface Awareness {
  event?: string;
  name?: string;
  id?: string;
  socket?: string | null;
  consumer?: string;
  producer?: string;
  events?: string[];
  online?: boolean;
}

/** The Socket.IO face of a connection. */
export interface RawSocket extends EventEmitter {
  readonly connected: boolean;
  readonly id: string | undefined;
  /** Sends an event to the server; a function as the last argument gets the reply. */
  emit(event: string, ...args: any[]): this & boolean;
  off(event: string, listener?: (...args: any[]) => void): this;
  connect(): this;
  disconnect(): this;
  close(): this;
}

/** The events of a connection. A listener that throws is logged and harms nobody else. */
export interface SocketEvents {
  /** Connected, also again. */
  connect: [];
  disconnect: [reason: string];
  /** Emitted only if somebody listens; else `onError` or the logger is told. */
  error: [error: RestanteError];
  gap: [gap: Gap];
  /** A realm broadcast that no subscription of this object has asked for. */
  broadcast: [message: unknown, from: string, raw: RawDelivery];
  /** Another session registered this producer's name. */
  takeover: [];
  /** `produce()` had returned false; go on. */
  drain: [];
}

/** One connection, restored by itself. Base of consumers and producers. */
declare class Socket extends EventEmitter {
  constructor(name: string | null);
  name: string;
  alias: string | null;
  logger: Logger;
  auth: AuthOptions | null;
  /** What the login answered; null: there was none. */
  authInfo: AuthInfo | null;
  host: string | null;
  port: number | string | null;
  protocol: string | null;
  args: SocketArgs;
  /** More of the factory's options. */
  settings: object;
  connectString: string | null;
  readonly connected: boolean;
  autoreconnect: boolean;
  onDisconnectListener: ((reason: string) => void) | null;
  readonly socket: RawSocket;
  /** Told every ERROR of the server, and once why there is no connection, if nobody listens to `'error'`. Default: logs. */
  onError: (message: any) => void;

  /** Connects. `callback` is called now and after each reconnect; the promise is for the first. */
  connect(callback?: (() => void) | null, port?: number | string | null, host?: string | null, protocol?: string | null, args?: SocketArgs | null): Promise<void>;
  connectWith(callback: (() => void) | null | undefined, url?: string, args?: SocketArgs): Promise<void>;
  authenticate(callback: (error: Error | null, info?: AuthInfo | null) => void): void;
  authenticate(): Promise<void>;
  on<Name extends keyof SocketEvents>(event: Name, listener: (...args: SocketEvents[Name]) => void): this;
  on(event: string | symbol, listener: (...args: any[]) => void): this;
  once<Name extends keyof SocketEvents>(event: Name, listener: (...args: SocketEvents[Name]) => void): this;
  once(event: string | symbol, listener: (...args: any[]) => void): this;
  /** Without a listener: removes all of that event. */
  off(event: string | symbol, listener?: (...args: any[]) => void): this;
  addConnectionListener(listener: () => void): this;
  sendMessage(event: string, payload: unknown, from?: string | null, callback?: (error?: Error) => void): void;
  /** Resolves when nothing waits to be sent. */
  flush(callback: (error?: Error) => void): void;
  flush(): Promise<void>;
  isConnected(): boolean;
  /** The Socket.IO id; changes with each connect. */
  id(): string | undefined;
  getId(): string | undefined;
  getSocketId(): string | undefined;
  generateConnectionUrl(): string;
  /** Whether the open connection keeps the process alive. */
  ref(): this;
  unref(): this;
  /** Ends the connection without waiting for handlers. */
  disconnect(): void;
  /** Takes no more deliveries, waits for running handlers and what waits to be sent, ends. Any
   *  time, any number of times; resolves within `timeout`. Durable subscriptions stay. */
  close(options?: CloseOptions): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export type { Socket };

/** A consumer. */
export class Subscriber<Events extends object = AnyEvents> extends Socket {
  constructor(name?: string | null, options?: ConsumerOptions);
  consumer_id: string;
  /** Key → what calls the handler with a delivery. */
  readonly consumes: Record<string, (raw: RawDelivery) => void>;

  /** That event from any producer. Subscribing again replaces the handler. */
  subscribe<Name extends EventName<Events>>(event: EventLike<Name>, handler: Handler<Data<Events, Name>>, options?: SubscribeOptions | boolean): Promise<Subscribed>;
  /** That event of one producer. `false`: do not subscribe again after a reconnect. */
  subscribe<Name extends EventName<Events>>(producer: string, event: EventLike<Name>, handler: Handler<Data<Events, Name>>, options?: SubscribeOptions | boolean): Promise<Subscribed>;
  /** The same; the handler is called on `context`. */
  subscribe<Context, Name extends EventName<Events>>(context: Context, producer: string, event: EventLike<Name>, handler: Handler<Data<Events, Name>, Context>, options?: SubscribeOptions | boolean): Promise<Subscribed>;
  /** Like `subscribe`, but not again after a reconnect. */
  subscribeOnce<Name extends EventName<Events>>(event: EventLike<Name>, handler: Handler<Data<Events, Name>>, options?: SubscribeOptions): Promise<Subscribed>;
  subscribeOnce<Name extends EventName<Events>>(producer: string, event: EventLike<Name>, handler: Handler<Data<Events, Name>>, options?: SubscribeOptions): Promise<Subscribed>;
  subscribeOnce<Context, Name extends EventName<Events>>(context: Context, producer: string, event: EventLike<Name>, handler: Handler<Data<Events, Name>, Context>, options?: SubscribeOptions): Promise<Subscribed>;
  resubscribeWhenReconnect: this['subscribe'];
  /** That event from any producer. */
  subscribeAll<Name extends EventName<Events>>(event: EventLike<Name>, handler: Handler<Data<Events, Name>>, options?: SubscribeOptions): Promise<Subscribed>;
  subscribeAll<Context, Name extends EventName<Events>>(context: Context, event: EventLike<Name>, handler: Handler<Data<Events, Name>, Context>, options?: SubscribeOptions): Promise<Subscribed>;
  /** All events of one producer. */
  subscribeProducer(producer: string, handler: Handler<Events[keyof Events]>, options?: SubscribeOptions): Promise<Subscribed>;
  /** Deliveries as an async iterable. */
  messages<Name extends EventName<Events>>(event: EventLike<Name>, options?: SubscribeOptions): Messages<Data<Events, Name>>;
  messages<Name extends EventName<Events>>(producer: string, event: Name, options?: SubscribeOptions): Messages<Data<Events, Name>>;
  /** Ends a subscription for good. Without `who`: the one for any producer. */
  unsubscribe(event: EventLike<string>, who?: string | null, options?: UnsubscribeOptions): Promise<Unsubscribed>;
  unsubscribeAll(options?: UnsubscribeOptions): Promise<Unsubscribed>;
  /** Takes no more deliveries; durable subscriptions stay. */
  clearSubscriptions(): void;
  /** `callback` is called when that producer, which this consumer has subscribed to, comes online. */
  setOnProducerOnlineListener(producer: string, callback: (payload: Awareness) => void): void;
  setOnProducerOnline(producer: string, callback: (payload: Awareness) => void): void;
  whenProducerOnline(producer: string, callback: (payload: Awareness) => void): void;
}

/** A producer; it can subscribe too. */
export class Publisher<Events extends object = AnyEvents> extends Subscriber<Events> {
  constructor(name?: string | null, event?: string | null, options?: ProducerOptions);
  constructor(name: string | null | undefined, options: ProducerOptions);
  /** The longest text in one piece, in UTF-16 units. */
  static CHUNK_SIZE: number;
  /** The event of `produce(data)`. */
  eventDefault: string;
  default_ttl: Duration | undefined;
  /** Who subscribed, by consumer id. */
  readonly subscribers: Record<string, Awareness>;

  /** Sends `data` under the default event. */
  produce(data: unknown): boolean;
  /** Resolves when every durable copy is stored. */
  produce<Name extends Concrete<EventName<Events>>>(event: EventLike<Name>, data: Data<Events, Name>, options: ProduceOptions & { confirm: true }, to?: string): Promise<Confirmation>;
  /** Sends it. False: much waits to be sent; it is taken all the same, go on at `'drain'`. A number
   *  is a lifespan in seconds. Bytes may be anywhere in `data` and arrive as `Buffer`.
   *  @throws TypeError `not_carriable`: undefined, functions, BigInt, cycles.
   *  @throws RestanteError `payload_too_large`, `queue_full`, `disconnected` before connect(). */
  produce<Name extends Concrete<EventName<Events>>>(event: EventLike<Name>, data: Data<Events, Name>, options?: (ProduceOptions & { confirm?: false }) | number, to?: string): boolean;

  onSubscriptionListener: ((payload: Awareness) => void) | null;
  /** Somebody subscribed to an event of this producer. */
  setOnSubscriptionListener(callback: (payload: Awareness) => void): void;
  onSubscribed(callback: (payload: Awareness) => void): void;
  setOnSubscriberLostListener(callback: (payload: Awareness) => void): void;
  onSubscriberLost(callback: (payload: Awareness) => void): void;
  setOnSubscriberOnlineListener(callback: (payload: Awareness) => void): void;
  setOnSubscriberOnline(callback: (payload: Awareness) => void): void;
  whenSubscriberOnline(callback: (payload: Awareness) => void): void;
  setOnUnsubscribedListener(callback: (payload: Awareness) => void): void;
  onUnsubscribed(callback: (payload: Awareness) => void): void;
}

/** Called with the socket now and after each reconnect, or once with null and an error. */
export type CreateCallback<T> = (socket: T, error?: Error) => void;

/** Makes producers, consumers and sockets that share where and how to connect. */
export class Factory<Events extends object = AnyEvents> {
  constructor(options?: FactoryOptions);
  static Producer: typeof Publisher;
  static Publisher: typeof Publisher;
  static Consumer: typeof Subscriber;
  static Subscriber: typeof Subscriber;
  host: string | null;
  port: number | string | null;
  protocol: string | null;
  args: SocketArgs;
  auth: AuthOptions | null;
  logger: Logger;
  settings: object;

  createProducer(name?: string | null, event?: string | null, options?: ProducerOptions): Promise<Publisher<Events>>;
  createProducer(name: string | null | undefined, options: ProducerOptions): Promise<Publisher<Events>>;
  createProducer(name: string | null | undefined, callback: CreateCallback<Publisher<Events>>, ...where: Where): void;
  createProducer(name: string | null | undefined, event: string | ProducerOptions | null | undefined, callback: CreateCallback<Publisher<Events>>, ...where: Where): void;
  createConsumer(name?: string | null, options?: ConsumerOptions): Promise<Subscriber<Events>>;
  createConsumer(name: string | null | undefined, callback: CreateCallback<Subscriber<Events>>, ...where: WhereAndError): void;
  /** The logger of `context` becomes the consumer's. */
  createConsumer(context: object | null, name?: string | null, callback?: null, ...where: WhereAndError): Promise<Subscriber<Events>>;
  createConsumer(context: object | null, name: string | null | undefined, callback: CreateCallback<Subscriber<Events>>, ...where: WhereAndError): void;
  createSubscriber: this['createConsumer'];
  /** Connects only if there is a callback. */
  createSocket(callback?: CreateCallback<Socket> | null, ...where: Where): Socket;
  /** Unconnected ones. */
  createProducerPrivate(name?: string | null, event?: string | ProducerOptions | null, options?: ProducerOptions): Publisher<Events>;
  createConsumerPrivate(context?: { logger?: Logger } | null, name?: string | null, options?: ConsumerOptions): Subscriber<Events>;
}

export type Where = [port?: number | string | null, host?: string | null, protocol?: string | null, args?: SocketArgs | null];
export type WhereAndError = [port?: number | string | null, host?: string | null, protocol?: string | null, args?: SocketArgs | null, onError?: (message: any) => void];

export { Factory as MessageQueue };

// ---- the broker --------------------------------------------------------------------------------

/** Options of the broker. snake_case and camelCase both work; unknown ones warn. Of Socket.IO's
 *  own, times are milliseconds. */
export interface ServerOptions {
  /** Default 17352; 0 takes a free one. */
  port?: number | string;
  /** Default: all interfaces. */
  host?: string;
  /** Told what is odd about the options, and what the broker logs of trouble. Default `console`. */
  logger?: Logger;
  /** Where durable messages wait. Default `'memory'`. */
  storage?: StorageChoice;
  store?: StorageChoice;
  storage_options?: StorageOptions;
  storageOptions?: StorageOptions;
  /** The folder of `restante.state.json`, which remembers what `setPersistence` chose (default: the
   *  working directory), and with a store of your own of `restante.subscriptions.json`, which keeps
   *  subscriptions across restarts (default: none for a store object, which then remembers them as
   *  long as it lives; the working directory for `storage: 'custom'`). */
  data_dir?: string;
  dataDir?: string;
  /** Folders besides `data_dir` in which the command `set_persistence` may name files. */
  storage_paths?: string[];
  storagePaths?: string[];
  /** Of subscriptions that say none. Default 30 s. */
  ack_timeout?: Duration;
  ackTimeout?: Duration;
  /** Deliveries above this many UTF-16 units are split. Default 262144. */
  delivery_chunk_threshold?: number;
  deliveryChunkThreshold?: number;
  /** Default 50 MiB. */
  max_message_bytes?: number;
  maxMessageBytes?: number;
  maxHttpBufferSize?: number;
  /** All large frames on their way in together. Default: a quarter of memory, at most 1 GiB. */
  max_inflight_bytes?: number;
  maxInflightBytes?: number;
  /** What may wait for one slow reader. Default 16 MiB. */
  max_outbound_bytes?: number;
  maxOutboundBytes?: number;
  /** Default 1,024. */
  prefetch?: number;
  /** What a full queue does. Default `'reject'`. */
  overflow?: 'reject' | 'drop_oldest';
  /** Messages of one queue. Default 1,000,000. */
  max_queued?: number;
  maxQueued?: number;
  max_queued_per_realm?: number;
  maxQueuedPerRealm?: number;
  max_connections?: number;
  maxConnections?: number;
  /** Default 30 d. */
  durable_subscription_ttl?: Duration;
  durableSubscriptionTtl?: Duration;
  /** Default 24 h. */
  guaranteed_subscription_ttl?: Duration;
  guaranteedSubscriptionTtl?: Duration;
  durable_confirm?: 'pong' | 'flush';
  durableConfirm?: 'pong' | 'flush';
  dedupe_window?: Duration;
  dedupeWindow?: Duration;
  dedupe_max?: number;
  dedupeMax?: number;
  dlq_max_per_realm?: number;
  dlqMaxPerRealm?: number;
  dlq_ttl?: Duration;
  dlqTtl?: Duration;
  store_timeout?: Duration;
  storeTimeout?: Duration;
  duplicate_probe_ms?: number;
  duplicateProbeMs?: number;
  /** Whether consumers and producers without a name may register. Default true. */
  allow_anonymous?: boolean;
  allowAnonymous?: boolean;
  /** `from` must be a producer registered on the connection; by default where authentication is on. */
  strict_from?: boolean;
  strictFrom?: boolean;
  idle_eviction?: { enabled?: boolean; ttl_ms?: number; ttlMs?: number; interval_ms?: number; intervalMs?: number };
  idleEviction?: { enabled?: boolean; ttl_ms?: number; ttlMs?: number; interval_ms?: number; intervalMs?: number };
  /** A JSON file of these options. It counts over the options given here, is read before the port opens and again
   *  whenever it has changed, and is made if it is not there. It is never rewritten. */
  settings_file?: string | Settings;
  settingsFile?: string | Settings;
  /** Options that count over the settings file, as flags and variables of the command do. */
  overrides?: ServerOptions;
  /** How much is too much. 0: unlimited. */
  limits?: Limits | boolean;
  /** Secures connections: PEM texts, or the paths of files of them. */
  tls?: { cert: string; key: string } | false;
  threads?: number;
  path?: string;
  cors?: { origin?: string | string[] | boolean; origins?: string | string[]; [other: string]: unknown } | string | string[];
  pingInterval?: number;
  pingTimeout?: number;
  transports?: Array<'polling' | 'websocket'>;
  connectTimeout?: number;
  upgradeTimeout?: number;
  allowEIO3?: boolean;
  serveClient?: boolean;
  perMessageDeflate?: unknown;
  auth?: AuthSettings;
  /** Where realms, tokens and requests are kept: `true`, or the file of a SQLite database. Default: in the store, or
   *  beside the settings file. */
  auth_store?: boolean | string;
  authStore?: boolean | string;
}

/** Limits that a realm can have of its own. Without one of them nothing is limited. */
export interface RealmLimits {
  /** Messages and chunks that one session produces a second … */
  messages_per_second?: number;
  messagesPerSecond?: number;
  /** … and how many of them at once. Default: three times as many. */
  message_burst?: number;
  messageBurst?: number;
  /** Bytes of them, as JSON. */
  bytes_per_second?: number;
  bytesPerSecond?: number;
  /** Default: twice as many. */
  bytes_burst?: number;
  bytesBurst?: number;
  /** Names that one session registers. */
  max_registrations_per_socket?: number;
  maxRegistrationsPerSocket?: number;
  /** Names of all sessions of the realm. */
  max_registrations_per_realm?: number;
  maxRegistrationsPerRealm?: number;
  max_subscriptions_per_socket?: number;
  maxSubscriptionsPerSocket?: number;
  max_subscriptions_per_realm?: number;
  maxSubscriptionsPerRealm?: number;
  /** Messages that wait in one queue. Default: the option `max_queued`. */
  max_queued?: number;
  maxQueued?: number;
  /** Messages that wait in the realm, all its queues together. */
  max_queued_per_realm?: number;
  maxQueuedPerRealm?: number;
  /** Bytes of the messages that wait in the realm. */
  max_queued_bytes_per_realm?: number;
  maxQueuedBytesPerRealm?: number;
}

/** Limits for everybody, and those that realms have of their own. */
export interface Limits extends RealmLimits {
  /** False: nothing is limited. */
  enabled?: boolean;
  /** Sessions of one address; an IPv6 address counts by its network of 64 bits. */
  max_connections_per_ip?: number;
  maxConnectionsPerIp?: number;
  /** New sessions of one address a minute, and as many at once. */
  connections_per_minute_per_ip?: number;
  connectionsPerMinutePerIp?: number;
  /** Default 1,000. */
  max_pending_authorization_requests?: number;
  maxPendingAuthorizationRequests?: number;
  /** Messages in chunks that one session has under way. Default 16. */
  max_transfers_per_socket?: number;
  maxTransfersPerSocket?: number;
  /** Networks and addresses of proxies that say who is behind them, such as `'10.0.0.0/8'`. */
  trust_proxy?: string | string[] | false;
  trustProxy?: string | string[] | false;
  realms?: Record<string, RealmLimits>;
}

/** A settings file, to be looked at before a server goes by it. */
export class Settings {
  constructor(path: string);
  /** Absolute. */
  readonly path: string;
  /** What is odd about the file, one sentence each. Changes nothing.
   *  @throws RestanteError `config`, with the path of a wrong value. */
  check(): string[];
}

/** What a reading of the settings file has done. */
export interface ReloadedSettings {
  /** Options that have changed and count now. */
  changed: string[];
  /** Options that have changed and count from the next start on. */
  needs_restart: string[];
  warnings: string[];
}

/** A broker in this process, on threads of its own. */
export class Server extends EventEmitter {
  constructor(options?: ServerOptions);
  /** What is odd about these options and their settings file, one sentence each. Changes nothing.
   *  @throws RestanteError `config`, with the path of what is wrong. */
  static check(options?: ServerOptions): string[];
  /** @throws RestanteError `unsupported`: use `start()`. */
  static create(...args: unknown[]): never;
  readonly options: ServerOptions;
  logger: Logger;
  /** The port it listens on, once started. */
  readonly port: number | null;
  start(port?: number): Promise<Listening>;
  listen(port?: number, host?: string): Promise<Listening>;
  /** Takes no more, writes what is under way, ends the sessions. Any time, any number of times;
   *  resolves within `timeout`. */
  stop(options?: CloseOptions): Promise<void>;
  close(options?: CloseOptions): Promise<void>;
  /** Numbers of this moment. */
  getStats(options?: { queues?: false }): Stats;
  /** And of each remembered queue. */
  getStats(options: { queues: true }): Promise<Stats & { queues: QueueStats[] }>;
  /** Sends an event to the session with this socket id, beside the broker, as a Socket.IO server
   *  would; whether its line has taken it.
   *  @throws RestanteError `shutting_down` when it does not run, `bad_command` for a bad name. */
  send(socketId: string, event: string, payload?: unknown): boolean;
  /** Sends an event to every session; how many have taken it. */
  broadcast(event: string, payload?: unknown): number;
  /** To one session, or to all, but not to those for which something waits to be sent; how many
   *  have taken it. */
  volatile(event: string, payload?: unknown, socketId?: string): number;
  /** Forgets names that nobody has held for as long as `idle_eviction` says; how many. */
  sweepIdleRegistrations(): number;
  /** Idle names stay from now on until they are swept. */
  stopIdleEviction(): this;
  /** One page of dead letters, oldest first; go on with the last one's id as `after`. */
  deadLetters(options?: { realm?: string; after?: string; limit?: number }): Promise<DeadLetter[]>;
  /** Puts it back into its queue, with its TTL started anew. */
  requeueDeadLetter(id: string, realm?: string): Promise<void>;
  discardDeadLetter(id: string, realm?: string): Promise<void>;
  /** Drops all; resolves how many those were. */
  purgeDeadLetters(realm?: string): Promise<number>;
  /** Writes a copy of the store as of this moment to a new file, while work goes on.
   *  Rejects with `config` if there is something of that name, `store_unsupported` if the store is no file. */
  backup(path: string): Promise<void>;
  /** Lets another store take the place of the one in force, with everything that waits, while work goes on. It is
   *  remembered in `restante.state.json` in `data_dir` and beats the options at the next start. Rejects, with nothing
   *  changed, with `config` for memory in the place of a durable store without `force`, or a store that holds something,
   *  and with `swap_in_progress` while an earlier change is under way, which goes on. */
  setPersistence(options: PersistenceOptions): Promise<PersistenceChange>;
  /** Reads the settings file again: all of what has changed counts from then on, or nothing. Rejects with `config`
   *  and the path of a wrong value, or with what a change of the store says; everything is as before then. */
  reloadSettings(): Promise<ReloadedSettings>;
  /** Lets another settings file take the place of the one before, or of none, in the same way. */
  loadSettings(path: string): Promise<ReloadedSettings>;
  /** @throws RestanteError `unsupported`: use `start()`. */
  create(...args: unknown[]): never;
  /** Whether the running server keeps the process alive. */
  ref(): this;
  unref(): this;
  on(event: 'listening', listener: (where: Listening) => void): this;
  on(event: 'close', listener: () => void): this;
  on(event: string | symbol, listener: (...args: any[]) => void): this;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface PersistenceOptions {
  storage: NonNullable<ServerOptions['storage']>;
  storage_options?: ServerOptions['storage_options'];
  /** Memory may take the place of a durable store, and a database is emptied first whose messages have moved away. */
  force?: boolean;
}

export interface PersistenceChange {
  storage: string;
  /** What a confirmed message survives: reconnects, the process being killed, power loss. */
  level: 'memory' | 'process' | 'disk';
  /** What was copied. */
  migrated: { messages: number; dlq: number; subscriptions: number };
  /** How long calls to the store were held back for the last of it. */
  paused_ms: number;
}

export interface Listening {
  host: string;
  port: number;
}

export interface Stats {
  realms: Record<string, RealmStats>;
  connections_current: number;
  connections_total: number;
  /** Sums since the start, by name. */
  counters: Record<string, number>;
  store: StoreStats;
  /** What is wrong with the settings file as it is now; null: nothing. */
  settings_error: string | null;
  [other: string]: unknown;
}

/** How the store is doing. Cheap to ask for at any time. */
export interface StoreStats {
  /** The store in force. */
  storage: string;
  /** What a confirmed message survives: reconnects, the process being killed, power loss. */
  level: 'memory' | 'process' | 'disk';
  /** What it cannot hold of the promises. */
  gaps: { promise: string; what: string }[];
  /** Calls that a store of your own refused or did not answer in time. */
  failures: number;
  /** `'degraded'`: it cannot do all that it promises at this moment. */
  state: 'ok' | 'degraded';
  degraded: boolean;
  /** Unsettled messages, one per queue, and about how many bytes these have; as of the last second, more or less.
   *  null: not counted yet. */
  depth: { messages: number; bytes: number } | null;
  /** Seconds since the oldest of them was produced; null: none waits, or not counted yet. */
  oldest: number | null;
  /** Messages held until they are due. */
  delayed: number | null;
  dead_letters: number | null;
  /** `at` in milliseconds since 1970. */
  last_error: { at: number; message: string } | null;
  warnings: string[];
  /** Redis was away at the start, and messages wait in the fallback file. */
  fallback?: 1;
  /** Calls of a store in Redis that wait, and that were sent again. */
  waiting_calls?: number;
  repeated_calls?: number;
  /** Sizes of a store that is a file. */
  file_bytes?: number;
  wal_bytes?: number;
}

export interface RealmStats {
  producers: { total: number; online: number };
  consumers: { total: number; online: number };
  subscriptions: number;
  [other: string]: unknown;
}

export interface QueueStats {
  realm: string;
  /** The queue's id, for management commands. */
  queue: string;
  key: string;
  /** The consumer id or the group. */
  name: string;
  kind: 'consumer' | 'group';
  durable: boolean;
  /** Unsettled messages, those in flight included. */
  waiting: number;
  in_flight: number;
  /** Age of the oldest in seconds. */
  oldest: number | null;
  sessions: number;
}

/** A message that was given up on. */
export interface DeadLetter {
  id: string;
  realm: string;
  /** The key of its queue. */
  event: string;
  /** The consumer id or the group. */
  consumer: string;
  kind: 'consumer' | 'group';
  /** What was delivered; the data is `message.message`. */
  message: RawDelivery;
  producer: string;
  /** ISO texts. */
  created_at: string;
  dead_lettered_at: string;
  /** Milliseconds since 1970. */
  expires_at: number | null;
  reason: string;
  first_error: string | null;
  last_error: string | null;
  /** Times sent. */
  attempts: number;
  /** Times given up on. */
  rounds: number;
}

// ---- management ----------------------------------------------------------------------------------

/** What a session may be, and a token may be good for. */
export type Role = 'producer' | 'consumer' | 'both' | 'manager' | 'admin';

/** A name as JavaScript spells it. */
type Camel<Name> = Name extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<Camel<Tail>>}` : Name;

/** Each member as the settings file spells it, and as JavaScript does. */
type Spelled<Members> = Members & { [Name in keyof Members as Camel<Name>]?: Members[Name] };

interface TokenMembers {
  token?: string;
  /** In its place: the SHA-256 of it, 64 hex digits. */
  token_hash?: string;
  /** Default `'default'`. */
  realm?: string;
  /** Default `'both'`. */
  role?: Role;
  /** Whose it is: the owner of the queues that it attaches. */
  client_id?: string;
  client_name?: string;
  /** Patterns of the events that may be produced and consumed. */
  allow?: { produce?: string[]; consume?: string[] };
  /** Patterns of the names that may be used. */
  names?: string[];
}

/** A client's token, as the settings have it. */
export interface TokenSettings extends Spelled<TokenMembers> {}

/** What holds in a realm. */
export interface RealmRules {
  /** Whether everybody has to log in. Default true. */
  required?: boolean;
  /** Signs management commands for it, and its JWTs unless there is a `jwt_key`. */
  manager_key?: string;
  jwt_key?: string;
  /** Consumers show it to enter without a token. */
  key?: string;
  /** Default: as there is a `key`. */
  require_key?: boolean;
  /** Whether producers need a credential. Default: as `required`. */
  require_acceptance?: boolean;
  /** Whether names may be missing. Default: true for the realm `default`, else false. */
  allow_anonymous?: boolean;
  e2ee?: E2eePolicy;
}

interface RealmMembers extends RealmRules, RealmLifetime {
  /** The same as `key`. */
  preshared_key?: string;
  /** The same as `ephemeral`. */
  temporary?: boolean;
  disposable?: boolean;
  /** Milliseconds since 1970. */
  expires_at?: number;
  /** Who is asked about its tokens. */
  auth_url?: string;
  auth_secret?: string;
}

/** A realm, as the settings have it. */
export interface RealmSettings extends Spelled<RealmMembers> {}

interface AuthMembers {
  /** Default false: everybody is in the realm `default` and may do everything. */
  enabled?: boolean;
  tokens?: TokenSettings[];
  realms?: Record<string, RealmSettings>;
  /** Signs JWTs of any realm. */
  jwt_secret?: string;
  /** The longest a JWT may still live; then each must have an `exp`. */
  jwt_max_ttl?: Duration;
  /** Whether a JWT or a validator may let somebody into realm `*` as `admin`. Default false. */
  allow_superadmin_jwt?: boolean;
  /** Whether commands that carry secrets may come in clear over a network. Default false. */
  allow_insecure_management?: boolean;
  /** Whether sessions end with their credential. Default true. */
  enforce_expiry?: boolean;
  /** Milliseconds that a session may be connected without being let in. Default 10,000. */
  timeout?: number;
  /** Where the administrator's secret is read, and written if one is made. Default `'.env'`. */
  env_file?: string;
  /** The variable that holds it. Default `'RESTANTE_ADMIN_TOKEN'`. */
  admin_token_env?: string;
  /** Whether one is made if there is none. Default true. */
  auto_admin_token?: boolean;
  /** Kept; nothing asks for them yet. */
  monitor_tokens?: string[];
  /** Who is asked about tokens. */
  auth_url?: string;
  auth_secret?: string;
  external_validators?: Spelled<{ realm_prefix: string; auth_url: string; auth_secret?: string }>[];
  management_tokens?: (Spelled<{ realm_prefix: string; ephemeral_only?: boolean; max_ttl?: Duration }> & ({ token: string } | { token_hash: string }))[];
  /** How long ephemeral realms live that do not say. Default: a day. */
  ephemeral_realm_ttl?: Duration;
  /** Where consumers need no credential. Default `'default-realm'`. */
  keyless_consumers?: 'default-realm' | 'allow' | 'deny';
  /** Says whose token it is, at once or later; then nobody else is asked. Nothing, a throw, a rejection and five
   *  seconds of silence are a no. */
  validator?: (token: string) => Awaitable<ValidatedToken | null | undefined | false>;
}

/** Who may do what: docs/realms-and-auth.md has the whole of it. */
export interface AuthSettings extends Spelled<AuthMembers> {}

/** Whom a validator lets in. */
export interface ValidatedToken {
  realm: string;
  role: Role;
  /** Whose queues it may attach. Default: the realm's. */
  sub?: string;
  allow?: { produce?: string[]; consume?: string[] };
  names?: string[];
  /** Seconds since 1970. */
  exp?: number;
  [other: string]: unknown;
}

/** Says where the broker is. Each call is a connection of its own. */
export interface AuthorizationOptions {
  /** Default: `RESTANTE_HOST`, `TYO_MQ_HOST`, `'localhost'`. */
  host?: string | undefined;
  /** Default: `RESTANTE_PORT`, `TYO_MQ_PORT`, 17352. */
  port?: number | string | undefined;
  /** `'http'` (default) or `'https'`. */
  protocol?: string | undefined;
  /** Whose signature the server's certificate must have: PEM, or its file. Default: the authorities of the web. */
  ca?: string | Buffer | undefined;
  path?: string | undefined;
  /** In the place of host, port and protocol: `'https://mq.example:17352'`. */
  url?: string | URL | undefined;
  /** Milliseconds that connecting, and each answer, may take. Default 5000. */
  timeout?: number | undefined;
}

/** The signature of an order. */
export interface Proof {
  /** Milliseconds since 1970. */
  timestamp: number;
  /** Used once. */
  nonce: string;
  /** 64 hex digits. */
  signature: string;
}

/** A client that wants to be let in. */
export interface AuthorizationRequest {
  /** Default `'default'`. */
  realm?: string;
  /** Default `'both'`. */
  role?: Role;
  /** Minted if it is not given. */
  client_id?: string;
  clientId?: string;
  /** For people. Default: the id. */
  client_name?: string;
  clientName?: string;
  /** What to log in with later, 32 to 512 characters. Minted if it is not given, and told. */
  client_token?: string;
  clientToken?: string;
  /** Shown to whoever decides. */
  challenge_response?: unknown;
  challengeResponse?: unknown;
}

export interface PendingAuthorization {
  ok: true;
  request_id: string;
  status: 'pending';
  client_id: string;
  client_token: string;
}

export interface ApprovedAuthorization {
  ok: true;
  request_id: string;
  status: 'approved';
  realm: string;
  role: Role;
  client_id: string;
  /** Log in with it. */
  client_token: string;
}

/** A request as managers see it. */
export interface PublicAuthorizationRequest {
  request_id: string;
  status: 'pending' | 'approved' | 'rejected' | 'superseded';
  realm: string;
  role: Role;
  client_id: string;
  client_name: string;
  client_token_hash: string;
  challenge_response: unknown;
  /** ISO texts. */
  created_at: string;
  decided_at: string | null;
  decision_reason: string | null;
}

export interface AuthorizationDecision {
  request_id: string;
  approved: boolean;
  /** Default: what was asked for. */
  role?: Role;
  reason?: string;
}

/** What rejects a call that the broker said no to. */
export interface Refusal extends RestanteError {
  /** The broker's whole answer. */
  readonly response: { ok: false; code?: number; error?: string; message?: string; [other: string]: unknown };
}

/** What a realm is told of encrypted bodies. */
export type E2eePolicy = 'off' | 'opportunistic' | 'required';

/** A realm that does not end by itself has neither. */
export interface RealmLifetime {
  ephemeral?: boolean;
  /** More than nothing. Default: the settings' `ephemeral_realm_ttl`, a day. */
  ttl?: Duration;
}

/** The commands that a realm's own manager key may sign, too. */
export type RealmManagementCommand =
  | ({ command: 'set_realm_lifetime'; realm: string } & RealmLifetime)
  | { command: 'set_realm_key'; realm: string; key?: string | null; require_key?: boolean }
  | { command: 'set_realm_acceptance'; realm: string; required: boolean }
  | { command: 'set_realm_e2ee'; realm: string; e2ee: E2eePolicy }
  | { command: 'authorization_list'; realm: string; status?: PublicAuthorizationRequest['status']; cursor?: string; limit?: number }
  | { command: 'dlq_list'; realm: string; cursor?: string; limit?: number }
  | { command: 'dlq_replay' | 'dlq_discard'; realm: string; msg_id: string }
  | { command: 'dlq_purge'; realm: string };

/** What can be ordered of a broker. */
export type ManagementCommand =
  | { command: 'get' | 'stats' | 'reload_settings' }
  | { command: 'set_global_auth'; enabled: boolean }
  | {
      command: 'set_persistence';
      storage: 'memory' | 'sqlite' | 'redis' | 'custom';
      storage_options?: StorageOptions;
      /** Memory may take the place of a durable store. */
      force?: boolean;
    }
  | ({
      command: 'add_realm';
      realm: string;
    } & RealmRules &
      RealmLifetime)
  | { command: 'rename_realm'; from: string; to: string }
  | { command: 'remove_realm'; realm: string }
  | { command: 'set_realm_auth'; realm: string; required: boolean; create?: boolean }
  | { command: 'set_realm_manager_key'; realm: string; manager_key?: string | null }
  | { command: 'set_realm_jwt_key'; realm: string; jwt_key?: string | null }
  | { command: 'set_realm_anonymous'; realm: string; allow_anonymous: boolean; create?: boolean }
  | { command: 'set_realm_acceptance'; realm: string; required: boolean; create?: boolean }
  | { command: 'set_realm_e2ee'; realm: string; e2ee: E2eePolicy; create?: boolean }
  | { command: 'set_external_auth'; auth_url: string | null; auth_secret?: string; realm?: string; realm_prefix?: string }
  | { command: 'add_management_token'; token: string; realm_prefix: string; ephemeral_only?: boolean; max_ttl?: Duration }
  | { command: 'revoke_management_token'; token_hash: string }
  | {
      command: 'add_token';
      realm: string;
      /** Default `'both'`. */
      role?: Role;
      client_id?: string;
      client_name?: string;
      /** Minted if it is not given, and told once. */
      token?: string;
      allow?: { produce?: string[]; consume?: string[] };
      names?: string[];
    }
  | ({ command: 'revoke_token'; allow_admin?: boolean } & ({ token: string } | { token_hash: string } | { realm: string; client_id: string }))
  | { command: 'authorization_list'; realm?: string; status?: PublicAuthorizationRequest['status']; cursor?: string; limit?: number }
  | { command: 'list_sessions'; realm?: string }
  | ({ command: 'disconnect' } & ({ socket_id: string } | { client_id: string } | { realm: string }))
  | { command: 'dlq_list'; realm?: string; cursor?: string; limit?: number }
  | { command: 'dlq_replay' | 'dlq_discard'; msg_id: string; realm?: string }
  | { command: 'queue_stats'; realm?: string }
  | { command: 'queue_release'; realm: string; queue: string }
  | RealmManagementCommand;

/** The settings as managers see them: no secret is in it. */
export interface ManagementView {
  enabled: boolean;
  realms: Record<string, RealmView>;
  tokens: TokenView[];
  management_tokens: { realm_prefix: string; token_hash: string; ephemeral_only?: boolean; max_ttl?: number }[];
  external_validators: { realm_prefix: string; auth_url: string; auth_secret_configured: boolean }[];
  persistence?: { storage: string; storage_options: Record<string, unknown> };
  [other: string]: unknown;
}

export interface RealmView {
  required?: boolean;
  require_key?: boolean;
  require_acceptance?: boolean;
  allow_anonymous?: boolean;
  e2ee?: E2eePolicy;
  ephemeral?: boolean;
  /** Milliseconds since 1970. */
  expires_at?: number;
  auth_url?: string;
  manager_key_configured: boolean;
  jwt_key_configured: boolean;
  key_configured: boolean;
  auth_secret_configured: boolean;
  [other: string]: unknown;
}

export interface TokenView {
  realm: string;
  role: Role;
  client_id: string | null;
  client_name: string | null;
  token_hash: string;
  [other: string]: unknown;
}

export interface SessionView {
  socket_id: string;
  realm: string;
  role: Role;
  /** Whose queues it may attach. */
  owner: string | null;
  producers: string[];
  consumers: string[];
  address: string | null;
  /** Milliseconds since 1970. */
  since: number;
}

/** What most commands answer: the settings, or to a realm's manager those of the realm, and what was done. */
export interface ManagementDone {
  ok: true;
  settings: ManagementView;
  /** Sessions that were ended by it. */
  disconnected_sockets?: number;
  [other: string]: unknown;
}

/** What a command answers, by its name. */
export interface ManagementAnswers {
  stats: { ok: true; stats: Stats };
  reload_settings: ManagementDone;
  add_token: ManagementDone & { token_hash: string; token?: string };
  set_persistence: ManagementDone & { migrated: { messages: number; dlq: number; subscriptions: number } };
  revoke_token: ManagementDone & { revoked: TokenView[] };
  remove_realm: ManagementDone & { removed_tokens: number };
  authorization_list: { ok: true; requests: PublicAuthorizationRequest[]; cursor?: string };
  list_sessions: { ok: true; realm: string | null; sessions: SessionView[] };
  dlq_list: { ok: true; realm: string | null; entries: (Omit<DeadLetter, 'created_at' | 'dead_lettered_at'> & { created_at: number | string; dead_lettered_at: number | string })[]; cursor?: string };
  dlq_replay: { ok: true; msg_id: string; new_msg_id: string };
  dlq_discard: { ok: true; msg_id: string };
  dlq_purge: ManagementDone & { purged: number };
  queue_stats: { ok: true; realm: string | null; queues: (QueueStats & { queue: string })[] };
}

export type ManagementAnswer<Command extends ManagementCommand> = Command['command'] extends keyof ManagementAnswers
  ? ManagementAnswers[Command['command']]
  : ManagementDone;

/** A command that says no realm, for it is said beside it. */
export type OfRealm<Command> = Command extends { realm: string } ? Omit<Command, 'realm'> : never;

export type RealmManagementAnswer<Name extends string> = Name extends 'dlq_purge'
  ? { ok: true; realm: string; settings: { realms: Record<string, RealmView> }; purged: number }
  : Name extends keyof ManagementAnswers
    ? ManagementAnswers[Name]
    : { ok: true; realm: string; settings: { realms: Record<string, RealmView> }; disconnected_sockets?: number };

/** Orders a running broker about, and asks to be let in. A no of the broker rejects with a `Refusal`; a broker that is
 *  not reached with `disconnected` or `timeout`. Secrets sign and are not sent. */
export const Authorization: {
  /** Signs an order: what goes beside its body as `proof`. Timestamp and nonce are made if they are not given. */
  createAdminProof(
    token: string,
    action: 'AUTHORIZATION_NEXT' | 'AUTHORIZATION_DECIDE' | 'AUTH_MANAGEMENT_COMMAND' | (string & {}),
    body?: object | null,
    options?: { timestamp?: number; nonce?: string },
  ): Proof;
  /** Asks to be let in, and waits until a manager has decided: rejects `forbidden` if it said no, `timeout` if nobody
   *  has. Lost connections are made again. `onPending` is told when it waits. */
  submitAuthorizationRequest(
    request: AuthorizationRequest,
    options: AuthorizationOptions & { wait: Duration; signal?: AbortSignal; onPending?: (pending: Omit<PendingAuthorization, 'client_token'>) => void },
  ): Promise<ApprovedAuthorization>;
  /** Asks to be let in. */
  submitAuthorizationRequest(request: AuthorizationRequest, options?: AuthorizationOptions): Promise<PendingAuthorization>;
  /** The oldest request that waits; `request` is null if none does. */
  nextAuthorizationRequest(token: string, filter?: { realm?: string } | null, options?: AuthorizationOptions): Promise<{ ok: true; request: PublicAuthorizationRequest | null }>;
  decideAuthorizationRequest(token: string, decision: AuthorizationDecision, options?: AuthorizationOptions): Promise<{ ok: true; request: PublicAuthorizationRequest }>;
  authManagementCommand<Command extends ManagementCommand>(token: string, command: Command, options?: AuthorizationOptions): Promise<ManagementAnswer<Command>>;
  authManagementCommand(token: string, command: 'get' | 'reload_settings', options?: AuthorizationOptions): Promise<ManagementDone>;
  authManagementCommand(token: string, command: 'stats', options?: AuthorizationOptions): Promise<ManagementAnswers['stats']>;
  /** The same with a realm's manager key, for what concerns that realm. */
  nextRealmAuthorizationRequest(managerKey: string, realm: string, options?: AuthorizationOptions): Promise<{ ok: true; request: PublicAuthorizationRequest | null }>;
  decideRealmAuthorizationRequest(managerKey: string, decision: AuthorizationDecision, options?: AuthorizationOptions): Promise<{ ok: true; request: PublicAuthorizationRequest }>;
  realmManagementCommand<Command extends OfRealm<RealmManagementCommand>>(
    managerKey: string,
    realm: string,
    command: Command,
    options?: AuthorizationOptions,
  ): Promise<RealmManagementAnswer<Command['command']>>;
};

// ---- stores ------------------------------------------------------------------------------------

export interface MemoryStoreOptions {
  default_ttl?: Duration;
  defaultTtl?: Duration;
}

/** Keeps messages in the server's memory: they survive reconnects, not the process. */
declare class MemoryStore {
  constructor(options?: MemoryStoreOptions);
  readonly options: Readonly<MemoryStoreOptions>;
}
export type { MemoryStore };

export interface SqliteStoreOptions {
  /** Default `'restante.sqlite'` in the working directory. */
  filename?: string;
  /** What a confirmed message survives: `'full'` (default) power loss too, `'normal'` the process being killed. */
  synchronous?: 'full' | 'normal';
  default_ttl?: Duration;
  defaultTtl?: Duration;
  /** Milliseconds to wait for another process that holds the database. Default 2000. */
  busy_timeout?: number;
  /** Opens it although its messages have moved to another store. */
  force?: boolean;
  busyTimeout?: number;
}

/** Keeps messages in a SQLite file: they survive the process. The file is opened by the server's start. */
declare class SqliteStore {
  constructor(options?: SqliteStoreOptions);
  readonly options: Readonly<SqliteStoreOptions>;
}
export type { SqliteStore };

type Awaitable<T> = T | PromiseLike<T>;

/** How a store names a row. */
export type RowId = string | number;

/** A row to store: one message in one queue. Plain values but for Buffers in `payload`. */
export interface NewRow<T = any> {
  /** A proposal, unique in the world; `enqueue` may answer another one. */
  id: string;
  consumer_id: string;
  /** What was produced. */
  payload: T;
  /** The whole message as text, attachments in base64. A row that comes back with it is exact. */
  raw: string;
  producer: string;
  /** Seconds from now; null: for ever. */
  ttl: number | null;
  /** ISO text. */
  created_at: string;
  /** Milliseconds since 1970. */
  expires_at: number | null;
}

/** A row that is stored: what `enqueue` got with an id, or as much of it as the store has kept. */
export type StoredRow<T = any> = ({ id: RowId } | { msgId: RowId }) &
  ({ raw: string } | { payload: T } | { message: T }) & {
    producer?: string | null;
    created_at?: string | number | Date | null;
    expires_at?: string | number | Date | null;
  };

/** A dead letter as a store keeps it. */
export type DeadRow<T = any> = StoredRow<T> & {
  realm: string;
  event: string;
  reason: string;
  dead_lettered_at: string | number | Date;
} & ({ consumer: string } | { consumer_id: string });

/** A store of your own. The first three methods must be there. Each may answer at once or later;
 *  what it throws rejects the produce with `store_unavailable` and its error as `cause`. */
export interface CustomStore {
  /** Stores a row behind the others of its queue and answers its id. */
  enqueue(realm: string, event: string, row: NewRow): Awaitable<RowId>;
  /** The rows of a queue, oldest first. It may leave them there or take them out. With a fourth
   *  parameter: at most `limit` of those behind the row `after`; then backlogs stay in the store. */
  dequeue(realm: string, event: string, consumer: string, page: { limit?: number; after?: RowId }): Awaitable<StoredRow[]>;
  /** Drops a row; one that is not there is fine. */
  ack(id: RowId): Awaitable<unknown>;
  /** All or none, in this order. */
  enqueueMany?(rows: (NewRow & { realm: string; event: string })[]): Awaitable<RowId[]>;
  ackMany?(ids: RowId[]): Awaitable<unknown>;
  /** Moves a row from its queue to the dead letters. */
  deadLetter?(id: RowId, reason: string): Awaitable<unknown>;
  /** Of one realm, or of all. */
  listDlq?(realm: string | null): Awaitable<DeadRow[]>;
  discardDlq?(id: RowId, realm: string): Awaitable<unknown>;
  countQueued?(realm: string): Awaitable<number>;
  purgeRealm?(realm: string): Awaitable<unknown>;
  /** Puts rows of one queue that `dequeue` took out back before the others. */
  import?(rows: (Omit<NewRow, 'id'> & { id: RowId; realm: string; event: string })[]): Awaitable<unknown>;
  close?(): Awaitable<unknown>;
}

/** `'custom'`: the store that the module of `storage_options.module` exports. */
export type StorageChoice =
  | 'memory'
  | 'sqlite'
  | 'redis'
  | 'custom'
  | true
  | MemoryStore
  | SqliteStore
  | RedisStore
  | CustomStore
  | (new (options: any) => CustomStore)
  | ((options: any) => Awaitable<CustomStore>);

export interface StorageOptions extends MemoryStoreOptions, SqliteStoreOptions, RedisStoreOptions {
  /** A path, from the working directory, or the name of a package. */
  module?: string;
  module_path?: string;
  modulePath?: string;
  /** A class or factory gets all of them. */
  [option: string]: any;
}

export interface RedisStoreOptions {
  /** `redis://` or `rediss://`, with user, password and database; several for Sentinel and Cluster.
   *  Default `'redis://127.0.0.1:6379'`. */
  url?: string | string[];
  /** A client of ioredis or node-redis that is used in the place of `url`. It stays yours: connected before the
   *  start, closed by you after `stop()`. */
  client?:
    | { callBuffer(command: string, ...args: any[]): Promise<unknown> }
    | { sendCommand(args: any[], options?: any): Promise<unknown> };
  /** What our keys begin with; no braces. Default `'restante'`. */
  prefix?: string;
  /** The name of the master that the Sentinels at `url` watch. */
  sentinel?: string;
  /** The PEM file of whoever has signed Redis's certificate, for `rediss://`. Default: the authorities of the web. */
  tls_ca?: string;
  tlsCa?: string;
  /** The PEM files of a certificate and its key, where Redis asks for one. */
  tls_cert?: string;
  tlsCert?: string;
  tls_key?: string;
  tlsKey?: string;
  /** `url` names nodes of a Redis Cluster. Default false. */
  cluster?: boolean;
  /** Start only if Redis never evicts keys. Default false. */
  strict?: boolean;
  /** How long what a broker held is nobody else's after it has died. Default 15 s. */
  lease?: Duration;
  /** Open it although its messages have moved to another store. Default false. */
  force?: boolean;
  /** Begin with a SQLite file if Redis is away at the start, until it is back. Default: refuse to start. */
  fallback?: 'sqlite' | false;
  /** That file. Default `'restante.fallback.sqlite'`. */
  fallback_filename?: string;
  fallbackFilename?: string;
  fallback_path?: string;
  fallbackPath?: string;
  /** Milliseconds that Redis may take to answer before that. Default 5000. */
  probe_timeout?: number;
  probeTimeout?: number;
  default_ttl?: Duration;
  defaultTtl?: Duration;
}

/** Keeps messages in Redis: they survive the broker. The server's start connects. */
declare class RedisStore {
  constructor(options?: RedisStoreOptions);
  readonly options: Readonly<Omit<RedisStoreOptions, 'client'>>;
}
export type { RedisStore };

export const Storage: {
  readonly MemoryStore: typeof MemoryStore;
  readonly SqliteStore: typeof SqliteStore;
  readonly RedisStore: typeof RedisStore;
  createStore(name: 'sqlite', options?: SqliteStoreOptions): SqliteStore;
  createStore(name: 'redis', options?: RedisStoreOptions): RedisStore;
  createStore<Store extends MemoryStore | SqliteStore | RedisStore>(store: Store): Store;
  createStore(name?: 'memory' | true, options?: MemoryStoreOptions): MemoryStore;
  createStoreAsync(
    name?: 'memory' | 'sqlite' | 'redis' | true | MemoryStore | SqliteStore | RedisStore,
    options?: MemoryStoreOptions | SqliteStoreOptions | RedisStoreOptions,
  ): Promise<{ store: MemoryStore | SqliteStore | RedisStore; backend: 'memory' | 'sqlite' | 'redis'; fellBack: boolean; error: Error | null }>;
};

// ---- names on the wire -------------------------------------------------------------------------

export const events: {
  /** `prefix-event-suffix`. */
  toEventString(event: EventLike<string>, prefix?: string | null, suffix?: string | null): string;
  toConsumerEvent(event: EventLike<string>, producer: string): string;
  toConsumeEvent(key: string): string;
  toConsumerEventAll(producer: string): string;
  toConsumeEventAll(producer: string): string;
  toOnSubscribeEvent(id?: string | null): string;
  toOnConnectEvent(id: string): string;
  toOnDisconnectEvent(id: string): string;
  toOnUnsubscribeEvent(event?: EventLike<string> | null, id?: string | null): string;
};

export const constants: {
  readonly ANONYMOUS: 'ANONYMOUS';
  readonly EVENT_DEFAULT: 'tyo-mq-mt-default';
  readonly EVENT_ALL: 'TM-ALL';
  readonly SYSTEM: 'TYO-MQ-SYSTEM';
  readonly ALL_PUBLISHERS: 'TYO-MQ-ALL';
  readonly SCOPE_ALL: 'all';
  readonly SCOPE_DEFAULT: 'default';
  readonly DEFAULT_PORT: 17352;
};
