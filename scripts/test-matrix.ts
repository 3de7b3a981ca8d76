/**
 * Runs the tests, or those named, on each supported version of PostgreSQL, one after the other, and prints a table:
 *
 *   npm run test:matrix -- [--version 14]... [TEST FILE]...
 */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { VERSIONS } from "./postgres/versions.ts";

interface Outcome {
  readonly version: string;
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly seconds: number;
  readonly ok: boolean;
}

const { values, positionals: files } = parseArgs({
  allowPositionals: true,
  options: { version: { type: "string", multiple: true, default: [...VERSIONS] } },
});
const outcomes: Outcome[] = [];
for (const version of values.version) outcomes.push(await testOn(version));
console.table(
  Object.fromEntries(outcomes.map(({ version, ok: _, ...numbers }) => [`PostgreSQL ${version}`, numbers])),
);
process.exitCode = outcomes.every(({ ok }) => ok) ? 0 : 1;

async function testOn(version: string): Promise<Outcome> {
  const started = performance.now();
  const args = [
    "scripts/postgres.ts",
    "--version",
    version,
    "--",
    "node_modules/.bin/ava",
    "--tap",
    ...files,
  ];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  const counts: Record<string, number> = {};
  const lines = createInterface({ input: child.stdout });
  // a failure comes with the lines that say why, up to the next test's
  let failing = false;
  for await (const line of lines) {
    if (/^(not )?ok /.test(line)) failing = line.startsWith("not ok") && !/# SKIP/.test(line);
    if (failing) console.error(line);
    const count = line.match(/^# (pass|fail|skip) (\d+)/);
    if (count) counts[count[1] as string] = Number(count[2]);
  }
  const ok = (await ended) === 0 && counts.pass !== undefined;
  const seconds = Math.round((performance.now() - started) / 1000);
  const { pass: passed = 0, fail: failed = 0, skip: skipped = 0 } = counts;
  console.error(
    `# PostgreSQL ${version}: ${passed} passed, ${failed} failed, ${skipped} skipped, ${seconds} s`,
  );
  return { version, passed, failed, skipped, seconds, ok };
}
