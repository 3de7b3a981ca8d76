// Reads the members of an interface or type from its source: name, type, default and meaning. The default stands in
// the tag @default, the meaning is the first paragraph of the docstring.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "ts59";

export interface Member {
  /** With the options it stands in: `loop.policies`. */
  readonly name: string;
  readonly type: string;
  readonly required: boolean;
  /** As the tag @default says it; undefined: none. */
  readonly default: string | undefined;
  readonly meaning: string;
}

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

function source(file: string): string {
  return readFileSync(ROOT + file, "utf8");
}

/** The members that a type itself declares, those of nested objects after the option that holds them. */
export function membersOf(file: string, typeName: string): Member[] {
  const root = ts.createSourceFile(file, source(file), ts.ScriptTarget.Latest, true);
  for (const statement of root.statements) {
    if (ts.isInterfaceDeclaration(statement) && statement.name.text === typeName)
      return statement.members.flatMap((member) => read(member, ""));
    if (ts.isTypeAliasDeclaration(statement) && statement.name.text === typeName)
      return literalsIn(statement.type).flatMap(({ members }) =>
        members.flatMap((member) => read(member, "")),
      );
  }
  throw new Error(`${file} has no type ${typeName}`);
}

function read(member: ts.TypeElement, prefix: string): Member[] {
  if (!ts.isPropertySignature(member) || !member.type) return [];
  const name = prefix + member.name.getText();
  const [meaning, tags] = docOf(member);
  const own = {
    name,
    type: typeText(member.type),
    required: member.questionToken === undefined,
    default: tags.get("default"),
    meaning,
  };
  const nested = new Map<string, Member>();
  for (const literal of literalsIn(member.type))
    for (const inner of literal.members.flatMap((one) => read(one, `${name}.`)))
      if (!nested.has(inner.name)) nested.set(inner.name, inner);
  return [own, ...nested.values()];
}

function docOf(node: ts.Node): [string, Map<string, string>] {
  const tags = new Map<string, string>();
  for (const tag of ts.getJSDocTags(node))
    tags.set(tag.tagName.text, oneLine(ts.getTextOfJSDocComment(tag.comment)));
  const [doc] = ts.getJSDocCommentsAndTags(node).filter(ts.isJSDoc);
  const [first = ""] = (ts.getTextOfJSDocComment(doc?.comment) ?? "").split(/\n\s*\n/);
  return [oneLine(first), tags];
}

function oneLine(text = ""): string {
  return text
    .replace(/\{@link (\w+)\}/g, "`$1`")
    .replace(/\s+/g, " ")
    .trim();
}

/** The object types among the alternatives, or the parts, of a type. */
function literalsIn(type: ts.TypeNode): ts.TypeLiteralNode[] {
  if (ts.isTypeLiteralNode(type)) return [type];
  if (ts.isUnionTypeNode(type) || ts.isIntersectionTypeNode(type)) return type.types.flatMap(literalsIn);
  return [];
}

/** What our own type parameters and helper types mean to a reader. */
const NAMES: Readonly<Record<string, string>> = {
  AnyPolicy: "Policy",
  BackoffFunction: "(error, attempt, job) => Backoff",
  C: "object",
  JobDefaults: "object",
  Partial: "object",
  S: "Standard Schema",
  SchemaPath: "string",
};

function typeText(type: ts.TypeNode): string {
  return [...new Set(alternatives(type))].join(" | ");
}

function alternatives(type: ts.TypeNode): string[] {
  if (type.kind === ts.SyntaxKind.UndefinedKeyword) return [];
  if (ts.isUnionTypeNode(type)) return type.types.flatMap(alternatives);
  if (ts.isParenthesizedTypeNode(type)) return alternatives(type.type);
  if (ts.isTypeLiteralNode(type)) return ["object"];
  if (ts.isTypeOperatorNode(type)) return alternatives(type.type);
  if (ts.isArrayTypeNode(type)) return [`${typeText(type.elementType)}[]`];
  if (ts.isFunctionTypeNode(type)) {
    const parameters = type.parameters.map((parameter) => parameter.name.getText());
    return [`(${parameters.join(", ")}) => ${typeText(type.type)}`];
  }
  if (!ts.isTypeReferenceNode(type)) return [type.getText()];
  const name = type.typeName.getText();
  const last = type.typeArguments?.at(-1);
  if (name === "Value" && last) return [typeText(last), `(ctx) => ${typeText(last)}`];
  return [NAMES[name] ?? name];
}
