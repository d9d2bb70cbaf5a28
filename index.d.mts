export * from './index.js';
import * as restante from './index.js';
export default restante;
