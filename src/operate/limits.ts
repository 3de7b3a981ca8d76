import { checkOptions, optional, positiveDuration } from "../checks/options.ts";
import { type Duration, durationSeconds } from "../duration.ts";
import { call, checkPolicy, type OperateContext } from "./call.ts";
import { type Changed, checkVerb, type LimiterTarget, type Why } from "./targets.ts";

/** New values for a limit; those left out stay. */
export type LimitValues = {
  rate?: number;
  per?: string;
  burst?: number;
  max?: number;
  initialMax?: number;
  targetLagMs?: number;
  min?: number;
};

const COLUMNS: Record<keyof LimitValues, string> = {
  rate: "rate",
  per: "per",
  burst: "burst",
  max: "max",
  initialMax: "initial_max",
  targetLagMs: "target_lag_ms",
  min: "min",
};

/**
 * An operator's temporary limit, in force from its commit (or `from`) until `until` or {@link clearLimit}. From its
 * beginning it replaces an earlier one of the same target, also one that was to begin before its end; one of a key goes
 * before one of all keys.
 *
 * A key that no job has had yet may be given: the limit holds once one has. `matched` is 0 then, and so it is for a key that
 * is misspelt.
 *
 * @throws {ArgumentError} when the policy has no such gate, or the gate no such value, or `until` is over
 * @example await utils.setLimit({ policy: "fetch_endpoint", gate: "account", key: "acct:1", set: { max: 0 }, by: "ana" });
 */
export async function setLimit(
  context: OperateContext,
  options: LimiterTarget & { set: LimitValues; from?: Date | undefined; until?: Date | undefined } & Why,
): Promise<Changed> {
  checkVerb("setLimit", options, {
    needs: ["policy", "gate", "set"],
    takes: ["key", "from", "until", "reason", "by"],
  });
  const { set, ...rest } = options;
  checkOptions("setLimit: set", set, Object.keys(COLUMNS));
  optional("setLimit: set.per", set.per, positiveDuration);
  const given = Object.entries(set).filter(([, value]) => value !== undefined);
  const columns = given.map(([key, value]) => [
    COLUMNS[key as keyof LimitValues],
    key === "per" ? durationSeconds(value as Duration) : value,
  ]);
  return call<Changed>(context, "set_limit", { ...rest, set: JSON.stringify(Object.fromEntries(columns)) });
}

/** Takes overrides back, with the same target they were set with: the one in force, and those to come. */
export async function clearLimit(context: OperateContext, options: LimiterTarget & Why): Promise<Changed> {
  checkVerb("clearLimit", options, { needs: ["policy", "gate"], takes: ["key", "reason", "by"] });
  return call<Changed>(context, "clear_limit", { ...options });
}

/** An override as it stands: a row of the view `overrides`. */
export interface Override {
  policy: string;
  gate: string;
  /** The scope key; null: every key of the gate. */
  key: string | null;
  /** The values that were set, as `setLimit` takes them. */
  override: LimitValues;
  /** When it begins; null: when it was set. */
  from: Date | null;
  /** When it ends; null: with `clearLimit`. */
  until: Date | null;
  /** Who set it. */
  by: string | null;
  /** Why they did. */
  reason: string | null;
}

/**
 * The overrides in force or to come.
 *
 * @throws {UnknownPolicyError} for a policy nobody declared, listing the known ones
 */
export async function limits(
  { withPgClient, engine }: OperateContext,
  options: { policy?: string | undefined } = {},
): Promise<readonly Override[]> {
  checkVerb("limits", options, { takes: ["policy"] });
  const { policy } = options;
  const rows = await withPgClient(async (client) => {
    await checkPolicy(client, engine, policy);
    return engine.view<Override & { set: Record<string, number> }>(
      client,
      "overrides",
      `where $1::text is null or policy = $1 order by policy, gate, key, "from" nulls first`,
      [policy ?? null],
    );
  });
  return rows.map(({ set, ...row }): Override => ({ ...row, override: asOptions(set) }));
}

function asOptions(set: Record<string, number>): LimitValues {
  const names = Object.entries(COLUMNS).filter(([, column]) => column in set);
  return Object.fromEntries(
    names.map(([name, column]) => [name, name === "per" ? `${set[column]} seconds` : set[column]]),
  );
}
