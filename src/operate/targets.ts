import { ArgumentError } from "../errors.ts";
import { show } from "../gates/options.ts";

export type PolicyTarget = { policy: string; partition?: string };
/** `{ all: true }` has to be said: `{ policy: undefined }` must never pause the world. */
export type Target = PolicyTarget | { all: true };
export type PartitionTarget = { policy: string; partition: string };
/** For the audit: why, and who (default: the database user). */
export type Why = { reason?: string; by?: string };
export type Until = { until: Date } | { forMs: number };
/** Which limiter: `key` is the scope key; without it the policy-wide gate, or every key of a keyed one. */
export type LimiterTarget = { policy: string; gate: string; key?: string };
/** What a verb found, and what it changed. */
export interface Changed {
  matched: number;
  changed: number;
}

/** @throws {ArgumentError} unless the target names a policy or says all */
export function checkTarget(verb: string, target: Target): void {
  const { policy, all } = target as { policy?: unknown; all?: unknown };
  if ((typeof policy === "string") === (all === true)) {
    throw new ArgumentError(
      `${verb}: expected { policy } or { all: true }, got policy ${show(policy)}, all ${show(all)}`,
    );
  }
}

/** As SQL takes it: a length counts by the database's clock, whatever the clock here says. */
export function endOf(verb: string, until: Until): { until: Date } | { for: string } {
  if ("until" in until && until.until instanceof Date && !Number.isNaN(until.until.getTime()))
    return { until: until.until };
  if ("forMs" in until && Number.isFinite(until.forMs) && until.forMs > 0)
    return { for: `${until.forMs} milliseconds` };
  throw new ArgumentError(
    `${verb}: expected { until: Date } or { forMs: more than 0 }, got ${JSON.stringify(until)}`,
  );
}
