import type { OperateContext } from "../../../operate/call.ts";
import { parameter, rowsOf } from "../../../operate/view-rows.ts";

interface Counts {
  readonly id: string;
  readonly staged: number;
  readonly inFlight: number;
}

const THESE = `where id = any(${parameter(1, "texts")}::pg_catalog.uuid[])`;

/** How many jobs wait and run in partitions, by the ids of their rows. One without jobs may be missing. */
export async function countsOf(
  looking: OperateContext,
  ids: readonly (string | null)[],
): Promise<ReadonlyMap<string, Counts>> {
  const known = ids.filter((id) => id !== null);
  const found = known.length > 0 ? await rowsOf<Counts>(looking, "partitions", THESE, [known]) : [];
  return new Map(found.map((row) => [row.id, row]));
}
