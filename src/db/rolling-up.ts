import { parameter } from "./parameters.ts";
import { interval, type Queryable, type Statements } from "./statements.ts";

/** A figure of the SQL function `metrics`. */
export interface Figure {
  /** Without the prefix of all metrics. */
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** What passes and releases have done: figures by minute, and totals. */
export function rollingUp({ schema, rows, rowsAsIs, count }: Statements) {
  return {
    /** Returns how many rows were folded. `most` or more: more are left. */
    foldActivity: (client: Queryable, most: number) =>
      count(client, `_fold_activity(${parameter(1, "int")})`, [most]),

    collectMinutes: (client: Queryable, keptForMs: number) =>
      count(client, `_collect_minutes(pg_catalog.clock_timestamp(), ${parameter(1, "interval")})`, [
        interval(keptForMs),
      ]),

    countRepairs: (client: Queryable, repaired: Readonly<Record<string, number>>) =>
      rows(client, `select ${schema}._count_repairs(${parameter(1, "json")}::pg_catalog.jsonb)`, [
        JSON.stringify(repaired),
      ]),

    figures: (client: Queryable) =>
      rowsAsIs<Figure>(client, `select name, labels, value from ${schema}.metrics()`),
  };
}
