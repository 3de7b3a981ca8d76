import { type Answer, askNext, type ExplainedGate } from "../../../operate/explain.ts";
import { parameter, rowsOf } from "../../../operate/view-rows.ts";
import { left, limitOf } from "../../parts/explanation.ts";
import { jobLink } from "../../parts/links.ts";
import { html, type Markup } from "../../parts/markup.ts";
import { table } from "../../parts/table.ts";
import { grouped, moment } from "../../parts/words.ts";
import { countsOf } from "./counts.ts";
import { look } from "./look.ts";
import { isOwn } from "./own.ts";
import type { TenantPage } from "./visit.ts";
import { ownGates, startsIn, waitsFor, waitsUntil } from "./words.ts";

/** How many jobs it lists that wait, and that are in flight. */
const [HEAD, MOST] = [5, 20];
const IN_FLIGHT = `where policy = ${parameter(1, "text")} and partition = ${parameter(2, "text")}
  order by admitted_at, job_id limit ${parameter(3, "int")}`;

interface Flying {
  readonly jobId: string;
  readonly admittedAt: Date;
  readonly startedAt: Date | null;
}

/** One partition of the tenant. */
export const partition: TenantPage = async ({ looking, base, own, query }) => {
  const [policy, key] = [query.get("policy"), query.get("partition")];
  if (policy === null || key === null || !(await isOwn(looking, own, policy, key))) return null;
  const it = await look(looking, { policy, partition: key });
  if (!it) return null;
  const counts = (await countsOf(looking, [it.partitionId])).values().next().value;
  const head = await askNext(looking, { policy, partition: key, count: HEAD });
  const flying = await rowsOf<Flying>(looking, "in_flight_jobs", IN_FLIGHT, [policy, key, MOST]);
  return {
    title: key === "" ? "(empty key)" : key,
    body: html`<dl class="facts">
<dt>policy</dt><dd>${policy}</dd>
<dt>waiting</dt><dd>${grouped(counts?.staged ?? 0)}</dd>
<dt>in flight</dt><dd>${grouped(counts?.inFlight ?? 0)}</dd>
<dt>next job waits for</dt><dd>${waitsFor(it)}</dd>
<dt>until</dt><dd>${waitsUntil(it)}</dd>
<dt>expected to start</dt><dd>${startsIn(it)}</dd>
</dl>
<h2>Its own limits</h2>
${gateTable(ownGates(it))}
<h2>Next jobs</h2>
${headTable(head, base)}
<h2>In flight</h2>
${flyingTable(flying, base)}`,
  };
};

function gateTable(gates: readonly ExplainedGate[]): Markup {
  return table(
    "Limits that count the jobs of this partition alone",
    gates,
    [
      { title: "Limit", cell: ({ gate }) => gate },
      { title: "Left", cell: left },
      { title: "Of", cell: limitOf },
    ],
    "No limit counts the jobs of this partition alone.",
  );
}

function headTable(head: readonly Answer[], base: string): Markup {
  return table(
    `In the order in which they go, at most ${HEAD}`,
    head,
    [
      { title: "Job", cell: ({ id }) => (id === undefined ? null : jobLink(base, id)) },
      { title: "Due", cell: ({ runAt }) => moment(runAt) },
      { title: "Waits for", cell: waitsFor },
      { title: "Until", cell: waitsUntil },
      { title: "Expected to start", cell: startsIn },
    ],
    "No job waits.",
  );
}

function flyingTable(flying: readonly Flying[], base: string): Markup {
  return table(
    `Those that were admitted first, at most ${MOST}`,
    flying,
    [
      { title: "Job", cell: ({ jobId }) => jobLink(base, jobId) },
      { title: "Admitted", cell: ({ admittedAt }) => moment(admittedAt) },
      { title: "Started", cell: ({ startedAt }) => moment(startedAt) },
    ],
    "No job is in flight.",
  );
}
