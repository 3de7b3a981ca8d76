import type { WithPgClient } from "graphile-worker";
import { withDeadline, workPatience } from "../db/deadline.ts";
import { makeOwnPool, type OwnPool } from "../db/own-pool.ts";
import { makePatience } from "../db/patience.ts";
import type { PoolContext } from "./pool-context.ts";

/** So many ticks and sweeps go to the host's pool while another one has the connection. It may wait for a lock for seconds. */
const BESIDE = 2;
/** A heartbeat may take this part of the time after which a silent pool counts as dead, within these bounds. */
const BEAT_PARTS = 6;
const SHORTEST_BEAT_MS = 1000;
const LONGEST_BEAT_MS = 5000;
/** And this part, after some that were given up: two tries fit into that time. */
const SLOW_BEAT_PARTS = 3;

export type PoolConnections = ReturnType<typeof makeConnections>;

/**
 * The connections of a worker pool beside the host's. A tick may wait for a lock for seconds, and then every job that ends
 * would keep its slot as long. So there is one for heartbeats, one for releases, and one for ticks and sweeps. Each is made when
 * it is first needed: a worker that does not lead has the first two.
 *
 * All have deadlines. After one that was too short the next is longer, so that a slow machine is only slow.
 */
export function makeConnections({ withPgClient, pgPool, engine, settings, logger, oneShot }: PoolContext) {
  const { workerStaleAfterMs } = settings;
  const aBeat = Math.min(Math.max(workerStaleAfterMs / BEAT_PARTS, SHORTEST_BEAT_MS), LONGEST_BEAT_MS);
  const beats = makeOwnPool({
    ...{ withPgClient, pgPool, max: 1 },
    patience: makePatience(aBeat, workerStaleAfterMs / SLOW_BEAT_PARTS),
    onFallback: (error) =>
      logger.warn(`No connection for heartbeats, using the pool's: ${error.message}`, { error }),
  });
  const cancel = (pid: number) => beats.run((client) => engine.cancel(client, pid));
  const own = { withPgClient, pgPool, max: 1, cancel };
  const releases = makeOwnPool({ ...own, patience: workPatience() });
  const ticks = makeOwnPool({ ...own, beside: BESIDE, patience: workPatience() });
  const timed = ({ run }: OwnPool): WithPgClient =>
    oneShot ? withDeadline(withPgClient, workPatience(), cancel) : (run as WithPgClient);
  return {
    /** For heartbeats, and for what must not wait behind other work. */
    forBeats: beats.run,
    /** And for sweeps. */
    forTicks: timed(ticks),
    /** For the ends of jobs, one group at a time. */
    forReleases: timed(releases),
    /** Whether the backend with this process id serves this pool's releases. */
    releasesBy: (pid: number): boolean => releases.owns(pid),
    close(): void {
      for (const pool of [beats, ticks, releases]) pool.close();
    },
  };
}
