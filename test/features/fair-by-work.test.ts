// Tenants whose jobs differ in how long they run, in a real worker.
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import type { Task } from "graphile-worker";
import { until } from "../helpers/engine.ts";
import { type Payload, scenario } from "../helpers/scenario.ts";

/** So far apart that they are so on a busy machine, where the quick ones take some times as long. */
const RUNS_MS = { slow: 200, quick: 5 };

for (const [by, expected] of [
  ["jobs", "most of the workers' time goes to slow jobs"],
  ["work", "both tenants get their share of the workers' time"],
] as const) {
  test.serial(`fairness by ${by}: ${expected}`, async (t) => {
    t.timeout(120_000);
    const it = await scenario(
      t,
      { fairness: { by, halfLife: "1 minute" } },
      { settings: { defaults: { ahead: 2 } } },
    );
    const ran = { slow: 0, quick: 0 };
    const task: Task = async (payload) => {
      const key = (payload as Payload).key as keyof typeof ran;
      const began = performance.now();
      await delay(RUNS_MS[key]);
      ran[key] += performance.now() - began;
    };
    await it.stage("200@slow 4000@quick");
    await it.worker({ tasks: { p: task }, slots: 4 });
    // at first nobody knows how long they run
    await until("both have run", async () => ran.slow > 1000 && ran.quick > 100);
    const before = { ...ran };
    await until("ten seconds of work are done", async () => {
      return ran.slow + ran.quick - before.slow - before.quick > 10_000;
    });
    const [slow, quick] = [ran.slow - before.slow, ran.quick - before.quick];
    const share = slow / (slow + quick);
    t.log(`slow jobs had ${(share * 100).toFixed(1)} % of the workers' time`);
    if (by === "jobs") t.true(share > 0.8, `${share}`);
    else t.true(share > 0.3 && share < 0.7, `${share}`);
    await it.utils.remove({ policy: "p" });
  });
}

test("a job that runs on and on is charged while it runs", async (t) => {
  const it = await scenario(t, { fairness: { by: "work", halfLife: "1 hour" } });
  const hands = await it.hands(2);
  await it.stage("1@a");
  await it.tickNow();
  await hands.end(1);
  await it.tickNow();
  const { mean_work: mean, decayed_admits: before } = await it.partition("a");
  t.true(mean < 30);

  await it.stage("1@a");
  await it.tickNow();
  await hands.run(1);
  await until("it has run for more than twice as long", async () => {
    await it.utils.sweep();
    await it.tickNow();
    return (await it.partition("a")).decayed_admits > before + 2 * Math.max(mean, 0.001);
  });
  t.is((await it.partition("a")).mean_work, mean, "it has not ended");
  await hands.end(1);
});
