// npm run bench -- [--quick] [--large | --adoption | --ahead | --backlog | --bloat | --drill | --estimate | --fairness | --limits | --open | --rollout | --scaling | --soak | --peers] [--only NAME,...] [--json FILE]
// Measures this package beside plain Graphile Worker, or beside other job queues; docs/benchmarks.md says how. Exits with 1
// when something could not be measured, or the drill finds a wrong answer; a target that is missed only shows in the table.
import { writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { closeAll } from "./harness/closing.ts";
import { readEnvironment } from "./harness/environment.ts";
import { PARTS, type Part, type PartName } from "./harness/parts.ts";
import { ratioEntries } from "./harness/ratio.ts";
import { type Options, readOptions, USAGE } from "./options.ts";
import { entriesOf } from "./peers/index.ts";
import { installPeers } from "./peers/install.ts";
import * as peersReport from "./peers/report.ts";
import * as ratiosReport from "./report/report.ts";

/** How long what was cut short has to notice. */
const NOTICES_WITHIN_MS = 2000;

let interrupted = false;

try {
  const options = readOptions(process.argv.slice(2));
  const running = run(options);
  endWhenTold(running);
  process.exitCode = (await running) ? 0 : 1;
} catch (error) {
  if (!interrupted) console.error(`# ${(error as Error).message}\n# ${USAGE}`);
  process.exitCode = 1;
}

/** Whether all could be measured. */
async function run(options: Options): Promise<boolean> {
  const { mode, json: file } = options;
  const environment = await readEnvironment();
  if (file) writeFileSync(file, ""); // fails now, not after ten minutes
  const { table, ratios, figures, complete } = await measure(options);
  if (interrupted) return false;
  if (table) console.log(table);
  const all = { ratios, figures: { mode, environment, ...figures } };
  if (file) writeFileSync(file, `${JSON.stringify(all, null, 2)}\n`);
  return complete;
}

function measure(options: Options) {
  if (options.part) return runPart(options.part, options);
  return options.peers ? runPeers(options) : runRatios(options);
}

async function runPart(name: PartName, { sizes }: Options) {
  const { text, figures, complete = true }: Part = await PARTS[name](sizes).finally(closeAll);
  return { table: text, complete, ratios: {}, figures: { [name]: figures } };
}

async function runRatios({ ratios, sizes }: Options) {
  const { results, complete } = await measureAll(ratioEntries(ratios, sizes));
  const table = results.length > 0 ? ratiosReport.table(results) : "";
  return { table, complete, ...ratiosReport.json(results, sizes) };
}

async function runPeers({ cases, peerSizes }: Options) {
  installPeers();
  const { results, complete } = await measureAll(entriesOf(cases, peerSizes));
  const figures = { peers: peersReport.json(results, peerSizes) };
  return { table: peersReport.table(results), complete, ratios: {}, figures };
}

interface Entry<Result> {
  readonly name: string;
  readonly what: string;
  measure(): Promise<Result>;
}

/** When one fails, the others are measured all the same. */
async function measureAll<Result>(entries: readonly Entry<Result>[]) {
  const results: Result[] = [];
  for (const { name, what, measure } of entries) {
    if (interrupted) break;
    console.error(`# ${name}: ${what}`);
    try {
      results.push(await measure());
    } catch (error) {
      if (!interrupted) console.error(`# ${name} failed: ${(error as Error).stack}`);
    } finally {
      await closeAll();
    }
  }
  return { results, complete: results.length === entries.length };
}

/** Ctrl-C leaves no database and no process behind. */
function endWhenTold(running: Promise<unknown>): void {
  const end = async () => {
    if (interrupted) return; // a terminal tells everyone, and whoever started this tells it again
    interrupted = true;
    await closeAll();
    await Promise.race([running.catch(() => {}), delay(NOTICES_WITHIN_MS)]); // what was cut short fails
    await closeAll(); // what was being opened meanwhile
    process.exit(130);
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, end);
}
