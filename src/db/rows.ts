import { timeOf } from "../timestamp.ts";

/**
 * A statement that returns each row as one JSON text, and so the same whatever stands between: pg's parsers, which an
 * application may have replaced for the whole process, those of an ORM, and the session's `DateStyle`.
 */
export function asJson(statement: string): string {
  return `select pg_catalog.row_to_json(r)::pg_catalog.text as r from (${statement}) r`;
}

/** As pg reads it by itself: times are Dates (numbers where they are infinite), ids are texts. */
export function readRow<T>({ r }: { r: string | object }): T {
  const row = (typeof r === "string" ? JSON.parse(r) : r) as Record<string, unknown>;
  for (const name in row) {
    const value = row[name];
    if (value === null) continue;
    if (TIME.test(name)) row[name] = dateOf(value);
    else if (IDS.has(name)) row[name] = textOf(value);
  }
  return row as T;
}

/** Columns that are a timestamptz: of the functions, views and types of this package. */
const TIME = /(?:^|_)(?:at|until)$|^(?:from|now)$/;
/** Columns that are a bigint, or several. */
const IDS = new Set(["id", "job_id", "staged_id", "left_ids"]);

function dateOf(value: unknown): unknown {
  const time = timeOf(value);
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
