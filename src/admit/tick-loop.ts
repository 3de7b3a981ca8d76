import type { Logger } from "graphile-worker";
import type { Lease } from "../db/engine.ts";
import { emit } from "../events.ts";
import { CAP_KINDS } from "../gates/index.ts";
import { type Pass, type TickContext, tickOnce } from "./tick.ts";

/** A loop that comes back without getting anywhere (a row is locked, another router is at work) slows down to this. */
const SLOWEST_MS = 100;
/** While the workers have enough to do, what they finish is made up for in passes this far apart, not job by job. */
const SATURATED_MS = 25;
/** A pass that failed comes again after this, twice as long each time; nothing but stopping cuts it short. */
const FIRST_ERROR_PAUSE_MS = 250;
const LONGEST_ERROR_PAUSE_MS = 5000;

export interface TickLoopContext extends TickContext {
  readonly logger: Logger;
  readonly minTickIntervalMs: number;
  readonly loopHeartbeatMs: number;
  /** Called when routing may have brought a shard this process does not know yet. */
  readonly onArrivals?: () => void;
  /** Called when somebody may not go whom a release might let go. */
  readonly onDenied?: () => void;
}

/**
 * Ticks one shard of a policy whenever there is something to do: until nothing more can be admitted, then it sleeps
 * until the next partition becomes eligible, it is nudged, or its heartbeat. It never polls.
 */
export function startShardLoop(context: TickLoopContext, lead: { policy: string; shard: string | null }) {
  let stopped = false;
  let nudged = true;
  let wake = (): void => {};
  let slow = context.minTickIntervalMs;
  let failures = 0;

  const done = (async () => {
    while (!stopped) {
      nudged = false;
      const pass = await attempt();
      if (stopped) return;
      if (pass) await sleep(pauseAfter(pass), leastAfter(pass));
      else await sleep(errorPause(), errorPause());
    }
  })();

  async function attempt(): Promise<Pass | null> {
    try {
      const pass = await tickOnce(context, { ...lead, now: null, bounded: true });
      failures = 0;
      if (pass.dropped > 0)
        context.logger.warn(`Policy ${lead.policy} dropped ${pass.dropped} jobs, by maxPending or whenBusy`);
      if (pass.routed) context.onArrivals?.();
      if (wantsRelease(pass)) context.onDenied?.();
      return pass;
    } catch (error) {
      failures++;
      const message = error instanceof Error ? error.message : String(error);
      if (!stopped) context.logger.warn(`Tick of ${lead.policy} failed, trying again: ${message}`, { error });
      return null;
    }
  }

  /** Milliseconds until the next pass; a nudge cuts it short. */
  function pauseAfter(pass: Pass): number {
    const ready = pass.more || (pass.nextInMs !== null && pass.nextInMs <= 0);
    slow = ready && !pass.progress ? Math.min(slow * 2, SLOWEST_MS) : context.minTickIntervalMs;
    if (ready) return slow;
    return Math.min(Math.max(pass.nextInMs ?? Number.POSITIVE_INFINITY, 0) + 1, context.loopHeartbeatMs);
  }

  /** The same, when nudged. */
  function leastAfter(pass: Pass): number {
    const saturated = pass.saturated === "workers" && context.minTickIntervalMs > 0 ? SATURATED_MS : 0;
    return Math.max(context.minTickIntervalMs, saturated);
  }

  function errorPause(): number {
    return Math.min(FIRST_ERROR_PAUSE_MS * 2 ** (failures - 1), LONGEST_ERROR_PAUSE_MS);
  }

  /** Sleeps `ms`, less when nudged, and `leastMs` at least. */
  function sleep(ms: number, leastMs: number): Promise<void> {
    const since = performance.now();
    return new Promise((resolve) => {
      let timer = setTimeout(resolve, nudged ? leastMs : Math.max(ms, leastMs));
      let woken = nudged;
      wake = () => {
        if (woken && !stopped) return;
        woken = true;
        clearTimeout(timer);
        const left = leastMs - (performance.now() - since);
        if (stopped || left <= 0) resolve();
        else timer = setTimeout(resolve, left);
      };
    });
  }

  return {
    lead,
    nudge(): void {
      nudged = true;
      wake();
    },
    async stop(): Promise<void> {
      stopped = true;
      wake();
      await done;
    },
  };
}

/** Where a pass has filled the workers, those it left behind wait for no release. */
function wantsRelease({ claimed, admitted, denied }: Pass): boolean {
  const full = CAP_KINDS.some((kind) => `${kind}_full` in denied);
  return full || (claimed > 0 && admitted === 0);
}

/** Whether what happened to a shard of a policy (undefined: to any) is of interest to this loop. */
export function isFor(
  lead: { readonly policy: string; readonly shard: string | null },
  policy: string | undefined,
  shard: string | undefined,
): boolean {
  if (policy !== undefined && policy !== lead.policy) return false;
  return shard === undefined || lead.shard === null || lead.shard === shard;
}

type ShardLoop = ReturnType<typeof startShardLoop>;

/** The shard loops of a process: one for each lease it holds. */
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
    /** Starts and stops loops so that they are those of the leases held. */
    follow(leases: readonly Lease[]): void {
      const held = new Map(
        leases.filter((one) => one.leads).map((one) => [`${one.policy}\n${one.shard}`, one]),
      );
      for (const [key, loop] of loops) if (!held.has(key)) end(key, loop);
      for (const [key, { policy, shard }] of held) {
        if (loops.has(key)) continue;
        loops.set(key, startShardLoop(context, { policy, shard }));
        emit(context.events, "dispatchPolicy:leader", { policy, shard, leads: true });
      }
    },
    /** Something happened to a shard of a policy (undefined: to any). */
    nudge(policy?: string, shard?: string): void {
      for (const loop of loops.values()) if (isFor(loop.lead, policy, shard)) loop.nudge();
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
