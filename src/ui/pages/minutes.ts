import type { OperateContext } from "../../operate/call.ts";
import { rowsOf } from "../../operate/view-rows.ts";
import { ifGiven } from "../if-given.ts";
import { html, type Markup } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import { grouped } from "../parts/words.ts";

/** A row of the view `minutes`. */
export interface Minute {
  readonly policy: string;
  readonly minute: Date;
  readonly staged: string;
  readonly admitted: string;
  readonly denied: Readonly<Record<string, number>>;
  readonly shadowDenied: Readonly<Record<string, number>>;
  readonly waitP50Seconds: number | null;
  readonly waitP95Seconds: number | null;
  readonly lagP50Seconds: number | null;
  readonly lagP95Seconds: number | null;
}

const SHOWN = 60;

/** The minutes of the last hour, of all policies or of one. */
export function lastHour(context: OperateContext, policy?: string): Promise<readonly Minute[]> {
  const where = `where ${ifGiven(1, "policy")} and minute > now() - interval '1 hour' order by minute`;
  return rowsOf<Minute>(context, "minutes", where, [policy ?? null]);
}

/** The sum of a number in the whole minutes that lie up to so many minutes back, each minute. */
export function eachMinute(minutes: readonly Minute[], what: "admitted" | "staged", back: number): number {
  const until = Math.floor(Date.now() / 60_000) * 60_000;
  const within = minutes.filter(
    ({ minute }) => minute.getTime() < until && minute.getTime() >= until - back * 60_000,
  );
  return within.reduce((sum, one) => sum + Number(one[what]), 0) / back;
}

/** Counts by name over all of these minutes, the greatest first. */
function sumsOf(
  minutes: readonly Minute[],
  what: "denied" | "shadowDenied",
): readonly (readonly [string, number])[] {
  const sums = new Map<string, number>();
  for (const minute of minutes)
    for (const [name, count] of Object.entries(minute[what] ?? {}))
      sums.set(name, (sums.get(name) ?? 0) + Number(count));
  return [...sums].toSorted(([, a], [, b]) => b - a);
}

/** A bar for each minute of the last hour. The table beside it is for who cannot see it. */
export function bars(minutes: readonly Minute[], what: "admitted" | "staged", title: string): Markup {
  const first = Math.floor(Date.now() / 60_000) - SHOWN;
  const values = Array.from({ length: SHOWN }, () => 0);
  for (const one of minutes) {
    const place = Math.floor(one.minute.getTime() / 60_000) - first;
    if (place >= 0 && place < SHOWN) values[place] = (values[place] ?? 0) + Number(one[what]);
  }
  const most = Math.max(...values);
  if (most === 0) return html`<p class="empty">${title} in the last hour: none.</p>`;
  const drawn = values.map((value, n) => {
    const height = (value / most) * 40;
    return html`<rect x="${n * 4}" width="3" y="${40 - height}" height="${height}"></rect>`;
  });
  const box = `0 0 ${SHOWN * 4} 40`;
  const says = `${title} in the last hour, by minute: at most ${grouped(most)}`;
  return html`<figure>
<svg class="bars" viewBox="${box}" preserveAspectRatio="none" role="img" aria-label="${says}">${drawn}</svg>
<figcaption class="quiet">${says}</figcaption>
</figure>`;
}

/** Why partitions kept due jobs. */
export function reasonTable(minutes: readonly Minute[]): Markup {
  return table(
    "Denials in the last hour: a partition counts once in each pass",
    sumsOf(minutes, "denied"),
    [
      { title: "Reason", cell: ([reason]) => reason },
      { title: "Partitions", isNumber: true, cell: ([, count]) => grouped(count) },
    ],
    "No pass left a due job behind in the last hour.",
  );
}

/** What shadow gates would have held back; nothing if there was none. */
export function shadowTable(minutes: readonly Minute[]): Markup {
  const sums = sumsOf(minutes, "shadowDenied");
  if (sums.length === 0) return html``;
  return table(
    "Jobs that went in the last hour, and that a shadow gate would have held back",
    sums,
    [
      { title: "Shadow gate", cell: ([gate]) => gate },
      { title: "Jobs", isNumber: true, cell: ([, count]) => grouped(count) },
    ],
    "",
  );
}
