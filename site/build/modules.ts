// The page's own files, without a bundler: each module of the package is served as it stands, without its types.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import ts from "ts59";

/** Modules that need what browsers lack, and what stands in for what the engine uses of them. */
const IN_BROWSERS: Readonly<Record<string, string>> = {
  pg: "site/browser/pg.ts",
  "node:crypto": "site/browser/crypto.ts",
  "node:module": "site/browser/module.ts",
  "node:os": "site/browser/os.ts",
  "node:util": "site/browser/util.ts",
  "src/db/sql-files.ts": "site/browser/sql-files.ts",
  "src/own-files.ts": "site/browser/own-files.ts",
};
const STAND_INS = new Set(Object.values(IN_BROWSERS));
const AS_WRITTEN = {
  target: ts.ScriptTarget.ES2024,
  module: ts.ModuleKind.ESNext,
  verbatimModuleSyntax: true,
};
const PROCESS = "site/browser/process.ts";

/** Packages that are served as they are: the folder of the site, and the file in it. */
const SERVED: Readonly<Record<string, string>> = { "@electric-sql/pglite": "engine/index.js" };

/** A specifier of an import or export, where a line begins with one. */
const SPECIFIER = /^((?:import|export)\b[^;"]*?\bfrom |import )"([^"]+)"/gm;

/**
 * Writes the modules that the entries need. Returns their names.
 *
 * @throws {Error} if one imports what browsers lack
 */
export function writeModules(root: string, entries: readonly string[], out: string): readonly string[] {
  const names = new Set(entries);
  for (const name of names) {
    const text = ts.transpileModule(readFileSync(path.join(root, name), "utf8"), {
      compilerOptions: AS_WRITTEN,
    }).outputText;
    const usesProcess = /\bprocess\./.test(text) && name !== PROCESS;
    const head = usesProcess ? `import { process } from "${asImport(name, PROCESS)}"; ` : "";
    if (usesProcess) names.add(PROCESS);
    const body = text.replace(SPECIFIER, (_, before: string, specifier: string) => {
      const served = SERVED[specifier];
      if (served !== undefined) return `${before}"${asImport(name, `../${served}`)}"`;
      const target = targetOf(name, specifier);
      refuseMissing(root, name, before, target);
      names.add(target);
      return `${before}"${asImport(name, target)}"`;
    });
    const file = path.join(out, withJs(name));
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, head + body);
  }
  return [...names];
}

function targetOf(name: string, specifier: string): string {
  const file = specifier.startsWith(".") ? path.join(path.dirname(name), specifier) : undefined;
  const target = IN_BROWSERS[file ?? specifier] ?? file;
  if (target !== undefined) return target;
  throw new Error(
    `${name} imports "${specifier}", which browsers lack. Import something narrower, or let site/build/modules.ts ` +
      "put something of site/browser/ in its place",
  );
}

/** What stands in for a module has less of it than the module. In a browser the whole page would fail, and say so to nobody. */
function refuseMissing(root: string, name: string, before: string, target: string): void {
  if (!STAND_INS.has(target)) return;
  const asked = /\{([^}]*)\}/.exec(before)?.[1]?.split(",") ?? [];
  const text = readFileSync(path.join(root, target), "utf8");
  for (const one of asked.map((part) => part.trim().split(" ")[0]).filter(Boolean))
    if (!new RegExp(`^export [^=({]*\\b${one}\\b|^export \\{[^}]*\\b${one}\\b`, "m").test(text))
      throw new Error(`${name} imports ${one}, and ${target}, which stands in for browsers, lacks it`);
}

function asImport(from: string, to: string): string {
  const relative = path.relative(path.dirname(from), withJs(to));
  return relative.startsWith(".") ? relative : `./${relative}`;
}

const withJs = (name: string) => name.replace(/\.ts$/, ".js");
