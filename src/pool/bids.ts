import type { Settings } from "../settings.ts";
import type { PoolContext, PoolLife } from "./pool-context.ts";

/** A leader renews its leases this often. If it crashes, a standby takes over within five seconds, when they have ended. */
const BEAT_MS = 3500;
const LEASE_MS = 4200;
/** On a slow machine a lease lasts longer by so many heartbeats, of which each takes so long. Otherwise leaders would take turns. */
const SLOW_BEATS = 3;
const SLOW_BEAT_MS = 200;
/** A lease that is longer than 30 s is void: see _lease. */
const LONGEST_LEASE_MS = 25_000;
/** Standbys bid at a random time within this after a lease has ended, so that they do not all bid at once. */
const BID_SPREAD_MS = 100;
/** A standby waits this long at least, however soon a lease ends. */
const SHORTEST_WAIT_MS = 500;

/** What a pool asks for with a heartbeat. */
export interface Bid {
  readonly policies: readonly string[];
  /** Null: every shard. */
  readonly shards: readonly string[] | null;
  readonly ttlMs: number;
  readonly bids: boolean;
}

/** A heartbeat that asks for no lease, and for nothing that loops need to know. */
export const NO_BID: Bid = { policies: [], shards: null, ttlMs: LEASE_MS, bids: false };

/** Which leases a worker pool asks for, and when it asks again. */
export function makeBids({ settings, oneShot }: Pick<PoolContext, "settings" | "oneShot">, life: PoolLife) {
  let { loop } = settings;
  let slowMs = 0;
  const ttlMs = () =>
    Math.min(LEASE_MS + (slowMs > SLOW_BEAT_MS ? Math.ceil(SLOW_BEATS * slowMs) : 0), LONGEST_LEASE_MS);
  const isCandidate = () => loop !== null && !oneShot && !life.stopping;
  return {
    bid(): Bid {
      if (loop === null || !isCandidate()) return NO_BID;
      return { policies: loop.policies, shards: loop.shards, ttlMs: ttlMs(), bids: true };
    },
    /** Until the next call this pool bids as if these were its loops. Null: as its settings say. */
    bidFor(loops: Settings["loop"]): void {
      loop = loops ?? settings.loop;
    },
    /** Whether it runs loops, or would if nobody else led. */
    isCandidate,
    /** A heartbeat has taken so long. Those that follow are taken to be as slow for a while. */
    took(ms: number): void {
      slowMs = Math.max(ms, slowMs / 2);
    },
    /** Whether this pool may lead the shard of a policy that a notification names. */
    mayLead(policy: string | undefined, shard: string | undefined): boolean {
      if (loop === null || !isCandidate() || !loop.policies.includes(policy ?? "")) return false;
      return shard === undefined || (loop.shards?.includes(shard) ?? true);
    },
    /**
     * Milliseconds until the next heartbeat. A leader renews its leases in time; a standby comes when the first lease of
     * another pool ends.
     */
    sleepAfter(leases: readonly { leads: boolean; expires_in_ms: number | null }[]): number {
      const longest = loop ? Math.min(BEAT_MS, settings.loopHeartbeatMs) : Number.POSITIVE_INFINITY;
      const ends = leases
        .filter((lease) => !lease.leads)
        .map((lease) => Math.max(lease.expires_in_ms ?? 0, SHORTEST_WAIT_MS));
      return Math.min(longest, settings.workerHeartbeatIntervalMs, ...ends.map((ms) => ms + spreadMs()));
    },
  };
}

/** A random time, so that standbys do not all bid at once. */
export function spreadMs(): number {
  return Math.random() * BID_SPREAD_MS;
}
