import type { StopInForce } from "../../operate/stops.ts";
import { badge } from "./badge.ts";
import { partitionLink, policyLink } from "./links.ts";
import { html, type Markup } from "./markup.ts";
import { table } from "./table.ts";
import { moment } from "./words.ts";

/** Pauses, holds and open breakers. */
export function stopTable(stops: readonly StopInForce[], base: string): Markup {
  return table(
    "Pauses, holds and open breakers",
    stops,
    [
      { title: "What", cell: ({ kind }) => badge(kind, "bad") },
      { title: "Policy", cell: ({ policy }) => (policy === null ? "all" : policyLink(base, policy)) },
      {
        title: "Partition",
        cell: ({ policy, partition }) =>
          policy !== null && partition !== null ? partitionLink(base, policy, partition) : "all",
      },
      { title: "Until", cell: ({ until }) => (until ? moment(until) : "resume") },
      { title: "By", cell: ({ by }) => by },
      { title: "Reason", cell: ({ reason }) => reason },
      { title: "Seen", cell: ({ seen }) => (seen ? "yes" : html`<span class="bad">no job yet</span>`) },
    ],
    "Nothing is stopped by name.",
  );
}
