// What partitions have of gates now. The gates that a definition in force lacks may be among them for a while.
import type { Queryable } from "./engine.ts";
import { table } from "./table.ts";

interface Limited {
  readonly key: string;
  /** In the order in which it has them. */
  readonly limiters: readonly {
    readonly gate: string;
    readonly kind: string;
    readonly rate: number | null;
    readonly max: number | null;
  }[];
}

/** The partitions in this order. */
export async function partitionsWithLimiters(db: Queryable, order = "key"): Promise<Limited[]> {
  const partitions = await table(db, "partitions").all({}, order); // first: then none of their limiters is missing
  const limiters = new Map((await table(db, "limiters").all()).map((limiter) => [limiter.id, limiter]));
  return partitions.map(({ key, limiter_ids }) => ({
    key,
    limiters: limiter_ids.map((id: string) => limiters.get(id)).filter(Boolean),
  }));
}

/** Such as `{ a: ["concurrency 5", "throttle 9"] }`. */
export async function limitsByPartition(db: Queryable): Promise<Record<string, string[]>> {
  const limitsOf = ({ limiters }: Limited) =>
    limiters
      .filter(({ kind }) => kind !== "ahead")
      .map(({ gate, rate, max }) => `${gate} ${rate ?? max}`)
      .toSorted();
  return Object.fromEntries((await partitionsWithLimiters(db)).map((one) => [one.key, limitsOf(one)]));
}
