import { assetPath } from "../assets.ts";
import type { Viewer } from "../create-ui.ts";
import { html, type Markup, none } from "./markup.ts";

/** Each with the key that leads there after `g`. */
const PLACES = [
  ["/", "Overview", "o"],
  ["/policies", "Policies", "y"],
  ["/partitions", "Partitions", "p"],
  ["/jobs", "Jobs", "j"],
  ["/groups", "Groups", "u"],
  ["/limits", "Limits", "l"],
  ["/workers", "Workers", "w"],
  ["/audit", "Audit", "a"],
  ["/health", "Health", "h"],
] as const;

/** A tenant's pages. */
const TENANT_PLACES = [["/", "Your jobs", "o"]] as const;

/** live.js listens to them. */
const KEYS = [
  ["/", "to the search, as do ⌘K and Ctrl+K"],
  ["j k", "to the next row, and to the one before; Enter opens it"],
  ["r", "read the page anew"],
  ["?", "show this list"],
  ["Esc", "close it"],
] as const;

/** live.js shows it. */
const REFRESH = html`<p class="live" data-live hidden><label>Refresh <select><option value="0">off</option><option value="2">2 s</option><option value="5">5 s</option><option value="10">10 s</option></select></label> <span class="bad" role="status"></span></p>`;

/** Links with their texts. */
export type Trail = readonly (readonly [text: string, to: string])[];

export interface Laid {
  readonly base: string;
  /** Its name. Undefined: nobody has given one. */
  readonly environment: string | undefined;
  readonly viewer: Viewer | undefined;
  readonly path: string;
  /** Whether the page is what its address shows. The answer to a form is not: read again, it would be gone. */
  readonly isLive: boolean;
  readonly title: string;
  readonly body: Markup;
  readonly trail?: Trail | undefined;
  /** What was searched for. */
  readonly asked?: string | undefined;
}

/** The frame of every page. */
export function layout(page: Laid): Markup {
  const { base, environment, viewer, path, isLive, title, body, trail = [], asked = "" } = page;
  const isTenant = viewer?.role === "tenant";
  const places = isTenant ? TENANT_PLACES : PLACES;
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>${environment === undefined ? "" : `${environment}: `}${title} – dispatch policies</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${assetPath(base, "style.css")}">
<script type="module" src="${assetPath(base, "live.js")}"></script>
</head>
<body>
<a class="skip" href="#main">To the content</a>
<header>
${environment === undefined ? none : html`<p class="environment">${environment}</p>`}
<nav aria-label="Pages"><ul>${places.map(
    ([to, name, key]) =>
      html`<li><a href="${base}${to}" aria-keyshortcuts="g ${key}"${isTenant || isAt(path, to) ? html` aria-current="page"` : ""}>${name}</a></li>`,
  )}</ul></nav>
${isTenant ? none : html`<form method="get" action="${base}/search" role="search"><label>Search <input type="search" name="q" value="${asked}" placeholder="customer, job, error …"></label></form>`}
<p class="who">${viewer ? html`${viewer.name}, ${viewer.role}` : ""}</p>
${isLive ? REFRESH : none}
</header>
<main id="main" tabindex="-1">
${trail.length > 0 ? html`<nav class="trail" aria-label="You are below"><ol>${trail.map(([text, to]) => html`<li><a href="${to}">${text}</a></li>`)}</ol></nav>` : none}
<h1>${title}</h1>
${body}
</main>
<footer>Times are UTC.</footer>
<dialog id="keys" aria-labelledby="keys-title">
<h2 id="keys-title">Keys</h2>
<dl class="facts">${[
    ...KEYS.filter(([key]) => !isTenant || key !== "/"),
    ...places.map(([, name, key]) => [`g ${key}`, name] as const),
  ].map(([key, does]) => html`<dt><kbd>${key}</kbd></dt><dd>${does}</dd>`)}</dl>
<form method="dialog"><button>Close</button></form>
</dialog>
</body>
</html>
`;
}

/** A policy is among the policies, and so on. */
function isAt(path: string, to: string): boolean {
  const parent: Readonly<Record<string, string>> = {
    "/policy": "/policies",
    "/partition": "/partitions",
    "/job": "/jobs",
    "/group": "/groups",
  };
  return (parent[path] ?? path) === to;
}
