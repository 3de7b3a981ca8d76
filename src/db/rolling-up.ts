import { parameter } from "./parameters.ts";
import type { Queryable, Statements } from "./statements.ts";

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

    countRepairs: (client: Queryable, repaired: Readonly<Record<string, number>>) =>
      rows(client, `select ${schema}._count_repairs(${parameter(1, "json")}::pg_catalog.jsonb)`, [
        JSON.stringify(repaired),
      ]),

    figures: (client: Queryable) =>
      rowsAsIs<Figure>(client, `select name, labels, value from ${schema}.metrics()`),
  };
}
