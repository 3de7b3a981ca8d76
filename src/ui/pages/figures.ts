import { answered, type OperateContext } from "../../operate/call.ts";

/** The figures that pages show of all policies. */
const OF_ALL = ["admissible_jobs", "last_pass_age_seconds"] as const;
/** Those of one policy's gates, which take far longer. */
const OF_GATES = ["limiter_utilization_ratio", "full_limiters", "adaptive_limit"] as const;

export type Shown = (typeof OF_ALL)[number] | (typeof OF_GATES)[number];

type Labels = Readonly<Record<string, string>>;

/** What is true now, as the SQL functions `metrics` and `policy_metrics` say it. */
export interface Figures {
  /** The sum of the figures of this name that have all these labels; null: there is none. */
  sum(name: Shown, labels?: Labels): number | null;
}

/** Of all policies, or of one. Without what workers have not added up yet: a page that looks does not write. */
export async function figuresNow(looking: OperateContext, policy?: string): Promise<Figures> {
  const all = await answered(looking, (client) =>
    looking.engine.figuresNamed<Shown>(
      client,
      policy === undefined ? OF_ALL : [...OF_ALL, ...OF_GATES],
      policy,
    ),
  );
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
  };
}
