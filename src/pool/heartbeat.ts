import os from "node:os";
import type { makeTickLoops } from "../admit/tick-loop.ts";
import type { Lease } from "../db/engine.ts";
import { codeOf } from "../db/outage.ts";
import { OLD_SERVER } from "../db/sqlstates.ts";
import { makeFailureLog } from "../failure-log.ts";
import type { makeCancellations } from "../run/cancellations.ts";
import { type Bid, type makeBids, NO_BID } from "./bids.ts";
import type { PoolConnections } from "./connections.ts";
import { ERROR_SLEEP_MS, type PoolContext, type PoolLife } from "./pool-context.ts";
import { makePulse } from "./pulse.ts";
import type { SaidRuns } from "./said-runs.ts";
import type { Silence } from "./silence.ts";
import type { makeSweeper } from "./sweeper.ts";

/** What a heartbeat uses and serves. */
export interface HeartbeatParts {
  readonly life: PoolLife;
  readonly connections: Pick<PoolConnections, "forBeats">;
  readonly bids: ReturnType<typeof makeBids>;
  readonly silence: Silence;
  readonly saidRuns: SaidRuns;
  readonly loops: ReturnType<typeof makeTickLoops>;
  readonly sweeper: ReturnType<typeof makeSweeper>;
  readonly cancellations: Pick<ReturnType<typeof makeCancellations>, "lookIfRunning">;
}

/**
 * A pool's heartbeat: it says that the pool is alive, and bids for leases. By the leases it starts and stops loops, and it
 * nudges those that have something to do. The heartbeat of a leader also starts the sweeps. While jobs run, it looks whether
 * they were cancelled.
 */
export function makeHeartbeat(context: PoolContext, parts: HeartbeatParts) {
  const { settings, engine, logger } = context;
  const { life, connections, bids, silence, saidRuns, loops, sweeper, cancellations } = parts;
  const pulse = makePulse(beat);
  const failures = makeFailureLog(logger, "Heartbeat failed, trying again", "Heartbeats work");

  /** Returns the milliseconds until the next one. */
  async function beat(): Promise<number> {
    try {
      const leases = await send(bids.bid());
      failures.succeeded();
      await cancellations.lookIfRunning();
      if (life.stopping) return Math.min(settings.workerHeartbeatIntervalMs, saidRuns.dueInMs());
      loops.follow(leases);
      for (const { policy, shard, leads, waiting, next_in_ms } of leases)
        if (leads && (waiting || (next_in_ms ?? 1) <= 0)) loops.nudge(policy, shard);
      const longest = Math.min(bids.sleepAfter(leases), saidRuns.dueInMs());
      if (!(loops.size > 0 && leases[0]?.leads && leases[0].busy)) return longest;
      sweeper.sweepIfDue();
      return Math.min(longest, sweeper.dueInMs());
    } catch (error) {
      if (!life.closed) failures.failed(error);
      return ERROR_SLEEP_MS;
    }
  }

  async function send(bid: Bid): Promise<readonly Lease[]> {
    const sentAt = performance.now();
    const lost = saidRuns.lost();
    const { leases, server } = await connections
      .forBeats((client) => engine.beat(client, describePool(), bid))
      .catch((error) => {
        if (codeOf(error) === OLD_SERVER) silence.begins();
        throw error;
      });
    const wasSilent = silence.arrived(sentAt);
    bids.took(performance.now() - sentAt);
    context.checkListening();
    await saidRuns.heard(server, wasSilent, lost);
    return leases;
  }

  function describePool() {
    return {
      id: context.poolId,
      // a pool that stops takes no more jobs, so none may be admitted ahead for it
      slots: life.stopping ? 0 : context.slots,
      tasks: context.tasks,
      host: os.hostname(),
      pid: process.pid,
      staleAfterMs: settings.workerStaleAfterMs,
      clockBehindMs: context.clock.atMostMs,
      saidOn: saidRuns.server(),
    };
  }

  return {
    ...pulse,
    /** The first one: it makes the pool known, and bids for nothing. Rejects if it fails. */
    introduce: (): Promise<unknown> => send(NO_BID),
  };
}

export type Heartbeat = ReturnType<typeof makeHeartbeat>;
