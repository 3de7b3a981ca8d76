// Imports point one way: biome.json refuses, in each folder of src/, what CONTRIBUTING.md places after it.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import test from "ava";

const ROOT = new URL("../../", import.meta.url);
const read = (name: string) => readFileSync(new URL(name, ROOT), "utf8");

interface Override {
  readonly includes: readonly string[];
  readonly linter: {
    readonly rules: {
      readonly style?: {
        readonly noRestrictedImports?: {
          readonly options: { readonly patterns?: readonly { readonly group: readonly string[] }[] };
        };
      };
    };
  };
}

const folders = readdirSync(new URL("src/", ROOT), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name)
  .toSorted();
/** As CONTRIBUTING.md lists them. What stands last may import everything, but for the command line. */
const order = (/^top\s+←.*$/m.exec(read("CONTRIBUTING.md"))?.[0] ?? "")
  .split(/\s*(?:←|,| and )\s*/)
  .map((name) => name.replace(/\/$/, ""))
  .filter((name) => !["top", "index", "testing.ts"].includes(name));
const overrides: readonly Override[] = JSON.parse(read("biome.json")).overrides;

/** Refuses all but what is named after it: the folder uses the public API. */
const ALL = "../**";
/** They are for people: beside the public API they use the verbs and the top, and of other folders what is named. */
const FOR_PEOPLE = ["ui", "cli"];
const each = (folder: string) => `**/${folder}/**`;

function refusedIn(folder: string): readonly string[] {
  const rule = overrides.find(({ includes }) => includes.includes(`src/${folder}/**`));
  const patterns = rule?.linter.rules.style?.noRestrictedImports?.options.patterns ?? [];
  return patterns.flatMap(({ group }) => group);
}

test("the order of the layers names each folder of src/", (t) => {
  t.deepEqual(order.toSorted(), folders);
});

for (const [place, folder] of order.slice(0, -1).entries())
  test(`the linter refuses imports of what stands after ${folder}`, (t) => {
    const refused = refusedIn(folder);
    if (refused.includes(ALL)) return t.pass();
    const after = FOR_PEOPLE.includes(folder)
      ? [...order.filter((other) => other !== folder && other !== "operate").map(each), "**/testing.ts"]
      : [...order.slice(place + 1).map(each), "**/index.ts", "**/testing.ts"];
    t.deepEqual(
      after.filter((one) => !refused.includes(one)),
      [],
    );
  });

for (const folder of ["drivers", "metrics", "testing", "replay", ...FOR_PEOPLE])
  test(`${folder} imports the public API, and of the rest what is named and stands before it`, (t) => {
    const refused = refusedIn(folder);
    t.is(refused[0] === ALL, !FOR_PEOPLE.includes(folder));
    const others = refused
      .flatMap((one) => /^!(?:\.\.|\*\*)\/(.*)$/.exec(one)?.[1] ?? [])
      .filter((one) => one !== "index.ts");
    const before = order.slice(0, order.indexOf(folder));
    const importers = readdirSync(new URL(`src/${folder}/`, ROOT), { recursive: true, encoding: "utf8" })
      .filter((file) => file.endsWith(".ts"))
      .map((file) => read(`src/${folder}/${file}`));
    for (const one of others) {
      t.true(existsSync(new URL(`src/${one}`, ROOT)), one);
      const [first, second] = one.split("/") as [string, string?];
      t.true(second === undefined || before.includes(first), one);
      const named = new RegExp(`"(?:\\.\\./)+${one}"`);
      t.true(
        importers.some((text) => named.test(text)),
        `nobody needs ${one}`,
      );
    }
  });
