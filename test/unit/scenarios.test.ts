// docs/engine.md, "Acceptance scenarios": each file with tests of scenarios is there, with the scenarios of these tests.
import { globSync, readFileSync } from "node:fs";
import test from "ava";

const ROOT = new URL("../../", import.meta.url).pathname;
const read = (file: string) => readFileSync(ROOT + file, "utf8");
const [, table = ""] = read("docs/engine.md").split("\n## Acceptance scenarios\n");

/** Scenario and file, in one line. */
const named = [...table.matchAll(/^\| (`test\/.+?`) \| (.+) \|$/gm)].flatMap(([, files, scenarios]) =>
  [...scenarios!.matchAll(/\*\*(\d+)\*\*/g)].flatMap(([, number]) =>
    [...files!.matchAll(/`([^`]+)`/g)].map(([, file]) => `${number}, ${file}`),
  ),
);
const written = globSync("test/**/*.test.ts", { cwd: ROOT }).flatMap((file) =>
  [...read(file).matchAll(/(["`])scenario (\d+): .*?\1,\s*(?:async )?\(/g)].map(
    ([, , number]) => `${number}, ${file}`,
  ),
);

test("the page names each scenario with the files of its tests, and no other", (t) => {
  t.true(named.length > 45, `${named.length}`);
  t.deepEqual(named.toSorted(), [...new Set(written)].toSorted());
});
