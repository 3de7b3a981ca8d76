import os from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import type { Job, Logger, WithPgClient } from "graphile-worker";
import { declarePolicies } from "../admit/declare.ts";
import { type TickContext, tickOnce } from "../admit/tick.ts";
import { makeTickLoops } from "../admit/tick-loop.ts";
import { inTime } from "../db/deadline.ts";
import type { Engine } from "../db/engine.ts";
import { makeOwnConnection, makeOwnPool } from "../db/own-connections.ts";
import type { EventSink } from "../events.ts";
import { sweepOnce } from "../operate/sweep.ts";
import { attemptOf } from "../run/fetched-job.ts";
import { finishedJob } from "../run/finished-job.ts";
import { makeReleaseQueue } from "../run/release-queue.ts";
import type { RunningJob } from "../run/wrap-task.ts";
import type { Settings } from "../settings.ts";
import type { Notification } from "./notification.ts";
import { makePulse } from "./pulse.ts";
import { register } from "./registration.ts";
import { makeSilence } from "./silence.ts";

/** A leader renews its leases this often; a standby takes over when one has run out, within five seconds of a crash. */
const BEAT_MS = 3500;
const LEASE_MS = 4200;
/** A standby bids this long after the leader's lease ends, spread so that not all do at once. */
const BID_SPREAD_MS = 100;
const ERROR_PAUSE_MS = 1000;
/** For ticks and releases; a worker that does not lead needs one. */
const PLANNED_CONNECTIONS = 2;
/** As long as a timer can be. */
const NO_HEARTBEAT_MS = 2 ** 31 - 1;
/** How long a one-shot pool waits for its last jobs to be released before it looks for the next. */
const CATCH_UP_MS = 5000;
/** And for what may be admitted as soon as this. */
const SOON_MS = 20;
/** How long a heartbeat may take, in parts of the time after which a silent pool counts as dead. */
const BEAT_PARTS = 6;
const SHORTEST_BEAT_MS = 1000;
const LONGEST_BEAT_MS = 5000;
/** How soon a loop looks for shards that arrivals may have brought. */
const NEW_SHARD_MS = 250;

export interface PoolContext {
  readonly poolId: string;
  /** It ends when it finds no job. */
  readonly oneShot: boolean;
  /** Jobs this pool runs at once. */
  readonly slots: number;
  readonly tasks: readonly string[];
  /** How far the clock it fetches jobs by is behind the database's, in milliseconds. */
  readonly clockBehindMs: number;
  readonly withPgClient: WithPgClient;
  /** Where the host was given one. */
  readonly pgPool: unknown;
  readonly engine: Engine;
  readonly settings: Settings;
  readonly events: EventSink;
  readonly logger: Logger;
}

/**
 * What this package does in a worker pool beside running jobs: it heartbeats, bids for leases, ticks the shards it
 * leads, releases what finishes, and sweeps. A one-shot pool (runOnce) heartbeats, and ticks at its start and after each
 * job.
 *
 * Each fails on its own: the heartbeat has a connection to itself, which no stuck tick and no exhausted pool takes away;
 * ticks, releases and sweeps have deadlines.
 */
