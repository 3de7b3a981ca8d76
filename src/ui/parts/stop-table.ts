import type { StopInForce } from "../../operate/stops.ts";
import { badge } from "./badge.ts";
import { partitionLink, pathTo, policyLink } from "./links.ts";
import { html, type Markup } from "./markup.ts";
import { table } from "./table.ts";
import { moment } from "./words.ts";

/** Pauses, holds and open breakers; for operators each with the way to end it, if there is room. */
export function stopTable(stops: readonly StopInForce[], base: string, ends = false): Markup {
  return table(
    "Pauses, holds and open breakers",
    stops,
    [
      { title: "What", cell: ({ kind }) => badge(kind, "bad") },
      { title: "Policy", cell: ({ policy }) => (policy === null ? "all" : policyLink(base, policy)) },
      {
        title: "Partition",
        cell: ({ policy, partition, seen }) =>
          policy !== null && partition !== null
            ? html`${partitionLink(base, policy, partition)}${seen ? "" : html` ${badge("no job yet", "warn")}`}`
            : "all",
      },
      { title: "Since", cell: ({ since }) => moment(since) },
      { title: "Until", cell: ({ until }) => (until ? moment(until) : "it is resumed") },
      { title: "By", cell: ({ by }) => by },
      { title: "Reason", cell: ({ reason }) => reason },
      ...(ends ? [{ title: "Do", cell: (stop: StopInForce) => resumeLink(stop, base) }] : []),
    ],
    "Nothing is stopped by name.",
  );
}

/** No form ends the pause of all policies. */
function resumeLink({ policy, partition }: StopInForce, base: string): Markup | null {
  if (policy === null) return null;
  const target = { policy, partition: partition ?? undefined };
  return html`<a href="${pathTo(base, "/act/resume", target)}" aria-label="Resume ${partition ?? "all"} of ${policy}">Resume</a>`;
}
