import pg from "pg";
import { declaring } from "./declaring.ts";
import { inSavepoint, inTransaction } from "./isolation.ts";
import { pools } from "./pools.ts";
import { running } from "./running.ts";
import { staging } from "./staging.ts";
import { makeStatements, type Queryable } from "./statements.ts";
import { sweeping } from "./sweeping.ts";
import { ticking } from "./ticking.ts";

export type { Lease } from "./pools.ts";
export type { Attempt, CaughtJob, FinishedJob, HeldSlot, Move, Retry } from "./running.ts";
export type { JobKeyMode, KeylessJob, PartitionState, StageBatch, StagedRow, StageJob } from "./staging.ts";
export type { Queryable } from "./statements.ts";
export type { Admission, Drop } from "./ticking.ts";

/**
 * The functions of one installation's schema, typed. Each is one statement, and computes next to nothing itself: names
 * and operators in its text are looked up by the caller's search_path, which the functions do not rely on.
 */
export type Engine = ReturnType<typeof makeEngine>;

export function makeEngine(schemaName: string) {
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
    ...pools(statements),
    ...sweeping(statements),

    /** Calls a public function by named arguments; those left undefined take their SQL defaults. */
    call: <T>(client: Queryable, name: string, args: Record<string, unknown>) => {
      const given = Object.entries(args).filter(([, value]) => value !== undefined);
      const list = given.map(([key], i) => `${pg.escapeIdentifier(key)} => $${i + 1}`).join(", ");
      return rows<T>(
        client,
        `select * from ${schema}.${pg.escapeIdentifier(name)}(${list})`,
        given.map(([, value]) => value),
      );
    },

    view: <T>(client: Queryable, name: string, where = "", values: unknown[] = []) =>
      rowsAsIs<T>(client, `select * from ${schema}.${pg.escapeIdentifier(name)} ${where}`, values),
  };
}
