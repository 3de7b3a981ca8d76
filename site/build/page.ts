// The frame of each page of the site.

/** No page loads anything from elsewhere. PGlite is WebAssembly, which needs a right of its own. */
export const POLICY_OF_PAGES =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "worker-src 'self'; base-uri 'none'; form-action 'none'";

export interface Page {
  /** The name of its file, such as `playground.html`. */
  readonly name: string;
  readonly title: string;
  /** HTML. */
  readonly body: string;
  /** A module that it loads. */
  readonly script?: string;
}

const PLACES = [
  ["index.html", "Overview"],
  ["playground.html", "Playground"],
  ["docs/start.html", "Start"],
  ["docs/gates.html", "Gates"],
  ["docs/policies.html", "Policies"],
  ["docs/operating.html", "Operating"],
  ["docs/guarantees.html", "Guarantees"],
  ["pages.html", "All pages"],
] as const;

export function laidOut({ name, title, body, script }: Page): string {
  const up = "../".repeat(name.split("/").length - 1);
  const places = PLACES.map(
    ([to, label]) => `<li><a href="${up}${to}"${to === name ? ' aria-current="page"' : ""}>${label}</a></li>`,
  );
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="content-security-policy" content="${POLICY_OF_PAGES}">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>${escaped(title)} – dispatch policies</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${up}assets/style.css">
<link rel="stylesheet" href="${up}assets/site.css">
${script === undefined ? "" : `<script type="module" src="${script}"></script>`}
</head>
<body>
<a class="skip" href="#main">To the content</a>
<header><nav aria-label="Pages"><ul>${places.join("")}</ul></nav></header>
<main id="main" tabindex="-1">
${body}
</main>
</body>
</html>
`;
}

export function escaped(text: string): string {
  const names: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return text.replace(/[&<>"]/g, (letter) => names[letter] as string);
}
