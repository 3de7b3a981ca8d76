import { parameter, parameters } from "./parameters.ts";
import { interval, type Queryable, type Statements } from "./statements.ts";

/** A sweep deletes what is no longer used. Each is one call and one transaction. */
export function collecting({ schema, rows, count }: Statements) {
  return {
    /** Parked jobs that a job of the same key replaced, which has gone since. */
    sweepReplaced: (client: Queryable) => count(client, "_sweep_replaced()"),

    forgetTakenOver: (client: Queryable) => rows(client, `select ${schema}._forget_taken_over()`),

    collectPartitions: (client: Queryable, inactiveAfterMs: number) =>
      count(client, `_collect_partitions(pg_catalog.clock_timestamp(), ${parameters("interval")})`, [
        interval(inactiveAfterMs),
      ]),

    collectLimiters: (client: Queryable, inactiveAfterMs: number) =>
      count(client, `_collect_limiters(pg_catalog.clock_timestamp(), ${parameters("interval")})`, [
        interval(inactiveAfterMs),
      ]),

    collectOverrides: (client: Queryable) =>
      count(client, "_collect_overrides(pg_catalog.clock_timestamp())"),

    collectAudit: (client: Queryable, keptForMs: number) =>
      count(client, `_collect_audit(pg_catalog.clock_timestamp(), ${parameter(1, "interval")})`, [
        interval(keptForMs),
      ]),
  };
}
