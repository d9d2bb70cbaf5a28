'use strict';
// `npm test`: builds, runs the Rust tests, then the tests of the package; the last line counts both.
//   --long     the sizes of the specification where the everyday run takes smaller ones
//   --node     only the tests of the package
//   WORD…      only test files whose path contains one of the words (implies --node)
const { spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { run } = require('node:test');
const { spec } = require('node:test/reporters');

const root = path.join(__dirname, '..');
const flags = process.argv.slice(2).filter((word) => word.startsWith('--'));
const words = process.argv.slice(2).filter((word) => !word.startsWith('--'));
const onlyNode = flags.includes('--node') || words.length > 0;
const total = { passed: 0, failed: 0 };
const slowest = [];

/** Runs a command that must succeed before anything else makes sense. */
function must(command, ...args) {
  console.log(`== ${command} ${args.join(' ')}`);
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
  if (error) throw error;
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${status}`);
}

/** Runs `cargo test` and counts what it says it ran. A crash without counts is one failure. */
function rustTests() {
  console.log('== cargo test --workspace');
  const child = spawn('cargo', ['test', '--locked', '--workspace', '--no-fail-fast'], { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] });
  let rest = '';
  let failed = 0;
  child.stdout.on('data', (data) => {
    process.stdout.write(data);
    const lines = (rest + data).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      const counts = /^test result: .*?(\d+) passed; (\d+) failed/.exec(line);
      if (!counts) continue;
      total.passed += Number(counts[1]);
      failed += Number(counts[2]);
    }
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => {
      total.failed += code === 0 ? failed : Math.max(1, failed);
      resolve();
    });
  });
}

/** All `*.test.js` below a folder. */
function testFiles(folder) {
  return fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) return testFiles(file);
    return entry.name.endsWith('.test.js') ? [file] : [];
  });
}

/** Runs the tests of the package; a file that dies counts as a failure. */
async function nodeTests() {
  const files = testFiles(path.join(root, '__test__'))
    .sort()
    .filter((file) => words.length === 0 || words.some((word) => path.relative(root, file).includes(word)));
  if (files.length === 0) throw new Error(`no test file matches ${words.join(' ')}`);
  console.log(`== node --test: ${files.length} files`);
  const stream = run({ files, concurrency: 2, timeout: 900_000 });
  const count =
    (key) =>
    ({ name, details }) => {
      if (details.type === 'suite') return;
      total[key]++;
      slowest.push([details.duration_ms, name]);
    };
  stream.on('test:pass', count('passed')).on('test:fail', count('failed'));
  for await (const text of stream.compose(new spec())) process.stdout.write(text);
}

/** The packages that the tests use; the package itself needs none. */
function testPackages() {
  const wanted = Object.keys(require('../package.json').devDependencies);
  if (wanted.every((name) => fs.existsSync(path.join(root, 'node_modules', name, 'package.json')))) return;
  const npm = process.env.npm_execpath ? [process.execPath, process.env.npm_execpath] : ['npm'];
  // The install script would build the addon, which is done below.
  must(...npm, 'ci', '--ignore-scripts', '--no-audit', '--no-fund');
}

/** What the tests run beside the broker. Root on Debian gets it installed, others are told. */
function testTools() {
  const isThere = (command) => spawnSync(command, ['--version'], { stdio: 'ignore' }).error === undefined;
  const missing = ['redis-server', 'strace'].filter((command) => !isThere(command));
  if (missing.length === 0) return;
  if (process.getuid?.() !== 0 || !isThere('apt-get')) throw new Error(`the tests need ${missing.join(' and ')}: please install`);
  process.env.DEBIAN_FRONTEND = 'noninteractive';
  must('apt-get', 'update', '-qq');
  must('apt-get', 'install', '-y', '-qq', ...missing);
}

async function main() {
  if (flags.includes('--long')) process.env.RESTANTE_LONG = '1';
  testPackages();
  testTools();
  must('cargo', 'build', '--locked', '--release', '-p', 'restante', '--bin', 'restante');
  // `cargo test` builds a newer one without optimisation, which the tests are not to find.
  process.env.RESTANTE_BIN ??= path.join(process.env.CARGO_TARGET_DIR ?? path.join(root, 'target'), 'release', 'restante');
  must(process.execPath, 'scripts/build.js');
  must(process.execPath, 'scripts/binding.js', '--check');
  must(process.execPath, '__test__/helpers/python.js');
  if (!onlyNode) await rustTests();
  await nodeTests();
  slowest.sort(([a], [b]) => b - a);
  console.log(
    `slowest: ${slowest
      .slice(0, 5)
      .map(([ms, name]) => `${(ms / 1000).toFixed(1)} s ${name}`)
      .join(' | ')}`,
  );
}

main()
  .catch((error) => {
    console.error(error.message);
    total.failed++;
  })
  .finally(() => {
    process.exitCode = total.failed === 0 && total.passed > 0 ? 0 : 1;
    process.stdout.write(`\n${total.passed} passed, ${total.failed} failed\n`);
  });
