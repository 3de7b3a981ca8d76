// docs/api.md: it is what the docstrings give, and has whatever users can import or call.
import { readFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import test from "ava";
import { apiPage } from "../../scripts/docs/api.ts";
import { docstringOf } from "../../scripts/docs/docstring.ts";
import { exportsOf } from "../../scripts/docs/exports.ts";
import { ENTRIES, ITEMS } from "../../scripts/docs/items.ts";
import { methodsOfUtils } from "../helpers/methods.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const read = (file: string) => readFileSync(ROOT + file, "utf8");

test("the page is what npm run docs writes", (t) => {
  t.is(read("docs/api.md"), apiPage(), "run: npm run docs");
});

test("it has each entry of the package, and each of its exports", async (t) => {
  const { exports } = JSON.parse(read("package.json"));
  const entries = Object.keys(exports).filter((entry) => entry !== "./package.json");
  t.deepEqual(Object.keys(ENTRIES).toSorted(), entries.toSorted());
  for (const [entry, file] of Object.entries(ENTRIES)) {
    const its = ITEMS.filter((item) => item.entry === entry && item.owner === undefined);
    const titles = its.map(({ title }) => title);
    const declared = exportsOf(file).map(({ name }) => (name === "default" ? "dispatch_policy_tick" : name));
    t.deepEqual(titles.toSorted(), declared.toSorted(), entry);
    const values = Object.keys(await import(pathToFileURL(ROOT + file).href));
    for (const name of values.filter((one) => one !== "default")) t.true(titles.includes(name), name);
  }
});

test("it has each verb and method of the utils", (t) => {
  const names = methodsOfUtils().map((name) => `utils.${name}`);
  const titles = ITEMS.map(({ title }) => title);
  t.true(names.length > 35, `${names.length}`);
  t.deepEqual(
    names.filter((name) => !titles.includes(name)),
    [],
  );
});

test("whatever can be called says what it does, shows an example, and names only errors that are there", (t) => {
  const called = ITEMS.filter(({ isCalled }) => isCalled);
  t.true(called.length > 60, `${called.length}`);
  const mute = called.filter(({ said }) => said.blocks.length === 0 || said.examples.length === 0);
  t.deepEqual(
    mute.map(({ title }) => title),
    [],
  );
  const errors = ["Error", "AggregateError", ...ITEMS.map(({ title }) => title)];
  for (const { title, said } of called)
    for (const { error, when } of said.throws) t.true(error ? errors.includes(error) : when !== "", title);
});

test("every option says what it means", (t) => {
  const its = ITEMS.filter(({ title }) =>
    /Options$|Query$|Target$|Thresholds$|^JobSpec$|^JobDefaults$/.test(title),
  );
  t.true(its.length > 20, `${its.length}`);
  const mute = its.flatMap(({ title, members }) =>
    members.filter(({ said }) => said.blocks.length === 0).map(({ name }) => `${title}.${name}`),
  );
  t.deepEqual(mute, []);
});

test("links in docstrings lead to exports or members", (t) => {
  const unresolved = ITEMS.flatMap(({ title, said, members }) =>
    [said, ...members.map((member) => member.said)]
      .flatMap(({ blocks, throws }) => [...blocks, ...throws.map(({ when }) => when)])
      .filter((text) => /\{@link/.test(text))
      .map((text) => ({ title, text, beside: members.map(({ name }) => name) })),
  ).filter(({ text, beside }) => {
    const names = [...text.matchAll(/\{@link ([\w.]+)\}/g)].map(([, name = ""]) => name.split(".").at(-1)!);
    const isThere = (name: string) =>
      beside.includes(name) || ITEMS.some((item) => item.title.split(".").at(-1) === name);
    return !names.every(isThere);
  });
  t.deepEqual(unresolved, []);
});

test("a docstring is read as it is meant", (t) => {
  const [fixed] = exportsOf("src/policy/backoff.ts").filter(({ name }) => name === "polynomial");
  const said = docstringOf(fixed!.node);
  t.is(said.blocks.length, 2);
  t.regex(said.blocks[0]!, /^A wait of `base` and `n \^ power` seconds, .* and so on\.$/);
  t.regex(
    said.blocks[1]!,
    /^\| base \| power \| 1st .*\n\|---\|.*\n\| 30 seconds \| 5 \|.*\n\| 0 seconds \| 2 \|.* 16 s \|$/,
  );
  t.deepEqual(said.parameters[0], { name: "options.base", meaning: "the first wait, 0 or longer" });
  t.deepEqual(said.throws, [
    { error: "PolicyDefinitionError", when: "if an option is unknown, missing or of another form" },
  ]);
  t.deepEqual(said.examples, [
    `definePolicy("fetch", { partitionBy: "host", backoff: polynomial({ base: "30 seconds", power: 5 }) });`,
  ]);
});
