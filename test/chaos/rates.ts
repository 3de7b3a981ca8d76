/** When tokens were taken: not before `from`, not after `to`, in milliseconds. */
export interface Charge {
  readonly from: number;
  readonly to: number;
  /** How many; undefined: one. */
  readonly cost?: number;
  /** At first it was one, and the rest came back then; undefined: nothing did. */
  readonly returnedAt?: number;
}

/** What a bucket has from a time on, until the next stretch begins. */
export interface Stretch {
  readonly from: number;
  /** Tokens per second. */
  readonly rate: number;
  readonly capacity: number;
}

/** Times are cut to milliseconds. */
const ROUNDED_MS = 2;

/**
 * By how many tokens the charges exceed a bucket, at the worst moment; 0 or less: not at all. Only what was surely
 * charged within a stretch of time counts for it. A stretch allows the largest capacity of its time, and what flowed in. It
 * also allows what came back meanwhile of charges before it. `aheadMs`: how far clocks may have been ahead.
 */
export function excess(charges: readonly Charge[], bucket: readonly Stretch[], aheadMs: number): number {
  const byEnd = charges.toSorted((a, b) => a.to - b.to);
  const early = (Math.max(...bucket.map(({ rate }) => rate)) * (aheadMs + ROUNDED_MS)) / 1000;
  let worst = Number.NEGATIVE_INFINITY;
  for (const { from } of charges) {
    const flow = flowSince(from, bucket);
    const returned = charges.filter((one) => one.returnedAt! >= from && one.from < from);
    let within = 0;
    for (const charge of byEnd) {
      if (charge.from < from) continue;
      within += costOf(charge);
      const back = returned.filter((one) => one.returnedAt! <= charge.to).map((one) => 1 - costOf(one));
      const { capacity, gained } = flow(charge.to);
      const allowed = back.reduce((sum, tokens) => sum + tokens, capacity + gained + early);
      worst = Math.max(worst, within - allowed);
    }
  }
  return worst;
}

export function costOf({ cost = 1 }: Charge): number {
  return cost;
}

/** What flowed in until a time, and the largest capacity by then. The times that it is asked for do not go back. */
function flowSince(from: number, bucket: readonly Stretch[]) {
  let place = Math.max(
    0,
    bucket.findLastIndex((stretch) => stretch.from <= from),
  );
  let reached = from;
  let gained = 0;
  let capacity = bucket[place]?.capacity ?? 0;
  return (to: number) => {
    const flowUntil = (time: number) => {
      gained += ((time - reached) * (bucket[place]?.rate ?? 0)) / 1000;
      reached = time;
    };
    for (let next = bucket[place + 1]; next && next.from <= to; next = bucket[place + 1]) {
      flowUntil(Math.max(next.from, reached));
      place++;
      capacity = Math.max(capacity, next.capacity);
    }
    flowUntil(to);
    return { capacity, gained };
  };
}
