import { counted } from "../counted.ts";
import type { Lease } from "../db/engine.ts";
import { isUnknownPolicy } from "../db/sqlstates.ts";
import { emit } from "../events.ts";
import { makeFailureLog } from "../failure-log.ts";
import type { Logger } from "../log.ts";
import { REASON_KINDS, REASONS } from "../policy/reasons.ts";
import { makeSleeper } from "./sleeper.ts";
import { makeSleeps, type Sleep } from "./sleeps.ts";
import { type Pass, type TickContext, tickOnce } from "./tick.ts";

/** What a loop ticks. Without a shard: all of them. */
export interface Lead {
  readonly policy: string;
  readonly shard: string | null;
}

export interface TickLoopContext extends TickContext {
  readonly logger: Logger;
  readonly minTickIntervalMs: number;
  readonly loopHeartbeatMs: number;
  /** Called if routing may have brought a shard that this process does not know yet. */
  readonly onArrivals?: () => void;
  /** Called if a pass left jobs behind that a release might let go. */
  readonly onDenied?: () => void;
  /** Called with whether a cap on jobs in flight denied jobs: when the loop starts (it may have), and after each claim. */
  readonly onFull?: (lead: Lead, full: boolean) => void;
}

/**
 * Ticks one shard of a policy until nothing more can be admitted. Then it sleeps until the next partition becomes
 * eligible, until somebody nudges it, or for `loopHeartbeat` at most. In a worker pool that is endless, because the pool's
 * heartbeat nudges. It ends by itself once the policy is removed.
 */
export function startShardLoop(context: TickLoopContext, lead: Lead) {
  const sleeps = makeSleeps(context);
  const sleeper = makeSleeper();
  const failures = makeFailureLog(
    context.logger,
    `Tick of ${lead.policy} failed, trying again`,
    `Ticks of ${lead.policy} work`,
  );
  let stopped = false;
  let nudged = true;
  context.onFull?.(lead, true);

  const done = (async () => {
    while (!stopped) {
      nudged = false;
      const pass = await attempt();
      if (!stopped) await sleep(pass ? sleeps.afterPass(pass) : sleeps.afterFailure());
    }
  })();

  /** Null if the pass failed. */
  async function attempt(): Promise<Pass | null> {
    try {
      const pass = await tickOnce(context, { ...lead, now: null, bounded: true });
      failures.succeeded();
      if (pass.lost > 0)
        context.logger.warn(
          `Policy "${lead.policy}" dropped ${counted(pass.lost, "job")}, because its backlog is full, its gates deny, or they expired`,
        );
      if (pass.routed) context.onArrivals?.();
      if (wantsRelease(pass)) context.onDenied?.();
      if (pass.claimed > 0) context.onFull?.(lead, isFull(pass) || "ahead_full" in pass.denied);
      return pass;
    } catch (error) {
      if (isUnknownPolicy(error)) {
        context.logger.info(`Policy "${lead.policy}" was removed: its loop ends`);
        stopped = true;
      }
      if (!stopped) failures.failed(error);
      return null;
    }
  }

  function sleep({ ms, leastMs }: Sleep): Promise<void> {
    const began = performance.now();
    return sleeper.sleepUntil(() => (stopped ? 0 : began + (nudged ? leastMs : Math.max(ms, leastMs))));
  }

  return {
    lead,
    nudge(): void {
      nudged = true;
      sleeper.wake();
    },
    async stop(): Promise<void> {
      stopped = true;
      sleeper.wake();
      await done;
    },
  };
}

/** Whether a cap on jobs in flight denied jobs. */
const isFull = ({ denied }: Pass) =>
  REASONS.some((reason) => REASON_KINDS[reason] === "cap" && reason in denied);

/**
 * Whether a release might let jobs go that a pass left behind. So it is if a cap was full, or a probe is out. So it is also
 * if the pass admitted nothing of what it claimed.
 */
function wantsRelease(pass: Pass): boolean {
  return isFull(pass) || "probing" in pass.denied || (pass.claimed > 0 && pass.admitted === 0);
}

/** Says what nobody expects of the small way of admission, if one of these loops leads the policy. */
export function reportFailed(
  { events, logger }: Pick<TickLoopContext, "events" | "logger">,
  loops: readonly ShardLoop[],
  policy: string | undefined,
  error: string,
): void {
  if (policy === undefined || !loops.some(({ lead }) => isFor(lead, policy, undefined))) return;
  emit(events, "dispatchPolicy:smallWayFailed", { policy, error });
  logger.error(`Policy "${policy}": a job was left to the next pass, because of an error: ${error}`);
}

/** Whether a change of a shard of a policy (undefined: of any) concerns this loop. */
export function isFor(lead: Lead, policy: string | undefined, shard: string | undefined): boolean {
  if (policy !== undefined && policy !== lead.policy) return false;
  return shard === undefined || lead.shard === null || lead.shard === shard;
}

type ShardLoop = ReturnType<typeof startShardLoop>;

/** The shard loops of a process: one for each lease that it has. */
export function makeTickLoops(context: TickLoopContext) {
  const loops = new Map<string, ShardLoop>();
  const ending = new Set<Promise<void>>();

  function end(key: string, loop: ShardLoop): void {
    loops.delete(key);
    const ended = loop.stop().finally(() => ending.delete(ended));
    ending.add(ended);
    emit(context.events, "dispatchPolicy:leader", {
      policy: loop.lead.policy,
      shard: loop.lead.shard ?? "",
      leads: false,
    });
  }

  return {
    /** Starts and stops loops, so that there is one for each lease that this process has. */
    follow(leases: readonly Lease[]): void {
      const leased = new Map(
        leases.filter((one) => one.leads).map((one) => [`${one.policy}\n${one.shard}`, one]),
      );
      for (const [key, loop] of loops) if (!leased.has(key)) end(key, loop);
      for (const [key, { policy, shard }] of leased) {
        if (loops.has(key)) continue;
        loops.set(key, startShardLoop(context, { policy, shard }));
        emit(context.events, "dispatchPolicy:leader", { policy, shard, leads: true });
      }
    },
    /** Something has changed in a shard of a policy (undefined: in any). */
    nudge(policy?: string, shard?: string): void {
      for (const loop of loops.values()) if (isFor(loop.lead, policy, shard)) loop.nudge();
    },
    /** The small way of admission has failed. */
    failed(policy: string | undefined, error: string): void {
      reportFailed(context, [...loops.values()], policy, error);
    },
    get size(): number {
      return loops.size;
    },
    async stop(): Promise<void> {
      for (const [key, loop] of loops) end(key, loop);
      await Promise.all(ending);
    },
  };
}
