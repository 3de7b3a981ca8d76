import test from "ava";
import type { Task } from "graphile-worker";
import { concurrency } from "../../src/index.ts";
import { atLength, type Register } from "../helpers/at-length.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, FULL, type Payload, policyOf, type Scenario, scenario } from "../helpers/scenario.ts";

const HOT = FULL ? 100_000 : 5000;
const SLOTS = 10;
/** Each runs jobs for some seconds. */
const taken: Register = FULL ? test.serial : atLength;

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
  taken(`scenario 32: a cold tenant beside a hot one, jobs of ${jobMs} ms, ahead ${ahead}`, async (t) => {
    t.timeout(300_000);
    const it = await scenario(t, {}, { settings: ahead === undefined ? {} : { defaults: { ahead } } });
    const { places, mostInWorker } = await coldAmongHot(it, jobMs);
    t.log(`started ${places.join(", ")} starts later; Graphile Worker held ${mostInWorker} at most`);
    t.true(Math.max(...places) <= 500, `${places}`);
    if (ahead !== undefined) t.true(mostInWorker <= SLOTS + ahead, `${mostInWorker}`);
  });
}

/** The most of these times, in ms and in order, that fall within 100 ms of each other. */
function mostIn100Ms(times: number[]): number {
  let [most, first] = [0, 0];
  times.forEach((at, n) => {
    while (at - (times[first] as number) > 100) first++;
    most = Math.max(most, n - first + 1);
  });
  return most;
}

/** How many starts show the pace, by the length of the jobs. */
const SEEN: Readonly<Record<string, number>> = {
  ...{ 0: 2000, 5: 1000, 20: 500, 200: 60, 1000: 25 },
  ...(FULL ? { 10000: 15 } : {}),
};

for (const [jobMs, seen] of Object.entries(SEEN)) {
  taken(
    `scenario 32: a job of a tenant that was quiet starts within half a second of others' starts, jobs of ${jobMs} ms`,
    async (t) => {
      t.timeout(300_000);
      const it = await scenario(t);
      const starts: { key: string; at: number }[] = [];
      const ends: number[] = [];
      const task: Task = async (payload) => {
        starts.push({ key: String((payload as Payload).key), at: performance.now() });
        if (jobMs !== "0") await new Promise((resolve) => setTimeout(resolve, Number(jobMs)));
        ends.push(performance.now());
      };
      const loud = Number(jobMs) < 100 ? 10_000 : 1000; // more than run while the test looks
      for (let n = 0; n < 2; n++) await it.stage(`${loud}@loud`);
      await it.worker({ tasks: { p: task }, slots: SLOTS });
      await until("the loud ones are under way", async () => starts.length >= seen, { withinMs: 60_000 });
      const places: number[] = [];
      for (let n = 0; n < 5; n++) {
        await it.stage(`1@quiet${n}`);
        const added = performance.now();
        const startOf = () => starts.findIndex(({ key }) => key === `quiet${n}`);
        await until("the quiet one has started", async () => startOf() >= 0, { withinMs: 60_000 });
        const freedAt = ends.find((at) => at > added) ?? Number.POSITIVE_INFINITY;
        places.push(starts.slice(0, startOf()).filter(({ at }) => at > freedAt).length);
      }
      const [first, last] = [starts[0], starts.at(-1)] as [{ at: number }, { at: number }];
      const perSecond = ((starts.length - 1) / (last.at - first.at)) * 1000;
      // on a machine that stalls, jobs start by fits, and a pass goes by the pace of the last tenth of a second
      const atMost = 5 * mostIn100Ms(starts.map(({ at }) => at));
      t.log(
        `${Math.round(perSecond)} starts a second, at most ${atMost} in half a second; ${places.join(", ")} of them before a quiet one's`,
      );
      places.sort((a, b) => a - b);
      // SLOTS: a pass that was under way may have filled them all
      t.true((places[2] as number) <= perSecond / 2 + SLOTS, `half of them: ${places}`);
      t.true((places[4] as number) <= atMost + SLOTS, `all of them: ${places}`);
      await it.utils.remove({ policy: "p" });
    },
  );
}

for (const where of ["the preset", "the policy"] as const) {
  for (const [ahead, jobMs, more] of [
    ["2 seconds", 700, true],
    ["100 milliseconds", 200, false],
  ] as const) {
    taken(`ahead: "${ahead}" in ${where} counts for jobs of ${jobMs} ms`, async (t) => {
      t.timeout(120_000);
      const it =
        where === "the preset"
          ? await scenario(t, {}, { settings: { defaults: { ahead } } })
          : await scenario(t, { ahead }, { settings: { defaults: { ahead: more ? 0 : "1 minute" } } });
      let started = 0;
      const task: Task = async () => {
        started++;
        await new Promise((resolve) => setTimeout(resolve, jobMs));
      };
      await it.stage("1000@k");
      await it.worker({ tasks: { p: task }, slots: SLOTS });
      let most = 0;
      await until(
        more ? "more are in Graphile Worker than run" : "many have started",
        async () => {
          const [row] = await it.rows("select count(*)::int as n from graphile_worker.jobs");
          most = Math.max(most, row.n);
          return more ? most > SLOTS : started >= 10 * SLOTS;
        },
        { withinMs: 60_000 },
      );
      // "500 milliseconds", the default, has none ahead of the longer jobs, and some ahead of the shorter ones
      if (!more) t.true(most <= SLOTS, `${most}`);
      await it.utils.remove({ policy: "p" });
      t.pass();
    });
  }
}

taken("a tenant of weight 2 has its share of the starts of long jobs from the first on", async (t) => {
  t.timeout(120_000);
  const it = await scenario(t);
  const starts: string[] = [];
  const task: Task = async (payload) => {
    starts.push(String((payload as Payload).key));
    await new Promise((resolve) => setTimeout(resolve, 1000));
  };
  await it.stage("300@single");
  await it.stage("300@double", { weight: 2 });
  await it.worker({ tasks: { p: task }, slots: SLOTS });
  await until("200 have started", async () => starts.length >= 200, { withinMs: 90_000 });
  const share = starts.slice(0, 200).filter((key) => key === "double").length / 200;
  t.true(share >= 0.6 && share <= 0.73, `${share}`);
  await it.utils.remove({ policy: "p" });
});

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
