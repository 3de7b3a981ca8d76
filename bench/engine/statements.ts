// How many statements the engine runs for one job, which is what a small turn costs. auto_explain tells of each query, also
// those within functions, and PostgreSQL counts the calls of functions. Simple expressions of PL/pgSQL are neither.
import { type BenchGate, jobsOf, keys, makeWorld, type World } from "./world.ts";

/** A step is counted once its session has planned its statements. */
const ROUNDS = 8;

const CAP = { gate: "cap", kind: "concurrency", scope: "partition", max: 1 } as const;
const SHARED = { gate: "all", kind: "concurrency", scope: "policy", max: 20 } as const;
const names = keys(50);
let queries = 0;

async function waiting(gates: BenchGate[], each: number): Promise<World> {
  const world = await makeWorld({ gates });
  await world.stage(jobsOf(names, each));
  await world.routeAll();
  await world.admit();
  await world.settle();
  await world.isLed();
  await world.query(`load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on;
    set auto_explain.log_level = notice; set track_functions = 'all'`);
  world.client.on("notice", ({ message = "" }) => {
    if (message.startsWith("duration:")) queries++;
  });
  return world;
}

let world = await waiting([CAP], 2);

interface Count {
  readonly queries: number;
  readonly calls: number;
}

const counts = new Map<string, Count>();

const calls = async (): Promise<number> =>
  (
    await world.query<{ calls: number }>(
      `select coalesce(sum(calls), 0)::int as calls from pg_stat_xact_user_functions
       where schemaname in ('dispatch_policy', 'dispatch_policy_internal')`,
    )
  )[0]!.calls;

/** Runs a step, and keeps what it took the last time. */
async function counted<T>(step: string, run: () => Promise<T>): Promise<T> {
  await world.query("begin");
  const before = await calls();
  queries = 0;
  const result = await run();
  const asked = queries;
  counts.set(step, { queries: asked, calls: (await calls()) - before });
  await world.query("commit");
  return result;
}

const inFlight = async (key: string): Promise<string> => {
  const [job] = await world.query<{ job_id: string }>(
    "select job_id from dispatch_policy.in_flight_jobs where partition = $1 order by job_id limit 1",
    [key],
  );
  if (!job) throw new Error(`no job of ${key} is in flight`);
  await world.query("select graphile_worker.complete_jobs($1)", [[job.job_id]]);
  return job.job_id;
};

for (const key of names.slice(0, ROUNDS)) {
  const first = await inFlight(key);
  await counted("release that passes its slot on", () => world.release([first], true));
  const second = await inFlight(key);
  await counted("release", () => world.release([second], true));
  await world.routeAll();
  await counted("add at once", () => world.add(key, true));
  await world.release([await inFlight(key)], true);
  await world.routeAll();
  await counted("add", () => world.add(key, false));
  await counted("routing step of one arrival", () => world.route());
  await counted("pass of one job", () => world.admit());
  await world.release([await inFlight(key)], true);
  await world.routeAll();
  await world.add(key, false);
  await counted("pass of one job that it routes", () => world.turn());
  await world.release([await inFlight(key)], true);
  await world.routeAll();
}

await world.close();

world = await waiting([CAP, SHARED], 2);
for (let round = 0; round < ROUNDS; round++) {
  const [job] = await world.query<{ job_id: string }>(
    "select job_id from dispatch_policy.in_flight_jobs order by job_id limit 1",
  );
  await world.query("select graphile_worker.complete_jobs($1)", [[job!.job_id]]);
  await counted("release that passes a shared slot on", () => world.release([job!.job_id], true));
}

console.log("| step | queries | calls of functions |\n|---|---|---|");
for (const [step, count] of counts) console.log(`| ${step} | ${count.queries} | ${count.calls} |`);
await world.close();
