import pg from "pg";
import { asSent } from "../../src/db/releasing.ts";
import { concurrency, throttle } from "../../src/gates/index.ts";
import { testDatabase } from "../../test/helpers/database.ts";
import { stopAutovacuum } from "../harness/autovacuum.ts";
import { atEnd } from "../harness/closing.ts";
import { timed } from "./timing.ts";

/** One gate as an arrival carries it, without its key: that follows from the scope. */
export type BenchGate = {
  gate: string;
  kind: "throttle" | "concurrency";
  scope: "partition" | "policy";
  rate?: number;
  per?: number;
  max?: number;
};

const OVERRIDES = {
  throttle: throttle({ rate: 1, per: "1 second" }).overrides,
  concurrency: concurrency({ max: 1 }).overrides,
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

/** A policy whose partitions have been admitted from, and have nothing to do. */
export async function idleWorld(names: readonly string[]): Promise<World> {
  const world = await makeWorld();
  await world.stage(jobsOf(names));
  await world.routeAll();
  await world.admit();
  await world.endAll();
  await world.routeAll();
  await world.settle();
  return world;
}

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
  shardOf = (_key: string): string => "default",
  history = false,
} = {}) {
  const database = await testDatabase();
  await stopAutovacuum(database.pool);
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  const query = async <Row extends pg.QueryResultRow>(text: string, values: unknown[] = []): Promise<Row[]> =>
    (await client.query<Row>(text, values)).rows;

  // As in the engine's functions: under another path, a bare `add_jobs` beside theirs would be planned anew each time, and so would theirs.
  await query("set search_path = pg_catalog, dispatch_policy_internal, pg_temp");
  const pid = (await query<{ pid: number }>("select pg_backend_pid() as pid"))[0]!.pid;

  const definition = {
    name: task,
    tasks: [task],
    version: 0,
    enabled: true,
    gates: gates.map((gate, position) => {
      const { gate: name, kind, scope, ...values } = gate;
      return { name, kind, scope, position, values, constants: values, overrides: OVERRIDES[kind] };
    }),
    weight: 1,
    cost: 1,
    shard: "default",
    partitionPaths: ["key"],
    resolvesInSql: true,
    job: {},
    retries: "restage",
    history: history ? { keepSeconds: 86_400 } : null,
    functions: {},
  };
  await query("select * from dispatch_policy_internal._declare_policy($1, 'bench', $2, now())", [
    JSON.stringify(definition),
    JSON.stringify({
      halfLifeSeconds: halfLife,
      admissionBatchSize: batch,
      tickAdmissionBudget: budget,
    }),
  ]);

  const limits = gates.map((gate, position) => ({ ...gate, position }));
  const batches = (jobs: readonly BenchJob[], { of = limits }: { of?: typeof limits } = {}): string => {
    const index = new Map<string, number>();
    for (const { key } of jobs) if (!index.has(key)) index.set(key, index.size);
    return JSON.stringify([
      {
        policy: task,
        version: 0,
        partitions: [...index.keys()].map((key, place) => ({
          key,
          shard: shardOf(key),
          context: { key },
          weight: 1,
          ...(place === 0 ? { limits: of } : { like: 0 }),
        })),
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
    query("select count(*) as count from dispatch_policy_internal._stage($1, 'replace')", [text]);
  const { route, turn, admit } = ticksOn(client, task);
  const release = async (jobIds: readonly string[], passesOn = false) => {
    const ended = {
      ok: true,
      lagMs: 5,
      durationMs: 5,
      ends: true,
      attempt: null,
      admission: null,
      task,
      retry: null,
    };
    const jobs = asSent(jobIds.map((job) => ({ job, ...ended })));
    return query("select left_ids, may_end from dispatch_policy_internal._release($1, null, $2)", [
      JSON.stringify(jobs),
      passesOn,
    ]);
  };

  return {
    ...database,
    client,
    task,
    query,
    timed: <T>(run: () => Promise<T>) => timed(pid, run),
    limits,
    batches,
    stageText,
    route,
    turn,
    admit,
    /** A worker has 100 slots and leads, for 20 seconds. */
    async isLed() {
      await query(
        `insert into dispatch_policy_internal.leases (policy, shard, holder, expires_at)
         select $1, 'default', 'bench', clock_timestamp() + interval '20 seconds'`,
        [task],
      );
      await query(
        `insert into dispatch_policy_internal.workers (pool_id, slots, tasks, stale_after, stale_at)
         values ('bench', 100, $1, '1 day', 'infinity')`,
        [[task]],
      );
    },
    /** One job, in a call that is a transaction of its own: it may go at once. */
    add(key: string, atOnce: boolean) {
      const [batch] = JSON.parse(batches([{ key }]));
      return query<{ id: string }>("select * from dispatch_policy.enqueue($1, 0, $2, $3, 'replace', $4)", [
        task,
        JSON.stringify(batch.partitions),
        JSON.stringify(batch.jobs),
        atOnce,
      ]);
    },
    stage: (jobs: readonly BenchJob[]) => stageText(batches(jobs)),
    async routeAll() {
      while ((await route(100_000)) !== 0);
    },
    release,
    /** All that is in flight ends, as jobs do that take no time. Gives how many jobs that were. */
    async endAll(): Promise<number> {
      const jobs = await query<{ job_id: string }>(
        "select job_id from dispatch_policy_internal.in_flight_jobs",
      );
      const ids = jobs.map(({ job_id }) => job_id);
      if (ids.length === 0) return 0;
      await query("select count(*) from graphile_worker.complete_jobs($1)", [ids]);
      await release(ids);
      return ids.length;
    },
    /** Bare graphile_worker.add_jobs of jobs as they are when admitted. */
    addBare: (count: number, partitions: number) =>
      query(
        `select count(*) from graphile_worker.add_jobs(array(select row($1, json_build_object('key', 'partition-' || n % $3),
           null, now(), null, null, 0, array['x:' || n])::graphile_worker.job_spec from generate_series(1, $2) n))`,
        [task, count, partitions],
      ),
    /** Many jobs without a round trip each; their partitions must have been routed. */
    async stageMany(each: number, where = "true") {
      await query(
        `insert into dispatch_policy_internal.staged_jobs (partition_id, task_identifier, payload, run_at, due)
         select q.id, $1, json_build_object('key', q.key), now(), true
         from generate_series(1, $2) n, dispatch_policy_internal.partitions q where ${where}`,
        [task, each],
      );
    },
    async settle() {
      for (const table of ["staged_jobs", "partitions", "limiters", "arrivals", "in_flight_jobs", "freed"])
        await query(`vacuum analyze dispatch_policy_internal.${table}`);
      await query("vacuum analyze graphile_worker._private_jobs");
      await query("checkpoint");
    },
    close: atEnd(async () => {
      await client.end();
      await database.drop();
    }),
  };
}

/** The two steps of a tick, on a connection. */
export function ticksOn(client: pg.Client, task: string) {
  return {
    /** -1: another session routes. */
    async route(max = 10_000): Promise<number> {
      const text = "select dispatch_policy_internal._route($1, null, $2) as n";
      return (await client.query<{ n: number }>(text, [task, max])).rows[0]!.n;
    },
    /** A pass as tick loops do it: it keeps to the ahead bound, and routes few arrivals itself. */
    async turn(): Promise<Pass> {
      const text = "select * from dispatch_policy_internal._admit($1, null, 50, null, true, true, true)";
      return (await client.query<Pass & pg.QueryResultRow>(text, [task])).rows[0]!;
    },
    async admit(claim = 50, shard: string | null = null): Promise<Pass> {
      const text = "select * from dispatch_policy_internal._admit($1, $2, $3, null, false)";
      return (await client.query<Pass & pg.QueryResultRow>(text, [task, shard, claim])).rows[0]!;
    },
  };
}
