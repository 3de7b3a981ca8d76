// docs/operating.md, "Events": it names each event of PolicyEventMap with its fields, and no other.
import { readFileSync } from "node:fs";
import test from "ava";
import ts from "ts59";

const ROOT = new URL("../../", import.meta.url);
const read = (path: string) => readFileSync(new URL(path, ROOT), "utf8");

const source = ts.createSourceFile("events.ts", read("src/events.ts"), ts.ScriptTarget.Latest, true);
const aliases = new Map(
  source.statements.filter(ts.isTypeAliasDeclaration).map(({ name, type }) => [name.text, type] as const),
);

function membersOf(type: ts.TypeNode): readonly ts.PropertySignature[] {
  if (ts.isTypeLiteralNode(type)) return type.members.filter(ts.isPropertySignature);
  if (ts.isIntersectionTypeNode(type)) return type.types.flatMap(membersOf);
  if (ts.isTypeReferenceNode(type)) return membersOf(aliases.get(type.typeName.getText())!);
  throw new Error(`an event of an unknown form: ${type.getText()}`);
}

const inCode = Object.fromEntries(
  membersOf(aliases.get("PolicyEventMap")!).map(({ name, type }) => [
    (name as ts.StringLiteral).text,
    membersOf(type!)
      .map((field) => field.name.getText())
      .sort(),
  ]),
);

const page = read("docs/operating.md");
const section = page.slice(page.indexOf("\n## Events\n"), page.indexOf("\n## What a worker warns about\n"));
const onPage = Object.fromEntries(
  [...section.matchAll(/^\| `(dispatchPolicy:\w+)` \| (.+) \| (.+) \|$/gm)].map(([, name, , fields]) => [
    name!,
    [...fields!.matchAll(/`(\w+)`/g)].map(([, field]) => field!).sort(),
  ]),
);

test("each event is on the page, with its fields", (t) => {
  t.true(Object.keys(inCode).length > 12);
  t.deepEqual(onPage, inCode);
});
