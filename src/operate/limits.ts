import { parameter } from "../db/engine.ts";
import { overridableFields } from "../gates/index.ts";
import { checkPolicy, type OperateContext } from "./call.ts";
import type { ContextValues } from "./targets.ts";
import { checkVerb } from "./verb.ts";
import type { LimitValues } from "./verbs/limits.ts";

/** An override: a row of the view `overrides`. */
export interface Override {
  policy: string;
  gate: string;
  /** The scope key; null: every key of the gate, or those of a context. */
  key: string | null;
  /** The values in the context of the partitions that it applies to; null: it does not go by context. */
  where: ContextValues | null;
  /** The values that were set, as `setLimit` takes them. */
  override: LimitValues;
  /** When it begins; null: when it was set. */
  from: Date | null;
  /** Since when it is in force; null: it is to come. */
  since: Date | null;
  /** When it ends; null: it lasts until `clearLimit`. */
  until: Date | null;
  /** Who set it. */
  by: string | null;
  /** Why they did. */
  reason: string | null;
  /** Whether it is a hold of the key (`hold` with `gate`). At its end the other limits of the key count again. */
  hold: boolean;
  /** False: no job has had the key yet, or it is misspelt. The limit waits for the first. Null: it goes by context. */
  seen: boolean | null;
}

/** Documented at {@link Operate.limits}. */
export async function limits(
  { withPgClient, engine }: OperateContext,
  options: { policy?: string | undefined } = {},
): Promise<readonly Override[]> {
  checkVerb("limits", options, { takes: ["policy"] });
  const { policy } = options;
  const asked = parameter(1, "text");
  const rows = await withPgClient(async (client) => {
    await checkPolicy(client, engine, policy);
    return engine.view<Override & { set: Record<string, number> }>(
      client,
      "overrides",
      `where ${asked} is null or policy = ${asked} order by policy, gate, key, "where", "from" nulls first`,
      [policy ?? null],
    );
  });
  return rows.map(({ set, ...row }): Override => ({ ...row, override: asOptions(set) }));
}

function asOptions(set: Record<string, number>): LimitValues {
  const given = Object.entries(overridableFields).filter(([, { column }]) => column in set);
  return Object.fromEntries(
    given.map(([option, { column }]) => [option, option === "per" ? `${set[column]} seconds` : set[column]]),
  );
}
