import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import pg from "pg";
import { ownFile, VERSION } from "../own-files.ts";
import { internalOf, type Schemas } from "./schemas.ts";

export interface SqlFile {
  readonly name: string;
  readonly text: string;
}

type Folder = "migrations" | "functions" | "views" | "comments";

/** A process that makes many pools or utils would otherwise read some 450 files for each. */
const read = new Map<Folder, readonly SqlFile[]>();

/** The files of a folder below sql/, in the order of their paths, with placeholders. */
export function sqlFiles(folder: Folder): readonly SqlFile[] {
  const files = read.get(folder) ?? readFolder(folder);
  read.set(folder, files);
  return files;
}

function readFolder(folder: Folder): readonly SqlFile[] {
  const root = ownFile(`sql/${folder}`);
  return readdirSync(root, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".sql"))
    .sort()
    .map((name) => ({ name, text: readFileSync(path.join(root, name), "utf8") }));
}

/** The number of a migration, which its name begins with. */
export function migrationNumber({ name }: SqlFile): number {
  return Number.parseInt(name, 10);
}

/** The last migration that this package brings. */
export function latestMigration(): number {
  return migrationNumber(sqlFiles("migrations").at(-1) as SqlFile);
}

/** The functions, and after them the aggregates, because their functions must exist when PostgreSQL creates them. */
export function functions(): readonly SqlFile[] {
  const isAggregate = ({ text }: SqlFile) => /^create or replace aggregate /m.test(text);
  const all = sqlFiles("functions");
  return [...all.filter((file) => !isAggregate(file)), ...all.filter(isAggregate)];
}

/** The views, each after those that it reads, because they must exist when PostgreSQL creates it. */
export function views(): readonly SqlFile[] {
  const left = [...sqlFiles("views")];
  const reads = ({ text }: SqlFile, other: SqlFile) =>
    new RegExp(`:DISPATCH_POLICY_SCHEMA\\.${path.basename(other.name, ".sql")}\\b`).test(text);
  const ordered: SqlFile[] = [];
  while (left.length > 0) {
    const next = left.findIndex((view) => !left.some((other) => other !== view && reads(view, other)));
    ordered.push(...left.splice(Math.max(next, 0), 1)); // views that read each other fail when PostgreSQL creates them
  }
  return ordered;
}

/** A function or view that a file creates, and what it is for. */
export interface Described {
  readonly kind: "routine" | "view";
  readonly name: string;
  readonly comment: string;
  /** From its comment to the next one's. */
  readonly text: string;
}

const CREATED =
  /((?:^--.*\n)*)^create or replace (function|aggregate|view) (?::DISPATCH_POLICY_SCHEMA\.)?(\w+)/gm;

/** What a file creates, each with the first paragraph of the comment above it. One without has that of the one before. */
export function describedIn({ text }: SqlFile): readonly Described[] {
  const created = [...text.matchAll(CREATED)];
  let comment = "";
  return created.map(({ 1: header = "", 2: kind, 3: name = "", index }, n) => {
    comment = header === "" ? comment : firstParagraph(header);
    return {
      kind: kind === "view" ? "view" : "routine",
      ...{ name, comment, text: text.slice(index, created[n + 1]?.index) },
    };
  });
}

function firstParagraph(header: string): string {
  const lines = header.split("\n");
  const end = lines.findIndex((line) => !/^-- \S/.test(line));
  return lines
    .slice(0, end)
    .map((line) => line.slice("-- ".length))
    .join(" ");
}

/**
 * Puts the schema names in: `:NAME` becomes a quoted identifier, `:'NAME'` a string literal. The replacement is a
 * function, because String.replace would interpret a `$` in a schema's name.
 */
export function withSchemas(text: string, schemas: Schemas): string {
  const names: Record<string, string> = {
    DISPATCH_POLICY_SCHEMA: schemas.own,
    DISPATCH_POLICY_INTERNAL: internalOf(schemas.own),
    GRAPHILE_WORKER_SCHEMA: schemas.worker,
  };
  return text
    .replace(
      /:'(DISPATCH_POLICY_SCHEMA|DISPATCH_POLICY_INTERNAL|GRAPHILE_WORKER_SCHEMA)'/g,
      (_, name: string) => pg.escapeLiteral(names[name] as string),
    )
    .replace(
      /:(DISPATCH_POLICY_SCHEMA|DISPATCH_POLICY_INTERNAL|GRAPHILE_WORKER_SCHEMA)\b/g,
      (_, name: string) => pg.escapeIdentifier(names[name] as string),
    );
}

/** This package's version, as [major, minor, patch]. */
export function packageVersion(): readonly number[] {
  return VERSION.split(/[.-]/).slice(0, 3).map(Number);
}
