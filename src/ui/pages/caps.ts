import type { OperateContext } from "../../operate/call.ts";
import { rowsBy } from "../../operate/view-rows.ts";
import type { PolicyDefinition } from "../../policy/definition.ts";
import { bars } from "../parts/bars.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { beginOf, type Period } from "../parts/period.ts";
import { table } from "../parts/table.ts";
import { grouped, moment } from "../parts/words.ts";

/** A row of the SQL function `adaptive_caps`. */
export interface Cap {
  readonly gate: string;
  /** Empty: the gate counts over the policy. */
  readonly key: string;
  readonly minute: Date;
  readonly lowest: number | null;
  readonly last: number | null;
}

/** The limits that adaptive gates have learnt, over time. Null: the policy has no such gate. */
export async function capsSince(
  looking: OperateContext,
  { name, gates }: Pick<PolicyDefinition, "name" | "gates">,
  period: Period,
): Promise<readonly Cap[] | null> {
  if (!gates.some(({ kind }) => kind === "adaptive_concurrency")) return null;
  return rowsBy<Cap>(looking, (client) =>
    looking.engine.adaptiveCaps(client, name, beginOf(period), period.step),
  );
}

/** A chart for each limiter whose limit has changed. */
export function capCharts(caps: readonly Cap[] | null, period: Period): Markup {
  if (caps === null) return none;
  const heading = html`<h2>Limits learnt</h2>`;
  if (caps.length === 0)
    return html`${heading}<p class="empty">No adaptive limit has changed in the last ${period.words}.</p>`;
  const byLimiter = Map.groupBy(caps, ({ gate, key }) => JSON.stringify([gate, key]));
  const named = ({ gate, key }: Cap) => (key === "" ? gate : `${gate} of ${key}`);
  return html`${heading}
<p>The lowest limit in ${period.each} of the adaptive gates. Those are shown that changed, at most six, the lowest first.</p>
<div class="charts">${[...byLimiter.values()]
    .toSorted((one, other) => lowestOf(one) - lowestOf(other))
    .map((steps) =>
      bars(
        steps.map(({ lowest }) => lowest),
        {
          title: `${named(steps[0] as Cap)}: now ${grouped(steps.at(-1)?.last)}, lowest ${grouped(lowestOf(steps))}`,
          inWords: grouped,
          period,
        },
      ),
    )}</div>
<details><summary>The same limits as numbers</summary>
${table(
  `The last ${period.words} by steps of ${period.each}`,
  caps.filter(({ last }) => last !== null).toReversed(),
  [
    { title: "Gate", cell: named },
    { title: "From", cell: ({ minute }) => moment(minute) },
    { title: "Lowest", isNumber: true, cell: ({ lowest }) => grouped(lowest) },
    { title: "At the end", isNumber: true, cell: ({ last }) => grouped(last) },
  ],
  "No limit has changed.",
)}
</details>`;
}

function lowestOf(steps: readonly Cap[]): number {
  return Math.min(...steps.flatMap(({ lowest }) => lowest ?? []));
}
