import { POLICY } from "./limits.ts";
import type { Visit } from "./policy.ts";

/** One endpoint's share of the storm: all of its jobs come at once. */
export interface Burst {
  readonly endpoint: number;
  /** Seconds after the storm began. */
  readonly at: number;
  readonly visits: readonly Visit[];
}

/** More of them would not end in the time of a run. */
export const MOST = { endpoints: 1000, loudest: 2000 } as const;
const BUSY_AT_ONCE = 20;
/** One endpoint in five is loud. */
const LOUD_SHARE = 0.2;
/** From an endpoint's last start to its quiet, generously. */
const SETTLING_SECONDS = 2;

/**
 * The k-th of the loud endpoints gets 1 / k^0.8 of what the loudest gets; each of the others 1 to 5 jobs, no more than
 * may go at once. Each comes when one of 20 places is free, and keeps it for as long as its allowed rate takes: more
 * are never busy at a time, so that 100 worker slots are enough.
 */
export function makeStorm(endpoints: number, loudest: number): Burst[] {
  const places = Array.from({ length: BUSY_AT_ONCE }, (_, place) => place / 10);
  let job = 0;
  return Array.from({ length: endpoints }, (_, endpoint) => {
    const count = jobsOf(endpoint, endpoints, loudest);
    const at = Math.min(...places);
    places[places.indexOf(at)] = at + Math.max(0, count - POLICY.burst) / POLICY.perSecond + SETTLING_SECONDS;
    return { endpoint, at, visits: Array.from({ length: count }, () => ({ endpoint, job: job++ })) };
  });
}

function jobsOf(endpoint: number, endpoints: number, loudest: number): number {
  if (endpoint >= endpoints * LOUD_SHARE) return 1 + (endpoint % 5);
  return Math.round(loudest / (endpoint + 1) ** 0.8);
}
