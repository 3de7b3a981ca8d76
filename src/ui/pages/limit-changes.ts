import { overridableFields } from "../../gates/index.ts";
import type { OperateContext } from "../../operate/call.ts";
import { rowsBy } from "../../operate/view-rows.ts";
import { lasting } from "../parts/words.ts";
import type { Gate } from "./form.ts";

/** A number of a limit: as it is, and as it would be. */
export interface Change {
  readonly number: string;
  readonly now: string;
  readonly then: string;
}

/** Numbers by their names in the database. */
type Numbers = Readonly<Record<string, number | null>>;

export interface Limit {
  readonly policy: string;
  readonly gate: Gate;
  /** Undefined: every key of the gate, or those of a context. */
  readonly key: string | undefined;
  /** The context, as JSON. Undefined: it does not go by context. */
  readonly where: string | undefined;
}

/** What new numbers would change. Null in place of them: what was set ends. */
export async function changesOf(
  looking: OperateContext,
  limit: Limit,
  set: object | null,
): Promise<readonly Change[]> {
  const row = await ask(looking, limit, set);
  return columnsOf(limit).map((column) => ({
    number: column.replace(/_ms$/, "").replaceAll("_", " "),
    now: shown(column, row?.before[column]),
    then: shown(column, row?.afterwards[column]),
  }));
}

/** The numbers that it has now and that operators may set, by their names in the database. */
export async function numbersNow(looking: OperateContext, limit: Limit): Promise<Numbers> {
  const { before = {} } = (await ask(looking, limit, null)) ?? {};
  return Object.fromEntries(columnsOf(limit).map((column) => [column, before[column] ?? null]));
}

type Row = Readonly<Record<"before" | "afterwards", Numbers>>;

async function ask(looking: OperateContext, { policy, gate, key, where }: Limit, set: object | null) {
  const asked = { policy, gate: gate.name, set: set === null ? null : JSON.stringify(set), key, where };
  const [row] = await rowsBy<Row>(looking, (client) => looking.engine.call(client, "limit_changes", asked));
  return row;
}

/** In the order of the kinds' own fields: JSON in the database has lost it. */
function columnsOf({ gate }: Limit): readonly string[] {
  return Object.values(overridableFields)
    .map(({ column }) => column)
    .filter((column) => column in gate.overrides);
}

/** What a number that is null stands for. */
const DEFAULTS: Numbers | Readonly<Record<string, string>> = { burst: "as the rate", max: "no bound" };

function shown(number: string, value: number | null | undefined): string {
  if (value === undefined) return "as the context says";
  if (value === null) return String(DEFAULTS[number] ?? "–");
  if (number === "target_lag_ms") return `${value} ms`;
  return number === "per" ? lasting(value) : String(value);
}
