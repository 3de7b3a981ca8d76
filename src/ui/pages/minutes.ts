import type { OperateContext } from "../../operate/call.ts";
import { rowsBy, rowsOf } from "../../operate/view-rows.ts";
import { ifGiven } from "../if-given.ts";
import { bars } from "../parts/bars.ts";
import { compared } from "../parts/gauge.ts";
import { html, type Markup } from "../parts/markup.ts";
import { beginOf, HOUR, type Period, stepsOf } from "../parts/period.ts";
import { table } from "../parts/table.ts";
import { grouped, lasting, moment } from "../parts/words.ts";

/** A row of the view `minutes`. */
export interface Minute {
  readonly policy: string;
  readonly minute: Date;
  readonly staged: string;
  readonly admitted: string;
  readonly dropped: string;
  readonly succeeded: string;
  readonly failed: string;
  readonly denied: Readonly<Record<string, number>>;
  readonly shadowDenied: Readonly<Record<string, number>>;
  readonly waitP50Seconds: number | null;
  readonly waitP95Seconds: number | null;
  readonly lagP50Seconds: number | null;
  readonly lagP95Seconds: number | null;
}

/** A number of a minute that is added up over policies. */
export type Counted = "admitted" | "staged" | "dropped" | "succeeded" | "failed";

const MINUTE_MS = 60_000;

/** The minutes of the last hour, of all policies or of one. */
export function lastHour(context: OperateContext, policy?: string): Promise<readonly Minute[]> {
  const where = `where ${ifGiven(1, "policy")} and minute > now() - interval '1 hour' order by minute`;
  return rowsOf<Minute>(context, "minutes", where, [policy ?? null]);
}

/**
 * What happened in a period, in its steps.
 *
 * @param minutes the last hour, which was read already
 */
export async function stepsSince(
  looking: OperateContext,
  period: Period,
  minutes: readonly Minute[],
  policy?: string,
): Promise<readonly Minute[]> {
  if (period === HOUR) return minutes;
  return rowsBy<Minute>(looking, (client) =>
    looking.engine.minutesInSteps(client, policy ?? null, beginOf(period), period.step),
  );
}

/** The sum of a number in the whole minutes that lie up to so many minutes back, each minute. */
export function eachMinute(minutes: readonly Minute[], what: Counted, back: number): number {
  const until = Math.floor(Date.now() / MINUTE_MS) * MINUTE_MS;
  const within = minutes.filter(
    ({ minute }) => minute.getTime() < until && minute.getTime() >= until - back * MINUTE_MS,
  );
  return within.reduce((sum, one) => sum + Number(one[what]), 0) / back;
}

