import type { OperateContext } from "../../operate/call.ts";
import { rowsBy } from "../../operate/view-rows.ts";
import { bars } from "../parts/bars.ts";
import { partitionLink } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { beginOf, type Period } from "../parts/period.ts";
import { spark } from "../parts/spark.ts";
import { table } from "../parts/table.ts";
import { grouped } from "../parts/words.ts";
import { NOT_RECORDED, wait } from "./gate-waits.ts";

/** A row of the SQL function `partition_waits`. */
export interface PartitionWait {
  /** Null: all partitions. */
  readonly partition: string | null;
  readonly jobs: number;
  readonly p95Seconds: number | null;
  readonly longestSeconds: number | null;
  readonly steps: readonly (number | null)[];
}

/** How long the jobs of a policy waited: in all, and those of one partition or of the worst. Empty: it keeps no history. */
export function partitionWaits(
  looking: OperateContext,
  policy: string,
  period: Period,
  partition: string | null = null,
): Promise<readonly PartitionWait[]> {
  return rowsBy<PartitionWait>(looking, (client) =>
    looking.engine.partitionWaits(client, policy, beginOf(period), period.step, partition),
  );
}

/** The partitions whose jobs waited for longest. Nothing without a history: the page has said what to switch on. */
export function worstPartitions(
  waits: readonly PartitionWait[],
  policy: string,
  base: string,
  period: Period,
): Markup {
  const [all, ...worst] = waits;
  if (!all) return none;
  return html`<h2>Partitions that waited for longest</h2>
${table(
  `From due to admitted, of the jobs that ended in the last ${period.words}, at most 10,000. The worst ten partitions`,
  worst.length > 0 ? [...worst, all] : [],
  [
    {
      title: "Partition",
      cell: ({ partition }) =>
        partition === null ? html`<strong>all</strong>` : partitionLink(base, policy, partition),
    },
    { title: "95 % waited at most", isNumber: true, cell: ({ p95Seconds }) => waitOrNone(p95Seconds) },
    { title: "Longest", isNumber: true, cell: ({ longestSeconds }) => waitOrNone(longestSeconds) },
    { title: "Over time", cell: (row) => spark(row.steps, inWords(row, period)) },
    { title: "Jobs", isNumber: true, cell: ({ jobs }) => grouped(jobs) },
  ],
  `No job that was admitted ended in the last ${period.words}.`,
)}`;
}

/** The same of one partition, beside all. `links` lead to other periods. */
export function ownWaits(waits: readonly PartitionWait[], period: Period, links: Markup): Markup {
  const [all, own] = waits;
  if (!all) return NOT_RECORDED;
  if (!own)
    return html`${links}<p class="empty">None of its jobs is among the last ${grouped(all.jobs)} of the policy that ended in the last ${period.words}.</p>`;
  return html`${links}<dl class="facts">
<dt>95 % waited at most</dt><dd>${waitOrNone(own.p95Seconds)} <span class="quiet">(of all partitions ${waitOrNone(all.p95Seconds)})</span></dd>
<dt>longest</dt><dd>${waitOrNone(own.longestSeconds)}</dd>
<dt>jobs that ended</dt><dd>${grouped(own.jobs)} <span class="quiet">(of ${grouped(all.jobs)}, at most the last 10,000 of the policy)</span></dd>
</dl>
<div class="charts">${bars(own.steps, { title: "From due to admitted, 95 %", inWords: wait, period })}</div>`;
}

function waitOrNone(seconds: number | null): string {
  return seconds === null ? "–" : wait(seconds);
}

function inWords({ steps }: PartitionWait, { words, each }: Period): string {
  const most = Math.max(...steps.map((seconds) => seconds ?? 0));
  return `95 % waited at most ${wait(most)} in ${each} of the last ${words}`;
}
