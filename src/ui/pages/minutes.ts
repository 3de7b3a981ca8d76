import type { OperateContext } from "../../operate/call.ts";
import { rowsBy } from "../../operate/view-rows.ts";
import { reasonBadge } from "../parts/badge.ts";
import { bars } from "../parts/bars.ts";
import { compared } from "../parts/gauge.ts";
import { html, type Markup } from "../parts/markup.ts";
import { beginOf, HOUR, type Period, stepsOf } from "../parts/period.ts";
import { table } from "../parts/table.ts";
import { grouped, lasting, moment } from "../parts/words.ts";

/** What a policy, or all of them together, did in a step of a period. */
export interface Minute {
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
  readonly waitMaxSeconds: number | null;
  readonly lagP50Seconds: number | null;
  readonly lagP95Seconds: number | null;
  readonly lagMaxSeconds: number | null;
  readonly runP50Seconds: number | null;
  readonly runP95Seconds: number | null;
  readonly runMaxSeconds: number | null;
  readonly passes: string;
  readonly passSeconds: number;
}

/** What happened in a period. */
export interface Happened {
  /** Those in which something happened. */
  readonly steps: readonly Minute[];
  /** All of them together: quantiles are of all jobs, and no mean of the steps' quantiles. Undefined: nothing happened. */
  readonly whole: Omit<Minute, "minute"> | undefined;
}

/** A number of a minute that is added up over policies. */
export type Counted = "admitted" | "staged" | "dropped" | "succeeded" | "failed";

const MINUTE_MS = 60_000;

/** What happened in a period: of one policy, or of all together. */
export async function happenedIn(
  looking: OperateContext,
  period: Period,
  policy?: string,
): Promise<Happened> {
  const rows = await rowsBy<Omit<Minute, "minute"> & { readonly minute: Date | null }>(looking, (client) =>
    looking.engine.minutesInSteps(client, policy ?? null, beginOf(period), period.step),
  );
  return {
    steps: rows.filter((row): row is Minute => row.minute !== null),
    whole: rows.find(({ minute }) => minute === null),
  };
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

/** A step of a chart. */
interface Column {
  readonly at: Date;
  readonly staged: number;
  readonly admitted: number;
  readonly denied: number;
  readonly ended: number;
  readonly failed: number;
  readonly wait: number | null;
  readonly lag: number | null;
  readonly run: number | null;
  /** How many waited at its end. */
  readonly waiting: number;
}

/** A period step by step, those in which nothing happened among them. */
function columnsOf(minutes: readonly Minute[], period: Period, staged: number): readonly Column[] {
  const byTime = new Map(minutes.map((one) => [one.minute.getTime(), one]));
  // from now backwards: what came in a step did not wait before it, and what went did
  let waiting = staged;
  const columns = stepsOf(period)
    .toReversed()
    .map((at) => {
      const it = byTime.get(at.getTime());
      const one = {
        at,
        staged: Number(it?.staged ?? 0),
        admitted: Number(it?.admitted ?? 0),
        denied: Object.values(it?.denied ?? {}).reduce((total, count) => total + Number(count), 0),
        ended: Number(it?.succeeded ?? 0) + Number(it?.failed ?? 0),
        failed: Number(it?.failed ?? 0),
        wait: it?.waitP95Seconds ?? null,
        lag: it?.lagP95Seconds ?? null,
        run: it?.runP95Seconds ?? null,
        waiting,
      };
      waiting = Math.max(waiting - one.staged + one.admitted + Number(it?.dropped ?? 0), 0);
      return one;
    });
  return columns.reverse();
}

/** The charts of a period, at whose end so many wait. What they draw is in the table below them, for who cannot see it. */
export function charts(minutes: readonly Minute[], period: Period, staged: number): Markup {
  if (minutes.length === 0)
    return html`<p class="empty">Nothing happened in the last ${period.words}. What happens shows here a minute later.</p>`;
  const columns = columnsOf(minutes, period, staged);
  const chart = (
    of: (column: Column) => number | null,
    title: string,
    inWords: (value: number) => string,
    more: { wrong?: readonly number[] } = {},
  ) => bars(columns.map(of), { title, inWords, period, isLastOpen: true, ...more });
  return html`<div class="charts">
${chart(({ waiting }) => waiting, "Waiting", grouped)}
${chart(({ staged }) => staged, "Came", grouped)}
${chart(({ admitted }) => admitted, "Admitted", grouped)}
${chart(({ ended }) => ended, "Ended", grouped, { wrong: columns.map(({ failed }) => failed) })}
${chart(({ denied }) => denied, "Partitions that kept due jobs, by passes", grouped)}
${chart(({ wait }) => wait, "From due to admitted, 95 %", lasting)}
${chart(({ lag }) => lag, "From admitted to started, 95 %", lasting)}
${chart(({ run }) => run, "Run time, 95 %", lasting)}
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
    { title: "From", cell: ({ at }) => moment(at, true) },
    { title: "Came", isNumber: true, cell: ({ staged }) => grouped(staged) },
    { title: "Admitted", isNumber: true, cell: ({ admitted }) => grouped(admitted) },
    { title: "Denials", isNumber: true, cell: ({ denied }) => grouped(denied) },
    { title: "Ended", isNumber: true, cell: ({ ended }) => grouped(ended) },
    { title: "Failed", isNumber: true, cell: ({ failed }) => grouped(failed) },
    { title: "95 % wait", isNumber: true, cell: ({ wait }) => (wait === null ? null : lasting(wait)) },
    { title: "95 % lag", isNumber: true, cell: ({ lag }) => (lag === null ? null : lasting(lag)) },
    { title: "95 % run", isNumber: true, cell: ({ run }) => (run === null ? null : lasting(run)) },
    { title: "Waiting", isNumber: true, cell: ({ waiting }) => grouped(waiting) },
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
      { title: "Reason", cell: ([reason]) => reasonBadge(reason) },
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
