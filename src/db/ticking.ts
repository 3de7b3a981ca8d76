import { parameter, parameters } from "./parameters.ts";
import { numberOf } from "./rows.ts";
import { COMMITS_AT_EASE, type Queryable, type Statements } from "./statements.ts";

export interface Admission {
  /**
   * How many arrivals the pass has routed, if it was to. -1: another router is at work. Null: nothing has happened, because
   * many wait for the router, or what it does takes a transaction of its own.
   */
  routed: number | null;
  claimed: number;
  /** Limiters whose waiters it has looked at, and nobody has to look again at once. */
  served: number;
  admitted: number;
  denied: Record<string, number>;
  quarantined: number;
  next_eligible_at: Date | number | null;
  /** The same as milliseconds from now, by the database's clock. -Infinity: now. */
  next_in_ms: number | null;
  /** A cap over the whole policy is full: no job goes until one ends. "workers": the workers have enough to do. */
  saturated: "gate" | "workers" | null;
  /** Arrivals wait for the router. */
  to_route: boolean;
  /** Jobs wait whose partitions a process that has the policy works out. */
  to_key: boolean;
  /** Events wait for somebody who reads them. */
  to_tell: boolean;
}

export interface Drop {
  /** Null: the job's partition was not worked out yet. */
  partition: string | null;
  reason: "max_pending" | "busy" | "expired" | "unique";
  jobs: number;
}

export interface PassRequest {
  readonly policy: string;
  readonly shard: string | null;
  readonly claim: number;
  readonly now: Date | null;
  readonly bounded: boolean;
  /** Whether the pass routes few arrivals itself. */
  readonly routes: boolean;
}

/** The steps of a pass. */
export function ticking({ internal, rows, first }: Statements) {
  /** Clients whose sessions have admitted jobs before. Only workers' passes are to be in time from the first one on. */
  const warm = new WeakSet<Queryable>();

  async function admitBy(client: Queryable, step: "_admit" | "_admit_cold", pass: PassRequest) {
    const admission = await first<Admission>(
      client,
      // as numbers, because before PostgreSQL 17 infinity cannot be subtracted from a time
      `select a.*, (extract(epoch from a.next_eligible_at) - extract(epoch from pg_catalog.clock_timestamp()))::float8
         * 1000::float8 as next_in_ms, ${internal}._is_to_key(${parameter(1, "text")}) as to_key,
         ${internal}._is_to_tell(${parameter(1, "text")}) as to_tell, ${COMMITS_AT_EASE}
       from ${internal}.${step}(${parameters("text", "text", "int", "time", "boolean")}, true, ${parameter(6, "boolean")}) a`,
      [pass.policy, pass.shard, pass.claim, pass.now, pass.bounded, pass.routes],
    );
    return { ...admission, next_in_ms: numberOf(admission.next_in_ms) };
  }

  return {
    route: async (client: Queryable, step: { policy: string; now: Date | null; max: number }) => {
      const row = await first<{ routed: number }>(
        client,
        `select ${COMMITS_AT_EASE}, ${internal}._route(${parameters("text", "time", "int")}) as routed`,
        [step.policy, step.now, step.max],
      );
      return row.routed;
    },

    admit: async (client: Queryable, pass: PassRequest): Promise<Admission> => {
      const isCold = pass.bounded && !pass.now && !warm.has(client);
      const cold = isCold ? await admitBy(client, "_admit_cold", pass) : null;
      if (cold?.admitted === 0) return cold; // null: rolled back
      const admission = await admitBy(client, "_admit", pass);
      if (admission.admitted > 0) warm.add(client);
      return admission;
    },

    /** The crontab's tick has ticked these policies. */
    crontabTicked: (client: Queryable, policies: readonly string[]) =>
      rows(client, `select ${internal}._crontab_ticked(${parameters("texts")})`, [policies]),

    /** Policies of which somebody has to read what happened. */
    policiesWithEvents: async (client: Queryable) =>
      (
        await rows<{ name: string }>(
          client,
          `select p.name from ${internal}.policies p
           where exists (select from ${internal}.events e where e.policy_id operator(pg_catalog.=) p.id) order by p.id`,
        )
      ).map(({ name }) => name),

    /**
     * Reads what happened, for the history, job groups and keys. With `drops` it returns the jobs that were dropped since the
     * last such call. `more`: there may be more to read.
     */
    consumeEvents: async (client: Queryable, policy: string, drops: boolean) => {
      const read = await first<{ more: boolean; drops: readonly Drop[] | null }>(
        client,
        `select more, drops from ${internal}._consume_events(${parameters("text", "boolean")})`,
        [policy, drops],
      );
      return { more: read.more, drops: read.drops ?? [] };
    },
  };
}
