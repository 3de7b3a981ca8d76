import { timeOf } from "../timestamp.ts";

/**
 * A statement that returns each row as one JSON text. So the result does not depend on the session's `DateStyle`, on an
 * ORM, or on pg's parsers. An application may have replaced those for the whole process.
 */
export function asJson(statement: string): string {
  return `select pg_catalog.row_to_json(r)::pg_catalog.text as r from (${statement}) r`;
}

/**
 * A statement that returns all rows as one JSON text, with a list for each of these columns. With thousands of rows this
 * saves time, because the names are not sent and read for each row.
 */
export function asJsonLists(columns: readonly string[], source: string): string {
  const lists = columns.map((name) => `'${name}', pg_catalog.json_agg(r.${name})`);
  return `select pg_catalog.json_build_object(${lists})::pg_catalog.text as r from ${source} r`;
}

/** Reads a row as pg does by default: times are Dates (numbers if they are infinite), ids are texts. */
export function readRow<T>({ r }: Answer): T {
  const row = parsed(r);
  for (const name in row) {
    const read = readerOf(name);
    if (read && row[name] !== null) row[name] = read(row[name]);
  }
  return row as T;
}

/** The rows of a statement of {@link asJsonLists}. A column's list is null if there is no row. */
export function readLists<T>({ r }: Answer): T[] {
  const lists = Object.entries(parsed(r) as Record<string, unknown[] | null>);
  const rows = Array.from({ length: lists[0]?.[1]?.length ?? 0 }, (): Record<string, unknown> => ({}));
  for (const [name, list] of lists) {
    const read = readerOf(name);
    for (const [place, row] of rows.entries()) {
      const value = list?.[place];
      row[name] = read && value !== null ? read(value) : value;
    }
  }
  return rows as T[];
}

interface Answer {
  r: string | object;
}

function parsed(r: string | object): Record<string, unknown> {
  return (typeof r === "string" ? JSON.parse(r) : r) as Record<string, unknown>;
}

function readerOf(name: string): ((value: unknown) => unknown) | undefined {
  if (TIME.test(name)) return dateOf;
  return IDS.has(name) ? textOf : undefined;
}

/** The names of columns that are a timestamptz, in the functions, views and types of this package. */
const TIME = /(?:^|_)(?:at|until)$|^(?:from|since|now|minute)$/;
/** The names of columns that are a bigint, or a list of them. */
const IDS = new Set([
  "id",
  "job_id",
  "staged_id",
  "arrival_id",
  "left_ids",
  "last_id",
  "group_id",
  "oldest_job_id",
  "oldest_due_id",
]);

/** The last time that was read, and its text: rows that were written together mostly have the same time. */
let known: { readonly value: unknown; readonly time: number | null } = { value: null, time: null };

function dateOf(value: unknown): unknown {
  if (value !== known.value) known = { value, time: timeOf(value) };
  const { time } = known;
  return time !== null && Number.isFinite(time) ? new Date(time) : time;
}

function textOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(String);
  return typeof value === "number" ? String(value) : value;
}

/** Reads a float8. JSON has infinite numbers as texts. */
export function numberOf(value: unknown): number | null {
  return value === null ? null : Number(value);
}
