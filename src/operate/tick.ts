import { type Pass, type TickContext, type TickResult, tickOnce } from "../admit/tick.ts";
import { asOurs } from "./call.ts";
import { checkVerb } from "./verb.ts";

/** A tick ends after so many batches of arrivals, whatever is left. */
const MOST_PASSES = 20;

/** The options of `tick`. */
export interface TickOptions {
  /** The only policy to tick. Default: all. An unknown one is an {@link UnknownPolicyError}. */
  policy?: string | undefined;
  /** The only shard to tick. Default: all. */
  shard?: string | undefined;
  /** For tests: replaces the database's clock. */
  now?: Date | undefined;
}

/** Documented at {@link Operate.tick}. */
export async function tick(context: TickContext, options: TickOptions = {}): Promise<TickResult> {
  checkVerb("tick", options, { takes: ["policy", "shard", "now"] });
  const { policy, shard, now } = options;
  const total: TickResult = {
    ...{ claimed: 0, admitted: 0, denied: {}, dropped: 0 },
    ...{ durationMs: 0, nextEligibleAt: null },
  };
  const names = policy === undefined ? await context.withPgClient(context.engine.policyNames) : [policy];
  for (const name of names) {
    const request = { policy: name, shard: shard ?? null, now: now ?? null, bounded: false };
    let pass: Pass;
    let passes = 0;
    do {
      pass = await asOurs(() => tickOnce(context, request), context);
      total.claimed += pass.claimed;
      total.admitted += pass.admitted;
      total.dropped += pass.dropped;
      total.durationMs += pass.durationMs;
      for (const [reason, n] of Object.entries(pass.denied))
        total.denied[reason] = (total.denied[reason] ?? 0) + n;
      passes++;
      // nothing went, but a job that may go can be among the arrivals that are left: a caller would take that for the end
    } while (pass.full && pass.admitted === 0 && passes < MOST_PASSES);
    const next = pass.nextEligibleAt;
    if (next && (!total.nextEligibleAt || next < total.nextEligibleAt)) total.nextEligibleAt = next;
  }
  return total;
}
