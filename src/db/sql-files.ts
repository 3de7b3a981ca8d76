import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import pg from "pg";

/** The two PostgreSQL schemas a statement may name, unquoted. */
export interface Schemas {
  readonly worker: string;
  readonly own: string;
}

export interface SqlFile {
  readonly name: string;
  readonly text: string;
}

/** Files of a folder below sql/, by path, with placeholders still in them. */
export function sqlFiles(folder: "migrations" | "functions" | "views"): readonly SqlFile[] {
  const root = path.join(sqlFolder(), folder);
  return readdirSync(root, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".sql"))
    .sort()
    .map((name) => ({ name, text: readFileSync(path.join(root, name), "utf8") }));
}

/** The views, each after those that it reads: PostgreSQL looks for them as it creates it. */
export function views(): readonly SqlFile[] {
  const left = [...sqlFiles("views")];
  const reads = ({ text }: SqlFile, other: SqlFile) =>
    new RegExp(`:DISPATCH_POLICY_SCHEMA\\.${path.basename(other.name, ".sql")}\\b`).test(text);
  const ordered: SqlFile[] = [];
  while (left.length > 0) {
    const next = left.findIndex((view) => !left.some((other) => other !== view && reads(view, other)));
    ordered.push(...left.splice(Math.max(next, 0), 1)); // those of a circle fail as they are created
  }
  return ordered;
}

/**
 * Puts the schema names in: `:NAME` becomes a quoted identifier, `:'NAME'` a string literal. A replacer function,
 * since a `$` in a schema's name means something to String.replace.
 */
export function withSchemas(text: string, schemas: Schemas): string {
  const names: Record<string, string> = {
    DISPATCH_POLICY_SCHEMA: schemas.own,
    GRAPHILE_WORKER_SCHEMA: schemas.worker,
  };
  return text
    .replace(/:'(DISPATCH_POLICY_SCHEMA|GRAPHILE_WORKER_SCHEMA)'/g, (_, name: string) =>
      pg.escapeLiteral(names[name] as string),
    )
    .replace(/:(DISPATCH_POLICY_SCHEMA|GRAPHILE_WORKER_SCHEMA)\b/g, (_, name: string) =>
      pg.escapeIdentifier(names[name] as string),
    );
}

/** This package's version, as [major, minor, patch]. */
export function packageVersion(): readonly number[] {
  const text = readFileSync(path.join(sqlFolder(), "..", "package.json"), "utf8");
  const { version } = JSON.parse(text) as { version: string };
  return version.split(/[.-]/).slice(0, 3).map(Number);
}

/** sql/ lies beside package.json: two folders up from the sources, three from what is built. */
function sqlFolder(): string {
  let folder = path.dirname(fileURLToPath(import.meta.url));
  while (!existsSync(path.join(folder, "sql", "migrations"))) {
    const parent = path.dirname(folder);
    if (parent === folder) {
      throw new Error("The package's sql folder is missing; reinstall graphile-worker-dispatch-policy.");
    }
    folder = parent;
  }
  return path.join(folder, "sql");
}
