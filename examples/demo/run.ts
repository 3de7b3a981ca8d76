import { setTimeout as delay } from "node:timers/promises";
import { makeWorkerUtils } from "graphile-worker";
import { makePolicyUtils } from "../../src/index.ts";
import { start, stop } from "./children.ts";
import { withDatabase } from "./database.ts";
import { type Load, type LoadMeter, meterLoad } from "./load.ts";
import { type Visit, visitEndpoint } from "./policy.ts";
import { type Progress, showProgress } from "./report.ts";
import type { Report } from "./server.ts";
import type { Burst } from "./storm.ts";

/** What one run of the storm came to. */
export interface Outcome {
  readonly storm: readonly Burst[];
  /** When each endpoint's jobs were added, in milliseconds since 1970. */
  readonly addedAt: ReadonlyMap<number, number>;
  readonly report: Report;
  readonly seconds: number;
  readonly endedAt: number;
  /** Of a run with the policy. */
  readonly load: Load | undefined;
}

export type Mode = "governed" | "plain";

/** Endpoints and jobs from here on are not the storm's. */
const WARM_UP = 1_000_000;

/**
 * Runs a storm until every job was served, or time is up: in a database of its own, with a server and two worker processes. An
 * aborted `signal` ends it early, cleaned up.
 */
export function runStorm(
  mode: Mode,
  storm: readonly Burst[],
  atMostSeconds: number,
  signal?: AbortSignal,
): Promise<Outcome> {
  return withDatabase(mode, async (url) => {
    const utils = await makeUtils(mode, url);
    const [serverProcess, { port }] = await start<{ port: number }>("./server.ts");
    const server = `http://127.0.0.1:${port}`;
    const workers = await Promise.all([1, 2].map(() => start("./worker.ts", [mode, url, server])));
    const timer = new AbortController();
    let meter: LoadMeter | undefined;
    try {
      await warmUp(utils, server, signal);
      meter = mode === "governed" ? await meterLoad(url) : undefined;
      const began = now();
      const adding = addAll(utils, storm, timer.signal);
      const say = (progress: Progress) => showProgress(mode, progress);
      const watching = watch(storm, server, began, atMostSeconds, adding.addedAt, say, meter, signal);
      const [report] = await Promise.all([watching, adding.done]);
      const endedAt = now();
      const seconds = (endedAt - began) / 1000;
      return { storm, addedAt: adding.addedAt, report, seconds, endedAt, load: meter?.load() };
    } finally {
      timer.abort();
      await meter?.end();
      await Promise.all(workers.map(([worker]) => stop(worker)));
      await utils.release();
      serverProcess.kill();
    }
  });
}

/** The same calls either way: with a policy they stage, without they go straight to Graphile Worker. */
function makeUtils(mode: Mode, connectionString: string) {
  if (mode === "plain") return makeWorkerUtils({ connectionString }).then(migrated);
  return makePolicyUtils({ connectionString, policies: [visitEndpoint] });
}

async function migrated<Utils extends { migrate(): Promise<void> }>(utils: Utils): Promise<Utils> {
  await utils.migrate();
  return utils;
}

/**
 * Opens connections and makes plans before the clock starts: five jobs for each of some endpoints that the storm leaves
 * alone. They count neither as jobs nor as time; a violation of theirs would count.
 */
async function warmUp(utils: { addJobs: unknown }, server: string, signal?: AbortSignal): Promise<void> {
  const visits = Array.from({ length: 100 }, (_, n) => ({ endpoint: WARM_UP + (n % 20), job: WARM_UP + n }));
  await (utils.addJobs as AddJobs)(visits.map(asJob));
  while ((await reportOf(server)).seen.length < visits.length) await delay(100, undefined, { signal });
  await delay(1000, undefined, { signal }); // until the buckets are full again
}

function asJob(payload: Visit): { identifier: string; payload: Visit } {
  return { identifier: "visit_endpoint", payload };
}

async function reportOf(server: string): Promise<Report> {
  return (await fetch(`${server}/report`)).json() as Promise<Report>;
}

type AddJobs = (specs: { identifier: string; payload: unknown }[]) => Promise<unknown>;

/** Adds each endpoint's jobs when their time has come. */
function addAll(utils: { addJobs: unknown }, storm: readonly Burst[], signal: AbortSignal) {
  const addedAt = new Map<number, number>();
  const addJobs = utils.addJobs as AddJobs;
  const add = async ({ endpoint, at, visits }: Burst) => {
    await delay(at * 1000, undefined, { signal });
    addedAt.set(endpoint, now());
    await addJobs(visits.map(asJob));
  };
  const done = Promise.all(storm.map(add)).catch((error) => {
    if (!signal.aborted) throw error;
  });
  return { addedAt, done };
}

/** Looks at the server every half second, and says every two how it stands. */
async function watch(
  storm: readonly Burst[],
  server: string,
  began: number,
  atMostSeconds: number,
  addedAt: ReadonlyMap<number, number>,
  say: (progress: Progress) => void,
  meter: LoadMeter | undefined,
  signal?: AbortSignal,
): Promise<Report> {
  const jobs = storm.reduce((sum, { visits }) => sum + visits.length, 0);
  for (let look = 1; ; look++) {
    await delay(500, undefined, { signal });
    const [report] = await Promise.all([reportOf(server).then(stormOnly), meter?.look()]);
    const done = report.seen.filter(({ served }) => served).length;
    const seconds = (now() - began) / 1000;
    const ended = done >= jobs || seconds >= atMostSeconds;
    if (look % 4 === 0 || ended) {
      const added = storm.reduce((sum, one) => sum + (addedAt.has(one.endpoint) ? one.visits.length : 0), 0);
      say({ seconds, added, done, refused: report.tooFast + report.tooMany });
    }
    if (ended) return report;
  }
}

function stormOnly(report: Report): Report {
  return { ...report, seen: report.seen.filter(({ job }) => job < WARM_UP) };
}

function now(): number {
  return performance.timeOrigin + performance.now();
}
