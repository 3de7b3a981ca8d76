import { parameter } from "./parameters.ts";
import type { Queryable, Statements } from "./statements.ts";

/** A staged job as it is exported. */
export interface ExportedRow {
  readonly id: string;
  readonly policy: string | null;
  readonly partition: string | null;
  readonly identifier: string;
  /** As JSON, with all digits of its numbers. Null: Graphile Worker has the job no longer. */
  readonly payload: string | null;
  readonly queue_name: string | null;
  readonly run_at: Date | number;
  readonly max_attempts: number | null;
  readonly job_key: string | null;
  readonly priority: number;
  readonly flags: string[] | null;
  readonly created_at: Date;
  readonly attempts: number;
  readonly last_error: string | null;
  readonly expires_at: Date | null;
}

/** What a page of exported jobs is asked with: values that are undefined take their SQL defaults. */
export interface ExportedPage {
  readonly policy: string | undefined;
  readonly partition: string | undefined;
  readonly ids: readonly string[] | undefined;
  readonly after: string;
  readonly reason: string | undefined;
  readonly by: string | undefined;
}

export function exporting({ schema, rows }: Statements) {
  return {
    /** A page of staged jobs. JavaScript reads integers beyond 2^53 as other numbers, so payloads are texts. */
    exportedPage: (client: Queryable, { policy, partition, ids, after, reason, by }: ExportedPage) =>
      rows<ExportedRow>(
        client,
        `select e.id, e.policy, e.partition, e.identifier, e.payload::pg_catalog.text as payload, e.queue_name, e.run_at,
           e.max_attempts, e.job_key, e.priority, e.flags, e.created_at, e.attempts, e.last_error, e.expires_at
         from ${schema}.export(${parameter(1, "text")}, ${parameter(2, "text")}, ${parameter(3, "ids")},
           ${parameter(4, "id")}, 500, ${parameter(5, "text")}, ${parameter(6, "text")}) e order by e.id`,
        [policy ?? null, partition ?? null, ids ?? null, after, reason ?? null, by ?? null],
      ),
  };
}
