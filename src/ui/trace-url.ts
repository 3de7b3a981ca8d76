import type { Rule } from "../checks/options.ts";
import { html, type Markup } from "./parts/markup.ts";

/** The address of a trace by its id: 32 digits and letters from a to f. */
export type TraceUrl = (traceId: string) => string;

export const aTraceUrl: Rule = {
  expects:
    'a function from a trace id to an address, such as (traceId) => "https://traces.example.org/" + traceId',
  accepts: (value) => typeof value === "function",
};

/**
 * A trace as a link, or as its id alone if nobody says where traces are shown.
 *
 * The danger: an address such as `javascript:` would run in the page's name. The cure: only http and https become links. For
 * anything else the page shows the id and says so, because the rest of the page is of use also then.
 */
export function traceLink(traceId: string, traceUrl: TraceUrl | undefined): Markup {
  if (traceUrl === undefined) return html`${traceId}`;
  const address = addressOf(traceId, traceUrl);
  if (address === null)
    return html`${traceId} <span class="bad">(traceUrl gives no http or https address for it)</span>`;
  return html`<a href="${address}" rel="noreferrer">${traceId}</a>`;
}

function addressOf(traceId: string, traceUrl: TraceUrl): string | null {
  const given = traceUrl(traceId);
  const url = URL.parse(given);
  return url !== null && ["http:", "https:"].includes(url.protocol) ? url.href : null;
}
