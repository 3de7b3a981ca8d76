// The pages of the repository as HTML. Links between them stay; a file that a page links, and is no page, is copied beside it.
import { copyFileSync, globSync, mkdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { Marked, type Tokens } from "marked";
import { escaped, type Page } from "./page.ts";

const SOURCES = ["*.md", "docs/**/*.md", "examples/*.md", "examples/*/README.md"];
/** These have other names in the site. */
const NAMES: Readonly<Record<string, string>> = { "README.md": "index.html", "llms.txt": "pages.html" };

/** The pages. Files that they link are copied to `out`. */
export function docsPages(root: string, out: string): readonly Page[] {
  const sources = [...globSync(SOURCES, { cwd: root, exclude: ["**/node_modules/**"] }), "llms.txt"];
  const names = new Map(sources.map((source) => [source, NAMES[source] ?? source.replace(/\.md$/, ".html")]));
  return [...names].map(([source, name]) => {
    const text = readFileSync(path.join(root, source), "utf8");
    const [, title = name] = /^# (.*)$/m.exec(text) ?? [];
    const addressOf = (href: string) => addressIn(root, out, names, source, href);
    return { name, title: title.replaceAll("`", ""), body: asHtml(text, addressOf) };
  });
}

/** Where a link of a page leads in the site. Undefined: nowhere, it is a folder. */
function addressIn(
  root: string,
  out: string,
  names: ReadonlyMap<string, string>,
  source: string,
  href: string,
): string | undefined {
  if (/^[a-z]+:|^#/i.test(href)) return href;
  const [file = "", anchor] = href.split("#");
  const target = path.join(path.dirname(source), file);
  const here = path.dirname(names.get(source) as string);
  const page = names.get(target);
  if (page !== undefined) return path.relative(here, page) + (anchor === undefined ? "" : `#${anchor}`);
  if (!statSync(path.join(root, target), { throwIfNoEntry: false })?.isFile()) return undefined;
  // a browser shows a text, and would store a file of code
  const copy = /\.(svg|png|txt)$/.test(target) ? target : `${target}.txt`;
  mkdirSync(path.dirname(path.join(out, copy)), { recursive: true });
  copyFileSync(path.join(root, target), path.join(out, copy));
  return path.relative(here, copy);
}

function asHtml(text: string, addressOf: (href: string) => string | undefined): string {
  const anchors = new Set<string>();
  const markdown = new Marked({
    renderer: {
      heading({ tokens, depth, text: heading }) {
        const id = anchorOf(heading, anchors);
        return `<h${depth} id="${escaped(id)}">${this.parser.parseInline(tokens)}</h${depth}>\n`;
      },
      link({ href, tokens }) {
        const words = this.parser.parseInline(tokens);
        const address = addressOf(href);
        return address === undefined ? words : `<a href="${escaped(address)}">${words}</a>`;
      },
      image({ href, text: words }) {
        return `<img src="${escaped(addressOf(href) ?? href)}" alt="${escaped(words)}">`;
      },
      // it can be scrolled by the keyboard
      code: ({ text: code }: Tokens.Code) => `<pre tabindex="0"><code>${escaped(code)}</code></pre>\n`,
    },
  });
  const html = markdown.parse(text, { async: false });
  return html
    .replaceAll("<table>", '<div class="wide" tabindex="0" role="group" aria-label="Table"><table>')
    .replaceAll("</table>", "</table></div>")
    .replace(/<(t[hd]) align="\w+">/g, "<$1>");
}

/** As GitHub makes it of a heading. */
function anchorOf(heading: string, known: Set<string>): string {
  const plain = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").toLowerCase();
  const anchor = plain.replace(/[^\p{L}\p{N}_ -]/gu, "").replaceAll(" ", "-");
  let nth = 0;
  const nthOf = () => (nth === 0 ? anchor : `${anchor}-${nth}`);
  while (known.has(nthOf())) nth++;
  known.add(nthOf());
  return nthOf();
}
