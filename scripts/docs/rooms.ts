// How the SQL functions lie: rooms, their chapters, who calls whom, and who writes which table.
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { describedIn, sqlFiles } from "../../src/db/sql-files.ts";
import { rows } from "./table.ts";

const ROOT = new URL("../../", import.meta.url);

/** The folders of sql/functions, from below upward: a function calls none of a room that stands after its own. */
export const ROOMS = {
  names: "keys, tickets, texts, looks at what is declared, turns",
  gates: "the arithmetic of gates, without a table",
  limiters: "the only writer of `limiters`: what they have left, what is charged and given back, overrides",
  partitions: "the only writer of `partitions`: claims, waiters, verdicts, what arrivals change, stops",
  jobs: "the only writer of `staged_jobs` and `in_flight_jobs`: how jobs come, go, and come back",
  route: "the router",
  admit: "the pass: the small way and the large way",
  release: "what becomes of jobs that have ended",
  add: "how a call of jobs is staged, or goes at once",
  run: "starts that an admission does not vouch for, and requeues",
  pools: "worker pools and leases",
  policies: "what is declared and in force",
  features: "history, job groups, remembered keys, load, metrics",
  sweep: "repairs",
  explain: "why a job waits, and when it starts",
  verbs: "what operators call",
} as const;
export type Room = keyof typeof ROOMS;

export interface SqlFunction {
  readonly name: string;
  /** Without comments, and without what it calls of Graphile Worker. */
  readonly code: string;
  /** `room/chapter.sql`. */
  readonly file: string;
  readonly room: string;
}

/** Each SQL function; of one with several forms, all. */
export function sqlFunctions(): readonly SqlFunction[] {
  return sqlFiles("functions").flatMap((file) =>
    describedIn(file).map(({ name, text }) => ({
      name,
      code: text
        .replace(/--.*$/gm, "")
        .replace(/:GRAPHILE_WORKER_SCHEMA\.\w+/g, "")
        .replace(/'(?:[^']|'')*'/g, "''"),
      file: file.name,
      room: path.dirname(file.name),
    })),
  );
}

/** Of each function the names of those that it calls. */
export function callsOf(functions: readonly SqlFunction[]): ReadonlyMap<SqlFunction, readonly string[]> {
  const names = new Set(functions.map(({ name }) => name));
  return new Map(
    functions.map((it) => {
      const body = it.code.slice(it.code.indexOf("("));
      const named = [...body.matchAll(/\b(\w+)\s*\(|(?<=sfunc = )(\w+)/g)].map(
        (m) => m[1] ?? (m[2] as string),
      );
      return [it, [...new Set(named)].filter((name) => names.has(name) && name !== it.name)];
    }),
  );
}

/** Of each table the functions that write it. */
export function writersOf(
  tables: readonly string[],
  functions: readonly SqlFunction[],
): ReadonlyMap<string, readonly SqlFunction[]> {
  return new Map(
    tables.map((table) => {
      const writes = new RegExp(`\\b(?:insert into|delete from|update|update only) ${table}\\b`);
      return [table, functions.filter(({ code }) => writes.test(code))];
    }),
  );
}

/** The tables of the first migration. */
export function tables(): readonly string[] {
  return sqlFiles("migrations").flatMap(({ text }) =>
    [...text.matchAll(/^create (?:unlogged )?table (\w+)/gm)].map(([, name]) => name as string),
  );
}

/** What TypeScript calls, in its texts of SQL. */
function calledFromSources(): ReadonlySet<string> {
  const root = new URL("src/", ROOT);
  const texts = readdirSync(root, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => readFileSync(new URL(name, root), "utf8"));
  return new Set(texts.flatMap((text) => [...text.matchAll(/\b\w+\b/g)].map(([word]) => word)));
}

/** For docs/engine.md: each chapter, what it is about, and which of its functions are called from elsewhere. */
export function chaptersTable(): string {
  const functions = sqlFunctions();
  const calls = [...callsOf(functions)];
  const files = sqlFiles("functions");
  const sources = calledFromSources();
  const chapter = ({ name, text }: { name: string; text: string }): readonly string[] => {
    const own = new Set(functions.filter(({ file }) => file === name).map((it) => it.name));
    const within = new Set(calls.filter(([it]) => it.file === name).flatMap(([, called]) => called));
    const outside = new Set(calls.filter(([it]) => it.file !== name).flatMap(([, called]) => called));
    const entered = [...own].filter((it) => outside.has(it) || !within.has(it) || sources.has(it));
    const [, about = ""] = /^-- (.+)\n/.exec(text) ?? [];
    return [`\`${name}\``, about, entered.map((it) => `\`${it}\``).join(", ")];
  };
  return Object.entries(ROOMS)
    .map(([room, what]) => {
      const own = files.filter(({ name }) => name.startsWith(`${room}/`));
      return `### ${room}\n\n${what.charAt(0).toUpperCase()}${what.slice(1)}.\n\n${rows(["chapter", "about", "entered by"], own.map(chapter))}`;
    })
    .join("\n\n");
}

const FROM = "<!-- npm run docs writes from here -->";
const TO = "<!-- npm run docs writes until here -->";

/** docs/engine.md with the table of chapters as the SQL has it now. */
export function enginePage(): string {
  const page = readFileSync(new URL("docs/engine.md", ROOT), "utf8");
  const [before, after] = [page.indexOf(FROM), page.indexOf(TO)];
  if (before < 0 || after < before) throw new Error(`docs/engine.md has no "${FROM}" with "${TO}" after it`);
  return `${page.slice(0, before + FROM.length)}\n\n${chaptersTable()}\n\n${page.slice(after)}`;
}
