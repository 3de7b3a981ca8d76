// The jobs of a setup, and how their runs go. The same setup has the same load each time, here and on a server.
import type { Setup } from "./setup.ts";

export interface PlannedJob {
  /** The place of its tenant. */
  readonly tenant: number;
  /** Its place among the tenant's jobs. */
  readonly n: number;
  /** When it comes or is due, in milliseconds from the beginning. */
  readonly at: number;
}

/** By time, and then by tenant. */
export function jobsOf(setup: Setup): readonly PlannedJob[] {
  const jobs = countsOf(setup).flatMap((count, tenant) =>
    Array.from({ length: count }, (_, n) => ({ tenant, n, at: atOf(setup, tenant, n, count) })),
  );
  return jobs.sort((a, b) => a.at - b.at || a.n - b.n || a.tenant - b.tenant);
}

/** Jobs of one key come one after the other, a millisecond apart. */
function atOf({ arrival, over, newest }: Setup, tenant: number, n: number, count: number): number {
  if (arrival === "burst") return newest === "keep" ? 0 : n;
  const size = arrival === "bursts" ? BURST : 1;
  const place = Math.floor(n / size);
  return (
    Math.round((over * 1000 * (place + chance(tenant, place, 1))) / Math.ceil(count / size)) + (n % size)
  );
}

const BURST = 10;

/** How many jobs each tenant has. Their sum is the number that was asked for, and each has one. */
function countsOf({ tenants, jobs, skew }: Setup): number[] {
  const shares = Array.from({ length: tenants }, (_, n) => 1 / (n + 1) ** skew);
  const sum = shares.reduce((one, other) => one + other, 0);
  const counts = shares.map((share) => Math.max(1, Math.floor((share / sum) * jobs)));
  const left = jobs - counts.reduce((one, other) => one + other, 0);
  counts[0] = Math.max(1, (counts[0] as number) + left);
  return counts;
}

export type Outcome = "succeeded" | "failed" | "refused" | "cancelled";

export interface PlannedRun {
  readonly ms: number;
  readonly outcome: Outcome;
}

/** When the partner of the first tenant begins to refuse. */
const REFUSES_FROM_MS = 8000;
/** A refusal comes at once. */
const REFUSAL_MS = 150;
/** A run takes so long at most to end once it is told to. */
export const HEEDS_MS = 150;
/** What the partner says in `retry-after`. */
export const RETRY_AFTER_MS = 8000;

/** How an attempt goes that starts at this time, in milliseconds from the beginning. */
export function runOf(setup: Setup, job: PlannedJob, attempt: number, at: number): PlannedRun {
  const refusesUntil = REFUSES_FROM_MS + setup.refused * 1000;
  if (job.tenant === 0 && at >= REFUSES_FROM_MS && at < refusesUntil)
    return { ms: REFUSAL_MS, outcome: "refused" };
  const fails = chance(job.tenant, job.n, attempt + 100) * 100 < setup.failing;
  const ms = Math.round(setup.run * 1000 * (0.5 + chance(job.tenant, job.n, 2)));
  return { ms, outcome: fails ? "failed" : "succeeded" };
}

/** Whether there is a night tariff. */
export const isNight = ({ night, rate }: Setup): boolean => night > 0 && rate > 0;

/** When the night tariff begins and ends, in milliseconds from the beginning. */
export function nightOf({ seconds }: Setup): { from: number; until: number } {
  return { from: (seconds * 1000) / 3, until: (seconds * 2000) / 3 };
}

/** A number from 0 to 1 that looks random, and is the same for the same three numbers. */
function chance(...numbers: readonly number[]): number {
  let hash = 2166136261;
  for (const number of numbers) {
    hash = Math.imul(hash ^ (number + 1), 16777619);
    hash = Math.imul(hash ^ (hash >>> 15), 2246822519);
  }
  return ((hash ^ (hash >>> 13)) >>> 0) / 2 ** 32;
}
