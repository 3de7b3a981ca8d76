import type { TickResult } from "../admit/tick.ts";
import type { PolicyUtils } from "../host/policy-utils.ts";

/** One admission pass as if the database clock showed `now`. */
export function tickAt(
  utils: Pick<PolicyUtils, "tick">,
  now: Date,
  target: { policy?: string | undefined; shard?: string | undefined } = {},
): Promise<TickResult> {
  return utils.tick({ ...target, now });
}

/** Ticks until a pass admits nothing. Returns how many jobs it admitted. With `now`, all passes have the same time. */
export async function admitUntilIdle(
  utils: Pick<PolicyUtils, "tick">,
  options: { policy?: string | undefined; shard?: string | undefined; now?: Date | undefined } = {},
): Promise<number> {
  let admitted = 0;
  for (;;) {
    const pass = await utils.tick(options);
    if (pass.admitted === 0) return admitted;
    admitted += pass.admitted;
  }
}

/** Jobs in flight, by policy. */
export async function inFlightCounts(utils: Pick<PolicyUtils, "status">): Promise<Record<string, number>> {
  const { policies } = await utils.status();
  return Object.fromEntries(policies.map(({ policy, inFlight }) => [policy, inFlight]));
}
