// What a file exports, with the declaration of each, wherever that stands. It reads sources only, and needs no compiler's
// program, so it takes little time.
import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import ts from "ts59";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

export type Declaration =
  | ts.FunctionDeclaration
  | ts.ClassDeclaration
  | ts.InterfaceDeclaration
  | ts.TypeAliasDeclaration
  | ts.VariableStatement
  | ts.ExportAssignment;

export interface Exported {
  /** The name that users import. */
  readonly name: string;
  /** The file of its declaration, from the root of the repository. */
  readonly file: string;
  readonly node: Declaration;
}

const parsed = new Map<string, ts.SourceFile>();

function parse(file: string): ts.SourceFile {
  let source = parsed.get(file);
  if (!source) {
    source = ts.createSourceFile(file, readFileSync(ROOT + file, "utf8"), ts.ScriptTarget.Latest, true);
    parsed.set(file, source);
  }
  return source;
}

/** What a file exports, in the order of the file. */
export function exportsOf(file: string): readonly Exported[] {
  return parse(file).statements.flatMap((statement): readonly Exported[] => {
    if (ts.isExportDeclaration(statement)) return passedOn(file, statement);
    if (ts.isExportAssignment(statement)) return [{ name: "default", file, node: statement }];
    if (!isDeclaration(statement) || !isExported(statement)) return [];
    return namesOf(statement).map((name) => ({ name, file, node: statement }));
  });
}

/**
 * The declaration of a name that a file declares, imports or passes on. Undefined: it is another package's, or none.
 */
export function declarationOf(file: string, name: string): Exported | undefined {
  for (const statement of parse(file).statements) {
    if (isDeclaration(statement) && namesOf(statement).includes(name)) return { name, file, node: statement };
    if (!ts.isImportDeclaration(statement)) continue;
    const bindings = statement.importClause?.namedBindings;
    const found = bindings && ts.isNamedImports(bindings) ? bindings.elements : [];
    const one = found.find((element) => element.name.text === name);
    if (!one) continue;
    const from = target(file, statement.moduleSpecifier);
    return from === undefined ? undefined : declarationOf(from, one.propertyName?.text ?? name);
  }
  return exportsOf(file).find((one) => one.name === name);
}

function passedOn(
  file: string,
  { moduleSpecifier, exportClause }: ts.ExportDeclaration,
): readonly Exported[] {
  const from = moduleSpecifier ? target(file, moduleSpecifier) : file;
  if (from === undefined) return [];
  if (!exportClause) return exportsOf(from).filter(({ name }) => name !== "default");
  if (!ts.isNamedExports(exportClause)) throw new Error(`${file} exports a namespace, which has no page`);
  return exportClause.elements.flatMap(({ name, propertyName }) => {
    const declaration = declarationOf(from, (propertyName ?? name).text);
    return declaration ? [{ ...declaration, name: name.text }] : [];
  });
}

/** Undefined: another package. */
function target(file: string, specifier: ts.Expression): string | undefined {
  const { text } = specifier as ts.StringLiteral;
  return text.startsWith(".") ? path.posix.join(path.posix.dirname(file), text) : undefined;
}

function isDeclaration(statement: ts.Statement): statement is Exclude<Declaration, ts.ExportAssignment> {
  return (
    ts.isFunctionDeclaration(statement) ||
    ts.isClassDeclaration(statement) ||
    ts.isInterfaceDeclaration(statement) ||
    ts.isTypeAliasDeclaration(statement) ||
    ts.isVariableStatement(statement)
  );
}

function isExported(statement: ts.HasModifiers): boolean {
  return statement.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword) === true;
}

function namesOf(statement: Exclude<Declaration, ts.ExportAssignment>): readonly string[] {
  if (ts.isVariableStatement(statement))
    return statement.declarationList.declarations.map(({ name }) => name.getText());
  return statement.name ? [statement.name.text] : [];
}
