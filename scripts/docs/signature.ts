// Declarations as the page of the API shows them: without comments and bodies, and with their members one by one.
import ts from "ts59";
import { type Docstring, docstringOf } from "./docstring.ts";
import { type Declaration, declarationOf, type Exported } from "./exports.ts";

export interface Member {
  /** With the members it stands in, as `breaker.failures`. */
  readonly name: string;
  readonly optional: boolean;
  /** A method with parameters and result, or a property's type. */
  readonly type: string;
  readonly isMethod: boolean;
  readonly node: ts.Node;
  readonly said: Docstring;
}

/** The declaration in TypeScript. Of an interface it is the head, if its members have docstrings, which are shown below it. */
export function signatureOf({ file, node }: Exported): string {
  if (ts.isExportAssignment(node)) return defaultExport(file, node);
  if (ts.isFunctionDeclaration(node)) return `${between(node, startOf(node), node.body?.pos)};`;
  if (ts.isClassDeclaration(node)) {
    const maker = node.members.find(ts.isConstructorDeclaration);
    const built = maker ? between(node, maker.getStart(), maker.body?.pos) : "";
    return `${between(node, startOf(node), node.members.pos)}${built && `\n  ${built};\n`}}`;
  }
  const isShownBelow = ts.isInterfaceDeclaration(node) && membersOf(node).some(({ said }) => isSaid(said));
  return isShownBelow
    ? `${between(node, startOf(node), node.members.pos)} … }`
    : between(node, startOf(node), node.end);
}

const isSaid = ({ blocks, examples }: Docstring) => blocks.length + examples.length > 0;

/** Where a declaration begins, behind `export`. */
function startOf(node: Exclude<Declaration, ts.ExportAssignment>): number {
  const behind = node.modifiers?.filter(({ kind }) => HIDDEN.has(kind)).at(-1);
  return behind ? behind.end : node.getStart();
}

const HIDDEN = new Set([ts.SyntaxKind.ExportKeyword, ts.SyntaxKind.AsyncKeyword]);

function defaultExport(file: string, { expression }: ts.ExportAssignment): string {
  const called = ts.isCallExpression(expression)
    ? declarationOf(file, expression.expression.getText())?.node
    : undefined;
  if (!called || !ts.isFunctionDeclaration(called) || !called.type)
    throw new Error(`${file}: expected a default export that a function with a type makes`);
  return `const task: ${called.type.getText()}; // the default export`;
}

/** A part of the source without comments and without empty lines. */
function between(node: ts.Node, start: number, end: number = node.end): string {
  return node
    .getSourceFile()
    .text.slice(start, end)
    .replace(/\/\*.*?\*\//gs, "")
    .replace(/(^|\s)\/\/.*$/gm, "")
    .replace(/^\s*\n/gm, "")
    .trim();
}

/** The members that a declaration itself has. Those of nested objects follow the member that has them. */
export function membersOf(node: Declaration): readonly Member[] {
  if (ts.isInterfaceDeclaration(node)) return node.members.flatMap((member) => read(member, ""));
  if (ts.isClassDeclaration(node)) return node.members.flatMap((member) => read(member, ""));
  if (!ts.isTypeAliasDeclaration(node)) return [];
  return distinct(literalsIn(node.type).flatMap(({ members }) => members.flatMap((one) => read(one, ""))));
}

/** One of each name: the first that says something. */
function distinct(members: readonly Member[]): readonly Member[] {
  const byName = Map.groupBy(members, ({ name }) => name);
  return [...byName.values()].map((same) => (same.find(({ said }) => isSaid(said)) ?? same[0]) as Member);
}

function read(node: ts.ClassElement | ts.TypeElement, prefix: string): readonly Member[] {
  const said = docstringOf(node);
  if (ts.isMethodSignature(node)) {
    const type = oneLine(between(node, node.getStart(), node.end)).replace(/;$/, "");
    return [{ name: nameOf(node.name), optional: false, type, isMethod: true, node, said }];
  }
  const isProperty = ts.isPropertySignature(node) || ts.isPropertyDeclaration(node);
  if (!isProperty || !node.type || nameOf(node.name).startsWith("~")) return [];
  const name = prefix + nameOf(node.name);
  const optional = node.questionToken !== undefined;
  const own = { name, optional, type: typeText(node.type, optional), isMethod: false, node: node.type, said };
  const nested = literalsIn(node.type).filter(hasDocstrings);
  return [own, ...distinct(nested.flatMap(({ members }) => members.flatMap((one) => read(one, `${name}.`))))];
}

function nameOf(name: ts.PropertyName): string {
  return ts.isStringLiteral(name) ? name.text : name.getText();
}

/** The object types among the alternatives, or the parts, of a type. */
function literalsIn(type: ts.TypeNode): readonly ts.TypeLiteralNode[] {
  if (ts.isTypeLiteralNode(type)) return [type];
  if (ts.isParenthesizedTypeNode(type)) return literalsIn(type.type);
  if (ts.isUnionTypeNode(type) || ts.isIntersectionTypeNode(type)) return type.types.flatMap(literalsIn);
  return [];
}

const hasDocstrings = ({ members }: ts.TypeLiteralNode) => members.some((one) => isSaid(docstringOf(one)));

/** An object type whose members are shown by themselves is "object". A name with a "?" says that undefined is allowed. */
function typeText(type: ts.TypeNode, optional: boolean): string {
  if (!ts.isUnionTypeNode(type)) return partText(type);
  const shown = type.types.filter(({ kind }) => !optional || kind !== ts.SyntaxKind.UndefinedKeyword);
  const [only, another] = shown;
  if (only && !another) return partText(ts.isParenthesizedTypeNode(only) ? only.type : only);
  return [...new Set(shown.map(partText))].join(" | ");
}

function partText(type: ts.TypeNode): string {
  if (ts.isTypeLiteralNode(type) && hasDocstrings(type)) return "object";
  if (ts.isIntersectionTypeNode(type)) return type.types.map(partText).join(" & ");
  return oneLine(between(type, type.getStart(), type.end));
}

const oneLine = (text: string): string =>
  text
    .replace(/\s+/g, " ")
    .replace(/([([{]) \| /g, "$1")
    .replace(/\( | (?=\))|,(?= ?[)\]])/g, (found) => found.replace(/[ ,]/g, ""))
    .trim();

/** A method or property as it stands in the source of its type. */
export function sourceOf({ node, name, isMethod, type }: Member): string {
  if (!isMethod) return `${name}: ${type};`;
  return between(node, node.getStart(), node.end).replace(/^ {2}/gm, "");
}
