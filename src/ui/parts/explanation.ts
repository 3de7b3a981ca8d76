import { calendarInWords, some } from "../../counted.ts";
import type { Answer, Estimate, ExplainedGate, Explanation } from "../../operate/explain.ts";
import { keyInWords, sharesInWords } from "../../operate/gate-words.ts";
import { keyAsWritten } from "../pages/form.ts";
import type { Visit } from "../pages/visit.ts";
import { type Actions, actionLinks } from "./action-links.ts";
import { badge, jobBadge, reasonBadge } from "./badge.ts";
import { gauge } from "./gauge.ts";
import { jobLink, partitionLink, pathTo, policyLink } from "./links.ts";
import { html, type Markup, none } from "./markup.ts";
import { mendingOf } from "./mend.ts";
import { type Column, table } from "./table.ts";
import { grouped, lasting, moment, sentence } from "./words.ts";

/** Why something waits: the sentence, when it goes, what may be done, and what each gate says. */
export function explanation(
  it: Explanation,
  visit: Visit,
  actions: Omit<Actions, "button">,
  numbers: Markup = none,
): Markup {
  const { base } = visit;
  const { words, button, verb } = mendingOf(it, visit);
  const names = actions.names.filter((name) => name !== verb);
  return html`<p class="sentence">${sentence(it.sentence)}</p>
${words}
${actionLinks(visit, { ...actions, names, button })}
${numbers}
<dl class="facts">
<dt>state</dt><dd>${jobBadge(it.state)}</dd>
${it.reason ? html`<dt>waits for</dt><dd>${reasonBadge(it.reason, it.gate)}</dd>` : ""}
${it.acts ? html`<dt>who acts</dt><dd>${it.acts}</dd>` : ""}
${it.policy ? html`<dt>policy</dt><dd>${policyLink(base, it.policy)}</dd>` : ""}
${it.estimate || it.noEstimate ? html`<dt>expected to start</dt><dd>${expected(it)}</dd>` : ""}
${it.place ? html`<dt>before it</dt><dd>${before(it.place)}</dd>` : ""}
<dt>as of</dt><dd>${moment(it.asOf)}</dd>
</dl>
${it.gates.length > 0 ? gates(it, visit) : ""}`;
}

/** When a job starts, in words. */
export function expected({ estimate, noEstimate, asOf }: Answer): string {
  if (noEstimate) return `nobody can tell: ${noEstimate}`;
  return estimate ? `${expectedTimes(estimate, asOf)}, by ${estimate.basis}` : "–";
}

/** The same without what it rests on. */
export function expectedTimes({ from, until }: Estimate, asOf: Date): string {
  const secondsTo = (at: Date) => Math.round(Math.max(at.getTime() - asOf.getTime(), 0) / 1000);
  const ends = [from, until].map((at) => lasting(secondsTo(at)));
  return `in ${[...new Set(ends)].join(" to ")}`;
}

function before({ jobsBefore, partitionsBefore }: NonNullable<Explanation["place"]>): string {
  const jobs = jobsBefore === null ? "it is not due" : `${some(jobsBefore, "job")} of its partition`;
  return partitionsBefore === null ? jobs : `${jobs}, ${some(partitionsBefore, "partition")}`;
}

