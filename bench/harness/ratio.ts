import type { Pairs } from "./pairs.ts";
import type { Sizes } from "./sizes.ts";
import type { Usage } from "./usage.ts";

/** The figures of both sides, and what each job used up where that is counted: medians. */
export interface Measured extends Pairs {
  readonly perJob?: { readonly subject: Usage; readonly baseline: Usage };
}

/** One of the things measured: a subject's figure divided by that of a baseline. */
export interface Ratio {
  readonly name: string;
  /** What is divided by what. */
  readonly what: string;
  readonly unit: "jobs/s" | "ms";
  readonly target: { readonly atLeast: number } | { readonly atMost: number };
  /** What was chosen, beside its sizes. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** Which of the sizes are its own. */
  readonly size: Exclude<keyof Sizes, "backlog" | "bloat" | "fairness" | "limits" | "soak">;
  measure(sizes: Sizes): Promise<Measured>;
}

export function isMet({ target }: Ratio, value: number): boolean {
  return "atLeast" in target ? value >= target.atLeast : value <= target.atMost;
}

/** One measured ratio. */
export interface Result {
  readonly ratio: Ratio;
  readonly pairs: Measured;
  readonly seconds: number;
}

export function ratioEntries(ratios: readonly Ratio[], sizes: Sizes) {
  return ratios.map((ratio) => ({
    name: ratio.name,
    what: ratio.what,
    async measure(): Promise<Result> {
      const start = performance.now();
      const pairs = await ratio.measure(sizes);
      return { ratio, pairs, seconds: Math.round((performance.now() - start) / 1000) };
    },
  }));
}
