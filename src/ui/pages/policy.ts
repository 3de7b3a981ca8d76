import { parameter } from "../../db/engine.ts";
import { status } from "../../operate/status.ts";
import { rowsOf } from "../../operate/view-rows.ts";
import { actionLinks } from "../parts/action-links.ts";
import { type Fact, factList } from "../parts/facts.ts";
import { partitionLink, pathTo } from "../parts/links.ts";
import { html, type Markup } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import { grouped } from "../parts/words.ts";
import { bars, lastHour, reasonTable, shadowTable } from "./minutes.ts";
import { stateOf } from "./policies.ts";
import { asked, type Page } from "./visit.ts";

const MOST = 20;

interface Limiter {
  readonly gate: string;
  readonly scopeKey: string;
  readonly kind: string;
  readonly available: number | null;
  readonly inFlight: number;
  readonly max: number | null;
  readonly capacity: number | null;
  readonly shadow: boolean;
}

interface Waiting {
  readonly partition: string;
  readonly staged: number;
  readonly inFlight: number;
  readonly reason: string;
}

const SHARED = `where policy = ${parameter(1, "text")} and scope_key = '' order by gate`;
const BUSIEST = `where policy = ${parameter(1, "text")} and reason is not null and staged > 0
  order by staged desc, partition limit ${parameter(2, "int")}`;

/** One policy: what it is doing, and what holds it back. */
export const policy: Page = async (visit) => {
  const { looking, base, query } = visit;
  const name = asked(query, "policy");
  if (name === undefined) return null;
  const [found] = (await status(looking, { policy: name })).policies;
  if (!found) return null;
  const minutes = await lastHour(looking, name);
  const shared = await rowsOf<Limiter>(looking, "limiters", SHARED, [name]);
  const waiting = await rowsOf<Waiting>(looking, "partitions", BUSIEST, [name, MOST]);
  const [row] = await rowsOf<{ definition: object }>(
    looking,
    "policies",
    `where policy = ${parameter(1, "text")}`,
    [name],
  );
  const facts: readonly Fact[] = [
    ["state", stateOf(found)],
    ["staged", grouped(found.staged)],
    ["in flight", grouped(found.inFlight)],
    ["partitions", grouped(found.partitions)],
    ["ended in workers without the package", grouped(found.endedElsewhere)],
  ];
  return {
    title: name,
    body: html`${factList(facts)}
${actionLinks(visit, { policy: name }, [found.paused ? "resume" : "pause", "admit", "set-limit", "retry", "remove", "cancel"])}
${bars(minutes, "admitted", "Admitted jobs")}
<h2>Gates over the whole policy</h2>
${gateTable(shared)}
<h2>Partitions that wait</h2>
${waitingTable(waiting, name, base)}
<p><a href="${pathTo(base, "/partitions", { policy: name })}">All partitions</a></p>
<h2>Why partitions kept due jobs</h2>
${reasonTable(minutes)}
${shadowTable(minutes)}
<details><summary>Definition in force</summary><pre>${JSON.stringify(row?.definition ?? {}, null, 2)}</pre></details>`,
  };
};

function gateTable(shared: readonly Limiter[]): Markup {
  return table(
    "What they have left",
    shared,
    [
      { title: "Gate", cell: ({ gate, shadow }) => (shadow ? `${gate} (shadow)` : gate) },
      { title: "Kind", cell: ({ kind }) => kind },
      { title: "In flight", isNumber: true, cell: ({ inFlight }) => grouped(inFlight) },
      {
        title: "Left",
        isNumber: true,
        cell: ({ available }) => (available === null ? "no bound" : grouped(available)),
      },
      { title: "Of", isNumber: true, cell: ({ max, capacity }) => grouped(max ?? capacity) },
    ],
    "No gate counts over the whole policy yet.",
  );
}

function waitingTable(waiting: readonly Waiting[], name: string, base: string): Markup {
  return table(
    `Those with the most staged jobs, at most ${MOST}`,
    waiting,
    [
      { title: "Partition", cell: ({ partition }) => partitionLink(base, name, partition) },
      { title: "Reason", cell: ({ reason }) => reason },
      { title: "Staged", isNumber: true, cell: ({ staged }) => grouped(staged) },
      { title: "In flight", isNumber: true, cell: ({ inFlight }) => grouped(inFlight) },
    ],
    "No partition waits for anything.",
  );
}
