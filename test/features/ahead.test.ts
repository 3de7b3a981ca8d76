import test from "ava";
import type { Task } from "graphile-worker";
import { concurrency } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, FULL, type Payload, policyOf, type Scenario, scenario } from "../helpers/scenario.ts";

const HOT = FULL ? 100_000 : 5000;
const SLOTS = 10;

/** Runs the hot jobs, brings 10 cold ones once 500 have started, and says after how many starts those started. */
async function coldAmongHot(
  it: Scenario,
  jobMs: number,
): Promise<{ places: number[]; mostInWorker: number }> {
  const starts: string[] = [];
  const task: Task = async (payload) => {
    starts.push(String((payload as Payload).key));
    if (jobMs > 0) await new Promise((resolve) => setTimeout(resolve, jobMs));
  };
  for (let left = HOT; left > 0; left -= 10_000) await it.stage(`${Math.min(left, 10_000)}@hot`);
  await it.worker({ tasks: { p: task }, slots: SLOTS });
  let mostInWorker = 0;
  const look = async () => {
    const [row] = await it.rows("select count(*)::int as n from graphile_worker.jobs");
    mostInWorker = Math.max(mostInWorker, row.n);
  };
  await until("the hot ones are under way", async () => {
    await look();
    return starts.length >= 500;
  });
  await it.stage("10@cold");
  const before = starts.length;
  const coldStarts = () => starts.filter((key) => key === "cold").length;
  await until(
    "the cold ones have started",
    async () => {
      await look();
      return coldStarts() === 10;
    },
    { withinMs: 60_000 },
  );
  await it.utils.remove({ policy: "p" });
  const places = starts.flatMap((key, n) => (key === "cold" ? [n - before] : []));
  return { places, mostInWorker };
}

for (const [jobMs, ahead] of [
  [5, undefined],
  [0, undefined],
  [5, 20],
  [0, 100],
] as const) {
  test.serial(
    `scenario 32: a cold tenant beside a hot one, jobs of ${jobMs} ms, ahead ${ahead}`,
    async (t) => {
      t.timeout(300_000);
      const it = await scenario(t, {}, { settings: ahead === undefined ? {} : { defaults: { ahead } } });
      const { places, mostInWorker } = await coldAmongHot(it, jobMs);
      t.log(`started ${places.join(", ")} starts later; Graphile Worker held ${mostInWorker} at most`);
      t.true(Math.max(...places) <= 500, `${places}`);
      if (ahead !== undefined) t.true(mostInWorker <= SLOTS + ahead, `${mostInWorker}`);
    },
  );
}

test("scenario 33: one policy over two tasks has one cap over both", async (t) => {
  const it = await scenario(
    t,
    policyOf("both", { tasks: ["a", "b"], gates: [concurrency<Ctx>({ max: 3 })] }),
  );
  let running = 0;
  let most = 0;
  const ran: Record<string, number> = { a: 0, b: 0 };
  const task: Task = async (_payload, { job }) => {
    running++;
    most = Math.max(most, running);
    await new Promise((resolve) => setTimeout(resolve, 10));
    running--;
    ran[job.task_identifier] = (ran[job.task_identifier] ?? 0) + 1;
  };
  await it.worker({ tasks: { a: task, b: task }, slots: 12 });
  await it.utils.addJobs(
    Array.from({ length: 60 }, (_, n) => ({ identifier: n % 2 ? "a" : "b", payload: { key: "k" } })) as never,
  );
  await until("all have run", async () => ran.a === 30 && ran.b === 30);
  t.is(most, 3);
});

test("scenario 33: the same by single ticks, with a task's jobs added from SQL", async (t) => {
  const it = await scenario(
    t,
    policyOf("both", { tasks: ["a", "b"], gates: [concurrency<Ctx>({ max: 3 })] }),
  );
  await it.rows(`select dispatch_policy.add_job('a', '{"key": "k"}') from generate_series(1, 2)`);
  await it.utils.addJob("b", { key: "k" });
  await it.utils.addJob("b", { key: "k" });
  t.is((await it.tick()).admitted, 3);
  t.is(await it.staged(), 1);
  const rows = await it.rows("select task_identifier from graphile_worker.jobs");
  t.deepEqual(new Set(rows.map((row) => row.task_identifier)), new Set(["a", "b"]));
});
