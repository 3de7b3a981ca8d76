import { parameter } from "../../../db/engine.ts";
import type { OperateContext } from "../../../operate/call.ts";
import { rowsOf } from "../../../operate/view-rows.ts";
import type { Tenant } from "../../create-ui.ts";
import type { Own } from "./visit.ts";

/** The most partitions of a policy that are found by their context. */
const MOST = 1000;
const THOSE = `where policy = ${parameter(1, "text")} and context @> ${parameter(2, "jsonb")}
  order by partition limit ${parameter(3, "int")}`;

/** The keys of a tenant's partitions, by policy: those that are named, and those that are found by their context. */
export async function ownOf(looking: OperateContext, { partitions = {}, where = {} }: Tenant): Promise<Own> {
  const own = new Map(Object.entries(partitions));
  for (const [policy, values] of Object.entries(where)) {
    const given = [policy, JSON.stringify(values), MOST];
    const found = await rowsOf<{ partition: string }>(looking, "partitions", THOSE, given);
    const keys = new Set([...(own.get(policy) ?? []), ...found.map(({ partition }) => partition)]);
    own.set(policy, [...keys]);
  }
  return Object.fromEntries(own);
}
