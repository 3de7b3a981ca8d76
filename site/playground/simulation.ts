// A run of the playground: this package's own TypeScript and SQL, over whichever PostgreSQL, in a time that we move. Only the
// workers are made up: they take as long as the plan says, and end as it says.
import type { WithPgClient } from "graphile-worker";
import { declarePolicies } from "../../src/admit/declare.ts";
import { type Pass, tickOnce } from "../../src/admit/tick.ts";
import { makeEngine } from "../../src/db/engine.ts";
import { parameter, parameters } from "../../src/db/parameters.ts";
import { asSent, type FinishedJob, type Retry } from "../../src/db/releasing.ts";
import { noEvents } from "../../src/events.ts";
import { ask } from "../../src/operate/explain.ts";
import { resolveBackoff } from "../../src/policy/policy.ts";
import { readSettings } from "../../src/settings.ts";
import { batchesOf } from "../../src/stage/stage.ts";
import {
  HEEDS_MS,
  isNight,
  jobsOf,
  nightOf,
  type Outcome,
  type PlannedJob,
  RETRY_AFTER_MS,
  runOf,
} from "./load.ts";
import { payloadOf, policiesOf, policyNameOf, shardsOf, throttleOf } from "./policy.ts";
import { type Setup, tenantsOf } from "./setup.ts";

export interface World {
  readonly withPgClient: WithPgClient;
  /** The beginning, in milliseconds since 1970. */
  readonly begin: number;
  /** Moves the clock of the database, if it has one of ours. */
  goTo(ms: number): void;
  /** Whether frames say why jobs wait. That needs a database whose own clock is at the run's time. */
  readonly explains: boolean;
  onFrame?(frame: Frame): void;
}

/** A start or an end of a run. Times are milliseconds from the beginning. */
export interface Event {
  readonly tenant: number;
  readonly at: number;
}

export interface End extends Event {
  readonly outcome: Outcome;
}

/** What is true of a tenant at one moment. */
export interface Standing {
  /** Due jobs that wait in staging. */
  readonly waiting: number;
  /** Jobs that wait in Graphile Worker for a worker slot. */
  readonly queued: number;
  readonly running: number;
  readonly started: number;
  /** Why its next job waits, from the closed list of reasons. Null: nothing holds it back. */
  readonly reason: string | null;
  /** The same in the words of `explain`. */
  readonly sentence: string;
}

/** The state at one moment, with what happened since the frame before. */
export interface Frame {
  readonly at: number;
  readonly tenants: readonly Standing[];
  readonly starts: readonly Event[];
  readonly ends: readonly End[];
}

export interface Ran {
  readonly frames: readonly Frame[];
  readonly starts: readonly Event[];
  readonly ends: readonly End[];
  readonly passes: number;
}

/** A job of the plan, and where it is. */
interface Job extends PlannedJob {
  attempts: number;
  /** It was admitted at this time. */
  admittedAt: number;
  /** It will not run again. */
  isOver: boolean;
}

interface Running {
  readonly job: Job;
  readonly id: string;
  readonly startedAt: number;
  endsAt: number;
  outcome: Outcome;
}

type Client = Parameters<Parameters<WithPgClient>[0]>[0];

const SCHEMA = "dispatch_policy";
/** The moments at which the state is shown. */
export const FRAMES = 60;
/** At a whole second a token often comes, and for a moment nothing holds a job back. So frames are a little later. */
const AFTER_MS = 130;
/** A loop rests for so long after a pass that admitted nothing. */
const REST_MS = 20;
/** So many frames. */
const BEAT_EVERY = 10;
/** It needs no query. */
const NOTHING_WAITS = "No job waits.";
const SILENT = { warn() {}, debug() {}, info() {}, error() {} } as never;

