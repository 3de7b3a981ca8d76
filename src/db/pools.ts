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
);

/** Worker pools and their leases. It is long because it is a list: a method a statement. */
export function pools({ internal, rows }: Statements) {
  const leasesOf = async (client: Queryable, text: string, values: unknown[]) =>
    (await rows<Lease>(client, text, values)).map((lease) => ({
      ...lease,
      expires_in_ms: numberOf(lease.expires_in_ms),
      next_in_ms: numberOf(lease.next_in_ms),
    }));
  return {
    /** A pool's heartbeat and its bids for leases. Returns what its loops need to know before they sleep. */
    beat: (
      client: Queryable,
      pool: {
        id: string;
        slots: number;
        tasks: readonly string[];
        host: string;
        pid: number;
        staleAfterMs: number;
        clockBehindMs: number;
      },
      bid: { policies: readonly string[]; shards: readonly string[] | null; ttlMs: number; bids: boolean },
    ) =>
      leasesOf(client, `select * from ${internal}._beat(${BEAT})`, [
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
      ]),

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
