import type { CustomStore } from './index.js';

/**
 * Registers tests for `node:test` of what a store must do, alone and under a server. Optional
 * methods are tested where they are there.
 *
 * `make` answers an empty store, apart from all others made; `drop` gets each when its test is over.
 */
export function storeContract<S extends CustomStore>(make: () => S | PromiseLike<S>, options?: { name?: string; drop?: (store: S) => unknown }): void;
