/** When tokens were taken: not before `from`, not after `to`, in milliseconds. */
export interface Charge {
  readonly from: number;
  readonly to: number;
}

/** Times are cut to milliseconds. */
const ROUNDED_MS = 2;

/**
 * By how many tokens the charges exceed a bucket, at the worst moment; 0 or less: not at all. Only what was surely
 * charged within a stretch of time counts for it, and a stretch of t seconds allows `capacity + rate × t`. `aheadMs`: how
 * far clocks may have been ahead.
 */
export function excess(
  charges: readonly Charge[],
  { rate, capacity }: { readonly rate: number; readonly capacity: number },
  aheadMs: number,
): number {
  const byEnd = charges.toSorted((a, b) => a.to - b.to);
  let worst = Number.NEGATIVE_INFINITY;
  for (const { from } of charges) {
    let within = 0;
    for (const charge of byEnd) {
      if (charge.from < from) continue;
      within++;
      const allowed = capacity + (rate * (charge.to - from + aheadMs + ROUNDED_MS)) / 1000;
      worst = Math.max(worst, within - allowed);
    }
  }
  return worst;
}
