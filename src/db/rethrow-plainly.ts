import type pg from "pg";
import { MissingGrantError, SchemaVersionError } from "../errors.ts";
import { internalOf } from "./schemas.ts";
import { latestMigration } from "./sql-files.ts";

const NO_RIGHT = "42501";
const NO_SCHEMA = "3F000";
/** A function or a table that this package's statements name. */
const NO_NAME = new Set(["42883", "42P01"]);

/** If another session drops the schema while a statement waits for a lock, PostgreSQL's error has a number, and no name. */
const DROPPED_MEANWHILE = /^(could not open relation with OID|cache lookup failed for)/;

/** The function in which it happened. */
const WITHIN = /^(?:PL\/pgSQL|SQL) function "?([^("]+)/;

/**
 * Throws an error of a statement of this package. If the database is not set up for the statement, PostgreSQL's own words
 * do not say what to do, so the error does.
 *
 * @throws {SchemaVersionError} if this package's schema, or a part of it, is not there
 * @throws {MissingGrantError} if the connected role lacks a right
 */
export function rethrowPlainly(error: unknown, schema: string, client?: object): never {
  const { code = "", message = "", where = "", routine } = (error ?? {}) as Partial<pg.DatabaseError>;
  // a trigger of the application may raise the code for reasons of its own
  if (code === NO_RIGHT && routine?.startsWith("aclcheck_error"))
    throw new MissingGrantError(message, roleOf(client), { cause: error });
  // A trigger of the application may lack a name of its own. Within our functions names are not qualified, and the function in
  // which it happened tells whose the name is.
  const [, within = ""] = WITHIN.exec(where) ?? [];
  const isOurs =
    within.startsWith("_") ||
    [schema, internalOf(schema)].some((name) =>
      code === NO_SCHEMA
        ? message.includes(name)
        : message.includes(`${name}.`) || within.startsWith(`${name}.`),
    );
  const isDropped = code === "XX000" && DROPPED_MEANWHILE.test(message);
  if (isDropped || (isOurs && (code === NO_SCHEMA || NO_NAME.has(code))))
    throw new SchemaVersionError(
      { schema, found: null, expected: latestMigration(), lacks: message },
      { cause: error },
    );
  throw error;
}

/** The role that pg's client or pool connects as, if it shows that. */
function roleOf(client: object | undefined): string | undefined {
  const { user, options } = (client ?? {}) as { user?: unknown; options?: { user?: unknown } };
  const role = user ?? options?.user;
  return typeof role === "string" ? role : undefined;
}
