// The oldest Node that this package runs on.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import test from "ava";
import { checkNode, OLDEST_NODE } from "../../src/checks/node.ts";
import { DispatchPolicyError } from "../../src/index.ts";

const run = promisify(execFile);

for (const [version, isRefused] of [
  ["18.20.8", true],
  ["22.9.0", true],
  ["22.17.1", true],
  ["22.18.0", false],
  ["22.18.0-nightly", false],
  ["23.0.0", false],
  ["100.0.0", false],
] as const) {
  test(`Node ${version} is ${isRefused ? "refused" : "taken"}`, (t) => {
    if (!isRefused) return t.notThrows(() => checkNode(version));
    const error = t.throws(() => checkNode(version), { instanceOf: DispatchPolicyError });
    t.is(error.code, "unsupported_node");
    t.regex(
      error.message,
      new RegExp(`^Node ${version} runs this process, expected 22\\.18\\.0 or later: upgrade`),
    );
  });
}

test("it is the version of package.json and of the pages", (t) => {
  const read = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), "utf8");
  const short = OLDEST_NODE.replace(/\.0$/, "");
  t.is(JSON.parse(read("package.json")).engines.node, `>=${short}`);
  for (const page of ["README.md", "docs/production.md"]) t.true(read(page).includes(`≥ ${short}`), page);
});

test("the preset, utils and wrapped tasks are refused in a process with an older one", async (t) => {
  const index = new URL("../../src/index.ts", import.meta.url).href;
  const program = `
    Object.defineProperty(process, "versions", { value: { ...process.versions, node: "20.19.0" } });
    const { dispatchPolicyPreset, makePolicyUtils, wrapTaskList } = await import(${JSON.stringify(index)});
    for (const make of [
      () => dispatchPolicyPreset({ policies: [] }),
      () => makePolicyUtils({ policies: [] }),
      () => wrapTaskList({}, { policies: [] }),
    ])
      console.log(await new Promise((resolve) => resolve(make())).catch((error) => error.code));`;
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", program]);
  t.deepEqual(stdout.trim().split("\n"), Array(3).fill("unsupported_node"));
});
