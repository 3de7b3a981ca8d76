// How the SQL functions lie: rooms, their chapters, who calls whom, and who writes which table.
import path from "node:path";
import { describedIn, sqlFiles } from "../../src/db/sql-files.ts";
import { rows, withTable } from "./table.ts";

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
  explain: "why a job waits, and when it starts; what a word leads to",
  verbs: "what operators call",
  pages: "what the admin pages alone call",
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

/** Each room, what it owns, and its chapters. */
function roomsTable(): string {
  const files = sqlFiles("functions");
  return rows(
    ["room", "what it owns", "chapters"],
    Object.entries(ROOMS).map(([room, what]) => {
      const own = files.filter(({ name }) => path.dirname(name) === room);
      return [`\`${room}\``, what, own.map(({ name }) => path.basename(name, ".sql")).join(", ")];
    }),
  );
}

/** docs/engine.md with the table of rooms as the SQL has it now. */
export function enginePage(): string {
  return withTable("docs/engine.md", roomsTable());
}
