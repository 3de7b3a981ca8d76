import { call, type OperateContext } from "./call.ts";
import { checkVerb, type LimiterTarget } from "./targets.ts";

/** What a partner says of its limit. */
export type Remaining = {
  /** What is left of the partner's limit, in tokens of the throttle: 0 to 1e12. */
  remaining: number;
  /**
   * When the partner's limit is whole again. No more than `remaining` goes until then. Default, and null: the partner does
   * not say it, and the throttle gains by its own numbers from now on.
   */
  resetAt?: Date | null | undefined;
};

/** What `sync` has made of a throttle. */
export interface Synced {
  /** False: the throttle had no more than that, or another transaction has it locked. */
  lowered: boolean;
  /** What it has now; below 0 it is in debt. Null: another transaction has it locked. */
  tokens: number | null;
}

/** Documented at {@link Operate.sync}. */
export async function sync(context: OperateContext, options: LimiterTarget & Remaining): Promise<Synced> {
  const { resetAt, ...others } = options;
  const given = { ...others, resetAt: resetAt ?? undefined };
  checkVerb("sync", given, { needs: ["policy", "gate", "remaining"], takes: ["key", "resetAt"] });
  return call<Synced>(context, "sync", { ...others, reset_at: given.resetAt });
}
