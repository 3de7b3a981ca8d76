import { checkOptions, optional, positiveDuration } from "../checks/options.ts";
import { parameter } from "../db/engine.ts";
import { type GateOverrides, overridableFields } from "../gates/index.ts";
import { actOf, callOrCount, checkPolicy, type OperateContext, told } from "./call.ts";
import {
  type Changed,
  type ContextValues,
  checkVerb,
  type DryRun,
  type LimitTarget,
  type Reach,
  type Stored,
  type Why,
} from "./targets.ts";

/** New values for a limit. For those that are left out, or undefined, the policy's own apply. */
export type LimitValues = GateOverrides;

/**
 * The options of `setLimit`: a gate, one of its limiters by `key`, or those of some partitions by `where`. They have the numbers
 * from `from` until `until`.
 */
export type SetLimitOptions = LimitTarget & {
  /** The new values: at least one, and only those that the gate's kind has. */
  set: LimitValues;
  /** When it begins. Default: now. */
  from?: Date | undefined;
  /** When it ends. Default: it lasts until `clearLimit`. */
  until?: Date | undefined;
} & Why &
  DryRun;

/** Documented at {@link Operate.setLimit}. */
export async function setLimit(context: OperateContext, options: SetLimitOptions): Promise<Stored & Reach> {
  checkVerb("setLimit", options, {
    needs: ["policy", "gate", "set"],
    takes: ["key", "where", "from", "until", "reason", "by", "dryRun"],
  });
  const { set, where, dryRun, ...rest } = options;
  const numbers = JSON.stringify(columnsOf("setLimit", set));
  const args = { ...rest, where: asJson(where), set: numbers, dry_run: dryRun };
  const changed = await callOrCount<Stored>(context, "set_limit", args);
  if (dryRun) return changed;
  const { from = null, until = null } = rest;
  told(context, "dispatchPolicy:limit", {
    ...limitOf(options),
    ...{ set, from, until },
    ...actOf(changed, options),
  });
  return changed;
}

/**
 * The new values by their names in the database.
 *
 * @throws {ArgumentError} naming the verb and the value. SQL checks whether the gate has it
 */
export function columnsOf(verb: string, set: LimitValues): Readonly<Record<string, unknown>> {
  checkOptions(`${verb}: set`, set, Object.keys(overridableFields));
  optional(`${verb}: set.per`, set.per, positiveDuration);
  const given = Object.entries(overridableFields).flatMap(([option, { column, toColumn }]) => {
    const value = set[option as keyof LimitValues];
    return value === undefined ? [] : [[column, toColumn ? toColumn(value as never) : value] as const];
  });
  return Object.fromEntries(given);
}

/** Documented at {@link Operate.clearLimit}. */
export async function clearLimit(
  context: OperateContext,
  options: LimitTarget & Why & DryRun,
): Promise<Changed & Reach> {
  checkVerb("clearLimit", options, {
    needs: ["policy", "gate"],
    takes: ["key", "where", "reason", "by", "dryRun"],
  });
  const { dryRun, where, ...rest } = options;
  const args = { ...rest, where: asJson(where), dry_run: dryRun };
  const cleared = await callOrCount<Changed>(context, "clear_limit", args);
  if (dryRun) return cleared;
  const nothing = { set: null, from: null, until: null };
  told(context, "dispatchPolicy:limit", { ...limitOf(options), ...nothing, ...actOf(cleared, options) });
  return cleared;
}

function limitOf({ policy, gate, key, where }: LimitTarget) {
  return { policy, gate, key: key ?? null, where: where ?? null };
}

function asJson(where: ContextValues | undefined): string | undefined {
  return where === undefined ? undefined : JSON.stringify(where);
}

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
