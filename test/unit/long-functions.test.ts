// A function is short, or its header gives the reason why it is not.
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import ts from "ts59";
import { sqlFiles } from "../../src/db/sql-files.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const MOST_IN_SQL = 90;
const MOST_IN_TYPESCRIPT = 60;
const REASON = /\bIt is (?:longer than others, because|long because) \w+/;

interface Measured {
  readonly name: string;
  readonly lines: number;
  readonly most: number;
  /** The comment before it. */
  readonly header: string;
}

function sqlFunctions(): Measured[] {
  return sqlFiles("functions").map(({ name, text }) => {
    const [header = "", body = ""] = text.split(/^(?=create or replace (?:function|aggregate) )/m);
    const [definition = ""] = body.split(/^(?<=\$\$;\n)/m);
    return {
      name: path.basename(name, ".sql"),
      lines: definition.trimEnd().split("\n").length,
      most: MOST_IN_SQL,
      header: header.replace(/^-- ?/gm, "").replace(/\s+/g, " "),
    };
  });
}

function functionsIn(file: string): Measured[] {
  const source = readFileSync(ROOT + file, "utf8");
  const parsed = ts.createSourceFile(file, source, ts.ScriptTarget.Latest, true);
  const found: Measured[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isFunctionLike(node) && "body" in node && node.body) {
      const text = node.getText(parsed);
      const comments = ts.getLeadingCommentRanges(source, node.getFullStart()) ?? [];
      found.push({
        name: `${file}: ${node.name?.getText(parsed) ?? text.slice(0, 40)}`,
        lines: text.split("\n").length,
        most: MOST_IN_TYPESCRIPT,
        header: comments
          .map(({ pos, end }) => source.slice(pos, end))
          .join("\n")
          .replace(/^\s*(?:\/\*\*|\*|\/\/) ?/gm, "")
          .replace(/\s+/g, " "),
      });
    }
    ts.forEachChild(node, visit);
  };
  visit(parsed);
  return found;
}

const sql = sqlFunctions();
const typeScript = globSync("src/**/*.ts", { cwd: ROOT }).flatMap(functionsIn);
const said = ({ name, lines, most }: Measured) => `${name} has ${lines} lines, at most ${most}`;

for (const [what, functions] of [
  ["SQL", sql],
  ["TypeScript", typeScript],
] as const) {
  test(`a long function of ${what} gives its reason`, (t) => {
    t.true(functions.length > 200, `${functions.length}`);
    const long = functions.filter(({ lines, most }) => lines > most);
    t.log(long.map(said).join("; "));
    t.deepEqual(long.filter(({ header }) => !REASON.test(header)).map(said), []);
  });

  test(`a function of ${what} that says that it is long is so`, (t) => {
    const shorter = functions.filter(({ lines, most, header }) => lines <= most && REASON.test(header));
    t.deepEqual(shorter.map(said), []);
  });
}
