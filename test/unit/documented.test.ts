// What users call is on a page for users: exports, methods, SQL functions, commands. And no page is hard to find.
import { globSync, readFileSync } from "node:fs";
import test from "ava";
import { COMMANDS } from "../../src/cli/commands.ts";
import { describedIn, sqlFiles } from "../../src/db/sql-files.ts";
import * as index from "../../src/index.ts";
import * as testing from "../../src/testing.ts";
import * as ui from "../../src/ui/ui.ts";
import { linksOf } from "../helpers/links.ts";
import { methodsOfUtils } from "../helpers/methods.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const read = (file: string) => readFileSync(ROOT + file, "utf8");
/** These are for who changes the package. */
const INTERNAL = ["docs/engine.md", "docs/benchmarks.md"];
const PAGES = globSync("docs/*.md", { cwd: ROOT }).sort();
/** It lists whatever there is. So another page has to say what one does with it. */
const GENERATED = "docs/api.md";
const text = ["README.md", ...PAGES.filter((page) => ![...INTERNAL, GENERATED].includes(page))]
  .map(read)
  .join("\n");

const isOnAPage = (name: string) => new RegExp(`(?<![\\w-])${name}(?![\\w-])`).test(text);
const missing = (names: readonly string[]) => names.filter((name) => !isOnAPage(name));

test("each export that is a value is on a page", (t) => {
  const names = [index, testing, ui].flatMap((module) => Object.keys(module));
  t.true(names.length > 35, `${names.length}`);
  t.deepEqual(missing(names), []);
});

test("each pool in a sample has an error handler, and no sample starts a worker by npx", (t) => {
  const files = [
    "README.md",
    ...PAGES,
    ...globSync("examples/**/*.{ts,md}", { cwd: ROOT }),
    "src/cli/init.ts",
  ];
  const count = (file: string, what: RegExp) => read(file).match(what)?.length ?? 0;
  t.deepEqual(
    files.filter((file) => count(file, /new pg\.Pool\(/g) > count(file, /\.on\("error", console\.error\)/g)),
    [],
  );
  t.deepEqual(
    files.filter((file) => count(file, /npx graphile-worker(?!-)/g) > 0),
    [],
  );
});

test("each method of the utils is on a page", (t) => {
  const names = methodsOfUtils();
  t.true(names.length > 25, `${names.length}`);
  t.deepEqual(missing(names), []);
});

test("each SQL function without an underscore before its name is on a page", (t) => {
  const names = sqlFiles("functions")
    .flatMap(describedIn)
    .map(({ name }) => name);
  const open = names.filter((name) => !name.startsWith("_"));
  t.true(open.length > 20, `${open.length}`);
  t.deepEqual(missing(open), []);
});

test("each command is on the page of the command line", (t) => {
  const page = read("docs/command-line.md");
  const isThere = (name: string) =>
    new RegExp(`graphile-worker-dispatch-policy ${name}\\b|\`${name}\``).test(page);
  t.deepEqual(
    COMMANDS.map(({ name }) => name).filter((name) => !isThere(name)),
    [],
  );
});

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

test("the figures of docs/production.md are those of the pages that it names", (t) => {
  const [, section = ""] = read("docs/production.md").split("\n### Figures\n");
  const rows = [...section.matchAll(/^\| .+? \| (.+?) \| \[[^\]]+\]\(([^)#]+)[^|]*\|$/gm)];
  t.is(rows.length, 2);
  for (const [row, figures = "", page = ""] of rows)
    for (const figure of figures.split(", "))
      t.true(new RegExp(`(?<![\\d.])${figure}(?![\\d])`).test(read(`docs/${page}`)), row);
});
