import { type Answer, askNext, type Explanation, explain } from "../../operate/explain.ts";
import { keyInWords } from "../../operate/gate-words.ts";
import { actionLinks } from "../parts/action-links.ts";
import { reasonBadge } from "../parts/badge.ts";
import { expected, explanation } from "../parts/explanation.ts";
import { type Fact, factList } from "../parts/facts.ts";
import { jobLink, pathTo } from "../parts/links.ts";
import { html, type Markup } from "../parts/markup.ts";
import { periodLinks, periodOf } from "../parts/period.ts";
import { table } from "../parts/table.ts";
import { grouped, moment } from "../parts/words.ts";
import { ownWaits, partitionWaits } from "./partition-waits.ts";
import { asked, type Page } from "./visit.ts";

/** How many jobs it lists. */
const HEAD = 5;

/** One partition: why it waits, gate by gate. */
export const partition: Page = async (visit) => {
  const { looking, base, query } = visit;
  const [policy, key] = [asked(query, "policy"), query.get("partition")];
  if (policy === undefined || key === null) return null;
  const it = await explain(looking, { policy, partition: key });
  const target = { policy, partition: key };
  const period = periodOf(query);
  const waits = await partitionWaits(looking, policy, period, key);
  const title = key === "" ? "(empty key)" : keyInWords(key);
  const trail = [
    ["Policies", `${base}/policies`],
    [policy, pathTo(base, "/policy", { policy })],
  ] as const;
  const waited = html`<h2>How long its jobs waited, in the last ${period.words}</h2>
${ownWaits(waits, period, periodLinks(base, "/partition", target, period))}`;
  if (it.state === "unknown") return waits[1] ? { title, trail, body: html`${GONE}${waited}` } : null;
  const head = await askNext(looking, { policy, partition: key, count: HEAD });
  const facts: readonly Fact[] = [
    ["staged", grouped(it.staged)],
    ["in flight", grouped(it.inFlight)],
    ["admitted since it was made", grouped(it.admittedTotal)],
    ["weight", grouped(it.weight)],
    ["counts against its share", shareOf(it)],
    ["shard", it.shard],
    ["context", JSON.stringify(it.context ?? {})],
    ["paused", it.paused ? (it.pausedUntil ? html`until ${moment(it.pausedUntil)}` : "until resume") : "no"],
    ["on hold", it.heldUntil && it.heldUntil > it.asOf ? html`until ${moment(it.heldUntil)}` : null],
    ["probing", it.probing ? "one job goes first, and has to succeed" : null],
    ["paused or held by", it.stoppedBy],
    ["because", it.stopReason],
    [
      "breaker",
      it.breakerUntil && it.breakerUntil > it.asOf ? html`open until ${moment(it.breakerUntil)}` : null,
    ],
    ["opened by", it.breakerReason],
    ["dropped since it was made", grouped(it.droppedTotal)],
    ["made", moment(it.createdAt)],
  ];
  const isStopped = it.stop !== null;
  const actions = actionLinks(visit, target, [
    isStopped ? "resume" : "pause",
    "hold",
    "admit",
    "move",
    "set-limit",
    "retry",
    "remove",
    "cancel",
  ]);
  return {
    title,
    trail,
    body: html`${explanation(it, visit, actions)}
<h2>Next jobs</h2>
${headTable(head, base)}
${waited}
<h2>The partition</h2>
${factList(facts)}`,
  };
};

const GONE = html`<p class="sentence">No job of it waits or runs. A sweep has deleted the partition, because it was unused. It comes back with its next job.</p>`;

/** As of its last admission: it fades from then on. */
function shareOf({ decayedAdmits, decayedAt, meanWork }: Explanation): Markup | null {
  if (decayedAdmits === undefined || !decayedAt) return null;
  const amount = grouped(decayedAdmits);
  return html`${amount} ${meanWork === null ? "jobs" : "seconds of work"}, as of ${moment(decayedAt)}`;
}

function headTable(head: readonly Answer[], base: string): Markup {
  return table(
    `In the order in which they go, at most ${HEAD}`,
    head,
    [
      { title: "Job", isNumber: true, cell: ({ id }) => (id === undefined ? null : jobLink(base, id)) },
      { title: "Due", cell: ({ runAt }) => moment(runAt) },
      {
        title: "Waits for",
        cell: ({ reason, gate }) => (gate === null ? reasonBadge(reason) : `${reason}, gate ${gate}`),
      },
      { title: "Expected to start", cell: expected },
    ],
    "No job waits in staging.",
  );
}
