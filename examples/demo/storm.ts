import { POLICY } from "./limits.ts";
import type { Visit } from "./policy.ts";

/** One endpoint's share of the storm: all of its jobs come at once. */
export interface Burst {
  readonly endpoint: number;
  /** Seconds after the storm began. */
  readonly at: number;
  readonly visits: readonly Visit[];
}

const BUSY_AT_ONCE = 20;
/** From the last start to quiet, generously. */
const SETTLING_SECONDS = 2;

/**
 * The k-th endpoint gets 1/k of what the loudest gets, at least 2. Each comes when one of 20 places is free: an
 * endpoint keeps its place for as long as its allowed rate takes for its jobs.
 */
export function makeStorm(endpoints: number, loudest: number): Burst[] {
  const places = new Array<number>(BUSY_AT_ONCE).fill(0);
  let job = 0;
  return Array.from({ length: endpoints }, (_, index) => {
    const count = Math.max(2, Math.round(loudest / (index + 1)));
    const place = places.indexOf(Math.min(...places));
    const at = places[place]!;
    places[place] = at + Math.max(0, count - POLICY.burst) / POLICY.perSecond + SETTLING_SECONDS;
    const visits = Array.from({ length: count }, () => ({ endpoint: index, job: job++ }));
    return { endpoint: index, at, visits };
  });
}