/** Runs a setup from its beginning to its end. It is long because its parts share the state of the run. */
export async function simulate(setup: Setup, world: World): Promise<Ran> {
  const { withPgClient, begin } = world;
  const policies = policiesOf(setup);
  const settings = readSettings({ policies });
  const engine = makeEngine(SCHEMA);
  const context = { withPgClient, engine, events: noEvents, logger: SILENT };
  const ticks = { ...context, registry: settings.registry, partitionBatchSize: settings.partitionBatchSize };
  const names = tenantsOf(setup);
  const policyNames = policies.map(({ identifier }) => identifier);
  const taskOf = ({ tenant }: PlannedJob) => policyNameOf(setup, tenant);
  /** What is ticked by itself: each shard, and each shared limit. */
  const loops = settings.registry.policies.flatMap(({ identifier: name }) =>
    (policyNames.includes(name) ? shardsOf(setup) : [null]).map((shard) => ({ policy: name, shard })),
  );
  const isKeyed = setup.newest !== "keep";
  const dateOf = (ms: number) => new Date(begin + ms);

  const plan = jobsOf(setup);
  const coming = [...plan];
  const staged = new Map<string, Job>();
  const occupied = new Map<string, Job>();
  /** Of each tenant, if its jobs have a key. */
  const newest = new Map<number, Job>();
  let queue: { readonly id: string; readonly job: Job }[] = [];
  let running: Running[] = [];
  const counts = names.map(() => ({ staged: 0, started: 0, done: 0, queued: 0, running: 0 }));
  const countOf = ({ tenant }: PlannedJob) => counts[tenant] as (typeof counts)[number];
  let starts: Event[] = [];
  let ends: End[] = [];
  let passes = 0;

  /** Adds the jobs that have come by now. Those that come at once or are scheduled are all there from the beginning. */
  async function stage(now: number): Promise<boolean> {
    const first = setup.arrival === "scheduled" ? -1 : coming.findIndex(({ at }) => at > now);
    const jobs = coming.splice(0, first === -1 ? coming.length : first);
    if (jobs.length === 0) return false;
    // jobs of one key are refused in one call
    for (const call of isKeyed ? jobs.map((job) => [job]) : [jobs]) await add(call);
    if (isKeyed) await tellCancelled(now);
    return true;
  }

  async function add(jobs: readonly PlannedJob[]): Promise<void> {
    const added = jobs.map((job) => {
      const [task, name] = [taskOf(job), names[job.tenant] as string];
      const spec = { runAt: dateOf(job.at), ...(isKeyed && { jobKey: name }) };
      return {
        ...{ policy: settings.registry.named(task), task, spec },
        payload: payloadOf(setup, job.tenant, name),
      };
    });
    const rows = await withPgClient((client) => engine.stage(client, batchesOf(added), "replace"));
    for (const { id, n } of rows) {
      const job = { ...(jobs[n] as PlannedJob), attempts: 0, admittedAt: 0, isOver: false };
      staged.set(String(id), job);
      if (!isKeyed) continue;
      const older = newest.get(job.tenant);
      if (older && ![...occupied.values()].includes(older)) endForGood(older); // it was replaced
      newest.set(job.tenant, job);
    }
  }

  function endForGood(job: Job): void {
    if (!job.isOver) countOf(job).done++;
    job.isOver = true;
  }

  /** As worker pools tell their runs that newer jobs have cancelled them. A job that no worker has begun has failed for good. */
  async function tellCancelled(now: number): Promise<void> {
    for (const { jobId, minRun } of await withPgClient(engine.cancelledJobs)) {
      const run = running.find(({ id }) => id === jobId);
      if (run) {
        const toldAt = Math.max(now, run.startedAt + Number(minRun ?? 0) * 1000);
        const endsAt = Math.min(run.endsAt, toldAt + HEEDS_MS);
        if (toldAt < run.endsAt) Object.assign(run, { endsAt, outcome: "cancelled" });
        continue;
      }
      queue = queue.filter(({ id }) => id !== jobId);
      endForGood(occupied.get(jobId) as Job);
      occupied.delete(jobId);
    }
    await withPgClient(async (client) => {
      const marked = await engine.sweepInFlight(client, 0, true);
      const failed = marked.flatMap(({ job_id: job, admission, attempt, ok, retry }) =>
        job === null ? [] : { job, admission, attempt, ok, lagMs: null, retry },
      );
      if (failed.length > 0) await release(client, failed, now);
    });
  }

  /** Admits what may go now, as the loops of workers do. Returns when a job may be admitted next. */
  async function tick(now: number): Promise<number> {
    let next = Number.POSITIVE_INFINITY;
    for (const loop of loops) {
      let pass: Pass;
      do {
        pass = await tickOnce(ticks, { ...loop, now: dateOf(now), bounded: false });
        passes++;
      } while (pass.admitted > 0 && pass.nextEligibleAt && pass.nextEligibleAt <= dateOf(now));
      if (!pass.nextEligibleAt) continue;
      // a Date has no microseconds: at its millisecond the pass would be too early
      const nextAt = pass.nextEligibleAt.getTime() - begin + 1;
      next = Math.min(next, pass.admitted > 0 ? nextAt : Math.max(nextAt, now + REST_MS));
    }
    loops.reverse(); // loops of several processes take turns
    return next;
  }

  /** Puts what was admitted into the workers' queue. */
  async function fetchAdmitted(now: number): Promise<void> {
    const rows = await withPgClient((client) =>
      engine.ask<{ job_id: string; staged_id: string }>(
        client,
        `select job_id, staged_id from ${SCHEMA}.in_flight_jobs where policy = any(${parameter(1, "texts")}) order by job_id`,
        [policyNames],
      ),
    );
    for (const { job_id: id, staged_id } of rows) {
      if (occupied.has(id)) continue;
      const job = staged.get(staged_id) as Job;
      job.admittedAt = now;
      occupied.set(id, job);
      queue.push({ id, job });
    }
  }

  /** Gives free worker slots to the jobs that wait for one. They are locked, as Graphile Worker does it. */
  async function start(now: number): Promise<void> {
    const fetched = queue.splice(0, setup.workers - running.length);
    if (fetched.length === 0) return;
    const lock = `update graphile_worker._private_jobs
      set attempts = attempts + 1, locked_by = id::text, locked_at = ${parameter(2, "time")}
      where id = any(${parameter(1, "ids")})`;
    await withPgClient((client) => client.query(lock, [fetched.map(({ id }) => id), dateOf(now)]));
    for (const { id, job } of fetched) {
      job.attempts++;
      const { ms, outcome } = runOf(setup, job, job.attempts, now);
      running.push({ id, job, outcome, startedAt: now, endsAt: now + ms });
      countOf(job).started++;
      starts.push({ tenant: job.tenant, at: now });
    }
  }

  /** Ends the runs that are over: as Graphile Worker records an end, and then as the release of a worker does. */
  async function end(now: number): Promise<boolean> {
    const over = running.filter(({ endsAt }) => endsAt <= now);
    if (over.length === 0) return false;
    running = running.filter(({ endsAt }) => endsAt > now);
    over.sort((a, b) => a.endsAt - b.endsAt || (BigInt(a.id) < BigInt(b.id) ? -1 : 1));
    await withPgClient(async (client) => {
      const unlock = `select from graphile_worker.force_unlock_workers(${parameter(1, "texts")})`;
      await client.query(unlock, [over.map(({ id }) => id)]);
      const succeeded = over.filter(({ outcome }) => outcome === "succeeded").map(({ id }) => id);
      await client.query(`select from graphile_worker.complete_jobs(${parameter(1, "ids")})`, [succeeded]);
      for (const one of over.filter(({ outcome }) => outcome !== "succeeded")) await fail(client, one, now);
      await release(client, over.map(finished), now);
    });
    for (const { id, job, outcome } of over) {
      occupied.delete(id);
      if (outcome === "succeeded" || (isKeyed && newest.get(job.tenant) !== job)) endForGood(job);
      ends.push({ tenant: job.tenant, at: now, outcome });
    }
    return true;
  }

  async function release(client: Client, jobs: readonly FinishedJob[], now: number): Promise<void> {
    const [released] = await engine.ask<{ left_ids: readonly string[] }>(
      client,
      `select left_ids from ${SCHEMA}_internal._release(${parameters("json", "time")})`,
      [JSON.stringify(asSent(jobs)), dateOf(now)],
    );
    const left = released?.left_ids.length;
    if (left !== 0) throw new Error(`The release left ${left} of ${jobs.length} jobs`);
  }

  /** A failure, as Graphile Worker counts it. A refusal also holds the partition, as `RetryAfter` does. */
  async function fail(client: Client, { id, job, outcome }: Running, now: number) {
    await client.query(
      `select from graphile_worker.reschedule_jobs(${parameter(1, "ids")}, attempts => ${parameter(2, "int")})`,
      [[id], job.attempts],
    );
    if (outcome !== "refused") return;
    const [policy, partition] = [taskOf(job), names[job.tenant]];
    const until = dateOf(now + RETRY_AFTER_MS);
    await engine.call(client, "hold", { policy, partition, until, reason: "429", by: "the task" });
  }

  function finished({ id, job, outcome, startedAt, endsAt }: Running): FinishedJob {
    return {
      ...{ job: id, admission: null, ok: outcome === "succeeded", lagMs: startedAt - job.admittedAt },
      ...{ task: taskOf(job), durationMs: endsAt - startedAt, attempt: null, retry: retryOf(job, outcome) },
    };
  }

  function retryOf(job: Job, outcome: Outcome): Retry | null {
    if (outcome === "succeeded") return null;
    const attempt = job.attempts;
    if (outcome === "cancelled") return { attempt, giveUp: true };
    const after = secondsUntilRetry(job, outcome);
    return { attempt, after, task: taskOf(job), priority: 0, maxAttempts: 25 };
  }

  function secondsUntilRetry(job: Job, outcome: Outcome): number {
    if (outcome === "refused") return RETRY_AFTER_MS / 1000;
    const policy = settings.registry.named(taskOf(job));
    const backoff = resolveBackoff(policy, new Error("failed"), job.attempts, {} as never);
    return backoff ? backoff.afterMs / 1000 : Math.exp(job.attempts);
  }

  /** A worker's: else each explanation would say that none ticks, and a shared limit would wake no other shard. */
  async function beat(): Promise<void> {
    const pool = { id: "playground", slots: setup.workers, tasks: policyNames, host: "browser", pid: 1 };
    const times = { staleAfterMs: setup.seconds * 1000, clockBehindMs: 0 };
    const named = shardsOf(setup).filter((shard) => shard !== null);
    const bid = {
      policies: settings.registry.policies.map(({ identifier }) => identifier),
      shards: named.length > 0 ? named : null,
      ttlMs: setup.seconds * 1000,
      bids: true,
    };
    await withPgClient((client) => engine.beat(client, { ...pool, ...times, saidOn: null }, bid));
  }

  async function frame(now: number): Promise<Frame> {
    if (frames.length % BEAT_EVERY === 0) await beat();
    const due = names.map(
      (_, place) => plan.filter(({ tenant, at }) => tenant === place && at <= now).length,
    );
    const there =
      setup.arrival === "scheduled"
        ? names.map((_, place) => plan.filter((job) => job.tenant === place).length)
        : due;
    const tenants: Standing[] = [];
    for (const [tenant, partition] of names.entries()) {
      const queued = queue.filter(({ job }) => job.tenant === tenant).length;
      const runs = running.filter(({ job }) => job.tenant === tenant).length;
      const { started, done } = counts[tenant] as (typeof counts)[number];
      const waiting = Math.max(0, (due[tenant] as number) - done - queued - runs); // some are replaced before they are due
      const isAnyStaged = (there[tenant] as number) - done - queued - runs > 0;
      const why =
        world.explains && isAnyStaged
          ? await ask(context, { policy: policyNameOf(setup, tenant), partition })
          : null;
      tenants.push({
        ...{ waiting, queued, running: runs, started },
        ...{ reason: why?.reason ?? null, sentence: why?.sentence ?? (world.explains ? NOTHING_WAITS : "") },
      });
    }
    const made = { at: now, tenants, starts, ends };
    [starts, ends] = [[], []];
    world.onFrame?.(made);
    return made;
  }

  await declarePolicies(withPgClient, engine, settings, SILENT);
  if (isNight(setup)) {
    const { from, until } = nightOf(setup);
    const limit = { ...throttleOf(setup), set: JSON.stringify({ rate: setup.night }) };
    const times = { from: dateOf(from), until: dateOf(until), reason: "night tariff", by: "the tariff" };
    await withPgClient((client) => engine.call(client, "set_limit", { ...limit, ...times }));
  }
  const frames: Frame[] = [];
  const length = setup.seconds * 1000;
  const frameAt = () =>
    frames.length === 0 ? 0 : Math.min(length, (frames.length * length) / FRAMES + AFTER_MS);
  const changes = isNight(setup) ? Object.values(nightOf(setup)) : [];
  let eligible = 0;
  for (let now = 0; ; ) {
    world.goTo(begin + now);
    const hasCome = await stage(now);
    const hasEnded = await end(now);
    if (hasCome || hasEnded || now >= eligible || changes.includes(now)) {
      eligible = await tick(now);
      await fetchAdmitted(now);
    }
    await start(now);
    if (now >= frameAt()) frames.push(await frame(now));
    if (now >= length) break;
    const nextEnd = Math.min(...running.map(({ endsAt }) => endsAt));
    const nextChange = Math.min(...changes.filter((at) => at > now));
    // a pass without effect is not repeated at the same moment
    now = Math.max(
      now + 1,
      Math.min(coming[0]?.at ?? length, eligible, nextEnd, nextChange, frameAt(), length),
    );
  }
  const all = <T>(of: (one: Frame) => readonly T[]) => frames.flatMap(of);
  return { frames, starts: all((one) => one.starts), ends: all((one) => one.ends), passes };
}
