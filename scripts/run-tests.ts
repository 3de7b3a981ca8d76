/**
 * Runs AVA on a PostgreSQL of its own, and each test file that fails once more, alone. If it passes then, the run is green
 * and its last lines name what failed: `FLAKY: file › test`. Arguments go to AVA, e.g. a test file.
 *
 * Without arguments it runs the everyday lane, which is the same each time; with TEST_ALL=1 all tests, with other seeds for
 * each commit (TEST_TURN), so that a red run can be repeated.
 */
import { spawn } from "node:child_process";
import { existsSync, globSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { type FileResults, readTap } from "./run-tests/tap.ts";
import { TURN } from "./run-tests/turn.ts";

/** If more files fail than this, the reason is not chance. */
const MOST_AGAIN = 10;
const WARNING_LINES = 12;
const SLOWEST = 40;

const given = process.argv.slice(2);
process.env.TEST_TURN = String(TURN); // the files need not ask git again
// each file is a process of its own: without it, half of the time of a short one is to compile the same modules
process.env.NODE_COMPILE_CACHE ??= path.resolve("node_modules/.cache/compiled");
console.error(`# TEST_TURN=${TURN} repeats the random choices of this run`);

const named = given.filter((arg) => arg.endsWith(".test.ts") && existsSync(arg));
const isWhole = given.length === 0;
const isEveryday = isWhole && process.env.TEST_ALL !== "1" && existsSync("test/lanes.js");
if (isEveryday) process.env.TEST_LANE = "everyday";
const long = isEveryday ? await longFiles() : new Set<string>();
const all = globSync("test/**/*.test.ts")
  .filter((file) => !long.has(file))
  .sort();
const first = await runAva(given, named.length > 0 ? named : all);
const results = first.files;
// AVA has ended before it came to these, and has not said why
if (isWhole) for (const file of all) if (!results.has(file)) results.set(file, notRun());

const failed = [...results].filter(([, { failures }]) => failures.length > 0);
const flaky: string[] = [];
if (first.unplaced.length === 0 && failed.length <= MOST_AGAIN) {
  for (const [file, before] of failed) {
    console.error(`# ${file} failed: once more, alone`);
    const again = await runAva([file, ...given.filter((arg) => !arg.endsWith(".test.ts"))], [file]);
    const after = again.files.get(file);
    if (again.exit !== "0" || again.unplaced.length > 0 || !after || after.failures.length > 0) continue;
    flaky.push(...before.failures.map((title) => `${file} › ${title}`));
    results.set(file, after);
  }
}

const warnings = first.warnings;
const details = first.details;
const sum = (of: (one: FileResults) => number) => [...results.values()].reduce((n, one) => n + of(one), 0);
const left = [...results].flatMap(([file, { failures }]) => failures.map((title) => `${file} › ${title}`));
const failures = [...left, ...first.unplaced];
// a log that is cut keeps its end: what failed is said there again, with its details
for (const detail of details) console.log(detail);
for (const name of failures) console.log(`FAILED: ${name}`);
for (const name of flaky) console.log(`FLAKY: ${name}`);
const ended = first.complete && (first.exit === "0" || failed.length > 0);
if (!ended) console.log(`The run was cut off (${first.exit}), after: ${first.last ?? "nothing"}`);
for (const warning of warnings) console.log(`The tests print a warning:\n${warning}`);
const slowest = [...first.files]
  .toSorted(([, one], [, other]) => other.seconds - one.seconds)
  .slice(0, SLOWEST)
  .map(([file, { seconds }]) => `${file} ${Math.round(seconds)}`);
if (isWhole) console.error(`# The slowest files, in seconds: ${slowest.join(", ")}`);
const passed = sum((one) => one.passed);
console.log(`${passed} passed, ${failures.length} failed, ${sum((one) => one.skipped)} skipped`);
process.exitCode = failures.length === 0 && passed > 0 && ended && warnings.length === 0 ? 0 : 1;

/** What the everyday lane leaves to the long one. */
async function longFiles(): Promise<ReadonlySet<string>> {
  const { LONG } = (await import(path.resolve("test/lanes.js"))) as { readonly LONG: readonly string[] };
  return new Set(LONG.flatMap((glob) => globSync(glob)));
}

function notRun(): FileResults {
  return { passed: 0, skipped: 0, failures: ["(did not run)"], seconds: 0 };
}

/** AVA's results by file. `exit` is its exit code or the signal that ended it. */
async function runAva(args: readonly string[], files: readonly string[]) {
  const ava = path.join("node_modules", ".bin", "ava");
  const child = spawn(process.execPath, ["scripts/postgres.ts", "--", ava, "--tap", ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    // who sent a statement while others waited on its connection: pg's warning does not say
    env: { ...process.env, NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ""} --trace-deprecation` },
  });
  const ended = new Promise<string>((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("exit", (code, signal) => resolve(signal ?? String(code)));
  });
  const tap = readTap(files);
  const errors = makeWarnings();
  const said = (async () => {
    for await (const line of createInterface({ input: child.stderr })) {
      console.error(line);
      errors.read(line);
    }
  })();
  const reported = makeWarnings();
  for await (const line of createInterface({ input: child.stdout })) {
    console.log(line);
    tap.read(line);
    reported.read(line);
  }
  await said;
  return {
    ...tap.results(),
    warnings: [...errors.found, ...reported.found],
    exit: await ended,
  };
}

/** Warnings that hide among the lines of a passing run, each with the lines that follow it. */
function makeWarnings() {
  const found: string[] = [];
  let more = 0;
  return {
    found,
    read(line: string): void {
      if (/Your pool doesn't have|DeprecationWarning/.test(line)) {
        found.push(line);
        more = WARNING_LINES;
      } else if (more-- > 0) found[found.length - 1] += `\n${line}`;
    },
  };
}
