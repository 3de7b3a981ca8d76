// npm run bench -- [--quick] [--large | --backlog | --limits | --soak] [--only NAME,...] [--json FILE]
// Measures this package beside plain Graphile Worker; docs/benchmarks.md says how. Exits with 1 when a ratio could not be
// measured; a target that is missed only shows in the table.
import { writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { closeAll } from "./closing.ts";
import { readEnvironment } from "./environment.ts";
import { type Options, readOptions, USAGE } from "./options.ts";
import { PARTS } from "./parts.ts";
import type { Ratio } from "./ratio.ts";
import { json, type Result, table } from "./report.ts";
import type { Sizes } from "./sizes.ts";

/** How long what was cut short has to notice. */
const NOTICES_WITHIN_MS = 2000;

let interrupted = false;

try {
  const options = readOptions(process.argv.slice(2));
  const running = run(options);
  endWhenTold(running);
  process.exitCode = (await running) ? 0 : 1;
} catch (error) {
  console.error(`# ${(error as Error).message}\n# ${USAGE}`);
  process.exitCode = 1;
}

/** Whether all could be measured. */
async function run({ ratios, part, mode, sizes, json: file }: Options): Promise<boolean> {
  const environment = await readEnvironment();
  if (file) writeFileSync(file, ""); // fails now, not after ten minutes
  const write = (figures: object) => file && writeFileSync(file, `${JSON.stringify(figures, null, 2)}\n`);
  if (part) {
    const { text, figures } = await PARTS[part](sizes).finally(closeAll);
    console.log(text);
    write({ ratios: {}, figures: { mode, environment, [part]: figures } });
    return true;
  }
  const results: Result[] = [];
  for (const ratio of ratios) {
    const result = await measure(ratio, sizes);
    if (interrupted) return false;
    if (result) results.push(result);
  }
  if (results.length > 0) console.log(table(results));
  write(json(results, { mode, sizes, environment }));
  return results.length === ratios.length;
}

/** Undefined when it failed; the others are measured all the same. */
async function measure(ratio: Ratio, sizes: Sizes): Promise<Result | undefined> {
  console.error(`# ${ratio.name}: ${ratio.what}`);
  const start = performance.now();
  try {
    const pairs = await ratio.measure(sizes);
    return { ratio, pairs, seconds: Math.round((performance.now() - start) / 1000) };
  } catch (error) {
    if (!interrupted) console.error(`# ${ratio.name} failed: ${(error as Error).stack}`);
  } finally {
    await closeAll();
  }
}

/** Ctrl-C leaves no database and no process behind. */
function endWhenTold(running: Promise<unknown>): void {
  const end = async () => {
    if (interrupted) return; // a terminal tells everyone, and whoever started this tells it again
    interrupted = true;
    await closeAll();
    await Promise.race([running, delay(NOTICES_WITHIN_MS)]);
    await closeAll(); // what was being opened meanwhile
    process.exit(130);
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, end);
}
