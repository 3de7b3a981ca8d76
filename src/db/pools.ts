import { parameters } from "./parameters.ts";
import { numberOf } from "./rows.ts";
import { interval, type Queryable, type Statements } from "./statements.ts";

export interface Lease {
  policy: string;
  shard: string;
  leads: boolean;
  expires_in_ms: number | null;
  next_in_ms: number | null;
  waiting: boolean;
  busy: boolean;
}

/** A run of a job with a slot, as its pool says it. */
export interface SaidRun {
  readonly job: string;
  readonly revision: number;
  readonly attempt: number;
  readonly admission: string;
  readonly stagedId: string | null;
  /** As in {@link Attempt}. */
  readonly lockedAt: Date | null;
}

/** A job that has ended well. */
export interface EndedJob {
  readonly job: string;
  readonly revision: number;
}

const BEAT = parameters(
  "text",
  "int",
  "texts",
  "text",
  "int",
  "interval",
  "texts",
  "texts",
  "interval",
  "boolean",
  "interval",
  "text",
);

/** Worker pools and their leases. It is long because it is a list: a method a statement. */
export function pools({ internal, rows, first }: Statements) {
  const leasesOf = async (client: Queryable, text: string, values: unknown[]) =>
    (await rows<Lease & { server?: string }>(client, text, values)).map((lease) => ({
      ...lease,
      expires_in_ms: numberOf(lease.expires_in_ms),
      next_in_ms: numberOf(lease.next_in_ms),
    }));
  return {
    /**
     * A pool's heartbeat and its bids for leases. Returns what its loops need to know before they sleep, and which server
     * it is. `saidOn`: the one for which the pool has said what it runs; null if it is new.
     */
    beat: async (
      client: Queryable,
      pool: {
        id: string;
        slots: number;
        tasks: readonly string[];
        host: string;
        pid: number;
        staleAfterMs: number;
        clockBehindMs: number;
        saidOn: string | null;
      },
      bid: { policies: readonly string[]; shards: readonly string[] | null; ttlMs: number; bids: boolean },
    ) => {
      const found = await leasesOf(client, `select * from ${internal}._beat(${BEAT})`, [
        pool.id,
        pool.slots,
        pool.tasks,
        pool.host,
        pool.pid,
        interval(pool.staleAfterMs),
        bid.policies,
        bid.shards,
        interval(bid.ttlMs),
        bid.bids,
        interval(pool.clockBehindMs),
        pool.saidOn,
      ]);
      return {
        server: found[0]?.server as string,
        leases: found.filter(({ policy }) => policy !== null) as readonly Lease[],
      };
    },

    /** Says which jobs a pool runs. Returns those of them that have no slot, and those that others have: see `_say_runs`. */
    sayRuns: async (
      client: Queryable,
      poolId: string,
      server: string,
      runs: readonly SaidRun[],
      { anew, gone = [] }: { anew: boolean; gone?: readonly string[] },
    ) => {
      const said = await rows<{ id: string; state: "lost" | "elsewhere" }>(
        client,
        `select id::text as id, state
         from ${internal}._say_runs(${parameters("text", "text", "json", "boolean", "ids")})`,
        [poolId, server, JSON.stringify(runs), anew, gone],
      );
      const those = (wanted: string) =>
        new Set(said.filter(({ state }) => state === wanted).map(({ id }) => id));
      return { lost: those("lost"), elsewhere: those("elsewhere") };
    },

    /** Gives up what a pool has locked and does not have: see `_give_up_locks`. */
    giveUpLocks: (
      client: Queryable,
      poolId: string,
      jobs: {
        running: readonly string[];
        fetched: readonly string[];
        recording: readonly string[];
        lost: readonly string[];
        ended: readonly EndedJob[];
        afterMs: number;
      },
    ) =>
      first<{ unlocked: number; completed: number; lent: string[]; is_left: boolean }>(
        client,
        `select unlocked, completed, lent::text[] as lent, is_left
         from ${internal}._give_up_locks(${parameters("text", "ids", "ids", "ids", "ids", "json", "interval")})`,
        [
          ...[poolId, jobs.running, jobs.fetched, jobs.recording, jobs.lost],
          ...[JSON.stringify(jobs.ended), interval(jobs.afterMs)],
        ],
      ),

    /** Keeps others from fetching jobs that were lent: see `_lend`. */
    lend: (client: Queryable, poolId: string, jobIds: readonly string[]) =>
      rows(client, `select ${internal}._lend(${parameters("text", "ids")})`, [poolId, jobIds]),

    /** The leases of these policies as they are, without bidding. A shard with something to do is there without one. */
    leases: (client: Queryable, policies: readonly string[]) =>
      leasesOf(
        client,
        `select * from ${internal}._lease('', ${parameters("texts")}, null, interval '0', false)`,
        [policies],
      ),

    /** What a pool that has started should say: see `_advice`. */
    advice: (client: Queryable, poolId: string, tasks: readonly string[]) =>
      rows<{
        task: string | null;
        policy: string;
        own_version: number | null;
        in_force_version: number;
      }>(client, `select * from ${internal}._advice(${parameters("text", "texts")})`, [poolId, tasks]),

    workerDeclares: (client: Queryable, poolId: string, definitions: object) =>
      rows(client, `select ${internal}._worker_has(${parameters("text", "jsonb")}, null)`, [
        poolId,
        JSON.stringify(definitions),
      ]),

    /** The pool is connected through a pooler in transaction mode. */
    workerPooled: (client: Queryable, poolId: string) =>
      rows(client, `select ${internal}._worker_has(${parameters("text")}, null, true)`, [poolId]),

    workerEnded: (client: Queryable, poolId: string) =>
      rows(client, `select ${internal}._worker_ended(${parameters("text")})`, [poolId]),

    stepDown: (client: Queryable, holder: string) =>
      rows(client, `select ${internal}._step_down(${parameters("text")})`, [holder]),
  };
}
