// No page is hard to find, and no page has figures of its own.
import { globSync, readFileSync } from "node:fs";
import test from "ava";
import { linksOf } from "../helpers/links.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const read = (file: string) => readFileSync(ROOT + file, "utf8");
/** These are for who changes the package. */
const INTERNAL = ["docs/engine.md", "docs/design.md", "docs/scenarios.md", "docs/benchmarks.md"];
const PAGES = globSync("docs/*.md", { cwd: ROOT }).sort();

test("llms.txt lists each page once, and nothing else of docs/", (t) => {
  const links = linksOf(read("llms.txt")).filter((link) => link.startsWith("docs/"));
  t.deepEqual(links.toSorted(), PAGES);
});

test("the README links each page for users", (t) => {
  const links = new Set(linksOf(read("README.md")).map((link) => link.replace(/#.*/, "")));
  t.deepEqual(
    PAGES.filter((page) => !INTERNAL.includes(page) && page !== "docs/views.md" && !links.has(page)),
    [],
  );
});

test("the figures of docs/scaling-out.md are those of the pages that it names", (t) => {
  const [, section = ""] = read("docs/scaling-out.md").split("\n## Figures\n");
  const rows = [...section.matchAll(/^\| .+? \| (.+?) \| \[[^\]]+\]\(([^)#]+)[^|]*\|$/gm)];
  t.is(rows.length, 8);
  for (const [row, figures = "", page = ""] of rows)
    for (const figure of figures.split(", "))
      t.true(new RegExp(`(?<![\\d.])${figure}(?![\\d])`).test(read(`docs/${page}`)), row);
});
