// docs/scenarios.md names the tests that each scenario has, and no other.
import { readFileSync } from "node:fs";
import test from "ava";

const ROOT = new URL("../../", import.meta.url);
const page = readFileSync(new URL("docs/scenarios.md", ROOT), "utf8");

/** Scenario, file and title, in one line; whatever varies in a title is a star. */
const named = new Set<string>();
let scenario = "";
let file = "";
for (const line of page.split("\n")) {
  scenario = line.match(/^\*\*(\d+)\.\*\*/)?.[1] ?? scenario;
  file = line.match(/^`(test\/\S+)`:$/)?.[1] ?? file;
  const title = line.match(/^- `(.+)`$/)?.[1];
  if (title) named.add(`${scenario}, ${file}: ${title.replace(/<[^>]*>/g, "*")}`);
}

const files = [...new Set([...named].map((line) => line.match(/, (\S+):/)![1]!))];
const written = new Set(
  files.flatMap((name) => {
    const text = readFileSync(new URL(name, ROOT), "utf8");
    const titles = text.matchAll(/(["`])scenario (\d+): (.*?)\1,\s*(?:async )?\(/g);
    return [...titles].map(
      ([, , number, title]) => `${number}, ${name}: ${title!.replace(/\$\{[^}]*\}/g, "*")}`,
    );
  }),
);

test("the page names each test of a scenario, and no other", (t) => {
  t.true(named.size > 100, `${named.size}`);
  t.deepEqual(
    [...named].filter((one) => !written.has(one)),
    [],
    "named, but there is no such test",
  );
  t.deepEqual(
    [...written].filter((one) => !named.has(one)),
    [],
    "not named",
  );
});
