import type { OperateContext } from "../../operate/call.ts";
import { type Answer, askNext, type Explanation, explain } from "../../operate/explain.ts";
import { keyInWords } from "../../operate/gate-words.ts";
import type { PartitionTarget } from "../../operate/targets.ts";
import { parameter, rowsOf } from "../../operate/view-rows.ts";
import { firstLine } from "../../operate/words.ts";
import { jobBadge, reasonBadge } from "../parts/badge.ts";
import { expected, explanation } from "../parts/explanation.ts";
import { type Fact, factList } from "../parts/facts.ts";
import { jobLink, pathTo } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { periodLinks, periodOf } from "../parts/period.ts";
import { strip } from "../parts/strip.ts";
import { table } from "../parts/table.ts";
import { aMinute, grouped, moment } from "../parts/words.ts";
import { ownWaits, partitionWaits } from "./partition-waits.ts";
import { asked, type Page, type Visit } from "./visit.ts";

/** How many jobs it lists. */
const HEAD = 5;
/** How many failed ones it counts. */
const MOST_FAILED = 100;

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
  const failed = await failedJobs(looking, target);
  const refused = await refusedJobs(looking, target);
  const dropped = it.droppedTotal
    ? await rowsOf<Dropped>(looking, "history", DROPPED, [policy, key, HEAD])
    : [];
  const facts: readonly Fact[] = [
    ["admitted since it was made", grouped(it.admittedTotal)],
    ["weight", grouped(it.weight)],
    ["class", it.class || null],
    ["counts against its share", shareOf(it)],
    ["shard", it.shard],
    ["context", JSON.stringify(it.context ?? {})],
    ["paused", it.paused ? (it.pausedUntil ? html`until ${moment(it.pausedUntil)}` : "until resume") : null],
    ["on hold", it.heldUntil && it.heldUntil > it.asOf ? html`until ${moment(it.heldUntil)}` : null],
    ["probing", it.probing ? "one job goes first, and has to succeed" : null],
    ["paused or held by", it.stoppedBy],
    ["because", it.stopReason],
    [
      "breaker",
      it.breakerUntil && it.breakerUntil > it.asOf ? html`open until ${moment(it.breakerUntil)}` : null,
    ],
    ["opened by", it.breakerReason],
    ["made", moment(it.createdAt)],
  ];
  const isStopped = it.stop !== null;
  const actions = {
    target,
    names: [isStopped ? "resume" : "pause", ...(failed.length > 0 ? (["retry"] as const) : [])],
    more: ["admit", "set-limit", "hold", "move", "remove", "cancel"],
  } as const;
  return {
    title,
    trail,
    body: html`${explanation(it, visit, actions, numbersOf(it, failed, visit))}
${failed.length > 0 ? html`<h2>Failed</h2>${failedTable(failed.slice(0, HEAD), base)}` : none}
${refused.length > 0 ? html`<h2>Refused</h2>${refusedTable(refused, base)}` : none}
${it.droppedTotal ? html`<h2>Dropped</h2>${droppedTable(dropped, base)}` : none}
<h2>Next jobs</h2>
${headTable(head, base)}
${waited}
<h2>The partition</h2>
${factList(facts)}`,
  };
};

/** Jobs of it that failed, those that wait for their retry among them. A breaker is opened by such. */
interface Failed {
  readonly id: string;
  readonly state: string;
  readonly lastError: string | null;
  readonly attempts: number;
  readonly runAt: Date | null;
}

/** The newest first. Graphile Worker has no index by state, but one by id. */
const FAILED = `where policy = ${parameter(1, "text")} and partition = ${parameter(2, "text")}
  and state in ('failed', 'parked') and last_error is not null order by state, id desc limit ${parameter(3, "int")}`;

function failedJobs(
  looking: OperateContext,
  { policy, partition }: PartitionTarget,
): Promise<readonly Failed[]> {
  return rowsOf<Failed>(looking, "jobs", FAILED, [policy, partition, MOST_FAILED]);
}

/** A staged job that could not be admitted. */
interface Refused {
  readonly id: string;
  readonly error: string | null;
  readonly failures: number;
  readonly retryAt: Date | null;
}

