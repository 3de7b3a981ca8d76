import { type Engine, parameter, type Queryable } from "../db/engine.ts";
import { checkPolicy, type OperateContext } from "./call.ts";
import { spelled } from "./rows.ts";
import { checkVerb } from "./verb.ts";

/** What stops jobs by name: a row of the view `stops`. */
export interface StopInForce {
  /** Null: all policies, also those that are declared later. */
  policy: string | null;
  /** The key of the partition; null: the whole policy. */
  partition: string | null;
  kind: "pause" | "hold" | "breaker";
  /** When it was stopped last; of a breaker when it opened last. */
  since: Date;
  /** When it ends; null: it lasts until `resume`. */
  until: Date | null;
  /** Who stopped it. */
  by: string | null;
  /** Why they did. */
  reason: string | null;
  /** False: no job of the partition has come yet. The stop waits for the first. */
  seen: boolean;
}

/** Documented at {@link Operate.stops}. */
export async function stops(
  { withPgClient, engine }: OperateContext,
  options: { policy?: string | undefined } = {},
): Promise<readonly StopInForce[]> {
  checkVerb("stops", options, { takes: ["policy"] });
  const { policy } = options;
  const asked = parameter(1, "text");
  return withPgClient(async (client) => {
    await checkPolicy(client, engine, policy);
    return stopsOf(
      client,
      engine,
      `where ${asked} is null or policy is null or policy = ${asked}
       order by policy nulls first, partition nulls first, kind`,
      [policy ?? null],
    );
  });
}

/** Rows of the view. */
export async function stopsOf(
  client: Queryable,
  engine: Engine,
  where: string,
  values: unknown[],
): Promise<readonly StopInForce[]> {
  return (await engine.view<object>(client, "stops", where, values)).map((row) => spelled<StopInForce>(row));
}
