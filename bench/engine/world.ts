import { readFileSync } from "node:fs";
import pg from "pg";
import { testDatabase } from "../../test/helpers/database.ts";

/** One gate as an arrival carries it, without its key: that follows from the scope. */
export type BenchGate = {
  gate: string;
  kind: "throttle" | "concurrency";
  scope: "partition" | "policy";
  rate?: number;
  per?: number;
  max?: number;
};

export type BenchJob = { key: string; payload?: unknown; priority?: number; runAt?: string; jobKey?: string };

export interface Pass {
  claimed: number;
  admitted: number;
  denied: Record<string, number>;
}

/** A throttle, a concurrency and a policy-wide throttle, none of which binds unless a number is given. */
export function threeGates({ rate = 1e6, max = 1e6, policyRate = 1e6 } = {}): BenchGate[] {
  return [
    { gate: "throttle", kind: "throttle", scope: "partition", rate, per: 1 },
    { gate: "concurrency", kind: "concurrency", scope: "partition", max },
    { gate: "all", kind: "throttle", scope: "policy", rate: policyRate, per: 1 },
  ];
}

export const keys = (count: number, prefix = "partition-"): string[] =>
  Array.from({ length: count }, (_, index) => prefix + index);

/** `each` jobs of each key, the keys in turn. */
export const jobsOf = (names: readonly string[], each = 1): BenchJob[] =>
  Array.from({ length: each }, () => names.map((key) => ({ key }))).flat();

export type World = Awaited<ReturnType<typeof makeWorld>>;

/** A database of its own with one policy, and the engine's statements on one connection, as a tick loop has it. */
export async function makeWorld({
  gates = threeGates(),
  batch = 100,
  budget = null as number | null,
  halfLife = 60 as number | null,
  task = "bench",
} = {}) {
  const database = await testDatabase();
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  const query = async <Row extends pg.QueryResultRow>(text: string, values: unknown[] = []): Promise<Row[]> =>
    (await client.query<Row>(text, values)).rows;

  const pid = (await query<{ pid: number }>("select pg_backend_pid() as pid"))[0]!.pid;

  const definition = {
    name: task,
    tasks: [task],
    version: 0,
    enabled: true,
    gates: gates.map((gate, position) => {
      const { gate: name, kind, scope, ...values } = gate;
      return { name, kind, scope, position, values };
    }),
    weight: 1,
    cost: 1,
    shard: "default",
    partitionPaths: ["key"],
    resolvesInSql: true,
    job: {},
    retries: "restage",
    functions: {},
  };
  await query("select * from dispatch_policy._declare_policy($1, 'bench', $2, now())", [
    JSON.stringify(definition),
    JSON.stringify({
      halfLifeSeconds: halfLife,
      admissionBatchSize: batch,
      tickAdmissionBudget: budget,
      ahead: null,
      aheadAuto: true,
    }),
  ]);

  const limits = gates.map((gate, position) => ({ ...gate, position }));
  const partition = (key: string, of = limits) => ({
    key,
    shard: "default",
    context: { key },
    weight: 1,
    limits: of.map((limit) => ({ ...limit, key: limit.scope === "partition" ? key : "" })),
  });
  const batches = (jobs: readonly BenchJob[], { of = limits }: { of?: typeof limits } = {}): string => {
    const index = new Map<string, number>();
    for (const { key } of jobs) if (!index.has(key)) index.set(key, index.size);
    return JSON.stringify([
      {
        policy: task,
        version: 0,
        partitions: [...index.keys()].map((key) => partition(key, of)),
        jobs: jobs.map(({ key, payload = { key }, ...rest }, n) => ({
          n,
          task,
          p: index.get(key),
          payload,
          ...rest,
        })),
      },
    ]);
  };
  const stageText = (text: string) =>
    query("select count(*) as count from dispatch_policy._stage($1, 'replace')", [text]);
  const route = async (max = 10_000): Promise<number> =>
    (await query<{ n: number }>("select dispatch_policy._route($1, null, $2, false) as n", [task, max]))[0]!
      .n;
  const admit = async (claim = 50, now: string | null = null): Promise<Pass> =>
    (
      await query<Pass & pg.QueryResultRow>("select * from dispatch_policy._admit($1, null, $2, $3, false)", [
        task,
        claim,
        now,
      ])
    )[0]!;

  return {
    ...database,
    client,
    task,
    query,
    /** How long it took, and how long of that the server's process was on a processor. */
    async timed<T>(run: () => Promise<T>): Promise<Timing & { result: T }> {
      const before = onProcessor(pid);
      const start = performance.now();
      const result = await run();
      return { ms: performance.now() - start, cpu: onProcessor(pid) - before, result };
    },
    limits,
    batches,
    stageText,
    route,
    admit,
    stage: (jobs: readonly BenchJob[]) => stageText(batches(jobs)),
    async routeAll() {
      while ((await route(100_000)) !== 0);
    },
    async release(jobIds: readonly string[]) {
      const jobs = JSON.stringify(jobIds.map((job) => ({ job, ok: true, lagMs: 5, retry: null })));
      return query("select count(*) as count from dispatch_policy._release($1, null)", [jobs]);
    },
    /** Many jobs without a round trip each; their partitions must have been routed. */
    async stageMany(each: number, where = "true") {
      await query(
        `insert into dispatch_policy._private_staged_jobs (partition_id, task_identifier, payload, run_at, due)
         select q.id, $1, json_build_object('key', q.key), now(), true
         from generate_series(1, $2) n, dispatch_policy._private_partitions q where ${where}`,
        [task, each],
      );
    },
    async settle() {
      for (const table of ["staged_jobs", "partitions", "limiters", "arrivals", "in_flight_jobs", "freed"])
        await query(`vacuum analyze dispatch_policy._private_${table}`);
      await query("vacuum analyze graphile_worker._private_jobs");
      await query("checkpoint");
    },
    async close() {
      await client.end();
      await database.drop();
    },
  };
}

export interface Timing {
  readonly ms: number;
  readonly cpu: number;
}

/** Milliseconds; steadier than the clock on a busy machine. Not a number where the server is elsewhere. */
function onProcessor(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[0]) / 1e6;
  } catch {
    return Number.NaN;
  }
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1]!;
}

/** The medians of both, as in "12.3 ms (9.1 on a processor)". */
export function medians(timings: readonly Timing[]): string {
  const of = (pick: (timing: Timing) => number) => median(timings.map(pick)).toPrecision(3);
  return `${of((timing) => timing.ms)} ms (${of((timing) => timing.cpu)} cpu)`;
}

/** How many times as long `a` took as `b`, by processor time where it is known. */
export function ratio(a: readonly Timing[], b: readonly Timing[]): number {
  const of = (timings: readonly Timing[]) =>
    median(timings.map(({ ms, cpu }) => (Number.isNaN(cpu) ? ms : cpu)));
  return Number((of(a) / of(b)).toFixed(2));
}

/** One line of the pace table. */
export function say(what: string, figures: Record<string, unknown>): void {
  console.log(`${what}: ${JSON.stringify(figures)}`);
}
