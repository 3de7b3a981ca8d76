import type { Answer } from "../../../operate/explain.ts";
import { partitionLink, pathTo } from "../../parts/links.ts";
import { html } from "../../parts/markup.ts";
import { table } from "../../parts/table.ts";
import { grouped } from "../../parts/words.ts";
import { countsOf } from "./counts.ts";
import { look } from "./look.ts";
import { ownPage } from "./own.ts";
import type { TenantPage } from "./visit.ts";
import { startsIn, waitsFor, waitsUntil } from "./words.ts";

/** To explain one takes some milliseconds. */
const MOST = 20;

/** The tenant's partitions. */
export const overview: TenantPage = async ({ looking, base, own, query }) => {
  const { targets, next } = await ownPage(looking, own, query, MOST);
  const rows = [];
  for (const target of targets) rows.push({ target, it: await look(looking, target) });
  const counts = await countsOf(
    looking,
    rows.map(({ it }) => it?.partitionId ?? null),
  );
  const countOf = (it: Answer | null, what: "staged" | "inFlight") =>
    grouped(counts.get(it?.partitionId ?? "")?.[what] ?? 0);
  return {
    title: "Your jobs",
    body: html`${table(
      `At most ${MOST} partitions on a page`,
      rows,
      [
        { title: "Policy", cell: ({ target }) => target.policy },
        {
          title: "Partition",
          cell: ({ target, it }) =>
            it ? partitionLink(base, target.policy, target.partition) : target.partition,
        },
        { title: "Waiting", isNumber: true, cell: ({ it }) => countOf(it, "staged") },
        { title: "In flight", isNumber: true, cell: ({ it }) => countOf(it, "inFlight") },
        { title: "Next job waits for", cell: ({ it }) => (it ? waitsFor(it) : NO_JOB) },
        { title: "Until", cell: ({ it }) => (it ? waitsUntil(it) : null) },
        { title: "Expected to start", cell: ({ it }) => (it ? startsIn(it) : null) },
      ],
      next
        ? "None of yours is among those that were looked through."
        : "There is nothing that you may see here.",
    )}
${next ? html`<p><a href="${pathTo(base, "/", next)}" rel="next">More</a></p>` : ""}`,
  };
};

const NO_JOB = "nothing: it has had no job lately";