const REFUSED = `where policy = ${parameter(1, "text")} and partition = ${parameter(2, "text")} and retry_at is not null
  order by id limit ${parameter(3, "int")}`;

/** Without payloads, which a role that only looks may not read. */
function refusedJobs(looking: OperateContext, { policy, partition }: PartitionTarget) {
  const columns = "id, error, failures, retry_at";
  const values = [policy, partition, HEAD];
  return rowsOf<Refused>(looking, "staged_jobs", REFUSED, values, undefined, columns);
}

/** A job that was dropped. Only a policy with a history knows which it was. */
interface Dropped {
  readonly id: string;
  readonly endedAt: Date;
  readonly error: string | null;
}

const DROPPED = `where policy = ${parameter(1, "text")} and partition = ${parameter(2, "text")}
  and outcome = 'dropped' and ended_at > now() - interval '1 day' order by ended_at desc limit ${parameter(3, "int")}`;

/** Where its jobs are. */
function numbersOf(it: Explanation, failed: readonly Failed[], { base }: Visit): Markup {
  const { policy, partition } = it;
  const jobs = (state: string, text: string) =>
    html`<a href="${pathTo(base, "/jobs", { policy, partition, state })}">${text}</a>`;
  const forGood = failed.filter(({ state }) => state === "failed");
  const count = `${grouped(forGood.length)}${failed.length === MOST_FAILED ? "+" : ""}`;
  return strip([
    ["waiting", jobs("staged", grouped(it.staged))],
    ["in flight", jobs("running", grouped(it.inFlight))],
    ["failed for good", forGood.length > 0 ? jobs("failed", count) : "0", inShort(failed[0]?.lastError)],
    ["dropped", grouped(it.droppedTotal)],
    ["last admitted", moment(it.lastAdmittedAt)],
    ...(it.admitsAMinute == null
      ? []
      : [["admitted a minute", `about ${aMinute(it.admitsAMinute)}`] as const]),
  ]);
}

const inShort = (error: string | null | undefined) => firstLine(error)?.slice(0, 160);

function failedTable(failed: readonly Failed[], base: string): Markup {
  return table(
    `The newest first, at most ${HEAD}`,
    failed,
    [
      { title: "Job", cell: ({ id }) => jobLink(base, id) },
      { title: "State", cell: ({ state }) => jobBadge(state) },
      { title: "Attempts", isNumber: true, cell: ({ attempts }) => grouped(attempts) },
      { title: "Error", cell: ({ lastError }) => inShort(lastError) ?? null },
      // Graphile Worker gives a job a time also after its last attempt
      { title: "Tried again", cell: ({ state, runAt }) => (state === "failed" ? "never" : moment(runAt)) },
    ],
    "",
  );
}

function refusedTable(refused: readonly Refused[], base: string): Markup {
  return table(
    `Jobs that could not be admitted, at most ${HEAD}`,
    refused,
    [
      { title: "Job", cell: ({ id }) => jobLink(base, id) },
      { title: "Error", cell: ({ error }) => inShort(error) ?? "its row was locked" },
      { title: "Times", isNumber: true, cell: ({ failures }) => grouped(failures) },
      { title: "Tried again", cell: ({ retryAt }) => moment(retryAt) },
    ],
    "",
  );
}

function droppedTable(dropped: readonly Dropped[], base: string): Markup {
  return table(
    `Of the last day, the newest first, at most ${HEAD}`,
    dropped,
    [
      { title: "Job", cell: ({ id }) => jobLink(base, id) },
      { title: "When", cell: ({ endedAt }) => moment(endedAt) },
      { title: "Why", cell: ({ error }) => inShort(error) ?? null },
    ],
    html`Which jobs, and when, is known for as long as the policy keeps a history (its option <code>history</code>).`,
  );
}

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
      { title: "Job", cell: ({ id }) => (id === undefined ? null : jobLink(base, id)) },
      { title: "Due", cell: ({ runAt }) => moment(runAt) },
      {
        title: "Waits for",
        cell: ({ reason, gate }) => reasonBadge(reason, gate),
      },
      { title: "Expected to start", cell: expected },
    ],
    "No job waits in staging.",
  );
}
