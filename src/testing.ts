import type { TickResult } from "./admit/tick.ts";
import type { PolicyUtils } from "./host/policy-utils.ts";

/** A clock that stands still until a test moves it. Pass its `now` to ticks. */
export interface FixedClock {
  readonly now: Date;
  /** Moves the clock forward by this many milliseconds, and returns the new time. */
  advance(ms: number): Date;
}

/**
 * A clock for tests of policies over time.
 *
 * @example
 * const clock = fixedClock();
 * await tickAt(utils, clock.advance(60_000));
 */
export function fixedClock(start: Date = new Date()): FixedClock {
  let now = new Date(start);
  return {
    get now() {
      return new Date(now);
    },
    advance(ms) {
      now = new Date(now.getTime() + ms);
      return new Date(now);
    },
  };
}

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
