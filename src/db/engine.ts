import pg from "pg";
import { collecting } from "./collecting.ts";
import { declaring } from "./declaring.ts";
import { exporting } from "./exporting.ts";
import { inSavepoint, inTransaction } from "./isolation.ts";
import { overview } from "./overview.ts";
import { ARGUMENTS, type Arguments, parameter } from "./parameters.ts";
import { pools } from "./pools.ts";
import { releasing } from "./releasing.ts";
import { rollingUp } from "./rolling-up.ts";
import { running } from "./running.ts";
import { server } from "./server.ts";
import { staging } from "./staging.ts";
import { makeStatements, type Queryable } from "./statements.ts";
import { sweeping } from "./sweeping.ts";
import { ticking } from "./ticking.ts";

export type { ExportedRow } from "./exporting.ts";
export { type Arguments, parameter } from "./parameters.ts";
export type { EndedJob, Lease, SaidRun } from "./pools.ts";
export type { FinishedJob, Move, Retry, Settled } from "./releasing.ts";
export type { LoadRow, RecordedLoad, RecordedOverride, RecordedPartition } from "./rolling-up.ts";
export type { Attempt, CaughtJob, OccupiedSlot, Share } from "./running.ts";
export type {
  GroupCallback,
  JobKeyMode,
  KeylessJob,
  PartitionState,
  StageBatch,
  StagedRow,
  StageJob,
} from "./staging.ts";
export type { Queryable } from "./statements.ts";
export type { LookedPage, LostSlot, OldSnapshot } from "./sweeping.ts";
export type { Admission, Drop } from "./ticking.ts";

/**
 * The functions of one installation's schema, typed. Each is one statement, with hardly any computation, because
 * PostgreSQL resolves its names and operators by the caller's search_path. The SQL functions have a fixed one.
 */
export type Engine = ReturnType<typeof newEngine>;

const engines = new Map<string, Engine>();

/** One for each schema: some 90 functions, and {@link addPolicyJob} asks for them at each call. */
export function makeEngine(schemaName: string): Engine {
  const engine = engines.get(schemaName) ?? newEngine(schemaName);
  engines.set(schemaName, engine);
  return engine;
}

/**
 * True, and until the end of the transaction the setting has the parameter of this place: see the function `_audit`. Who
 * sends the same form at the same time waits: else one that found all locked might be the one that counts. A form's name is
 * random, so nobody else can have taken the lock.
 */
function setForm(place: number): string {
  const form = parameter(place, "text");
  return `pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(${form}, 0)) is not null and pg_catalog.set_config('dispatch_policy.form', ${form}, true) is not null`;
}

function newEngine(schemaName: string) {
  const statements = makeStatements(schemaName);
  const { schema, rowsAsIs, rows } = statements;
  return {
    schemaName,
    inTransaction,
    inSavepoint,
    ...declaring(statements),
    ...staging(statements),
    ...ticking(statements),
    ...running(statements),
    ...releasing(statements),
    ...pools(statements),
    ...sweeping(statements),
    ...collecting(statements),
    ...server(statements),
    ...overview(statements),
    ...exporting(statements),
    ...rollingUp(statements),

    /**
     * Calls a public function by named arguments; those left undefined take their SQL defaults. The row that it leaves in the
     * audit has the `form`. That goes along within an argument, because arguments are worked out before the function runs.
     */
    call: <T>(client: Queryable, name: string, args: Arguments, form?: string) => {
      const given = (Object.entries(args) as [keyof Arguments, unknown][]).filter(
        ([, value]) => value !== undefined,
      );
      const values = given.map(([, value]) => value);
      const list = given.map(([arg], i) => {
        const value = parameter(i + 1, ARGUMENTS[arg]);
        return `${pg.escapeIdentifier(arg)} => ${arg === "by" && form ? `case when ${setForm(values.push(form))} then ${value} end` : value}`;
      });
      return rows<T>(
        client,
        `select * from ${schema}.${pg.escapeIdentifier(name)}(${list.join(", ")})`,
        values,
      );
    },

    /** Runs a statement as it stands. */
    ask: <T>(client: Queryable, text: string, values: unknown[]) => rowsAsIs<T>(client, text, values),

    view: <T>(client: Queryable, name: string, where = "", values: unknown[] = [], columns = "*") =>
      rowsAsIs<T>(client, `select ${columns} from ${schema}.${pg.escapeIdentifier(name)} ${where}`, values),
  };
}