function gates({ gates: found, policy, asOf }: Explanation, visit: Visit): Markup {
  const { base } = visit;
  return html`<h2>Gate by gate</h2>
${table(
  "From narrow to broad",
  found,
  [
    {
      title: "Room",
      cell: ({ lacks, shadow, wouldLack }) => {
        if (shadow) return wouldLack ? "~ none, if it were real" : "~ yes, also if it were real";
        return lacks ? html`<span class="bad">✕ none</span>` : html`<span class="good">✓ yes</span>`;
      },
    },
    {
      title: "Gate",
      cell: ({ gate, key, shadow, sharedBy }) =>
        `${gate}${key === null ? "" : ` of ${keyInWords(key)}`}${shadow ? " (shadow)" : ""}${sharedBy ? `, shared by ${sharedBy.join(", ")}` : ""}`,
    },
    { title: "Left", cell: leftOf },
    { title: "Limit", cell: limitOf },
    { title: "Set by", cell: setBy },
    { title: "Next", cell: ({ nextAt }) => moment(nextAt) },
    ...change(visit, policy),
  ],
  "It has no gate.",
)}
${found
  .filter(({ holders }) => holders.length > 0)
  .map(
    ({ gate, holders, runsUsually }) => html`<h2>Who occupies ${gate}</h2>
${table(
  `Those that have occupied a slot for longest${runsUsually === null ? "" : `. Of 100 runs of the policy 95 take ${lasting(runsUsually)} at most`}`,
  holders,
  [
    { title: "Job", cell: ({ jobId }) => jobLink(base, jobId) },
    {
      title: "Partition",
      cell: ({ policy: of, partition }) => partitionLink(base, of, partition),
    },
    {
      title: "For",
      isNumber: true,
      cell: ({ admittedAt, long }) =>
        html`${since(admittedAt, asOf)}${long ? html` ${badge("unusually long", "warn")}` : ""}`,
    },
    { title: "Admitted", cell: ({ admittedAt }) => moment(admittedAt) },
    { title: "Started", cell: ({ startedAt }) => moment(startedAt) },
    { title: "Worker", cell: ({ workerId }) => workerId },
  ],
  "",
)}`,
  )}`;
}

/** Operators set a gate's limit for the key that they look at. The bound ahead of the workers is no gate of the policy. */
function change({ base, rights }: Visit, policy: string | undefined): readonly Column<ExplainedGate>[] {
  if (rights.role !== "operator" || policy === undefined) return [];
  const cell = ({ gate, key, scope, sharedBy }: ExplainedGate) =>
    scope === "workers"
      ? ""
      : html`<a href="${pathTo(base, "/act/set-limit", { policy: sharedBy ? gate : policy, gate, key: keyAsWritten(key ?? undefined) })}" class="whole" aria-label="Change limit… of ${gate}">Change limit…</a>`;
  return [{ title: "Change", cell }];
}

function since(from: Date, asOf: Date): string {
  return lasting(Math.round(Math.max(asOf.getTime() - from.getTime(), 0) / 1000));
}

/** The same with a bar of what is used. */
function leftOf(gate: ExplainedGate): Markup | string {
  const of = "max" in gate.limit ? gate.limit.max : gate.limit.capacity;
  return of === null || gate.free === null ? left(gate) : html`${gauge(of - gate.free, of)}${left(gate)}`;
}

/** What a gate has left. */
export function left({ free, limit }: ExplainedGate): string {
  if (free === null) return "no bound";
  const unit = "max" in limit ? "slot" : "token";
  return `${grouped(free)} ${unit}${free === 1 ? "" : "s"}`;
}

/** A gate's numbers. */
export function limitOf({ limit }: ExplainedGate): string {
  if ("max" in limit) {
    if (limit.max === null) return "no bound";
    const shares = sharesInWords(limit);
    return `${grouped(limit.max)} at once${shares === undefined ? "" : ` (${shares})`}`;
  }
  if (limit.calendar !== null) return `${grouped(limit.rate)} per ${calendarInWords(limit.calendar)}`;
  return `${grouped(limit.rate)} per ${lasting(limit.per)}, ${grouped(limit.capacity)} at most`;
}

function setBy({ source, setBy: by }: ExplainedGate): Markup | string {
  if (!by) return source;
  const reach = by.where ? ` for ${JSON.stringify(by.where)}` : by.key === null ? " for every key" : "";
  return html`${by.by}${by.reason ? ` (${by.reason})` : ""}${reach}${by.until ? html` until ${moment(by.until)}` : ""}`;
}
