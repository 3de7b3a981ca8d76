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

/** Worker pools and who leads. */
export function pools({ schema, rowsAsIs, rows }: Statements) {
  const leasesOf = async (client: Queryable, text: string, values: unknown[]) =>
    (await rows<Lease>(client, text, values)).map((lease) => ({
      ...lease,
      expires_in_ms: numberOf(lease.expires_in_ms),
      next_in_ms: numberOf(lease.next_in_ms),
    }));
  return {
    /** A pool's heartbeat, its bids for leases, and what its loops need to know before they sleep. */
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
      leasesOf(client, `select * from ${schema}._beat($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, [
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

    /** The leases of these policies as they are, without bidding. */
    leases: (client: Queryable, policies: readonly string[]) =>
      leasesOf(client, `select * from ${schema}._lease('', $1, null, interval '0', false)`, [policies]),

    workerGone: (client: Queryable, poolId: string) =>
      rows(client, `select ${schema}._worker_gone($1)`, [poolId]),

    stepDown: (client: Queryable, holder: string) =>
      rows(client, `select ${schema}._step_down($1)`, [holder]),

    /** How far the clock here is behind the database's, and how wrong that may be, both in milliseconds. */
    clockBehindMs: async (client: Queryable) => {
      const asked = Date.now();
      // a select without "from" returns one row always
      const [{ seconds }] = (await rowsAsIs(
        client,
        "select extract(epoch from pg_catalog.clock_timestamp())::float8 as seconds",
      )) as [{ seconds: number }];
      const answered = Date.now();
      return {
        behindMs: Math.round(seconds * 1000 - (asked + answered) / 2),
        errorMs: Math.ceil((answered - asked) / 2),
      };
    },

    /** Ends what a backend does for this package, and nothing else. */
    cancel: (client: Queryable, pid: number) =>
      rowsAsIs(
        client,
        `select pg_catalog.pg_cancel_backend(pid) from pg_catalog.pg_stat_activity
         where pid = $1 and state = 'active' and usename = current_user and datname = pg_catalog.current_database()
           and pg_catalog.strpos(query, $2) > 0`,
        [pid, `${schema}._`],
      ),
  };
}
