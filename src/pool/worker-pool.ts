import type { Job, WithPgClient } from "graphile-worker";
import { declarePolicies, definitionsOf } from "../admit/declare.ts";
import type { Notification } from "../admit/notification.ts";
import { readEvents } from "../admit/read-events.ts";
import { sleep } from "../admit/sleeper.ts";
import type { TickContext } from "../admit/tick.ts";
import { makeTickLoops } from "../admit/tick-loop.ts";
import type { LeadFor } from "../admit/tick-task.ts";
import { counted } from "../counted.ts";
import { errorText } from "../error-text.ts";
import { followWorkers } from "../operate/sweep.ts";
import { type AnyPolicy, policyDefinition } from "../policy/policy.ts";
import { makeAdoption } from "../run/adoption.ts";
import { makeCancellations } from "../run/cancellations.ts";
import { attemptOf } from "../run/fetched-job.ts";
import { makeJobEnds } from "../run/job-ends.ts";
import { makeReleaseQueue } from "../run/release-queue.ts";
import type { RunningJob } from "../run/running-jobs.ts";
import { untilAnswered } from "../run/uncounted.ts";
import { advise } from "./advice.ts";
import { makeBids, spreadMs } from "./bids.ts";
import { makeConnections } from "./connections.ts";
import { makeEndedElsewhere } from "./ended-elsewhere.ts";
import { makeHeartbeat } from "./heartbeat.ts";
import { catchUp, tickUntilIdle } from "./one-shot.ts";
import { makeOwnership } from "./ownership.ts";
import { makeLife, type PoolContext } from "./pool-context.ts";
import { makeRegistration } from "./registration.ts";
import { makeSaidRuns } from "./said-runs.ts";
import { makeSilence } from "./silence.ts";
import { makeSweeper } from "./sweeper.ts";

/** How soon a loop looks for shards that arrivals may have brought. */
const NEW_SHARD_MS = 250;
/** How soon a pool that leads for a tick task sees that others lead. */
const LEADS_MS = 1000;

/**
 * This package's part of a worker pool: it heartbeats, bids for leases, ticks the shards that it leads, releases finished
 * jobs, and sweeps. Each of these fails on its own. A one-shot pool (runOnce) heartbeats, and ticks at its start and after
 * each job.
 */
export function makeWorkerPool(context: PoolContext) {
  const parts = makeParts(context);
  const { connections } = parts;
  let closing: Promise<void> | undefined;
  return {
    poolId: context.poolId,
    oneShot: context.oneShot,
    /** How far its clock is behind the database's, in milliseconds. */
    clockBehindMs: context.clock.behindMs,
    /** Registers, declares the policies, and begins to lead. */
    start: (): Promise<void> => start(context, parts),
    /** Its registration has failed: its workers must fetch no job, because nobody would unlock it if they were killed. */
    isUnregistered: parts.registration.hasFailed,
    /** Somebody notified the loops. Without a policy, notifications may have been missed. */
    onNotification(said: Partial<Notification>, pid?: number): void {
      if (said.runs === undefined) onNotification(said, pid, parts);
      else void answer(context, parts, String(said.runs));
    },
    /** A connection was lost: perhaps another server answers soon. */
    lostConnection(): void {
      parts.saidRuns.lostAnswer();
      if (!parts.life.closed) parts.heartbeat.within(0);
    },
    /** The answer to a fetch was lost. */
    lostAnswer: parts.saidRuns.lostAnswer,
    /** Before a job runs: null, or a promise that rejects if the job was given to others in a silence. */
    confirm: parts.ownership.confirm,
    /** Before jobs are fetched: null, or a promise that resolves once the server has heard what runs here. */
    heard: parts.ownership.heard,
    /** A job of this task starts without an admission. */
    caught(policy: AnyPolicy, task: string): void {
      if (!context.oneShot) parts.adoption.caught(policy, task);
    },
    /** For a tick task that goes on. Undefined: this pool leads by itself, or is a one-shot pool. */
    lead:
      context.settings.loop === null && !context.oneShot
        ? (...args: Parameters<LeadFor>): Promise<void> => lead(context, parts, ...args)
        : undefined,
    started: parts.cancellations.started,
    /** A run has ended whose slot others have. */
    endedUnseen: parts.cancellations.ended,
    release(job: Job, running: RunningJob, error: unknown): Promise<void> {
      parts.cancellations.ended(job);
      return parts.ends.release(job, running, error);
    },
    releaseUnstarted: parts.ends.releaseUnstarted,
    releaseReplaced: parts.ends.releaseReplaced,
    /** For a one-shot pool, before it looks for its next job. */
    catchUp: (): Promise<void> => catchUp(parts.ticks, parts.releases, parts.life.onStop),
    /** Stops ticking, and lets another pool lead at once. Heartbeats go on while the last jobs run. */
    stepDown: (): Promise<void> => stepDown(context, parts),
    /** Flushes the last releases, once. The host's pool must still be usable. */
    close(): Promise<void> {
      closing ??= close(context, parts);
      return closing;
    },
    /** The host let the pool go: a one-shot pool has ended, any other was closed. */
    async disconnect(): Promise<void> {
      end(parts);
      try {
        if (context.oneShot) await leave(parts);
      } catch (error) {
        // other processes take it for dead once it has been silent for long enough
        const { message } = error as Error;
        context.logger.debug(`Cannot report that this pool has ended: ${message}`, { error });
      } finally {
        connections.close();
      }
    },
  };
}

