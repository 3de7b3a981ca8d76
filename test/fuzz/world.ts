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
  smooth,
  type TestGate,
  throttle,
} from "../helpers/engine.ts";
import { type Random, random } from "../helpers/random.ts";
import { type Cap, type Charged, type Judge, type Rate, scopeKeyOf } from "./judge.ts";
import { FREE_DELAY, LOG_CHARGES } from "./tables.ts";

const numberOf = (partition: string) => Number(partition.slice(1));
const account = (partition: string) => `account${numberOf(partition) % 3}`;
export const HOSTS = ["host0", "host1"] as const;
const host = (partition: string) => HOSTS[numberOf(partition) % HOSTS.length]!;

/** Partitions of the plan "free" have tighter limits, by their context. */
const isFree = (partition: string) => numberOf(partition) % 3 === 0;
const contextOf = (partition: string) => ({
  plan: isFree(partition) ? "free" : "pro",
  host: host(partition),
});

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

/** The same with a bucket of each partition. */
const OWN_RATES: readonly TestGate[] = [...RATES, throttle(30, { name: "own", burst: 3 })];

const SMOOTH: readonly TestGate[] = [
  concurrency(2),
  smooth(30, { name: "account", scope: account }),
  concurrency(4, { name: "host", scope: host }),
  smooth(60, { name: "all", scope: "policy" }),
];
const FORCED: readonly TestGate[] = [
  concurrency(2),
  throttle(40, { name: "account", burst: 4, scope: account }),
  concurrency(4, { name: "host", scope: host }),
  concurrency(7, { name: "all", scope: "policy" }),
];

const SETTLED: readonly TestGate[] = [
  concurrency(3),
  throttle(40, { name: "account", burst: 4, scope: account }),
  sliding(25, { name: "host", per: 0.5, scope: host }),
  throttle(30, { name: "own", burst: 3 }),
];

export interface Variant extends EngineOptions {
  readonly name: string;
  /** Runs say what they cost, and somebody says what a partner has left. A throttle gives way by no more than comes back. */
  readonly settles?: boolean;
  /** Operators change limits. Judged by the highest that they may set. */
  readonly overrides?: boolean;
  /**
   * What an operator gives the partitions of the plan "free", by gate: a limit by context, from before the first job to the end.
   * Other limits by context are set as well, and none is higher.
   */
  readonly free?: Readonly<Record<string, Readonly<Record<string, number>>>>;
  /** In seconds, and less than a policy may have: jobs that gates deny are postponed. */
  readonly shortDelay?: number;
  /** Jobs with a key are debounced. */
  readonly debounces?: boolean;
  /** An operator admits past the gates. Those jobs are judged by no limit. */
  readonly forced?: boolean;
}

const BREAKER = { breaker: { failures: 4, withinSeconds: 1, cooldownSeconds: 0.2 } };

export const VARIANTS: readonly Variant[] = [
  { name: "caps", gates: CAPS, batchSize: 3 },
  { name: "rates", gates: RATES, batchSize: 3 },
  { name: "caps, a breaker and shares of the work", gates: CAPS, batchSize: 3, ...BREAKER, fairBy: "work" },
  { name: "rates, a breaker and shares of the work", gates: RATES, batchSize: 3, ...BREAKER, fairBy: "work" },
  {
    ...{ name: "caps and operators", gates: CAPS, batchSize: 3, overrides: true, contextOf },
    free: { concurrency: { max: 1 } },
  },
  {
    ...{ name: "rates and operators", gates: OWN_RATES, batchSize: 3, overrides: true, contextOf },
    free: { concurrency: { max: 1 }, own: { rate: 15, burst: 1 } },
  },
  { name: "smooth rates in two shards", gates: SMOOTH, batchSize: 3, shardOf: host },
  { name: "forced admissions", gates: FORCED, batchSize: 3, forced: true },
  {
    ...{ name: "jobs that are postponed, debounced and unique", gates: CAPS, batchSize: 3 },
    ...{ shortDelay: 0.1, debounces: true, uniqueForSeconds: 1 },
  },
  { name: "the newest job of a key wins", gates: CAPS, batchSize: 3, cancelsAfterSeconds: 0 },
  { name: "costs that are settled", gates: SETTLED, batchSize: 3, settles: true },
  { name: "slots that time out", gates: CAPS, batchSize: 3, slotTimeout: 0.03 },
];

/** A gate whose limit an operator may change. */
export interface OverridableGate {
  readonly name: string;
  values(random: Random): Record<string, number>;
}

export interface World {
  readonly it: Engine;
  /** For all actors: each has its own session for the length of a statement. */
  readonly pool: pg.Pool;
  readonly random: Random;
  readonly variant: Variant;
  readonly partitions: readonly string[];
  /** Those of the policy. */
  readonly tasks: readonly string[];
  readonly gates: readonly OverridableGate[];
  readonly shards: readonly string[];
  /** Completes jobs whose partition only JavaScript can work out, as a process that has the policy does. */
  keyJobs(): Promise<void>;
  /** What a retry that moves is told of its partition; mostly where it is. */
  partitionState(partition: string): object;
  /** Whether an operator has admitted this job in flight past its gates. */
  isForced(jobId: string): Promise<boolean>;
  /** What was charged by admissions, but for those past the gates. */
  charges(): Promise<Charged[]>;
}

