import { POLICY, SERVER } from "./limits.ts";
import type { Measures, Percentiles, Wait } from "./measure.ts";
import type { Mode } from "./run.ts";

const GOAL = 0.85;
/** From here on processors are what a machine lacks. */
const BUSY = 0.8;

const TITLES: Readonly<Record<Mode, string>> = { governed: "with the policy", plain: "plain" };

export interface Progress {
  readonly seconds: number;
  readonly added: number;
  readonly done: number;
  readonly refused: number;
}

/** A line for the terminal. */
export function showProgress(mode: Mode, { seconds, added, done, refused }: Progress): void {
  console.log(
    `${TITLES[mode].padEnd(15)} ${seconds.toFixed(0).padStart(3)} s: ${count(added)} added, ${count(done)} served, ` +
      `${count(added - done)} waiting or running, ${count(refused)} refused`,
  );
}

/** What a run is measured by, and its figure. */
const FIGURES: readonly (readonly [label: string, of: (measures: Measures) => string])[] = [
  ["jobs done", ({ done, jobs }) => `${count(done)} / ${count(jobs)}`],
  ["violations: too fast", ({ tooFast }) => count(tooFast)],
  ["violations: too many at once", ({ tooMany }) => count(tooMany)],
  [`highest concurrency at one endpoint (limit ${SERVER.atOnce})`, ({ highest }) => count(highest)],
  ["use made of the allowed rate", ({ use }) => percent(use)],
  ["  by the endpoint that made least of it", ({ leastUse }) => percent(leastUse)],
  ["add to start, quiet endpoints, p50 / p95", ({ quiet }) => times(quiet)],
  ["add to start, loudest endpoint, p50 / p95", ({ loudest }) => times(loudest)],
  ["seconds", ({ seconds }) => seconds.toFixed(1)],
];

export function showTable(governed: Measures, plain: Measures): void {
  const row = (label: string, one: string, other: string) =>
    console.log(label.padEnd(46) + one.padStart(20) + other.padStart(20));
  console.log();
  row("", TITLES.governed, TITLES.plain);
  for (const [label, of] of FIGURES) row(label, of(governed), of(plain));
  console.log(`
Allowed rate: of each endpoint with more than ${POLICY.burst} jobs, ${POLICY.burst} + ${POLICY.perSecond} per second while it had work waiting.
Plain jobs that were refused wait for Graphile Worker's back-off; ">" had not got in when the run ended.`);
}

/** What went wrong in a run that has a policy; empty when all is well. */
export function failures({ done, jobs, twice, tooFast, tooMany, highest }: Measures): string[] {
  const found = [];
  if (done < jobs) found.push(`${count(jobs - done)} jobs were lost or not done in time`);
  if (tooFast + tooMany > 0) found.push(`${count(tooFast + tooMany)} violations`);
  if (highest > SERVER.atOnce) found.push(`${highest} requests at once at one endpoint`);
  if (twice > 0) console.log(`\nNote: ${twice} jobs ran twice (Graphile Worker runs jobs at least once).`);
  return found;
}

export function showVerdict(found: string[]): void {
  console.log(
    found.length > 0
      ? `\nFAILED with the policy: ${found.join("; ")}`
      : "\nWith the policy: no violation, no job lost.",
  );
}

export function showNextSteps(): void {
  console.log(`
What to try next:
  ./scripts/demo --ui       jobs of ten policies and storms of them, beside the admin pages
  examples/demo/policy.ts   change rate, burst or max, run again: the server will tell when it is too much
  examples/webhooks         a small project: ./scripts/npm run example webhooks
  README.md                 the five-minute start in a project of your own`);
}

/** Why a run with the policy made less of the allowed rate than it should; null if it made enough. */
export function whySlow({ use, load }: Measures): string | null {
  if (!load || !(use < GOAL)) return null;
  const waited = `${load.notStarted.toFixed(1)} of ${load.admitted.toFixed(1)} admitted jobs waited for workers`;
  const slower = load.busy < BUSY ? "something other than the processors, such as the disk," : "this machine";
  return (
    `With the policy ${percent(use)} of the allowed rate was used, less than ${percent(GOAL)}: in the mean ${waited}, and ` +
    `the processors were ${percent(load.busy)} busy, so ${slower} was slower than the rate.`
  );
}

function count(value: number): string {
  return value.toLocaleString("en-US");
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

function times({ p50, p95 }: Percentiles): string {
  return `${time(p50)} / ${time(p95)}`;
}

function time({ ms, open }: Wait): string {
  if (open) return `> ${(ms / 1000).toFixed(1)} s`;
  return ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