export type WorkerPoolRuntime = ReturnType<typeof makeWorkerPool>;

type Parts = ReturnType<typeof makeParts>;

/**
 * The parts of a pool. Loops, releases and heartbeat call each other, but only once the pool has started. It is long
 * because each part is made by one call, and takes the parts above it: divided, it would pass them on.
 */
function makeParts(context: PoolContext) {
  const { engine, settings, events, logger, poolId, oneShot } = context;
  const life = makeLife();
  const connections = makeConnections(context);
  const { forTicks, forReleases } = connections;
  const { registry, partitionBatchSize } = settings;
  const ticks: TickContext = {
    ...{ withPgClient: forTicks, engine, registry, events, logger },
    partitionBatchSize,
  };
  const hasShards = registry.policies.some((policy) => policy["~policy"].declaration.shardBy !== undefined);
  const loops = makeTickLoops({
    ...ticks,
    logger,
    minTickIntervalMs: settings.minTickIntervalMs,
    // a heartbeat asks for all loops in one statement, and nudges those that have something to do
    loopHeartbeatMs: Number.POSITIVE_INFINITY,
    onArrivals: () => hasShards && heartbeat.within(NEW_SHARD_MS),
    onDenied: () => releases.hurry(),
    onFull: (lead, full) => elsewhere.watch(lead, full),
  });
  const elsewhere = makeEndedElsewhere({
    ...{ withPgClient: forReleases, engine, events, logger },
    onReleased: (policy) => loops.nudge(policy),
  });
  const onReleased = (policies: ReadonlySet<string>) => {
    for (const policy of policies) loops.nudge(policy);
  };
  const releases = makeReleaseQueue({
    ...{ withPgClient: forReleases, engine, events, logger },
    // where no pool ticks, whoever does decides when jobs go
    ...{ onReleased, rests: !oneShot, passesOn: () => bids.isCandidate() },
  });
  const { sweepIntervalMs } = settings;
  const onSwept = () => loops.nudge();
  const sweeper = makeSweeper(
    {
      ...{ withPgClient: forTicks, engine, events, logger, poolId, registry },
      ...{ sweepIntervalMs, ages: settings, onSwept },
    },
    life,
  );
  const silence = makeSilence({
    staleAfterMs: settings.workerStaleAfterMs,
    clockBehindMs: context.clock.atMostMs,
  });
  const bids = makeBids(context, life);
  const cancellations = makeCancellations({
    ...{ withPgClient: connections.forBeats, engine, events, logger },
    isClosed: () => life.closed,
  });
  const saidRuns = makeSaidRuns({ ...context, withPgClient: connections.forBeats as WithPgClient, silence });
  const heartbeat = makeHeartbeat(context, {
    ...{ life, connections, bids, silence, saidRuns, loops, sweeper, cancellations },
  });
  const declare = async () => {
    // first, so that nobody removes a policy between its declaration here and the row that says who has it
    const definitions = definitionsOf(registry.policies);
    await context.withPgClient((client) => engine.workerDeclares(client, poolId, definitions));
    await declarePolicies(context.withPgClient, engine, settings, logger);
  };
  const registration = makeRegistration({
    life,
    introduce: heartbeat.introduce,
    declare,
    async sayEnded() {
      await connections.forBeats((client) => engine.workerEnded(client, poolId));
      await followWorkers({ withPgClient: connections.forBeats, engine, logger });
    },
    logger,
  });
  const keeps = (job: Job) =>
    untilAnswered(
      () => context.withPgClient((client) => engine.keepsJob(client, attemptOf(job))),
      { job, logger },
      life.onClose,
    );
  const ownership = makeOwnership({ silence, saidRuns, life, beat: heartbeat.now, keeps });
  const { fetching } = context;
  const adoption = makeAdoption({ withPgClient: forTicks, engine, events, logger, life, fetching });
  const ends = makeJobEnds(releases, { withPgClient: forReleases, engine, logger, events });
  return {
    life,
    connections,
    ticks,
    loops,
    releases,
    elsewhere,
    bids,
    heartbeat,
    saidRuns,
    sweeper,
    declare,
    registration,
    ownership,
    cancellations,
    ends,
    adoption,
  };
}

