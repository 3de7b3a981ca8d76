// What runs at once and what is charged: knows nothing of the engine's counters.
import { type Charge, costOf, excess } from "../chaos/rates.ts";
import { makeLedger } from "./ledger.ts";

/** A job that runs now. */
export interface Run {
  /** Graphile Worker's. */
  readonly id: string;
  readonly admission: string;
  readonly partition: string;
  /** Those that its partition's lane names, by gate: a moved job is charged to the keys that it was added for. */
  readonly keys?: Readonly<Record<string, string>>;
  /** False if it was admitted past its gates, or once its slot was freed: it counts no longer. */
  counts: boolean;
}

/** A limit on how many jobs of one scope key run at once. */
export interface Cap {
  readonly gate: string;
  readonly max: number;
  /** Undefined: for all keys. */
  isFor?(key: string): boolean;
  keyOf(partition: string): string;
}

/** A limit on how many jobs of one scope key are admitted in a time. */
export interface Rate {
  readonly gate: string;
  /** A second. */
  readonly rate: number;
  readonly capacity: number;
  /** No time of this length admits more than `capacity`. Null: it is a bucket. */
  readonly windowMs: number | null;
  /** Undefined: for all keys. */
  isFor?(key: string): boolean;
  keyOf(partition: string): string;
}

/** An admission, or a `take`, by its scope keys. */
export interface Charged extends Charge {
  keyOf(rate: Rate): string | null;
}

export function makeJudge(caps: readonly Cap[], rates: readonly Rate[]) {
  const runs = new Set<Run>();
  const problems: string[] = [];
  /** Slots that were freed, by job and admission. */
  const freed = new Set<string>();

  function count(cap: Cap, key: string): number {
    return [...runs].filter((run) => run.counts && scopeKeyOf(cap, run) === key).length;
  }

  return {
    problems,
    ledger: makeLedger(problems),
    /** A job begins: its caps must have had room for it. */
    starts(run: Run): void {
      if (freed.has(slotOf(run))) run.counts = false;
      runs.add(run);
      if (!run.counts) return;
      for (const cap of caps) {
        const key = scopeKeyOf(cap, run);
        if (cap.isFor?.(key) === false) continue;
        const n = count(cap, key);
        if (n > cap.max) problems.push(`${n} jobs of ${cap.gate} ${key} run at once, ${cap.max} may`);
      }
    },
    ends: (run: Run): void => void runs.delete(run),
    /** Before somebody frees a job's slot by hand. */
    excuse(id: string): void {
      for (const run of runs) if (run.id === id) run.counts = false;
    },
    /** Before a sweep frees the slot of this admission, and of no other. */
    excuseAdmission(slot: Pick<Run, "id" | "admission">): void {
      freed.add(slotOf(slot));
      for (const run of runs) if (slotOf(run) === slotOf(slot)) run.counts = false;
    },
    /** Once nothing is charged any more. */
    judgeRates(charges: readonly Charged[]): void {
      for (const rate of rates) {
        for (const [key, some] of Map.groupBy(charges, (charge) => charge.keyOf(rate))) {
          if (key === null || rate.isFor?.(key) === false) continue;
          const bucket = { from: Number.NEGATIVE_INFINITY, ...rate };
          const over = rate.windowMs === null ? excess(some, [bucket], 0) : windowExcess(some, rate);
          if (over > 0.01) problems.push(`${over.toFixed(2)} tokens too many of ${rate.gate} ${key}`);
        }
      }
    },
  };
}

/** What a limit counts a job over. */
export function scopeKeyOf(
  { gate, keyOf }: Cap | Rate,
  { keys, partition }: Pick<Run, "keys" | "partition">,
): string {
  return keys?.[gate] ?? keyOf(partition);
}

const slotOf = ({ id, admission }: Pick<Run, "id" | "admission">) => `${id}@${admission}`;

/** By how many tokens a window has more than it may, at the worst moment. */
function windowExcess(charges: readonly Charge[], { windowMs, capacity }: Rate): number {
  const within = (from: number) =>
    charges
      .filter((charge) => charge.from >= from && charge.to < from + windowMs!)
      .reduce((sum, charge) => sum + costOf(charge), 0);
  return Math.max(...charges.map(({ from }) => within(from))) - capacity;
}

export type Judge = ReturnType<typeof makeJudge>;
