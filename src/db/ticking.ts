import { numberOf } from "./rows.ts";
import { COMMITS_AT_EASE, type Queryable, type Statements } from "./statements.ts";

export interface Admission {
  claimed: number;
  admitted: number;
  denied: Record<string, number>;
  set_aside: number;
  next_eligible_at: Date | number | null;
  /** The same by the database's clock, from now; -Infinity for "now". */
  next_in_ms: number | null;
  /** A cap over all of the policy is reached, and nothing goes until a job ends; "workers": since they have enough to do. */
  saturated: "gate" | "workers" | null;
  /** Arrivals or notes of room wait for the router. */
  to_route: boolean;
}

export interface Drop {
  /** Null: the job's partition was still to be worked out. */
  partition: string | null;
  reason: "max_pending" | "busy";
  jobs: number;
}

/** The steps of a pass. */
export function ticking({ schema, rows, first }: Statements) {
  return {
    route: async (
      client: Queryable,
      step: { policy: string; shard: string | null; now: Date | null; max: number; bounded: boolean },
    ) => {
      const row = await first<{ routed: number }>(
        client,
        `select ${COMMITS_AT_EASE}, ${schema}._route($1, $2, $3, $4, true, $5) as routed`,
        [step.policy, step.now, step.max, step.bounded, step.shard],
      );
      return row.routed;
    },

    admit: async (
      client: Queryable,
      pass: { policy: string; shard: string | null; claim: number; now: Date | null; bounded: boolean },
    ): Promise<Admission> => {
      const admission = await first<Admission>(
        client,
        // numbers first: before PostgreSQL 17 there is no difference between a time and infinity
        `select a.*, (extract(epoch from a.next_eligible_at) - extract(epoch from pg_catalog.clock_timestamp()))::float8
           * 1000::float8 as next_in_ms, ${COMMITS_AT_EASE}
         from ${schema}._admit($1, $2, $3, $4, $5) a`,
        [pass.policy, pass.shard, pass.claim, pass.now, pass.bounded],
      );
      return { ...admission, next_in_ms: numberOf(admission.next_in_ms) };
    },

    /** Jobs dropped since last asked, counted with their partitions now. */
    takeDrops: (client: Queryable, policy: string) =>
      rows<Drop>(client, `select * from ${schema}._take_drops($1)`, [policy]),
  };
}