/** How many jobs more wait after each of the last minutes: what came, less what was admitted or dropped. */
export function growth(minutes: readonly Minute[], back: number): number {
  const [staged, admitted, dropped] = (["staged", "admitted", "dropped"] as const).map((what) =>
    eachMinute(minutes, what, back),
  ) as [number, number, number];
  return staged - admitted - dropped;
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

/** One step over all policies. */
interface Column {
  readonly at: Date;
  readonly staged: number;
  readonly admitted: number;
  readonly denied: number;
  readonly ended: number;
  readonly failed: number;
  readonly wait: number | null;
  readonly lag: number | null;
}

/** A period step by step, those in which nothing happened among them. Of times the longest counts. */
function columnsOf(minutes: readonly Minute[], period: Period): readonly Column[] {
  const byTime = Map.groupBy(minutes, ({ minute }) => minute.getTime());
  return stepsOf(period).map((at) => {
    const found = byTime.get(at.getTime()) ?? [];
    const sum = (of: (one: Minute) => number) => found.reduce((total, one) => total + of(one), 0);
    const longest = (of: (one: Minute) => number | null) =>
      found.map(of).reduce((most, one) => (one === null ? most : Math.max(most ?? 0, one)), null);
    return {
      at,
      staged: sum((one) => Number(one.staged)),
      admitted: sum((one) => Number(one.admitted)),
      denied: sum((one) =>
        Object.values(one.denied ?? {}).reduce((total, count) => total + Number(count), 0),
      ),
      ended: sum((one) => Number(one.succeeded) + Number(one.failed)),
      failed: sum((one) => Number(one.failed)),
      wait: longest((one) => one.waitP95Seconds),
      lag: longest((one) => one.lagP95Seconds),
    };
  });
}

/** The charts of a period. What they draw is in the table below them, for who cannot see it. */
export function charts(minutes: readonly Minute[], period: Period = HOUR): Markup {
  if (minutes.length === 0)
    return html`<p class="empty">Nothing happened in the last ${period.words}. What happens shows here a minute later.</p>`;
  const columns = columnsOf(minutes, period);
  const chart = (
    of: (column: Column) => number | null,
    title: string,
    inWords: (value: number) => string,
    more: { wrong?: readonly number[] } = {},
  ) => bars(columns.map(of), { title, inWords, period, isLastOpen: true, ...more });
  return html`<div class="charts">
${chart(({ staged }) => staged, "Jobs that came", grouped)}
${chart(({ admitted }) => admitted, "Jobs admitted", grouped)}
${chart(({ denied }) => denied, "Partitions that kept due jobs, by passes", grouped)}
${chart(({ ended }) => ended, "Attempts that ended", grouped, { wrong: columns.map(({ failed }) => failed) })}
${chart(({ wait }) => wait, "From due to admitted, 95 %", lasting)}
${chart(({ lag }) => lag, "From admitted to started, 95 %", lasting)}
</div>
<details><summary>The same as numbers</summary>
${table(
  `The last ${period.words} by steps of ${period.each}, those in which something happened`,
  columns
    .filter(
      ({ staged, admitted, denied, ended, lag }) => staged + admitted + denied + ended > 0 || lag !== null,
    )
    .toReversed(),
  [
    { title: "From", cell: ({ at }) => moment(at) },
    { title: "Came", isNumber: true, cell: ({ staged }) => grouped(staged) },
    { title: "Admitted", isNumber: true, cell: ({ admitted }) => grouped(admitted) },
    { title: "Denials", isNumber: true, cell: ({ denied }) => grouped(denied) },
    { title: "Ended", isNumber: true, cell: ({ ended }) => grouped(ended) },
    { title: "Failed", isNumber: true, cell: ({ failed }) => grouped(failed) },
    { title: "95 % wait", isNumber: true, cell: ({ wait }) => (wait === null ? null : lasting(wait)) },
    { title: "95 % lag", isNumber: true, cell: ({ lag }) => (lag === null ? null : lasting(lag)) },
  ],
  "Nothing happened.",
)}
</details>`;
}

/** Why partitions kept due jobs. */
export function reasonTable(minutes: readonly Minute[], { words }: Period = HOUR): Markup {
  const sums = sumsOf(minutes, "denied");
  const most = sums[0]?.[1] ?? 0;
  return table(
    `Denials in the last ${words}: a partition counts once in each pass`,
    sums,
    [
      { title: "Reason", cell: ([reason]) => reason },
      {
        title: "Partitions",
        isNumber: true,
        cell: ([, count]) => html`${grouped(count)}${compared(count, most)}`,
      },
    ],
    `No pass left a due job behind in the last ${words}.`,
  );
}

/** What shadow gates would have held back; nothing if there was none. */
export function shadowTable(minutes: readonly Minute[], { words }: Period = HOUR): Markup {
  const sums = sumsOf(minutes, "shadowDenied");
  if (sums.length === 0) return html``;
  return table(
    `Jobs that went in the last ${words}, and that a shadow gate would have held back`,
    sums,
    [
      { title: "Shadow gate", cell: ([gate]) => gate },
      { title: "Jobs", isNumber: true, cell: ([, count]) => grouped(count) },
    ],
    "",
  );
}
