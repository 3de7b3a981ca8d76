// The tables behind the views: for worlds that no verb makes, and facts that no view shows. Tests name a table and its columns
// only through this file, so that either can change: its new name is said here, once.
import type { Queryable } from "./engine.ts";

/** A fact of the engine's tables. It is the column of this name, unless {@link RENAMED} knows better. */
type Field = string;

/**
 * A value, or SQL that is made of the column: `(its) => \`${its} - interval '1 hour'\``. In a condition the SQL is the whole
 * condition: `(its) => \`${its} > now()\``.
 */
type Value =
  | (string | number | boolean | null | undefined)
  | (Date | readonly unknown[] | Readonly<Record<string, unknown>>)
  | ((its: string) => string);
type Fields = Readonly<Record<Field, Value>>;

/** Fields whose columns have another name, by table. */
const RENAMED: Readonly<Record<string, Readonly<Record<Field, string>>>> = {};

/** Composite columns whose parts are read as if they were columns, and lists of composites, which are read as JSON. */
const COMPOSITES: Readonly<Record<string, string>> = {
  limiters: ", (numbers).*, to_json(spent) as spent, to_json(durations) as durations",
};

const OURS = "dispatch_policy_internal.";
const WORKERS = "graphile_worker._private_";

export interface Table {
  // biome-ignore lint/suspicious/noExplicitAny: a row of any shape
  all(where?: Fields, order?: Field): Promise<any[]>;
  /** The first one. */
  // biome-ignore lint/suspicious/noExplicitAny: a row of any shape
  one(where?: Fields, order?: Field): Promise<any>;
  count(where?: Fields): Promise<number>;
  /** Returns how many it changed. */
  set(values: Fields, where?: Fields): Promise<number>;
  /** Adds a row, or so many; their SQL may use `n`, which counts them from 1. */
  add(values: Fields, count?: number): Promise<void>;
  remove(where?: Fields): Promise<number>;
  /** Locks the rows until the end of the session's transaction. Returns how many. */
  lock(where?: Fields, how?: string): Promise<number>;
  /**
   * Runs these statements of PL/pgSQL at each row that is inserted, updated or deleted: `before("insert", "raise ...")`.
   * Returns what takes it back.
   */
  before(event: string, body: string, each?: "row" | "statement"): Promise<() => Promise<void>>;
  after(event: string, body: string, each?: "row" | "statement"): Promise<() => Promise<void>>;
}

/** One of the engine's tables, such as "limiters", "staged_jobs" or "in_flight_jobs". */
export function table(db: Queryable, name: string): Table {
  return tableIn(db, OURS, name);
}

/** One of Graphile Worker's tables, as a rule "jobs": to leave rows as a worker would. */
export function workerTable(db: Queryable, name = "jobs"): Table {
  return tableIn(db, WORKERS, name);
}

/** {@link nameOf} without the schema. */
export function relationOf(table: string): string {
  return nameOf(table).split(".")[1]!;
}

/** A function, or a call of one, with its schema: names of internal ones begin with an underscore. */
export function routineOf(name: string): string {
  return `dispatch_policy${name.startsWith("_") ? "_internal" : ""}.${name}`;
}

/** What PostgreSQL calls it: for its catalogs, its statistics, its locks. */
export function nameOf(table: string): string {
  return OURS + table;
}

/** The same of one of Graphile Worker's. */
export function workerNameOf(table = "jobs"): string {
  return WORKERS + table;
}

function tableIn(db: Queryable, prefix: string, of: string): Table {
  const name = prefix + of;
  const renamed = prefix === OURS ? (RENAMED[of] ?? {}) : {};
  const columnOf = (field: Field) => renamed[field] ?? field;
  const fields = new Map(Object.entries(renamed).map(([field, column]) => [column, field]));

  /** The text of these conditions. Parameters are added to `values`. */
  const conditionOf = (where: Fields, values: unknown[]) =>
    Object.entries(where)
      .map(([field, value]) => {
        const its = columnOf(field);
        if (typeof value === "function") return value(its);
        if (value === null) return `${its} is null`;
        values.push(value);
        return Array.isArray(value) ? `${its} = any($${values.length})` : `${its} = $${values.length}`;
      })
      .map((condition) => ` and ${condition}`)
      .join("");
  const sqlOf = (field: Field, value: Value, values: unknown[]) => {
    if (typeof value === "function") return value(columnOf(field));
    values.push(value);
    return `$${values.length}`;
  };
  const changed = async (text: string, values: unknown[]): Promise<number> =>
    (await db.query(`with changed as (${text} returning 1) select count(*)::int as n from changed`, values))
      .rows[0].n;
  const all: Table["all"] = async (where = {}, order) => {
    const values: unknown[] = [];
    const composite = (prefix === OURS && COMPOSITES[of]) || "";
    const text = `select *${composite} from ${name} where true${conditionOf(where, values)}`;
    const { rows } = await db.query(order ? `${text} order by ${columnOf(order)}` : text, values);
    return rows.map((row) =>
      Object.fromEntries(Object.entries(row).map(([column, value]) => [fields.get(column) ?? column, value])),
    );
  };
  const at = async (when: string, event: string, body: string, each = "row") => {
    const trigger = `${when}_${event.replace(/\W+/g, "_")}_${of}`;
    const returned = event.startsWith("delete") ? "old" : "new";
    await db.query(`create function public.${trigger}() returns trigger language plpgsql as $body$
      begin ${body}; return ${returned}; end $body$;
      create trigger ${trigger} ${when} ${event} on ${name} for each ${each} execute function public.${trigger}()`);
    return async () => {
      await db.query(`drop trigger ${trigger} on ${name}; drop function public.${trigger}()`);
    };
  };
  return {
    all,
    one: async (where, order) => (await all(where, order))[0],
    async count(where = {}) {
      const values: unknown[] = [];
      const text = `select count(*)::int as n from ${name} where true${conditionOf(where, values)}`;
      return (await db.query(text, values)).rows[0].n;
    },
    async set(to, where = {}) {
      const values: unknown[] = [];
      const list = Object.entries(to).map(
        ([field, value]) => `${columnOf(field)} = ${sqlOf(field, value, values)}`,
      );
      return changed(`update ${name} set ${list.join(", ")} where true${conditionOf(where, values)}`, values);
    },
    async add(to, count = 1) {
      const values: unknown[] = [];
      const list = Object.entries(to).map(([field, value]) => sqlOf(field, value, values));
      const columns = Object.keys(to).map(columnOf);
      const rows = `select ${list.join(", ")} from generate_series(1, ${count}) n`;
      await db.query(`insert into ${name} (${columns.join(", ")}) ${rows}`, values);
    },
    async remove(where = {}) {
      const values: unknown[] = [];
      return changed(`delete from ${name} where true${conditionOf(where, values)}`, values);
    },
    async lock(where = {}, how = "update") {
      const values: unknown[] = [];
      const text = `select from ${name} where true${conditionOf(where, values)} for ${how}`;
      return (await db.query(text, values)).rowCount ?? 0;
    },
    before: (...how) => at("before", ...how),
    after: (...how) => at("after", ...how),
  };
}

/** What a limiter's `durations` are set to: for how many seconds the jobs of each task ran. */
export function durations(seconds: Readonly<Record<string, number>>): string[] {
  return Object.entries(seconds).map(([task, mean]) => `("${task}",${mean})`);
}

/** The same database. What it returns is text as PostgreSQL writes it, with all microseconds, and can be added again. */
export function asText(db: Queryable): Queryable {
  const types = { getTypeParser: () => String };
  return { query: (text: string, values: unknown[]) => db.query({ text, values, types }) } as never;
}
