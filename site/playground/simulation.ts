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
import { isNight, jobsOf, nightOf, type Outcome, type PlannedJob, RETRY_AFTER_MS, runOf } from "./load.ts";
import { POLICY, payloadOf, policyOf, shardsOf } from "./policy.ts";
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
}

interface Running {
  readonly job: Job;
  readonly id: string;
  readonly startedAt: number;
  readonly endsAt: number;
  readonly outcome: Outcome;
}

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
  const policy = policyOf(setup);
  const settings = readSettings({ policies: [policy] });
  const engine = makeEngine(SCHEMA);
  const context = { withPgClient, engine, events: noEvents, logger: SILENT };
  const ticks = { ...context, registry: settings.registry, partitionBatchSize: settings.partitionBatchSize };
  const names = tenantsOf(setup);
  const shards = [...shardsOf(setup)];
  const dateOf = (ms: number) => new Date(begin + ms);

  const plan = jobsOf(setup);
  const coming = [...plan];
  const staged = new Map<string, Job>();
  const occupied = new Map<string, Job>();
  const queue: { readonly id: string; readonly job: Job }[] = [];
  let running: Running[] = [];
  const counts = names.map(() => ({ staged: 0, started: 0, done: 0, queued: 0, running: 0 }));
  const countOf = ({ tenant }: PlannedJob) => counts[tenant] as (typeof counts)[number];
  let starts: Event[] = [];
  let ends: End[] = [];
  let passes = 0;

  /** Adds the jobs that have come by now. Those that come at once or are scheduled are all there from the beginning. */
  async function stage(now: number): Promise<boolean> {
    const all = setup.arrival !== "stream";
    const first = all ? coming.length : coming.findIndex(({ at }) => at > now);
    const jobs = coming.splice(0, first === -1 ? coming.length : first);
    if (jobs.length === 0) return false;
    const added = jobs.map(({ tenant, at }) => ({
      ...{ policy, task: POLICY, spec: { runAt: dateOf(at) } },
      payload: payloadOf(setup, tenant, names[tenant] as string),
    }));
    const rows = await withPgClient((client) => engine.stage(client, batchesOf(added), "replace"));
    for (const { id, n } of rows)
      staged.set(String(id), { ...(jobs[n] as PlannedJob), attempts: 0, admittedAt: 0 });
    return true;
  }

  /** Admits what may go now, as the loops of workers do. Returns when a job may be admitted next. */
  async function tick(now: number): Promise<number> {
    let next = Number.POSITIVE_INFINITY;
    for (const shard of shards) {
      let pass: Pass;
      do {
        pass = await tickOnce(ticks, { policy: POLICY, shard, now: dateOf(now), bounded: false });
        passes++;
      } while (pass.admitted > 0 && pass.nextEligibleAt && pass.nextEligibleAt <= dateOf(now));
      if (!pass.nextEligibleAt) continue;
      // a Date has no microseconds: at its millisecond the pass would be too early
      const nextAt = pass.nextEligibleAt.getTime() - begin + 1;
      next = Math.min(next, pass.admitted > 0 ? nextAt : Math.max(nextAt, now + REST_MS));
    }
    shards.reverse(); // loops of several processes take turns
    return next;
  }

  /** Puts what was admitted into the workers' queue. */
  async function fetchAdmitted(now: number): Promise<void> {
    const rows = await withPgClient((client) =>
      engine.ask<{ job_id: string; staged_id: string }>(
        client,
        `select job_id, staged_id from ${SCHEMA}.in_flight_jobs where policy = ${parameter(1, "text")} order by job_id`,
        [POLICY],
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

  /** Gives free worker slots to the jobs that wait for one. */
  function start(now: number): void {
    while (queue.length > 0 && running.length < setup.workers) {
      const { id, job } = queue.shift() as (typeof queue)[number];
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
      const succeeded = over.filter(({ outcome }) => outcome === "succeeded").map(({ id }) => id);
      await client.query(`select from graphile_worker.complete_jobs(${parameter(1, "ids")})`, [succeeded]);
      for (const one of over.filter(({ outcome }) => outcome !== "succeeded")) await fail(client, one, now);
      const { left_ids } = (
        await engine.ask<{ left_ids: readonly string[] }>(
          client,
          `select left_ids from ${SCHEMA}_internal._release(${parameters("json", "time")})`,
          [JSON.stringify(asSent(over.map((one) => finished(one)))), dateOf(now)],
        )
      )[0] as { left_ids: readonly string[] };
      if (left_ids.length > 0) throw new Error(`The release left ${left_ids.length} of ${over.length} jobs`);
    });
    for (const { id, job, outcome } of over) {
      occupied.delete(id);
      if (outcome === "succeeded") countOf(job).done++;
      ends.push({ tenant: job.tenant, at: now, outcome });
    }
    return true;
  }

  /** A failure, as Graphile Worker counts it. A refusal also holds the partition, as `RetryAfter` does. */
  async function fail(
    client: Parameters<Parameters<WithPgClient>[0]>[0],
    { id, job, outcome }: Running,
    now: number,
  ) {
    await client.query(
      `select from graphile_worker.reschedule_jobs(${parameter(1, "ids")}, attempts => ${parameter(2, "int")})`,
      [[id], job.attempts],
    );
    if (outcome !== "refused") return;
    const partition = names[job.tenant];
    const until = dateOf(now + RETRY_AFTER_MS);
    await engine.call(client, "hold", { policy: POLICY, partition, until, reason: "429", by: "the task" });
  }

  function finished({ id, job, outcome, startedAt, endsAt }: Running): FinishedJob {
    const retry: Retry | null =
      outcome === "succeeded"
        ? null
        : {
            attempt: job.attempts,
            after: secondsUntilRetry(job, outcome),
            task: POLICY,
            priority: 0,
            maxAttempts: 25,
          };
    return {
      ...{ job: id, admission: null, ok: outcome === "succeeded", lagMs: startedAt - job.admittedAt },
      ...{ task: POLICY, durationMs: endsAt - startedAt, attempt: null, retry },
    };
  }

  function secondsUntilRetry({ attempts }: Job, outcome: Outcome): number {
    if (outcome === "refused") return RETRY_AFTER_MS / 1000;
    const backoff = resolveBackoff(policy, new Error("failed"), attempts, {} as never);
    return backoff ? backoff.afterMs / 1000 : Math.exp(attempts);
  }

  /** A worker's: else each explanation would say that none ticks, and a shared limit would wake no other shard. */
  async function beat(): Promise<void> {
    const pool = { id: "playground", slots: setup.workers, tasks: [POLICY], host: "browser", pid: 1 };
    const times = { staleAfterMs: setup.seconds * 1000, clockBehindMs: 0 };
    const named = shardsOf(setup).filter((shard) => shard !== null);
    const bid = {
      policies: [POLICY],
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
      setup.arrival === "stream"
        ? due
        : names.map((_, place) => plan.filter((job) => job.tenant === place).length);
    const tenants: Standing[] = [];
    for (const [tenant, partition] of names.entries()) {
      const queued = queue.filter(({ job }) => job.tenant === tenant).length;
      const runs = running.filter(({ job }) => job.tenant === tenant).length;
      const { started, done } = counts[tenant] as (typeof counts)[number];
      const waiting = (due[tenant] as number) - done - queued - runs;
      const isAnyStaged = (there[tenant] as number) - done - queued - runs > 0;
      const why = world.explains && isAnyStaged ? await ask(context, { policy: POLICY, partition }) : null;
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
    const limit = { policy: POLICY, gate: "throttle", set: JSON.stringify({ rate: setup.night }) };
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
    start(now);
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
