// What an editor shows of the utils' methods, as the language service reads it: each says what it does, and its example runs.
import path from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import ts from "ts59";
import { definePolicy, makePolicyUtils } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const INDEX = path.join(ROOT, "src/index.ts");

interface Method {
  readonly name: string;
  readonly text: string;
  readonly tags: Readonly<Record<string, string>>;
}

const program = ts.createProgram([INDEX], {
  module: ts.ModuleKind.NodeNext,
  allowImportingTsExtensions: true,
  noEmit: true,
});
const checker = program.getTypeChecker();
const index = checker.getSymbolAtLocation(program.getSourceFile(INDEX) as ts.Node) as ts.Symbol;
const exported = checker
  .getExportsOfModule(index)
  .map((one) => (one.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(one) : one));
const saidOf = (symbol: ts.Symbol) => ts.displayPartsToString(symbol.getDocumentationComment(checker));

/** The methods of an exported interface, inherited ones too, with what is said of them. */
function methodsOf(name: string): Method[] {
  const type = checker.getDeclaredTypeOfSymbol(exported.find((one) => one.name === name) as ts.Symbol);
  return type
    .getProperties()
    .filter((one) => !one.name.startsWith("__@"))
    .map((one) => ({
      name: one.name,
      text: saidOf(one),
      tags: Object.fromEntries(
        one.getJsDocTags(checker).map((tag) => [tag.name, ts.displayPartsToString(tag.text)]),
      ),
    }));
}

const verbs = methodsOf("Operate");
const methods = new Map(methodsOf("PolicyUtils").map((method) => [method.name, method]));

test("every verb says what it does", (t) => {
  t.true(verbs.length >= 20);
  for (const { name, text, tags } of verbs) {
    t.not(text, "", name);
    t.truthy(tags.example, name);
  }
});

test("utils show the same, and of Graphile Worker's methods what is different here", (t) => {
  for (const { name, text } of verbs) t.is(methods.get(name)?.text, text, name);
  for (const name of ["addJob", "addJobs", "release"]) t.truthy(methods.get(name)?.tags.example, name);
});

test("everything that is exported says what it is", (t) => {
  t.true(exported.length > 60);
  t.deepEqual(
    exported.filter((one) => saidOf(one) === "").map(({ name }) => name),
    [],
  );
});

test("so does every option of a verb", (t) => {
  const silent = new Set<string>();
  const options = exported.filter(({ name }) => /Options$|Target$|^LimitValues$|^Explanation$/.test(name));
  for (const one of options) {
    const type = checker.getDeclaredTypeOfSymbol(one);
    for (const part of type.isUnion() ? type.types : [type])
      for (const property of part.getProperties()) {
        const ours = property.declarations?.some((at) =>
          at.getSourceFile().fileName.startsWith(`${ROOT}src/`),
        );
        if (ours && saidOf(property) === "") silent.add(`${one.name}.${property.name}`);
      }
  }
  t.true(options.length > 10);
  t.deepEqual([...silent], []);
});

test("every example runs", async (t) => {
  const { url } = await testDatabase(t);
  const fetchEndpoint = definePolicy("fetch_endpoint", {
    context: (payload) => payload as { endpointId: string; accountId: string },
    partitionBy: (ctx) => ctx.endpointId,
    gates: ({ throttle, concurrency }) => [
      concurrency({ max: 1 }),
      concurrency({ name: "account", scope: (ctx) => ctx.accountId, max: 40 }),
      throttle({ name: "all", scope: "policy", rate: 500, per: "1 second" }),
    ],
    load: { keep: "1 hour" },
    history: { keep: "1 hour" },
  });
  const utils = await makePolicyUtils({ connectionString: url, policies: [fetchEndpoint], logger: silent });
  t.teardown(async () => utils.release());
  const job = await utils.addJob(fetchEndpoint, { endpointId: "ep1", accountId: "acme" });
  await utils.tick();
  const Run = Object.getPrototypeOf(async () => {}).constructor;
  const quiet = { log() {} };
  const last = ["release", "uninstall"]; // which would close the utils, or drop what the others use
  const examples = [...methods.values()].flatMap(({ name, tags }) =>
    tags.example === undefined || last.includes(name) ? [] : [[name, tags.example] as const],
  );
  t.true(examples.length > verbs.length - last.length);
  for (const [name, example] of examples) {
    t.true(example.includes(`utils.${name}(`), name);
    await t.notThrowsAsync(() => new Run("utils", "job", "console", example)(utils, job, quiet), name);
  }
  const { tags } = verbs.find(({ name }) => name === "uninstall")!;
  await t.notThrowsAsync(() => new Run("utils", tags.example)(utils));
});
