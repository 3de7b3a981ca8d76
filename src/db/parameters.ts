/**
 * How a statement casts a parameter of each type.
 *
 * Drivers treat a parameter without a cast in different ways. Some declare each string as text, and then PostgreSQL finds
 * no function of that name. Others ask for the type that PostgreSQL expects. If that is json, they encode a JSON text once
 * more. So what JavaScript has as a text is always sent as text.
 */
const CASTS = {
  text: "pg_catalog.text",
  texts: "pg_catalog.text[]",
  int: "pg_catalog.int4",
  number: "pg_catalog.float8",
  boolean: "pg_catalog.bool",
  time: "pg_catalog.timestamptz",
  interval: "pg_catalog.text::pg_catalog.interval",
  json: "pg_catalog.text::pg_catalog.json",
  jsonb: "pg_catalog.text::pg_catalog.jsonb",
  id: "pg_catalog.text::pg_catalog.int8",
  ids: "pg_catalog.text[]::pg_catalog.int8[]",
  uuid: "pg_catalog.text::pg_catalog.uuid",
  uuids: "pg_catalog.text[]::pg_catalog.uuid[]",
} as const;

export type ParameterType = keyof typeof CASTS;

/** A parameter by its place in the statement, the first is 1. */
export function parameter(place: number, type: ParameterType): string {
  return `$${place}::${CASTS[type]}`;
}

/** The parameters of a function, in order. */
export function parameters(...types: ParameterType[]): string {
  return types.map((type, i) => parameter(i + 1, type)).join(", ");
}

/** The arguments of public functions, by name. A name has the same type in each function. */
export const ARGUMENTS = {
  policy: "text",
  query: "text",
  into: "text",
  task: "text",
  partition: "text",
  to_partition: "text",
  to_policy: "text",
  gate: "text",
  key: "text",
  reason: "text",
  by: "text",
  job_key: "text",
  error: "text",
  error_message: "text",
  from: "time",
  since: "time",
  until: "time",
  run_at: "time",
  reset_at: "time",
  for: "interval",
  set: "jsonb",
  where: "jsonb",
  context: "jsonb",
  id: "id",
  job_id: "id",
  after: "id",
  ids: "ids",
  job_ids: "ids",
  count: "int",
  max: "int",
  priority: "int",
  attempts: "int",
  max_attempts: "int",
  cost: "number",
  remaining: "number",
  all: "boolean",
  enabled: "boolean",
  dry_run: "boolean",
  force: "boolean",
} as const satisfies Record<string, ParameterType>;

export type Arguments = { readonly [K in keyof typeof ARGUMENTS]?: unknown };
