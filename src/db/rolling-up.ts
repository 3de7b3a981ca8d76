import type { PolicyDefinition } from "../policy/policy.ts";
import { parameter, parameters } from "./parameters.ts";
import type { PartitionState } from "./staging.ts";
import type { Queryable, Statements } from "./statements.ts";

/** One number of a metric: a row of the SQL function `metrics`. */
export interface Figure {
  /** Without the prefix of all metrics. */
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** What the SQL function `recorded_load` returns. Times are texts, as JSON has them. */
export interface RecordedLoad {
  readonly now: string;
  readonly from: string;
  readonly definition: PolicyDefinition;
  readonly settings: object;
  /** Seconds that 101 runs took, from the shortest to the longest: quantiles. Empty: none ended. */
  readonly runs: readonly number[];
  readonly load: readonly LoadRow[];
  readonly partitions: readonly RecordedPartition[];
  readonly overrides: readonly RecordedOverride[];
}

/** The load of a partition in a minute. */
export interface LoadRow {
  readonly minute: string;
  /** The id of its partition; the zero uuid: of all others. */
  readonly row: string;
  /** The seconds of the minute in which jobs came. */
  readonly seconds: readonly number[];
  /** How many jobs came in each of these. */
  readonly came: readonly number[];
  /** Tokens that they take together. */
  readonly cost: number;
  readonly admitted: number;
  readonly ended: number;
  readonly runSeconds: number;
}

export interface RecordedPartition extends PartitionState {
  readonly row: string;
  /** Jobs in staging. */
  readonly waiting: number;
}

export interface RecordedOverride {
  readonly gate: string;
  readonly key: string | null;
  readonly where: object | null;
  readonly set: object;
  readonly from: string | null;
  readonly until: string | null;
  readonly setAt: string;
}

/** What passes and releases have done: figures by minute, and totals. */
export function rollingUp({ schema, internal, rows, rowsAsIs, first, count }: Statements) {
  return {
    /** Returns how many rows were folded. `most` or more: more are left. */
    foldActivity: (client: Queryable, most: number) =>
      count(client, `_fold_activity(${parameter(1, "int")})`, [most]),

    countRepairs: (client: Queryable, repaired: Readonly<Record<string, number>>) =>
      rows(client, `select ${internal}._count_repairs(${parameter(1, "json")}::pg_catalog.jsonb)`, [
        JSON.stringify(repaired),
      ]),

    /** What diff replays. Null: the policy records no load. */
    recordedLoad: async (client: Queryable, policy: string, seconds: number) =>
      (
        await first<{ recorded: RecordedLoad | null }>(
          client,
          `select ${schema}.recorded_load(${parameters("text", "number")}) as recorded`,
          [policy, seconds],
        )
      ).recorded,

    figures: (client: Queryable) =>
      rowsAsIs<Figure>(client, `select name, labels, value from ${schema}.metrics()`),
  };
}
