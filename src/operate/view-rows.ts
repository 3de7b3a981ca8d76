import { parameter, type Queryable } from "../db/engine.ts";
import { answered, checkPolicy, type OperateContext } from "./call.ts";
import { spelled } from "./rows.ts";

/** For the clause of a view: see {@link rowsOf}. */
export { parameter };

/** A row of the view `jobs`. */
export interface JobRow {
  readonly id: string;
  readonly state: string;
  readonly taskIdentifier: string;
  readonly policy: string | null;
  readonly partition: string | null;
  readonly runAt: Date | null;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly lastError: string | null;
}

/** The states of jobs in that view. */
export const JOB_STATES: readonly string[] = ["staged", "parked", "ready", "running", "failed"];

/** A row of the view `audit`. */
export interface AuditRow {
  readonly id: string;
  readonly at: Date;
  readonly verb: string;
  readonly policy: string | null;
  readonly partition: string | null;
  readonly gate: string | null;
  readonly scopeKey: string | null;
  /** What else was asked for, by the names of SQL. */
  readonly detail: Readonly<Record<string, unknown>>;
  readonly reason: string | null;
  readonly by: string;
  readonly matched: number;
  readonly changed: number;
  readonly form: string | null;
}

/**
 * Rows of a view, with their columns in camelCase.
 *
 * @param policy the policy that was asked for, which must be known. Default: none was
 * @param columns as SQL names them. Default: all
 * @throws {UnknownPolicyError} for a policy that nobody declared
 */
export async function rowsOf<Row>(
  { engine, withPgClient }: OperateContext,
  view: string,
  where: string,
  values: readonly unknown[] = [],
  policy?: string,
  columns?: string,
): Promise<readonly Row[]> {
  const rows = await withPgClient(async (client) => {
    await checkPolicy(client, engine, policy);
    return engine.view<object>(client, view, where, [...values], columns);
  });
  return rows.map((row) => spelled<Row>(row));
}

/** Rows of a function that only looks, with their columns in camelCase. */
export async function rowsBy<Row>(
  context: OperateContext,
  ask: (client: Queryable) => Promise<readonly object[]>,
): Promise<readonly Row[]> {
  return (await answered(context, ask)).map((row) => spelled<Row>(row));
}
