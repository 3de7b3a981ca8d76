/**
 * Compiles `src` and `tasks` into `dist`, as it is packed: `npm run build`.
 *
 * - One module for each of the sources, so that a stack trace names the file of the repository: `dist/src/admit/tick.js` is
 *   `src/admit/tick.ts`, with its names and its order. So there are no maps, and no copy of the sources.
 * - Modules have no comments: they were a fifth of their size. Declarations have them, because editors show them.
 * - Declarations of the modules that an entry point's types reach. Nobody can import the others.
 */
import { execFileSync } from "node:child_process";
import { globSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";

/** Of a declaration: the modules that it imports, as a statement or within a type. */
const IMPORTED = /(?:\bfrom |\bimport\()"(\.[^"]+)"/g;

process.chdir(path.join(import.meta.dirname, ".."));
rmSync("dist", { recursive: true, force: true });
compile("--emitDeclarationOnly");
compile("--declaration", "false", "--removeComments");
const reached = reachedFrom(entryPoints());
for (const file of globSync("dist/**/*.d.ts")) if (!reached.has(path.normalize(file))) rmSync(file);

function compile(...options: readonly string[]): void {
  const tsc = ["node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json", ...options];
  execFileSync(process.execPath, tsc, { stdio: "inherit" });
}

function entryPoints(): readonly string[] {
  const { exports } = JSON.parse(readFileSync("package.json", "utf8")) as {
    exports: Record<string, unknown>;
  };
  return Object.values(exports)
    .map((entry) => (entry as { types?: string }).types)
    .filter((file) => file !== undefined)
    .map((file) => path.normalize(file));
}

function reachedFrom(entries: readonly string[]): ReadonlySet<string> {
  const found = new Set(entries);
  // a set's loop also comes to what is added meanwhile
  for (const file of found)
    for (const [, imported] of readFileSync(file, "utf8").matchAll(IMPORTED))
      found.add(path.join(path.dirname(file), (imported as string).replace(/\.[jt]s$/, ".d.ts")));
  return found;
}
