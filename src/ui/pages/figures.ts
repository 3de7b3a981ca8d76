import { answered, type OperateContext } from "../../operate/call.ts";

/** The figures that pages show. */
const SHOWN = [
  "admissible_jobs",
  "last_pass_age_seconds",
  "staged_jobs",
  "waiting_partitions",
  "limiter_utilization_ratio",
  "full_limiters",
  "adaptive_limit",
] as const;

export type Shown = (typeof SHOWN)[number];

type Labels = Readonly<Record<string, string>>;

/** What is true now, as the SQL functions `metrics` and `policy_metrics` say it. */
export interface Figures {
  /** The sum of the figures of this name that have all these labels; null: there is none. */
  sum(name: Shown, labels?: Labels): number | null;
  /** The same as a list by another label, the greatest first. */
  by(label: string, name: Shown): readonly (readonly [value: string, sum: number])[];
}

/** Of all policies, or of one. Without what workers have not added up yet: a page that looks does not write. */
export async function figuresNow(looking: OperateContext, policy?: string): Promise<Figures> {
  const all = await answered(looking, (client) => looking.engine.figuresNamed(client, SHOWN, policy));
  const byName = Map.groupBy(all, ({ name }) => name);
  const named = (name: Shown) => byName.get(name) ?? [];
  const sumOf = (figures: readonly { readonly value: number }[]) =>
    figures.reduce((sum, { value }) => sum + value, 0);
  return {
    sum(name, labels = {}) {
      const asked = Object.entries(labels);
      const found = named(name).filter((one) => asked.every(([key, value]) => one.labels[key] === value));
      return found.length === 0 ? null : sumOf(found);
    },
    by(label, name) {
      const groups = Map.groupBy(named(name), (one) => one.labels[label] ?? "");
      return [...groups]
        .map(([value, figures]) => [value, sumOf(figures)] as const)
        .toSorted(([, a], [, b]) => b - a);
    },
  };
}
