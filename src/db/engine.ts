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

    /** Calls a public function by named arguments; those left undefined take their SQL defaults. */
    call: <T>(client: Queryable, name: string, args: Arguments) => {
      const given = (Object.entries(args) as [keyof Arguments, unknown][]).filter(
        ([, value]) => value !== undefined,
      );
      const list = given
        .map(([arg], i) => `${pg.escapeIdentifier(arg)} => ${parameter(i + 1, ARGUMENTS[arg])}`)
        .join(", ");
      return rows<T>(
        client,
        `select * from ${schema}.${pg.escapeIdentifier(name)}(${list})`,
        given.map(([, value]) => value),
      );
    },

    /** Runs a statement as it stands. */
    ask: <T>(client: Queryable, text: string, values: unknown[]) => rowsAsIs<T>(client, text, values),

    view: <T>(client: Queryable, name: string, where = "", values: unknown[] = []) =>
      rowsAsIs<T>(client, `select * from ${schema}.${pg.escapeIdentifier(name)} ${where}`, values),
  };
}
