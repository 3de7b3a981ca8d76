// Links between pages lead somewhere: to a file that is there, and to a heading of it.
import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { linksOf } from "../helpers/links.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const PAGES = globSync(["*.md", "llms.txt", "docs/**/*.md", ".github/**/*.md", "examples/**/*.md"], {
  cwd: ROOT,
});

const read = new Map<string, Set<string>>();

/** The anchors of a page, which is read once. */
function anchorsOf(file: string): Set<string> {
  const anchors = read.get(file) ?? anchorsIn(file);
  read.set(file, anchors);
  return anchors;
}

/** The anchors that GitHub makes of a page's headings. */
function anchorsIn(file: string): Set<string> {
  const text = readFileSync(file, "utf8").replace(/^```.*?^```$/gms, "");
  const anchors = new Set<string>();
  for (const [, heading = ""] of text.matchAll(/^#+ (.*)$/gm)) {
    const plain = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").toLowerCase();
    const anchor = plain.replace(/[^\p{L}\p{N}_ -]/gu, "").replaceAll(" ", "-");
    let nth = 0;
    while (anchors.has(nth === 0 ? anchor : `${anchor}-${nth}`)) nth++;
    anchors.add(nth === 0 ? anchor : `${anchor}-${nth}`);
  }
  return anchors;
}

test("each link between pages leads to a file and a heading", (t) => {
  t.true(PAGES.length > 20);
  const broken: string[] = [];
  for (const page of PAGES) {
    for (const target of linksOf(readFileSync(ROOT + page, "utf8"))) {
      const [file = "", anchor] = target.split("#");
      const to = file === "" ? ROOT + page : path.join(ROOT, path.dirname(page), file);
      const leads = existsSync(to) && (anchor === undefined || anchorsOf(to).has(anchor));
      if (!leads) broken.push(`${page}: ${target}`);
    }
  }
  t.deepEqual(broken, []);
});

test("each page that code, SQL or a workflow names is there", (t) => {
  const files = globSync(["{src,tasks,sql,scripts,test,bench,examples,.github}/**/*.{ts,js,sql,yml,json}"], {
    cwd: ROOT,
    exclude: ["**/node_modules/**"],
  });
  t.true(files.length > 500);
  const named = files.flatMap((file) => {
    const text = readFileSync(ROOT + file, "utf8");
    const targets = [...text.matchAll(/(?<![\w/.-])(docs\/(?:\w[\w-]*\/)?\w[\w-]*\.md)(?:#([\w-]+))?/g)];
    return targets.map(([target, page = "", anchor]) => ({ file, target, page, anchor }));
  });
  t.true(named.length > 100, `${named.length}`);
  const broken = named.filter(
    ({ page, anchor }) =>
      !existsSync(ROOT + page) || (anchor !== undefined && !anchorsOf(ROOT + page).has(anchor)),
  );
  t.deepEqual(
    broken.map(({ file, target }) => `${file}: ${target}`),
    [],
  );
});
