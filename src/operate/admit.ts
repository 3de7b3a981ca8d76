import { ArgumentError } from "../errors.ts";
import { call, type OperateContext } from "./call.ts";
import type { Changed, PolicyTarget, Why } from "./targets.ts";

/** Draining goes in steps of this many, and at most so many a call. */
const STEP = 200;
const MOST = 10_000;

export type AdmitOptions = PolicyTarget & ({ count: number } | { drain: true }) & Why & { dryRun?: boolean };

/**
 * Force-admits due jobs past gates, pauses and holds, yet charged: tokens stop at 0, in flight may pass max. Jobs that
 * are not due yet stay; `notDue` counts them. `drain` admits all that is due, at most 10,000 a call.
 *
 * @throws {ArgumentError} when `count` is not 1 or more
 * @example await utils.admit({ policy: "fetch_endpoint", partition: "ep1", count: 5 });
 */
export async function admit(
  context: OperateContext,
  options: AdmitOptions,
): Promise<Changed & { notDue: number }> {
  const { policy, partition, reason, by } = options;
  const count = "drain" in options ? MOST : options.count;
  if (!Number.isSafeInteger(count) || count < 1) {
    throw new ArgumentError(`admit: count must be a whole number, 1 or more, got ${count}`);
  }
  if (options.dryRun) return dryRun(context, { policy, partition, count });
  const total = { matched: 0, changed: 0, notDue: 0 };
  for (let left = count; left > 0; ) {
    const step = Math.min(left, STEP);
    const args = { policy, count: step, partition, reason, by };
    const row = await call<Changed & { not_due: number }>(context, "admit", args);
    total.matched += row.matched;
    total.changed += row.changed;
    total.notDue = row.not_due;
    left -= step;
    if (row.changed < step) break;
  }
  return total;
}

async function dryRun(
  { withPgClient, engine }: OperateContext,
  { policy, partition, count }: { policy: string; partition: string | undefined; count: number },
): Promise<Changed & { notDue: number }> {
  const where = "where policy = $1 and ($2::text is null or partition = $2)";
  const rows = await withPgClient((client) =>
    engine.view<{ reason: string | null }>(client, "staged_jobs", where, [policy, partition ?? null]),
  );
  const notDue = rows.filter((row) => row.reason === "not_due").length;
  return { matched: Math.min(rows.length - notDue, count), changed: 0, notDue };
}
