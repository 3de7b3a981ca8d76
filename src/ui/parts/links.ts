import { keyInWords } from "../../operate/gate-words.ts";
import { html, type Markup } from "./markup.ts";

/** A path of the pages with its query. Values that are undefined or null are left out. */
export function pathTo(
  base: string,
  path: string,
  query: Readonly<Record<string, string | number | null | undefined>> = {},
): string {
  const given = Object.entries(query).flatMap(([key, value]) =>
    value === undefined || value === null ? [] : [[key, String(value)] as [string, string]],
  );
  const search = new URLSearchParams(given).toString();
  return `${base}${path}${search ? `?${search}` : ""}`;
}

export function policyLink(base: string, policy: string): Markup {
  return html`<a href="${pathTo(base, "/policy", { policy })}">${policy}</a>`;
}

export function partitionLink(base: string, policy: string, partition: string): Markup {
  return html`<a href="${pathTo(base, "/partition", { policy, partition })}">${keyInWords(partition)}</a>`;
}

export function groupLink(base: string, group: string): Markup {
  return html`<a href="${pathTo(base, "/group", { group })}">${group}</a>`;
}

export function jobLink(base: string, id: string): Markup {
  return html`<a href="${pathTo(base, "/job", { id })}">${id}</a>`;
}
