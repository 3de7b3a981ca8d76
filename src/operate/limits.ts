import { checkOptions, optional, positiveDuration } from "../checks/options.ts";
import { parameter } from "../db/engine.ts";
import { type GateOverrides, overridableFields } from "../gates/index.ts";
import { actOf, call, checkPolicy, type OperateContext, told } from "./call.ts";
import { type Changed, checkVerb, type LimiterTarget, type Stored, type Why } from "./targets.ts";

/** New values for a limit. Those that are left out, or undefined, do not change. */
export type LimitValues = GateOverrides;

/** The options of `setLimit`: a gate, or one of its limiters by `key`, and the numbers that it has from `from` until `until`. */
export type SetLimitOptions = LimiterTarget & {
  /** The new values: at least one, and only those that the gate's kind has. */
  set: LimitValues;
  /** When it begins. Default: now. */
  from?: Date | undefined;
  /** When it ends. Default: it lasts until `clearLimit`. */
  until?: Date | undefined;
} & Why;

/** Documented at {@link Operate.setLimit}. */
export async function setLimit(context: OperateContext, options: SetLimitOptions): Promise<Stored> {
  checkVerb("setLimit", options, {
    needs: ["policy", "gate", "set"],
    takes: ["key", "from", "until", "reason", "by"],
  });
  const { set, ...rest } = options;
  checkOptions("setLimit: set", set, Object.keys(overridableFields));
  optional("setLimit: set.per", set.per, positiveDuration);
  const columns = Object.entries(overridableFields).map(([option, { column, toColumn }]) => {
    const value = set[option as keyof LimitValues];
    return [column, value === undefined || !toColumn ? value : toColumn(value as never)];
  });
  const args = { ...rest, set: JSON.stringify(Object.fromEntries(columns)) };
  const changed = await call<Stored>(context, "set_limit", args);
  const { policy, gate, key = null, from = null, until = null } = rest;
  const limit = { policy, gate, key, set, from, until };
  told(context, "dispatchPolicy:limit", { ...limit, ...actOf(changed, options) });
  return changed;
}

/** Documented at {@link Operate.clearLimit}. */
export async function clearLimit(context: OperateContext, options: LimiterTarget & Why): Promise<Changed> {
  checkVerb("clearLimit", options, { needs: ["policy", "gate"], takes: ["key", "reason", "by"] });
  const cleared = await call<Changed>(context, "clear_limit", { ...options });
  const { policy, gate, key = null } = options;
  const limit = { policy, gate, key, set: null, from: null, until: null };
  told(context, "dispatchPolicy:limit", { ...limit, ...actOf(cleared, options) });
  return cleared;
}

/** An override: a row of the view `overrides`. */
export interface Override {
  policy: string;
  gate: string;
  /** The scope key; null: every key of the gate. */
  key: string | null;
  /** The values that were set, as `setLimit` takes them. */
  override: LimitValues;
  /** When it begins; null: when it was set. */
  from: Date | null;
  /** When it ends; null: it lasts until `clearLimit`. */
  until: Date | null;
  /** Who set it. */
  by: string | null;
  /** Why they did. */
  reason: string | null;
  /** False: no job has had the key yet, or it is misspelt. The limit waits for the first. */
  seen: boolean;
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
      `where ${asked} is null or policy = ${asked} order by policy, gate, key, "from" nulls first`,
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
