import { parameter } from "../db/engine.ts";
import type { OperateContext } from "../operate/call.ts";
import { spelled } from "../operate/rows.ts";

/** Rows of a view, with their columns in camelCase. */
export async function rowsOf<Row>(
  { withPgClient, engine }: OperateContext,
  view: Parameters<OperateContext["engine"]["view"]>[1],
  where: string,
  values: readonly unknown[] = [],
): Promise<readonly Row[]> {
  const rows = await withPgClient((client) => engine.view<object>(client, view, where, [...values]));
  return rows.map((row) => spelled<Row>(row));
}

/** A condition that counts only if its value is given. */
export function ifGiven(place: number, column: string): string {
  const value = parameter(place, "text");
  return `(${value} is null or ${column} = ${value})`;
}
