// How often a worker process gives back what its jobs held.
import { EventEmitter } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import type { WorkerEvents } from "graphile-worker";
import { type FinishedJob, makeEngine } from "../../src/db/engine.ts";
import { noEvents } from "../../src/events.ts";
import { policyEvents } from "../../src/index.ts";
import { makeReleaseQueue } from "../../src/release.ts";
import { concurrency, type Engine, engine, until } from "../helpers/engine.ts";
import { scenario } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";

const JOBS = 5000;
const SLOTS = 6;
/** What the workers do in a second is known after one: by then most of the jobs are left. */
const JOB_MS = 5;
const APART_MS = 250;
const UNWAITED_MS = 20;

/** A worker process's queue, over a session of its own. */
async function queueOn(
  world: Engine,
  options: { rests?: boolean; onReleased?: () => void; events?: WorkerEvents } = {},
) {
  const client = await world.session();
  return makeReleaseQueue({
    withPgClient: (callback) => callback(client as never),
    engine: makeEngine("dispatch_policy"),
    events: noEvents,
    logger: silent,
    ...options,
  });
}

/** When each release began. */
function startsOfReleases() {
  const starts: number[] = [];
  const events: WorkerEvents = new EventEmitter();
  policyEvents(events).on("dispatchPolicy:release", ({ durationMs }) => {
    starts.push(performance.now() - durationMs);
  });
  return { events, starts };
}

const gapsOf = (starts: readonly number[]) =>
  starts.slice(1).map((start, n) => start - (starts[n] as number));
/** Timers are a little early. */
const isApart = (ms: number, leastMs: number) => ms > leastMs * 0.95;

function longestRun(values: readonly number[], holds: (value: number) => boolean): number {
  const ends = values.flatMap((value, n) => (holds(value) ? [] : [n]));
  const bounds = [-1, ...ends, values.length];
  return Math.max(...bounds.slice(1).map((end, n) => end - (bounds[n] as number) - 1));
}

function succeeded(job: string): FinishedJob {
  return { job, ok: true, lagMs: 1, attempt: 1, retry: null };
}

test("releases are a quarter of a second apart while the workers have enough to do, and none is left at the end", async (t) => {
  const it = await scenario(t, {});
  await it.stage(`${JOBS}@a`);
  const { events, starts } = startsOfReleases();
  let released = 0;
  policyEvents(events).on("dispatchPolicy:release", ({ jobs }) => {
    released += jobs;
  });
  const worker = await it.worker({ tasks: { p: () => delay(JOB_MS) }, slots: SLOTS, events });
  await until("all but a few have run", () => released > JOBS * 0.9);
  await worker.stop();
  const gaps = gapsOf(starts);
  const longest = longestRun(gaps, (ms) => isApart(ms, APART_MS));
  t.log(`${released} jobs in ${starts.length} releases, up to ${longest} in a row ${APART_MS} ms apart`);
  // before the workers' pace is known they may run dry
  t.true(longest >= 5, `${gaps.map(Math.round)}`);
  const [row] = await it.rows(`select (select count(*) from dispatch_policy.in_flight_jobs)
    - (select count(*) from graphile_worker.jobs) as leaked`);
  t.is(row.leaked, "0", "what has ended holds nothing");
});

test("a rest ends where somebody wants a release, and where a job of another policy ends", async (t) => {
  const it = await engine(t, { gates: [], ahead: 1 });
  await it.pool.query("select dispatch_policy._worker_alive('pool', 1, $1, 'host', 1, '1 hour', '0')", [
    ["p"],
  ]);
  await it.stage(Array.from({ length: 60 }, (_, n) => `key ${n}`));
  const { events, starts } = startsOfReleases();
  const releases = await queueOn(it, { rests: true, events });
  const ends = async (policy: string) => {
    await it.passes();
    await it.pool.query("update dispatch_policy._private_limiters set finished_per_second = 1");
    const [job] = await it.inFlight();
    await it.pool.query("select graphile_worker.complete_jobs($1)", [[job]]);
    return releases.push(succeeded(job as string), policy);
  };
  const restFor = async (policy: string, meanwhile = () => {}) => {
    await ends("p");
    const ended = ends(policy);
    await delay(10);
    meanwhile();
    await ended;
    return gapsOf(starts).at(-1) as number;
  };
  t.true(isApart(await restFor("p"), APART_MS), `${gapsOf(starts)}`);
  const isCut = async (ms: Promise<number>) => !isApart(await ms, APART_MS);
  await until("a hurried rest is short", () => isCut(restFor("p", () => releases.hurry())));
  await until("another policy's is none", () => isCut(restFor("q")));
});

test("what nobody waits for is released together, and wakes no tick loop", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await it.stage([...Array.from({ length: 8 }, (_, n) => `alone ${n}`), "two", "two"]);
  await it.passes();
  const jobs = await it.inFlight();
  const { events, starts } = startsOfReleases();
  let woken = 0;
  const releases = await queueOn(it, { rests: true, events, onReleased: () => woken++ });
  await it.pool.query("update graphile_worker._private_jobs set attempts = 1 where id = $1", [jobs[0]]);
  const failed = { ok: false, retry: { attempt: 1, after: 60, task: it.policy } };
  await releases.push({ ...succeeded(jobs[0] as string), ...failed }, "p");
  t.is(woken, 1, "a loop has to know when its retry is due");
  woken = 0;
  for (const job of jobs.slice(1, -1)) await releases.push(succeeded(job), "p");
  const gaps = gapsOf(starts);
  t.is(gaps.length, 7);
  t.true(
    gaps.every((ms) => isApart(ms, UNWAITED_MS)),
    `${gaps}`,
  );
  t.is(woken, 0);
  await releases.push(succeeded(jobs.at(-1) as string), "p");
  t.is(woken, 1, "the second job of its partition waits");
  await it.passes();
  t.is((await it.inFlight()).length, 1);
});

test("a job that ends just as the last release does is released too", async (t) => {
  const world = await engine(t, { gates: [concurrency(100)] });
  await world.stage(Array.from({ length: 20 }, () => "a"));
  await world.passes();
  const jobs = (await world.inFlight()).map(succeeded);
  t.is(jobs.length, 20);
  const releases = await queueOn(world);
  // that many turns of the microtask queue after it
  for (let turns = 0; jobs.length > 0; turns++) {
    await releases.push(jobs.pop()!, "p");
    for (let turn = 0; turn < turns; turn++) await null;
    void releases.push(jobs.pop()!, "p");
    await releases.idle();
    t.is((await world.inFlight()).length, jobs.length, `${turns} turns after it`);
  }
});
