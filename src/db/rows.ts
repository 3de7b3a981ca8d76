import { timeOf } from "../timestamp.ts";

/**
 * A statement that returns each row as one JSON text, and so the same whatever stands between: pg's parsers, which an
 * application may have replaced for the whole process, those of an ORM, and the session's `DateStyle`.
 */
export function asJson(statement: string): string {
  return `select pg_catalog.row_to_json(r)::pg_catalog.text as r from (${statement}) r`;
}

/**
 * A statement that returns all rows as one JSON text, with a list for each of these columns: for thousands of rows, whose
 * names are then not sent and read again for each.
 */
export function asJsonLists(columns: readonly string[], source: string): string {
  const lists = columns.map((name) => `'${name}', pg_catalog.json_agg(r.${name})`);
  return `select pg_catalog.json_build_object(${lists})::pg_catalog.text as r from ${source} r`;
}

/** As pg reads it by itself: times are Dates (numbers where they are infinite), ids are texts. */
export function readRow<T>({ r }: Answer): T {
  const row = parsed(r);
  for (const name in row) {
    const read = readerOf(name);
    if (read && row[name] !== null) row[name] = read(row[name]);
  }
  return row as T;
}

/** The rows of what {@link asJsonLists} makes; a column's list is null where there is no row. */
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

/** Columns that are a timestamptz: of the functions, views and types of this package. */
const TIME = /(?:^|_)(?:at|until)$|^(?:from|now)$/;
/** Columns that are a bigint, or several. */
const IDS = new Set(["id", "job_id", "staged_id", "left_ids"]);

/** The last time that was read, and what it was read from: rows that were written together mostly have the same. */
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

/** A float8: JSON has infinite ones as texts. */
export function numberOf(value: unknown): number | null {
  return value === null ? null : Number(value);
}
