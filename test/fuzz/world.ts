// A database with one policy, and what its random actors share.
import type { ExecutionContext } from "ava";
import type pg from "pg";
import { quietPool } from "../helpers/database.ts";
import {
  adaptive,
  concurrency,
  type Engine,
  type EngineOptions,
  engine,
  sliding,
  type TestGate,
  throttle,
} from "../helpers/engine.ts";
import { type Random, random } from "../helpers/random.ts";
import type { Cap } from "./judge.ts";

const numberOf = (partition: string) => Number(partition.slice(1));
const account = (partition: string) => `account${numberOf(partition) % 3}`;
const host = (partition: string) => `host${numberOf(partition) % 2}`;

/** Partitions use a cap of their own, and share those of accounts and hosts, which overlap, and the policy's. */
const CAPS: readonly TestGate[] = [
  concurrency(2),
  concurrency(3, { name: "account", scope: account }),
  concurrency(4, { name: "host", scope: host }),
  concurrency(7, { name: "all", scope: "policy" }),
];
const RATES: readonly TestGate[] = [
  concurrency(2),
  throttle(40, { name: "account", burst: 4, scope: account }),
  sliding(25, { name: "host", per: 0.5, scope: host }),
  adaptive(6, { name: "all", max: 9, scope: "policy" }),
];

export interface Variant extends EngineOptions {
  readonly name: string;
  /** Operators change limits and admit past them: what runs at once is not judged. */
  readonly overrides?: boolean;
}

const BREAKER = { breaker: { failures: 4, withinSeconds: 1, cooldownSeconds: 0.2 } };

export const VARIANTS: readonly Variant[] = [
  { name: "caps", gates: CAPS, batchSize: 3 },
  { name: "rates", gates: RATES, batchSize: 3 },
  { name: "caps, a breaker and shares of the work", gates: CAPS, batchSize: 3, ...BREAKER, fairBy: "work" },
  { name: "rates, a breaker and shares of the work", gates: RATES, batchSize: 3, ...BREAKER, fairBy: "work" },
  { name: "caps and operators", gates: CAPS, batchSize: 3, overrides: true },
  { name: "rates and operators", gates: RATES, batchSize: 3, overrides: true },
];

export interface World {
  readonly it: Engine;
  /** For all actors: each has its own session for the length of a statement. */
  readonly pool: pg.Pool;
  readonly random: Random;
  readonly variant: Variant;
  readonly partitions: readonly string[];
  /** Of which gates an operator may change the limit. */
  readonly gates: readonly string[];
  /** Completes jobs whose partition only JavaScript can work out, as a process that has the policy does. */
  keyJobs(): Promise<void>;
  /** What a retry that moves is told of its partition; mostly where it is. */
  partitionState(partition: string): object;
}

export async function makeWorld(t: ExecutionContext, variant: Variant, seed: number): Promise<World> {
  const it = await engine(t, variant);
  const pool = quietPool(it.url, { max: 16 });
  t.teardown(() => pool.end());
  const partitions = Array.from({ length: 9 }, (_, n) => `k${n}`);
  return {
    ...{ it, pool, variant, partitions, random: random(seed) },
    gates: variant.gates.filter(({ kind }) => kind === "concurrency").map(({ name }) => name),
    partitionState: (partition) => stateOf(it, partition),
    async keyJobs() {
      const client = await pool.connect();
      try {
        await client.query("begin");
        const { rows } = await client.query("select * from dispatch_policy._keyless_jobs('p', 100)");
        const jobs = rows.map(({ staged_id: id, payload }) => ({
          id,
          cost: 1,
          partition: stateOf(it, payload.k),
        }));
        if (jobs.length > 0)
          await client.query("select dispatch_policy._key_jobs('p', 0, $1)", [JSON.stringify(jobs)]);
        await client.query("commit");
      } finally {
        client.release();
      }
    },
  };
}

function stateOf(it: Engine, partition: string): object {
  const { partitions: states } = it.batch([partition]) as { partitions: [{ limits: object }] };
  return { key: partition, shard: "default", context: {}, weight: 1, cost: 1, limits: states[0].limits };
}

/** The caps that hold whatever happens. */
export function capsOf({ gates, overrides }: Variant): Cap[] {
  if (overrides) return [];
  return gates.flatMap(({ name, kind, numbers, keyOf }) =>
    kind === "throttle"
      ? []
      : [{ gate: name, max: (numbers.max as number | null) ?? Number.POSITIVE_INFINITY, keyOf }],
  );
}
