import type { OperateContext } from "../../operate/call.ts";
import { rowsBy } from "../../operate/view-rows.ts";
import type { PolicyDefinition } from "../../policy/definition.ts";
import { compared } from "../parts/gauge.ts";
import { html, type Markup } from "../parts/markup.ts";
import { beginOf, type Period } from "../parts/period.ts";
import { table } from "../parts/table.ts";
import { grouped, lasting } from "../parts/words.ts";

/** A row of the SQL function `gate_waits`. */
export interface GateWait {
  readonly gate: string;
  /** Null: all keys. */
  readonly key: string | null;
  readonly jobs: number;
  readonly waited: number;
  readonly p95Seconds: number;
  readonly longestSeconds: number;
}

/** How long jobs waited for each gate, and for which keys. Null: the policy keeps no history, so nobody knows. */
export async function gateWaits(
  looking: OperateContext,
  { name, gates, history }: Pick<PolicyDefinition, "name" | "gates" | "history">,
  period: Period,
): Promise<readonly GateWait[] | null> {
  if (!history) return null;
  if (gates.length === 0) return [];
  return rowsBy<GateWait>(looking, (client) => looking.engine.gateWaits(client, name, beginOf(period)));
}

export const NOT_RECORDED = html`<p class="empty">How long jobs waited, for which gate and which key, is not recorded. To know it, give the policy a history, such as <code>history: { keep: "7 days" }</code>.</p>`;

export function gateWaitTable(waits: readonly GateWait[] | null, { words }: Period): Markup {
  if (waits === null) return NOT_RECORDED;
  const worst = Math.max(...waits.map(({ p95Seconds }) => p95Seconds));
  return table(
    `Of the jobs that ended in the last ${words}, at most 10,000. Below each gate its keys that waited for longest`,
    waits,
    [
      { title: "Gate", cell: ({ gate, key }) => (key === null ? html`<strong>${gate}</strong>` : gate) },
      { title: "Key", cell: ({ key }) => (key === null ? html`<strong>all</strong>` : key || "(empty)") },
      {
        title: "95 % waited at most",
        isNumber: true,
        cell: ({ p95Seconds }) => html`${wait(p95Seconds)}${compared(p95Seconds, worst)}`,
      },
      { title: "Longest", isNumber: true, cell: ({ longestSeconds }) => wait(longestSeconds) },
      {
        title: "Had to wait",
        isNumber: true,
        cell: ({ waited, jobs }) => html`${percent(waited / jobs)} %${compared(waited, jobs)}`,
      },
      { title: "Jobs", isNumber: true, cell: ({ jobs }) => grouped(jobs) },
    ],
    `No job ended in the last ${words}.`,
  );
}

/** A wait, which may be none. */
export function wait(seconds: number): string {
  return seconds === 0 ? "0 s" : lasting(seconds);
}

/** Not 0 and not 100 unless it is so. */
function percent(share: number): string {
  const rounded = Math.round(share * 1000) / 10;
  return String(share > 0 && share < 1 ? Math.min(Math.max(rounded, 0.1), 99.9) : rounded);
}
