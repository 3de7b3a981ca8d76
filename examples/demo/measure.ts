import { POLICY } from "./limits.ts";
import type { Load } from "./load.ts";
import type { Outcome } from "./run.ts";

export interface Measures {
  readonly jobs: number;
  readonly done: number;
  readonly twice: number;
  readonly tooFast: number;
  readonly tooMany: number;
  readonly highest: number;
  /** Of the endpoints whose rate binds: all together, and the one that made least of it. */
  readonly use: number;
  readonly leastUse: number;
  readonly load: Load | undefined;
  /** Milliseconds from add to the start that was served; a job still waiting counts until the end of the run. */
  readonly quiet: Percentiles;
  readonly loudest: Percentiles;
  readonly seconds: number;
}

/** A wait in milliseconds; `open`: it was not over when the run ended. */
export interface Wait {
  readonly ms: number;
  readonly open: boolean;
}

export interface Percentiles {
  readonly p50: Wait;
  readonly p95: Wait;
}

export function measure(outcome: Outcome): Measures {
  const { storm, report } = outcome;
  const servedAt = new Map<number, number>();
  let twice = 0;
  for (const { job, at, served } of report.seen) {
    if (!served) continue;
    if (servedAt.has(job)) twice += 1;
    else servedAt.set(job, at);
  }
  const shares = storm
    .filter(({ visits }) => visits.length > POLICY.burst)
    .map(({ endpoint, visits }) => useOfRate(outcome, servedAt, endpoint, visits));
  const quiet = storm.filter(({ visits }) => visits.length <= POLICY.burst);
  return {
    jobs: storm.reduce((sum, { visits }) => sum + visits.length, 0),
    done: servedAt.size,
    twice,
    ...{ tooFast: report.tooFast, tooMany: report.tooMany, highest: report.highest },
    use: sum(shares.map(({ starts }) => starts)) / sum(shares.map(({ allowed }) => allowed)),
    leastUse: Math.min(...shares.map(({ starts, allowed }) => starts / allowed)),
    load: outcome.load,
    quiet: percentiles(quiet.flatMap((burst) => waits(outcome, servedAt, burst))),
    loudest: percentiles(waits(outcome, servedAt, storm[0]!)),
    seconds: outcome.seconds,
  };
}

type Burst = Outcome["storm"][number];

/**
 * Starts over what the policy allowed while the endpoint had work waiting, from the add until its last job started (or
 * the run ended): burst + rate × that time. Endpoints with no more jobs than the burst are left out: nothing limits them.
 */
function useOfRate(
  { addedAt, endedAt }: Outcome,
  servedAt: ReadonlyMap<number, number>,
  endpoint: number,
  visits: Burst["visits"],
): { starts: number; allowed: number } {
  const starts = visits.flatMap(({ job }) => servedAt.get(job) ?? []);
  const until = starts.length < visits.length ? endedAt : Math.max(...starts);
  const seconds = (until - (addedAt.get(endpoint) ?? endedAt)) / 1000;
  return { starts: starts.length, allowed: POLICY.burst + POLICY.perSecond * seconds };
}

function waits(
  { addedAt, endedAt }: Outcome,
  servedAt: ReadonlyMap<number, number>,
  { endpoint, visits }: Burst,
): Wait[] {
  const from = addedAt.get(endpoint) ?? endedAt;
  return visits.map(({ job }) => {
    const at = servedAt.get(job);
    return { ms: (at ?? endedAt) - from, open: at === undefined };
  });
}

function percentiles(waits: Wait[]): Percentiles {
  const sorted = waits.toSorted((a, b) => a.ms - b.ms);
  const at = (share: number) => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)]!;
  return { p50: at(0.5), p95: at(0.95) };
}

function sum(values: number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