/** Leads what of `loop` nobody leads, until the signal aborts, others lead all of it, or the pool stops. */
async function lead(
  { engine, poolId }: PoolContext,
  { bids, heartbeat, loops, life, connections }: Parts,
  ...[loop, signal]: Parameters<LeadFor>
): Promise<void> {
  bids.bidFor(loop);
  try {
    await heartbeat.now();
    while (!signal.aborted && loops.size > 0 && !life.stopping) await sleep(LEADS_MS, signal);
  } finally {
    bids.bidFor(null);
    if (!life.stopping) {
      await loops.stop();
      await connections.forBeats((client) => engine.stepDown(client, poolId));
    }
  }
}

async function stepDown({ engine, poolId }: PoolContext, parts: Parts): Promise<void> {
  const { life, heartbeat, loops, adoption, connections } = parts;
  life.stop();
  await Promise.allSettled([heartbeat.rest(), loops.stop(), adoption.settled()]);
  await connections.forBeats((client) => engine.stepDown(client, poolId));
  heartbeat.schedule(0);
}

async function close(context: PoolContext, parts: Parts): Promise<void> {
  end(parts);
  try {
    await parts.releases.close();
    // this may have been the last pool: a group that has ended need not wait for the next one
    await readEvents(context).catch((error) =>
      context.logger.debug(`What happened last is left to the next worker: ${errorText(error)}`, { error }),
    );
    await leave(parts);
  } finally {
    parts.connections.close();
  }
}

function end({ life, heartbeat, elsewhere }: Parts): void {
  life.close();
  heartbeat.stop();
  elsewhere.stop();
}

/** Says that the pool has ended, after the heartbeat under way. */
async function leave({ heartbeat, registration }: Parts): Promise<void> {
  await heartbeat.stop();
  await registration.leave();
}

async function start(context: PoolContext, parts: Parts): Promise<void> {
  const { settings, logger, oneShot } = context;
  const { life, registration, declare, heartbeat, loops, ticks, elsewhere } = parts;
  await registration.register();
  await declare();
  if (oneShot) {
    heartbeat.schedule(settings.workerHeartbeatIntervalMs);
    return tickUntilIdle(ticks, life.onStop);
  }
  await heartbeat.now();
  elsewhere.start();
  const { policies } = settings.registry;
  logger.info(`Started with ${namesOf(policies)}; this worker ${roleOf(loops.size, settings.loop !== null)}`);
  void advise(context); // the first jobs do not wait for it
}

/** A policy without gates is no mistake, because it shares the workers fairly, but it may be taken for a limit. */
function namesOf(policies: readonly AnyPolicy[]): string {
  const names = policies.map((policy) =>
    policyDefinition(policy).gates.length > 0
      ? `"${policy.identifier}"`
      : `"${policy.identifier}" (without gates)`,
  );
  if (names.length === 0) return "no policy";
  return `${names.length === 1 ? "policy" : "policies"} ${names.join(", ")}`;
}

function roleOf(leads: number, loop: boolean): string {
  if (leads > 0) return `leads ${counted(leads, "shard")}`;
  return loop ? "stands by while others lead" : "has no tick loop";
}

/** Another start asks whether this pool still runs the job. If the answer is lost, it asks again. */
async function answer(
  { engine, poolId, logger }: PoolContext,
  { cancellations, connections }: Parts,
  jobId: string,
): Promise<void> {
  const run = cancellations.runOf(jobId);
  if (!run) return;
  const [{ attempts }, { admission }] = run;
  try {
    await connections.forBeats((client) => engine.stillRuns(client, jobId, admission, attempts, poolId));
  } catch (error) {
    logger.warn(`Cannot say yet that job ${jobId} still runs: ${(error as Error).message}`, { error });
  }
}

/**
 * The releases here have nudged the loops of their own policies already, so their notifications of those are skipped. They
 * cannot know of another policy that waits for what a job occupied. Nobody has nudged a loop for what others did, such as
 * an adoption here.
 */
function onNotification(
  { policy, shard, vacant, cancelled, redefined, failed }: Partial<Notification>,
  pid: number | undefined,
  parts: Parts,
): void {
  const { bids, heartbeat, connections, releases, loops, cancellations, sweeper } = parts;
  if (redefined) void sweeper.resolve();
  if (failed !== undefined) loops.failed(policy, failed);
  if (cancelled && loops.size > 0) sweeper.freeCancelled();
  if (cancelled) void cancellations.look();
  else if (policy === undefined) void cancellations.lookIfRunning();
  if (vacant && bids.mayLead(policy, shard)) heartbeat.within(spreadMs());
  const known = pid !== undefined && connections.releasesBy(pid) && releases.isFor(policy);
  if (!known) loops.nudge(policy, shard);
}
