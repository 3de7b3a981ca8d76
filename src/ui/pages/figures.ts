import type { Figure } from "../../db/rolling-up.ts";
import type { OperateContext } from "../../operate/call.ts";
import { answered } from "../../operate/call.ts";

/** What is true now, as the SQL functions `metrics` and `policy_metrics` say it. */
export interface Figures {
  /** The sum of the figures of this name that have all these labels; null: there is none. */
  sum(name: string, labels?: Readonly<Record<string, string>>): number | null;
  /** The same as a list by another label, the greatest first. */
  by(
    label: string,
    name: string,
    labels?: Readonly<Record<string, string>>,
  ): readonly (readonly [value: string, sum: number])[];
}

/** Of all policies, or of one. Without what workers have not added up yet: a page that looks does not write. */
export async function figuresNow(looking: OperateContext, policy?: string): Promise<Figures> {
  const { figures, figuresOf } = looking.engine;
  const all = await answered(looking, (client) =>
    policy === undefined ? figures(client) : figuresOf(client, policy),
  );
  const those = (name: string, labels: Readonly<Record<string, string>>) =>
    all.filter(
      (one) => one.name === name && Object.entries(labels).every(([key, value]) => one.labels[key] === value),
    );
  const sumOf = (figures: readonly Figure[]) => figures.reduce((sum, { value }) => sum + value, 0);
  return {
    sum(name, labels = {}) {
      const found = those(name, labels);
      return found.length === 0 ? null : sumOf(found);
    },
    by(label, name, labels = {}) {
      const groups = Map.groupBy(those(name, labels), (one) => one.labels[label] ?? "");
      return [...groups]
        .map(([value, figures]) => [value, sumOf(figures)] as const)
        .toSorted(([, a], [, b]) => b - a);
    },
  };
}
