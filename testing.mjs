export { storeContract } from './testing.js';
