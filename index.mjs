// The same objects as for require: one instance, one set of classes.
import cjs from './index.js';

export const { Server, Factory, MessageQueue, Publisher, Subscriber, Storage, Settings, Authorization, RestanteError, events, constants } = cjs;
export default cjs;
