'use strict';
// index.d.ts against the compiler in every module setting, and against the run time (P35).
const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');

const root = path.join(__dirname, '..', '..');
const restante = require('../..');
/** The oldest, the usual and the newest compiler, with the module resolutions each may meet. */
const COMPILERS = {
  'typescript-5.0': [['node16', 'node16'], ['commonjs', 'node10']],
  typescript: [['nodenext', 'nodenext'], ['node16', 'node16'], ['esnext', 'bundler']],
  'typescript-7': [['nodenext', 'nodenext'], ['esnext', 'bundler']],
};

/** Compiles `typed.ts` as a module of each kind in a project that has the package installed. */
function compile(compiler, module, resolution) {
  const folder = newFolder();
  fs.mkdirSync(path.join(folder, 'node_modules'));
  fs.symlinkSync(root, path.join(folder, 'node_modules', 'restante'), 'dir');
  const kinds = resolution === 'node10' ? ['ts'] : ['mts', 'cts'];
  const files = kinds.map((kind) => path.join(folder, `typed.${kind}`));
  for (const file of files) fs.copyFileSync(path.join(__dirname, 'typed.ts'), file);
  const tsc = path.join(root, 'node_modules', compiler, 'bin', 'tsc');
  const roots = path.join(root, 'node_modules', '@types');
  const args = ['--noEmit', '--strict', '--noUncheckedIndexedAccess', '--exactOptionalPropertyTypes', '--esModuleInterop', '--skipLibCheck', 'false', '--target', 'es2022', '--lib', 'es2022', '--types', 'node', '--typeRoots', roots];
  return spawnSync(process.execPath, [tsc, ...args, '--module', module, '--moduleResolution', resolution, ...files], { encoding: 'utf8', cwd: folder });
}

for (const [compiler, settings] of Object.entries(COMPILERS)) {
  for (const [module, resolution] of settings) {
    const { version } = require(path.join(root, 'node_modules', compiler, 'package.json'));
    test(`TypeScript ${version}, ${resolution}: right uses compile and wrong ones do not (P35, J01, J02)`, (t) => {
      const { status, stdout } = compile(compiler, module, resolution);
      assert.equal(status, 0, stdout);
    });
  }
}

test('every way of resolving the package finds the types that fit what it loads (P35, J02)', async (t) => {
  const { checkPackage, createPackageFromTarballData } = await import('@arethetypeswrong/core');
  const folder = newFolder();
  const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', folder];
  const { status, stdout, stderr } = spawnSync('npm', args, { cwd: root, encoding: 'utf8', shell: process.platform === 'win32' });
  assert.equal(status, 0, stderr);
  const [{ filename }] = JSON.parse(stdout);
  const packed = createPackageFromTarballData(fs.readFileSync(path.join(folder, filename)));
  const { types, problems } = await checkPackage(packed);
  assert.deepEqual([types.kind, problems], ['included', []]);
});

const ts = require('typescript');
const { newFolder } = require('../helpers/folder');
const declared = path.join(root, 'index.d.ts');
const program = ts.createProgram([declared], { strict: true, target: ts.ScriptTarget.ES2022, types: ['node'], typeRoots: [path.join(root, 'node_modules', '@types')] });
const checker = program.getTypeChecker();
const symbols = checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(declared)));
const isValue = (symbol) => Boolean((symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol).flags & ts.SymbolFlags.Value);
const named = (name) => {
  const symbol = symbols.find((one) => one.name === name);
  return symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
};
/** Names of members that our file declares, not those of EventEmitter or Error. */
const members = (type) =>
  type.getProperties().filter((symbol) => symbol.declarations?.some((one) => one.getSourceFile().fileName === declared))
    .map((symbol) => (symbol.name.startsWith('__@asyncDispose') ? 'asyncDispose' : symbol.name));
/** Names of members at run time; a leading underscore means: not for users. */
function present(object, stop) {
  const names = new Set();
  for (let at = object; at && at !== stop; at = Object.getPrototypeOf(at)) {
    for (const key of Reflect.ownKeys(at)) {
      const name = key === Symbol.asyncDispose ? 'asyncDispose' : key;
      if (typeof name === 'string' && !name.startsWith('_') && name !== 'constructor') names.add(name);
    }
  }
  return names;
}

