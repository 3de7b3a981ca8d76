// docs/operating.md, "Events": it names each event of PolicyEventMap with its fields, and no other.
import { readFileSync } from "node:fs";
import test from "ava";
import ts from "ts59";
import { textOfChapter } from "../helpers/page.ts";

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

const chapter = textOfChapter(read("docs/operating.md"), "Events");
/** The page says the fields that all verbs have once, between the two lists. */
const [, common = ""] = /^These are of verbs, .*each also has (.*?)\. /m.exec(chapter) ?? [];
const [before = "", ofVerbs = ""] = chapter.split(/^These are of verbs.*$/m);
const fieldsIn = (text: string) => [...text.matchAll(/`(\w+)`/g)].map(([, field]) => field!);
const listed = (text: string, more: readonly string[] = []) =>
  [...text.matchAll(/^- `(dispatchPolicy:\w+)` \((.+?)\)/gm)].map(
    ([, name, fields]) => [name!, [...fieldsIn(fields!), ...more].sort()] as const,
  );
const onPage = Object.fromEntries([...listed(before), ...listed(ofVerbs, fieldsIn(common))]);

test("each event is on the page, with its fields", (t) => {
  t.true(Object.keys(inCode).length > 12);
  t.deepEqual(onPage, inCode);
});
