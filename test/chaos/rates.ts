/** When tokens were taken: not before `from`, not after `to`, in milliseconds. */
export interface Charge {
  readonly from: number;
  readonly to: number;
  /** How many; undefined: one. */
  readonly cost?: number;
  /** At first it was one, and the rest came back then; undefined: nothing did. */
  readonly returnedAt?: number;
}

/** Times are cut to milliseconds. */
const ROUNDED_MS = 2;

/**
 * By how many tokens the charges exceed a bucket, at the worst moment; 0 or less: not at all. Only what was surely
 * charged within a stretch of time counts for it, and a stretch of t seconds allows `capacity + rate × t`. It also allows what
 * came back meanwhile of charges before it. `aheadMs`: how far clocks may have been ahead.
 */
export function excess(
  charges: readonly Charge[],
  { rate, capacity }: { readonly rate: number; readonly capacity: number },
  aheadMs: number,
): number {
  const byEnd = charges.toSorted((a, b) => a.to - b.to);
  let worst = Number.NEGATIVE_INFINITY;
  for (const { from } of charges) {
    const returned = charges.filter((one) => one.returnedAt! >= from && one.from < from);
    let within = 0;
    for (const charge of byEnd) {
      if (charge.from < from) continue;
      within += costOf(charge);
      const back = returned.filter((one) => one.returnedAt! <= charge.to).map((one) => 1 - costOf(one));
      const gained = (rate * (charge.to - from + aheadMs + ROUNDED_MS)) / 1000;
      worst = Math.max(worst, within - back.reduce((sum, tokens) => sum + tokens, capacity + gained));
    }
  }
  return worst;
}

export function costOf({ cost = 1 }: Charge): number {
  return cost;
}