test('what is exported is declared, and the other way round (P35, J04)', () => {
  const values = symbols.filter(isValue).filter(({ name, declarations }) => !declarations.every((one) => one.parent?.parent?.isTypeOnly || one.isTypeOnly)).map(({ name }) => name);
  const types = symbols.filter(({ declarations }) => declarations.every((one) => ts.isExportSpecifier(one) && (one.isTypeOnly || one.parent.parent.isTypeOnly))).map(({ name }) => name);
  assert.deepEqual(values.filter((name) => !types.includes(name)).sort(), Object.keys(restante).sort());
});

const { EventEmitter } = require('node:events');
const CLASSES = {
  Server: [() => new restante.Server({ port: 0 }), EventEmitter.prototype],
  Factory: [() => new restante.Factory(), Object.prototype],
  Subscriber: [() => new restante.Subscriber('c'), EventEmitter.prototype],
  Publisher: [() => new restante.Publisher('p'), EventEmitter.prototype],
};
const INHERITED = new Set(['domain', 'on', 'once', 'off']); // EventEmitter's, declared again for their types

for (const [name, [make, stop]] of Object.entries(CLASSES)) {
  test(`members of ${name} are those that are declared`, () => {
    const symbol = named(name);
    const instance = members(checker.getDeclaredTypeOfSymbol(symbol));
    const there = present(make(), stop);
    assert.deepEqual(instance.filter((member) => !there.has(member) && !INHERITED.has(member)), [], 'declared but not there');
    assert.deepEqual([...there].filter((member) => !instance.includes(member) && !INHERITED.has(member)), [], 'there but not declared');
    const statics = members(checker.getTypeOfSymbol(symbol)).filter((member) => member !== 'prototype');
    const thereStatics = Object.getOwnPropertyNames(restante[name]).filter((member) => !['length', 'name', 'prototype'].includes(member));
    const inheritedStatics = name === 'Publisher' ? ['CHUNK_SIZE'] : thereStatics;
    assert.deepEqual(statics.sort(), inheritedStatics.sort(), 'statics');
  });
}

test('constants, events and Storage are those that are declared', () => {
  for (const name of ['constants', 'events', 'Storage']) {
    const type = checker.getTypeOfSymbol(named(name));
    assert.deepEqual(type.getProperties().map((symbol) => symbol.name).sort(), Object.keys(restante[name]).sort(), name);
  }
});

test('every error code is in the union, and every member of it exists', () => {
  const union = checker.getDeclaredTypeOfSymbol(named('ErrorCode')).types.map(({ value }) => value);
  const native = require('../../node-binding/binding.js').errorCodes();
  // Raised on this side only.
  const own = ['addon_unavailable', 'handler_failed', 'server_error'];
  assert.deepEqual([...union].sort(), [...native, ...own].sort());
});

test('every option that is declared is read, and every one that is read is declared', () => {
  const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const optionsOf = (name) => checker.getDeclaredTypeOfSymbol(named(name)).getProperties().map((symbol) => symbol.name);
  const warned = [];
  const logger = { log() {}, warn: (text) => warned.push(text) };
  const known = (name, read) => {
    for (const option of optionsOf(name)) {
      warned.length = 0;
      try { read({ [option]: null, logger }); } catch { /* refused is known */ }
      assert.deepEqual(warned.filter((text) => /unknown/.test(text)), [], `${name}.${option}`);
    }
  };
  known('FactoryOptions', (options) => new restante.Factory(options));
  known('ServerOptions', (options) => new restante.Server({ ...options, [Object.keys(options)[0]]: 'x' }));
  const { readable } = require('../../lib/options');
  for (const [name, kinds] of Object.entries(readable)) assert.deepEqual([...new Set(optionsOf(name).map(snake))].sort(), Object.keys(kinds).filter((option) => !option.startsWith('encrypt')).sort(), name);
});

test('the committed loader names what the addon exports', () => {
  const { status, stderr } = spawnSync(process.execPath, [path.join(root, 'scripts', 'binding.js'), '--check'], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
});
