import { parameter, parameters } from "./parameters.ts";
import { interval, type Queryable, type Statements } from "./statements.ts";

/** Tables whose rows are kept for some time. */
type Kept = "audit" | "minutes" | "load" | "history" | "waits" | "events";

/** The place behind which a page of the history begins. */
export interface HistoryPlace {
  readonly policy_id: number | null;
  readonly staged_id: string | null;
}

/** A sweep deletes what is no longer used. Each is one call and one transaction. */
export function collecting({ internal, rows, first, count }: Statements) {
  return {
    /** Parked jobs that a job of the same key replaced, which has gone since. */
    sweepReplaced: (client: Queryable) => count(client, "_sweep_replaced()"),

    forgetCopied: (client: Queryable) => rows(client, `select ${internal}._forget_copied()`),

    /** Forgets job keys whose time is over. Returns how many rows it has looked at. */
    forgetKeys: (client: Queryable) => count(client, "_forget_keys(pg_catalog.clock_timestamp())"),

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

    /**
     * Ends the history of jobs whose end no release has seen, on a page of those that have not ended. Returns the place of the
     * next page; its `staged_id` is null if there is none.
     */
    closeHistory: (client: Queryable, { policy_id, staged_id }: HistoryPlace) =>
      first<HistoryPlace>(
        client,
        `select policy_id, staged_id from ${internal}._close_history(pg_catalog.clock_timestamp(), ${parameters("int", "id")})`,
        [policy_id, staged_id],
      ),

    /**
     * Ends in their groups jobs whose end no release has seen, on a page of those that have not ended. Returns the place of the
     * next page; null if there is none.
     */
    closeGroups: (client: Queryable, after: string) =>
      first<{ staged_id: string | null }>(
        client,
        `select staged_id from ${internal}._close_groups(${parameters("id")})`,
        [after],
      ),

    /**
     * Rows of a table that are too old. How long those of the audit and of minutes are kept, the caller says; of the others each
     * policy does. It may leave some: 0 says that none is left.
     */
    collectOld: (client: Queryable, table: Kept, keptForMs?: number) =>
      count(
        client,
        `_collect_old(${parameters("text")}, pg_catalog.clock_timestamp(), ${parameter(2, "interval")})`,
        [table, keptForMs === undefined ? null : interval(keptForMs)],
      ),
  };
}
