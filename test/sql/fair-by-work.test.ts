// Fairness by work: what an admission charges, and what the end of a job settles.
import test from "ava";
import { concurrency, type Engine, engine } from "../helpers/engine.ts";

const HOUR = 3600;

/** Partitions whose jobs ran for so many seconds lately, with nothing counted against them. */
async function worked(t: Parameters<typeof engine>[0], seconds: Record<string, number>): Promise<Engine> {
  const it = await engine(t, {
    ...{ gates: [concurrency(100_000, { name: "all", scope: "policy" })], fairBy: "work" },
    ...{ batchSize: 1000, halfLifeSeconds: HOUR },
  });
  await it.stage(Object.keys(seconds));
  await it.passes();
  for (const [key, mean] of Object.entries(seconds))
    await ends(it, key, Array((await it.inFlight(key)).length).fill(mean));
  await it.table("partitions").set({ decayed_admits: 0 });
  return it;
}

/** Jobs of this partition end, after so many seconds each. */
async function ends(it: Engine, key: string, seconds: readonly number[]): Promise<void> {
  const jobs = (await it.inFlight(key)).slice(0, seconds.length);
  await it.pool.query("select graphile_worker.complete_jobs($1)", [jobs]);
  await it.release(jobs.map((job, n) => ({ job, durationMs: seconds[n]! * 1000 })));
  await it.route();
}

const limited = (it: Engine, max: number) =>
  it.pool.query("select dispatch_policy.set_limit('p', 'all', $1)", [{ max }]);

const near = (value: number, expected: number) => Math.abs(value - expected) <= 0.01 * expected + 1e-6;

test("shares are of seconds: short jobs get as many more as they are shorter", async (t) => {
  const it = await worked(t, { slow: 2, quick: 0.01 });
  await limited(it, 402);
  await it.stage([...Array(500).fill("slow"), ...Array(500).fill("quick")]);
  t.is(await it.passes(), 402);
  t.is((await it.inFlight("slow")).length, 2);
  t.is((await it.inFlight("quick")).length, 400);
});

test("weights are of seconds as well, and nobody's room is left unused", async (t) => {
  const it = await worked(t, { double: 1, single: 0.5 });
  await it.stage("double", { weight: 2 });
  await it.passes();
  await ends(it, "double", [1]);
  await it.table("partitions").set({ decayed_admits: 0 });
  await limited(it, 20);
  await it.stage(Array(100).fill("double"), { weight: 2 });
  await it.stage(Array(100).fill("single"));
  t.is(await it.passes(), 20);
  t.is((await it.inFlight("double")).length, 10);
  t.is((await it.inFlight("single")).length, 10);

  await limited(it, 60);
  await it.pool.query("select dispatch_policy.pause('p', partition => 'double')");
  t.is(await it.passes(2), 40);
});

test("an admission charges the mean, and the end settles what the job took", async (t) => {
  const it = await worked(t, { a: 2 });
  await it.stage(Array(3).fill("a"));
  await it.passes();
  t.true(near((await it.partition("a")).decayed_admits, 6));
  await ends(it, "a", [7, 0.5]);
  const { decayed_admits, mean_work } = await it.partition("a");
  t.true(near(decayed_admits, 7 + 0.5 + 2), `${decayed_admits}`);
  t.true(near(mean_work, 3.75 + (2 - 3.75) * 0.8 ** 2), `${mean_work}`);
});

test("before any job has ended one counts for a second; settled it counts for what it took", async (t) => {
  const it = await engine(t, { gates: [], fairBy: "work", halfLifeSeconds: HOUR });
  await it.stage(Array(4).fill("a"));
  await it.passes();
  t.true(near((await it.partition("a")).decayed_admits, 4));
  await ends(it, "a", [0.1, 0.1, 0.1, 0.1]);
  const { decayed_admits, mean_work } = await it.partition("a");
  t.true(near(decayed_admits, 0.4), `${decayed_admits}`);
  t.true(near(mean_work, 0.1), `${mean_work}`);
});

test("jobs whose end nobody saw stay charged, and never does a count fall below zero", async (t) => {
  const it = await worked(t, { a: 2 });
  await it.stage(["a", "a"]);
  await it.passes();
  const [swept] = await it.inFlight("a");
  await it.finish([swept!]);
  await it.route();
  t.true(near((await it.partition("a")).decayed_admits, 4));
  await it.table("partitions").set({ decayed_admits: 1 });
  await ends(it, "a", [0.001]);
  t.is((await it.partition("a")).decayed_admits, 0);
});

test("the first of the line is who had the fewest seconds", async (t) => {
  const it = await worked(t, { slow: 2, quick: 0.01 });
  await limited(it, 2);
  await it.stage(["slow", "quick", "slow", "quick"]);
  t.is(await it.passes(2), 2);
  await limited(it, 1);
  await ends(it, "slow", [2]);
  await ends(it, "quick", [0.01]);
  await it.passes(2);
  t.is((await it.inFlight("quick")).length, 1);
});

test("where jobs are counted, how long they ran is not asked", async (t) => {
  const it = await engine(t, { gates: [] });
  await it.stage("a");
  await it.passes();
  await ends(it, "a", [5]);
  const { decayed_admits, mean_work } = await it.partition("a");
  t.deepEqual([decayed_admits, mean_work], [1, null]);
  t.is(await it.table("arrivals").count(), 0);
});