export async function makeWorld(t: ExecutionContext, variant: Variant, seed: number): Promise<World> {
  const it = await engine(t, variant);
  const pool = quietPool(it.url, { max: 16 });
  t.teardown(() => pool.end());
  await it.pool.query(LOG_CHARGES);
  if (variant.shortDelay !== undefined) await postpone(it, variant.shortDelay);
  for (const [gate, set] of Object.entries(variant.free ?? {}))
    await it.pool.query(`select dispatch_policy.set_limit('p', $1, $2, "where" => '{"plan": "free"}')`, [
      gate,
      set,
    ]);
  const partitions = Array.from({ length: 9 }, (_, n) => `k${n}`);
  return {
    ...{ it, pool, variant, partitions, random: random(seed) },
    tasks: [it.policy, ...(variant.otherTasks ?? [])],
    gates: variant.gates.map(({ name, ...gate }) => ({ name, values: (numbers) => valuesOf(gate, numbers) })),
    shards: [...new Set(partitions.map((partition) => variant.shardOf?.(partition) ?? "default"))],
    partitionState: (partition) => stateOf(it, partition),
    async isForced(jobId) {
      if (!variant.forced) return false;
      const text = "select forced from public.fuzz_charges where job_id = $1 order by n desc limit 1";
      return (await pool.query(text, [jobId])).rows[0]?.forced === true;
    },
    async charges() {
      const { rows } = await pool.query("select * from public.fuzz_charges where not forced");
      return rows.map(({ partition, keys, at, cost, returned_at }) => ({
        ...{ from: at, to: at, cost: Math.min(cost ?? 1, 1), returnedAt: returned_at ?? undefined },
        keyOf: (rate) => scopeKeyOf(rate, { partition, keys }),
      }));
    },
    async keyJobs() {
      const client = await pool.connect();
      try {
        await client.query("begin");
        const { rows } = await client.query(
          "select * from dispatch_policy_internal._keyless_jobs('p', 0, 100)",
        );
        const jobs = rows.map(({ staged_id: id, payload }) => ({
          id,
          cost: 1,
          partition: stateOf(it, payload.k),
        }));
        if (jobs.length > 0)
          await client.query("select dispatch_policy_internal._key_jobs('p', 0, $1)", [JSON.stringify(jobs)]);
        await client.query("commit");
      } finally {
        client.release();
      }
    },
  };
}

async function postpone(it: Engine, seconds: number): Promise<void> {
  await it.pool.query(FREE_DELAY);
  await it.table("policies").set({ when_busy: "delay", busy_delay: seconds });
}

function stateOf(it: Engine, partition: string): object {
  const { partitions: states } = it.batch([partition]) as { partitions: [object] };
  return { ...states[0], cost: 1 };
}

/** By how much an operator may raise a cap, and by what factor a rate. */
const RAISE = 2;
const FACTOR = 1.5;

function valuesOf({ kind, numbers }: Omit<TestGate, "name">, random: Random): Record<string, number> {
  if (kind === "throttle") return { rate: numbers.rate! * random.between(0.3, FACTOR) };
  if (kind === "concurrency") return { max: random.below(numbers.max! + RAISE + 1) };
  return { max: 1 + random.below(numbers.max! + RAISE) };
}

/** The highest caps that may be in force. */
export function capsOf({ gates, overrides, free = {} }: Variant): Cap[] {
  return gates.flatMap(({ name, kind, numbers, keyOf }) => {
    if (kind === "throttle") return [];
    const cap = { gate: name, max: numbers.max! + (overrides ? RAISE : 0), keyOf };
    const max = free[name]?.max;
    return max === undefined ? [cap] : [cap, { ...cap, max, isFor: isFree }];
  });
}

/** The highest rates that may be in force. */
export function ratesOf({ gates, overrides, free = {} }: Variant): Rate[] {
  return gates.flatMap((gate) => {
    if (gate.kind !== "throttle") return [];
    const { name, numbers, keyOf } = gate;
    const per = numbers.per!;
    const most = numbers.rate! * (overrides ? FACTOR : 1);
    const rate = most / per;
    // a smooth bucket fills on: see gates/_throttle_tokens.sql
    const capacity = gate.smooth ? 1 + Math.min(rate * 0.25, 0.9) : (numbers.burst ?? most);
    const all = { gate: name, rate, capacity, windowMs: gate.sliding ? per * 1000 : null, keyOf };
    const less = free[name];
    if (!less) return [all];
    return [all, { ...all, rate: less.rate! / per, capacity: less.burst!, isFor: isFree }];
  });
}

/** All that was charged: by admissions, and by `take`. */
export async function chargesOf(world: World, { ledger }: Judge): Promise<Charged[]> {
  const taken = ledger.taken.map(({ gate, key, from, to }) => {
    return { from, to, keyOf: (rate: Rate) => (rate.gate === gate ? key : null) };
  });
  return [...(await world.charges()), ...taken];
}
