import type { OperateContext } from "../../operate/call.ts";
import { grouped } from "../parts/words.ts";
import { FILTERS, type Filter } from "./job-filter.ts";

const MOST_PARKED = 1000;

/**
 * How many jobs are in a state, in words, with the rest of the filter. Staged ones have numbers that are kept by policy and by
 * partition, from which the parked ones are taken. Of these an index has the first. Other states have none: Graphile Worker has no
 * index by state, and a count would read all of its jobs. Nor do other filters.
 */
export async function jobCounts(
  { engine, withPgClient }: OperateContext,
  filter: Filter,
): Promise<Map<string, string>> {
  const { policy, partition } = filter;
  const isCounted = FILTERS.filter((name) => filter[name] !== undefined && name !== "state").every(
    (name) => name === "policy" || (name === "partition" && policy !== undefined),
  );
  if (!isCounted) return new Map();
  const kept = await withPgClient((client) => engine.keptCount(client, policy, partition));
  const { found, matching } = await withPgClient((client) =>
    engine.parkedCount(client, MOST_PARKED + 1, policy, partition),
  );
  const counts = new Map<string, string>();
  const isMore = found > MOST_PARKED;
  const staged = Math.max(0, (kept ?? 0) - matching); // both were read one after the other
  if (kept !== null) counts.set("staged", `${isMore ? "up to " : ""}${grouped(staged)}`);
  if (!isMore) counts.set("parked", grouped(matching));
  else if (policy === undefined) counts.set("parked", `${grouped(MOST_PARKED)}+`);
  return counts;
}