export function makeWorkerPool(context: PoolContext) {
  const { engine, settings, events, logger, poolId, oneShot } = context;
  const connecting = {
    withPgClient: context.withPgClient,
    pgPool: context.pgPool,
    timeoutMs: Math.min(
      Math.max(settings.workerStaleAfterMs / BEAT_PARTS, SHORTEST_BEAT_MS),
      LONGEST_BEAT_MS,
    ),
  };
  const own = makeOwnConnection({
    ...connecting,
    onFallback: (error) =>
      logger.warn(`No connection for heartbeats, using the pool's: ${error.message}`, { error }),
  });
  const planned = makeOwnPool({ ...connecting, max: PLANNED_CONNECTIONS });
  const withPgClient = inTime(engine, oneShot ? context.withPgClient : planned.run, own.run);
  const ticks: TickContext = {
    withPgClient,
    engine,
    registry: settings.registry,
    events,
    partitionBatchSize: settings.partitionBatchSize,
  };
  const loops = makeTickLoops({
    ...ticks,
    logger,
    minTickIntervalMs: settings.minTickIntervalMs,
    // the beat looks for all loops in one statement, and nudges those that have something to do
    loopHeartbeatMs: NO_HEARTBEAT_MS,
    onArrivals: () => beatSoon(NEW_SHARD_MS),
    onDenied: () => releases.hurry(),
  });
  const releases = makeReleaseQueue({
    withPgClient,
    engine,
    events,
    logger,
    onReleased: (policies) => {
      for (const policy of policies) loops.nudge(policy);
    },
    rests: !oneShot,
  });
  const silence = makeSilence({
    staleAfterMs: settings.workerStaleAfterMs,
    clockBehindMs: context.clockBehindMs,
  });
  let registered = false;
  /** Its registration has ended without success. */
  let unregistered = false;
  /** It leads no more. */
  let stopping = false;
  let closed = false;
  const pulse = makePulse(beat);
  /** A heartbeat that ends a silence, for all jobs that wait for it. */
  let speaking: Promise<void> | undefined;
  let sweptAt = performance.now();

  async function start(): Promise<void> {
    const declare = () => declarePolicies(context.withPgClient, engine, settings, logger);
    const send = () => sendBeat({ ...bid(), policies: [], bids: false });
    try {
      registered = await register({ send, declare, isStopping: () => stopping, logger });
    } finally {
      unregistered = !registered;
    }
    await declare();
    if (oneShot) {
      pulse.schedule(settings.workerHeartbeatIntervalMs);
      return tickUntilIdle();
    }
    await pulse.now();
    const { policies } = settings.registry;
    logger.info(
      `${policies.length} policies (${policies.map((policy) => policy.identifier).join(", ") || "none"}), ` +
        `${loops.size > 0 ? `leading ${loops.size} shards` : settings.loop ? "standing by" : "no loop"}`,
    );
  }

  /**
   * Ticks every policy until nothing more can be admitted, now or within milliseconds (an end may be about to be recorded),
   * and nobody else is at it: what that pass does not see yet, such as the last end here, no other would.
   */
  async function tickUntilIdle(): Promise<void> {
    const until = performance.now() + CATCH_UP_MS;
    for (const { identifier: policy } of settings.registry.policies) {
      for (;;) {
        const pass = await tickOnce(ticks, { policy, shard: null, now: null, bounded: true });
        if (pass.admitted > 0) continue;
        const soon = pass.busy || (pass.nextInMs !== null && pass.nextInMs <= SOON_MS);
        if (!soon || performance.now() >= until) break;
        await delay(SOON_MS);
      }
    }
  }

  async function checkJob(job: Job): Promise<void> {
    while (silence.lasts() && !closed) {
      speaking ??= pulse.now().finally(() => {
        speaking = undefined;
      });
      await speaking;
      if (silence.lasts()) await delay(ERROR_PAUSE_MS);
    }
    await silence.check(job, () => context.withPgClient((client) => engine.keepsJob(client, attemptOf(job))));
  }

  function end(): void {
    stopping = closed = true;
    pulse.stop();
  }

  async function leave(): Promise<void> {
    if (registered) await own.run((client) => engine.workerGone(client, poolId));
    registered = false;
  }

  /** Returns after how long it is to come again. */
  async function beat(): Promise<number> {
    try {
      const leases = await sendBeat(bid());
      if (stopping) return settings.workerHeartbeatIntervalMs;
      loops.follow(leases);
      for (const { policy, shard, leads, waiting, next_in_ms } of leases)
        if (leads && (waiting || (next_in_ms ?? 1) <= 0)) loops.nudge(policy, shard);
      const pause = pauseUntilBeat(leases);
      if (!(loops.size > 0 && leases[0]?.leads && leases[0].busy)) return pause;
      sweepWhenDue();
      return Math.min(pause, sweptAt + settings.sweepIntervalMs - performance.now());
    } catch (error) {
      if (!closed) logger.warn(`Heartbeat failed, trying again: ${(error as Error).message}`, { error });
      return ERROR_PAUSE_MS;
    }
  }

  async function sendBeat(bids: ReturnType<typeof bid>) {
    const sentAt = performance.now();
    const leases = await own.run((client) => engine.beat(client, describePool(), bids));
    silence.heard(sentAt);
    return leases;
  }

  function describePool() {
    const { slots, tasks, clockBehindMs } = context;
    return {
      id: poolId,
      // one that stops takes no more: none are admitted ahead for it
      slots: stopping ? 0 : slots,
      tasks,
      host: os.hostname(),
      pid: process.pid,
      staleAfterMs: settings.workerStaleAfterMs,
      clockBehindMs,
    };
  }

  function bid() {
    const loop = oneShot || stopping ? null : settings.loop;
    return {
      policies: loop?.policies ?? [],
      shards: loop?.shards ?? null,
      ttlMs: LEASE_MS,
      bids: loop !== null,
    };
  }

  /** A leader renews in time; a standby comes when the first lease it does not hold runs out. */
  function pauseUntilBeat(leases: readonly { leads: boolean; expires_in_ms: number | null }[]): number {
    const longest = settings.loop ? Math.min(BEAT_MS, settings.loopHeartbeatMs) : Number.POSITIVE_INFINITY;
    const ends = leases
      .filter((lease) => !lease.leads)
      .map((lease) => Math.max(lease.expires_in_ms ?? 0, 500));
    return Math.min(
      longest,
      settings.workerHeartbeatIntervalMs,
      ...ends.map((ms) => ms + Math.random() * BID_SPREAD_MS),
    );
  }

  function mayLead(policy: string | undefined, shard: string | undefined): boolean {
    if (!settings.loop || stopping || oneShot) return false;
    const { policies, shards } = settings.loop;
    return policies.includes(policy ?? "") && (shard === undefined || (shards?.includes(shard) ?? true));
  }

  function beatSoon(ms: number): void {
    const shards = settings.registry.policies.some(
      (policy) => policy["~policy"].declaration.shardBy !== undefined,
    );
    if (shards) pulse.within(ms);
  }

  function sweepWhenDue(): void {
    if (performance.now() - sweptAt < settings.sweepIntervalMs) return;
    sweptAt = performance.now();
    sweepOnce({ ...ticks, partitionInactiveAfterMs: settings.partitionInactiveAfterMs, poolId }).then(
      ({ repaired, failed }) => {
        for (const { step, error } of stopping ? [] : failed)
          logger.warn(`Sweep: ${step}: ${error.message}`, { error });
        if (Object.values(repaired).some((n) => n > 0))
          logger.warn(`Repaired ${JSON.stringify(repaired)}`, { repaired });
        loops.nudge();
      },
      (error) => stopping || logger.warn(`Sweep failed: ${(error as Error).message}`, { error }),
    );
  }

  return {
    start,
    /** Nobody knows of it, nor will: what it had locked when it is killed, nobody would unlock. */
    isUnregistered: (): boolean => unregistered,
    /**
     * Somebody notified the loops; without a policy, something may have been said while nobody listened. What the releases
     * here say of the policies they are for, the loops know already. They do not know of another policy that waits for
     * what a job held, nor of another shard's partitions that a loop here has woken.
     */
    hear({ policy, shard, vacant }: Partial<Notification>, pid?: number): void {
      if (vacant && mayLead(policy, shard)) pulse.within(Math.random() * BID_SPREAD_MS);
      const known = pid !== undefined && planned.owns(pid) && shard === undefined && releases.isFor(policy);
      if (!known) loops.nudge(policy, shard);
    },
    /** Before a job runs: null, or what to wait for; that rejects when the job was given to others in a silence. */
    comeBack: (job: Job): Promise<void> | null => (silence.doubts(job) ? checkJob(job) : null),
    /** A job of a policy ended; resolves when its release was flushed once. */
    release(job: Job, running: RunningJob, error: unknown): Promise<void> {
      const finished = finishedJob(job, { ...running, error }, { logger, events });
      return releases.push({ ...finished, ends: true }, running.policy.identifier);
    },
    /** A job of a task without a policy ended: the one it replaced under its key, if there was one, gives its slot back. */
    async releaseReplaced(job: Job): Promise<void> {
      try {
        const admission = await withPgClient((client) => engine.replacedAdmission(client, attemptOf(job)));
        if (admission === null) return;
        await releases.push(
          { job: job.id, admission, ok: true, lagMs: null, attempt: null, retry: null },
          "",
        );
      } catch (error) {
        logger.warn(
          `Job ${job.id} may leave a slot taken until the next sweep: ${(error as Error).message}`,
          {
            error,
          },
        );
      }
    },
    /** For a one-shot pool that is about to look for its next job: releases what finished, and admits what may then go. */
    async catchUp(): Promise<void> {
      await Promise.race([releases.idle(), delay(CATCH_UP_MS, undefined, { ref: false })]);
      await tickUntilIdle();
    },
    /** Stops ticking, and lets another pool lead at once. Heartbeats go on while the last jobs run. */
    async stepDown(): Promise<void> {
      stopping = true;
      await Promise.allSettled([pulse.rest(), loops.stop()]);
      await own.run((client) => engine.stepDown(client, poolId));
      pulse.schedule(0);
    },
    /** Flushes the last releases; the pool is still usable then. */
    async close(): Promise<void> {
      end();
      try {
        await releases.close();
        await pulse.stop();
        await leave();
      } finally {
        planned.close();
        own.close();
      }
    },
    /** The host let the pool go, whatever was left: a one-shot pool has ended, any other was closed. */
    async disconnect(): Promise<void> {
      end();
      try {
        if (oneShot) {
          await pulse.stop();
          await leave();
        }
      } catch (error) {
        // it counts as dead once it is silent
        logger.debug(`Cannot say that this pool is gone: ${(error as Error).message}`, { error });
      } finally {
        planned.close();
        own.close();
      }
    },
  };
}

export type WorkerPoolRuntime = ReturnType<typeof makeWorkerPool>;
