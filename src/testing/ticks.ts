import type { PolicyUtils, TickResult } from "../index.ts";

/**
 * One admission pass as if the database clock showed `now`. Only the owner of the schema may give a time.
 *
 * @throws {ArgumentError} if the role is not the one that owns the schema
 * @throws {UnknownPolicyError} for a policy nobody declared
 * @example const { admitted, denied } = await tickAt(utils, new Date(Date.now() + 60_000), { policy: "fetch_endpoint" });
 */
export function tickAt(
  utils: Pick<PolicyUtils, "tick">,
  now: Date,
  target: { policy?: string | undefined; shard?: string | undefined } = {},
): Promise<TickResult> {
  return utils.tick({ ...target, now });
}

/**
 * Ticks until a pass admits nothing. Returns how many jobs it admitted. With `now`, all passes have the same time.
 *
 * @throws {ArgumentError} as {@link tickAt}
 * @example const admitted = await admitUntilIdle(utils, { policy: "fetch_endpoint" });
 */
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

/**
 * How many jobs are in flight, by policy.
 *
 * @example const { fetch_endpoint: inFlight } = await inFlightCounts(utils);
 */
export async function inFlightCounts(utils: Pick<PolicyUtils, "status">): Promise<Record<string, number>> {
  const { policies } = await utils.status();
  return Object.fromEntries(policies.map(({ policy, inFlight }) => [policy, inFlight]));
}
