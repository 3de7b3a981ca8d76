import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import type { Task } from "graphile-worker";
import { concurrency, throttle } from "../../src/index.ts";
import { CAP, type News, type Orders, policy, SETTINGS } from "../fixtures/shared-cap/policy.ts";
import { until } from "../helpers/engine.ts";
import { random, seedOf } from "../helpers/random.ts";
import { type Ctx, FULL, type Scenario, scenario, VIAS } from "../helpers/scenario.ts";

const WORKER = fileURLToPath(new URL("../fixtures/shared-cap/worker.ts", import.meta.url));
/** Which share of the slots must be busy while work waits. */
const LEAST_BUSY = 0.95;
/** How long the jobs of scenario 23 last, on average. */
const MEAN_MS = 600;
/** From a job's end to the next start: so often a process or PostgreSQL has to get the processor first. */
const HOPS = 12;
/** How often the test looks at the limiter. */
const LOOK_MS = 20;
const five = { gates: [concurrency<Ctx>({ max: 5 })] };
const gate = { policy: "p", gate: "concurrency" };
const k = { policy: "p", partition: "k" };
const byContext = { gates: [concurrency<Ctx>({ max: (ctx) => ctx.max })] };

for (const via of VIAS) {
  test(`scenario 22: a cap of 5 with 2 in flight lets 3 through (${via})`, async (t) => {
    const it = await scenario(t, five, { via });
    await it.stage("2@k");
    await it.tick();
    await it.stage("10@k");
    const pass = await it.tick();
    t.is(pass.admitted, 3);
    t.deepEqual(pass.denied, { concurrency_full: 1 });
    t.is((await it.tick()).admitted, 0);
    await it.finish(2);
    t.is((await it.tick()).admitted, 2);
  });

  test(`scenario 22: an operator lowers the cap to 1 with 3 in flight (${via})`, async (t) => {
    const it = await scenario(t, five, { via });
    await it.stage("3@k");
    await it.tick();
    await it.stage("10@k");
    await it.utils.setLimit({ policy: "p", gate: "concurrency", key: "k", set: { max: 1 } });
    for (const finished of [0, 1, 1]) {
      await it.finish(finished);
      t.is((await it.tick()).admitted, 0);
    }
    t.is((await it.inFlight()).length, 1);
    await it.finish(1);
    t.is((await it.tick()).admitted, 1);
    await it.utils.clearLimit({ policy: "p", gate: "concurrency", key: "k" });
    t.is((await it.tick()).admitted, 4, "raising it takes effect at once");
  });

  test(`scenario 22: a newer job's context lowers the cap to 1 with 3 in flight, another raises it (${via})`, async (t) => {
    const it = await scenario(t, byContext, { via });
    await it.stage("3@k", { max: 3 });
    t.is((await it.tick()).admitted, 3);
    await it.stage("10@k", { max: 1 });
    for (const finished of [0, 1, 1]) {
      await it.finish(finished);
      t.is((await it.tick()).admitted, 0);
    }
    await it.finish(1);
    t.is((await it.tick()).admitted, 1);
    await it.stage("1@k", { max: 4 });
    t.is((await it.tick()).admitted, 3);
  });

  test(`scenario 22: a cap of 0 halts until it is raised (${via})`, async (t) => {
    const it = await scenario(t, byContext, { via });
    await it.stage("3@k", { max: 0 });
    const pass = await it.tick();
    t.is(pass.admitted, 0);
    t.deepEqual(pass.denied, { max_zero: 1 });
    t.is(pass.nextEligibleAt, null);
    t.is((await it.tick(3600)).admitted, 0);
    await it.stage("1@k", { max: 2 });
    t.is((await it.tick(3600)).admitted, 2);
  });

  for (const key of ["k", undefined]) {
    test(`scenario 22: an override to 0 until a time ends by itself (${via}, key ${key})`, async (t) => {
      const it = await scenario(t, five, { via });
      await it.stage("2@k");
      await it.tick();
      await it.utils.setLimit({
        ...{ policy: "p", gate: "concurrency", set: { max: 0 }, until: it.at(60) },
        ...(key ? { key } : {}),
      });
      await it.stage("10@k");
      const pass = await it.tick();
      t.is(pass.admitted, 0);
      t.deepEqual(pass.denied, { max_zero: 1 });
      t.deepEqual(pass.nextEligibleAt, it.at(60));
      t.is((await it.tick(59.9)).admitted, 0);
      t.is((await it.tick(60)).admitted, 3);
    });
  }

  test(`scenario 22: an override of a key that has no limiter yet, from SQL (${via})`, async (t) => {
    const it = await scenario(t, five, { via });
    await it.rows(
      "select * from dispatch_policy.set_limit('p', 'concurrency', '{\"max\": 1}', key => 'new')",
    );
    await it.stage("10@new 10@k");
    t.is((await it.tick()).admitted, 6);
    t.deepEqual(await it.inFlightBy(), { k: 5, new: 1 });
    await it.rows("select * from dispatch_policy.clear_limit('p', 'concurrency', key => 'new')");
    t.is((await it.tick()).admitted, 4);
  });

  test(`scenario 22: an override that starts later (${via})`, async (t) => {
    const it = await scenario(t, five, { via });
    await it.stage("20@k");
    await it.utils.setLimit({
      ...{ policy: "p", gate: "concurrency", key: "k", set: { max: 8 } },
      ...{ from: it.at(60), until: it.at(120) },
    });
    const pass = await it.tick();
    t.is(pass.admitted, 5);
    t.deepEqual(pass.nextEligibleAt, it.at(60));
    t.is((await it.tick(60)).admitted, 3);
    await it.finish(8);
    t.is((await it.tick(120)).admitted, 5);
  });

  test(`scenario 22: two caps of one policy, one over an account (${via})`, async (t) => {
    const it = await scenario(
      t,
      {
        gates: [
          concurrency<Ctx>({ max: 3 }),
          concurrency<Ctx>({ name: "account", scope: (ctx) => ctx.account, max: 5 }),
        ],
      },
      { via },
    );
    await it.stage("10@a 10@b", { account: "x" });
    await it.stage("10@c", { account: 7 });
    t.is((await it.tick()).admitted, 8);
    const { a, b, c } = await it.inFlightBy();
    t.deepEqual([(a ?? 0) + (b ?? 0), c], [5, 3]);
    t.true(Math.abs((a ?? 0) - (b ?? 0)) === 1);
    t.is((await it.limiter("account", "7")).in_flight, 3);
    await it.finish(3, "a");
    t.true((await it.tick()).admitted >= 2);
    t.is((await it.limiter("account", "x")).in_flight, 5);
  });
}

test("scenario 22: an override outlives what jobs say, and shows among the limits", async (t) => {
  const it = await scenario(t, byContext);
  await it.stage("10@k", { max: 5 });
  await it.utils.setLimit({ policy: "p", gate: "concurrency", key: "k", set: { max: 2 }, by: "ana" });
  t.is((await it.tick()).admitted, 2);
  await it.stage("1@k", { max: 9 });
  t.is((await it.tick()).admitted, 0);
  const [override] = await it.utils.limits({ policy: "p" });
  t.like(override, { gate: "concurrency", key: "k", override: { max: 2 }, by: "ana" });
  await it.utils.clearLimit({ policy: "p", gate: "concurrency", key: "k" });
  t.is((await it.tick()).admitted, 7);
});

test("scenario 22: with a throttle beside it, slots that come back need tokens too", async (t) => {
  const it = await scenario(t, {
    gates: [concurrency<Ctx>({ max: 2 }), throttle<Ctx>({ rate: 3, per: "1 minute" })],
  });
  await it.stage("10@k");
  t.is((await it.tick()).admitted, 2);
  await it.finish(2);
  t.is((await it.tick()).admitted, 1);
  await it.finish(1);
  t.is((await it.tick()).admitted, 0);
  t.is((await it.tick(20)).admitted, 1);
});

/** A worker with its loop, whose jobs note when they start. */
async function started(it: Scenario): Promise<{ key: string; at: number }[]> {
  const starts: { key: string; at: number }[] = [];
  const task: Task = async (payload) =>
    void starts.push({ key: (payload as { key: string }).key, at: Date.now() });
  await it.worker({ tasks: { p: task } });
  return starts;
}

for (const [what, stop] of [
  ["an override to 0", (it: Scenario, until: Date) => it.utils.setLimit({ ...gate, set: { max: 0 }, until })],
  ["a pause of the policy", (it: Scenario, until: Date) => it.utils.pause({ policy: "p", until })],
  ["a pause of the partition", (it: Scenario, until: Date) => it.utils.pause({ ...k, until })],
  ["a hold", (it: Scenario, until: Date) => it.utils.hold({ ...k, until })],
] as const) {
  test(`scenario 22: ${what} ends by itself where a loop runs`, async (t) => {
    const it = await scenario(t, five);
    await it.stage("1@k");
    await it.tickNow();
    await it.finish(1);
    const until1 = new Date(Date.now() + 1500);
    await stop(it, until1);
    const starts = await started(it);
    await it.stage("3@k");
    await until("all have started", async () => starts.length === 3);
    for (const { at } of starts) t.true(at >= until1.getTime() - 5, `${at - until1.getTime()} ms after`);
  });
}

test("scenario 22: a cleared override and a resumed partition go on at once where a loop runs", async (t) => {
  const it = await scenario(t, five);
  const starts = await started(it);
  await it.utils.setLimit({ ...gate, set: { max: 0 } });
  await it.utils.pause({ policy: "p", partition: "l" });
  await it.stage("2@k 2@l");
  await until("they wait", async () => (await it.limiter("concurrency", "k"))?.max === 0);
  await it.utils.clearLimit(gate);
  await until("k has started", async () => starts.length === 2);
  await it.utils.resume({ policy: "p", partition: "l" });
  await until("l has started", async () => starts.length === 4);
  t.deepEqual(
    starts.map(({ key }) => key),
    ["k", "k", "l", "l"],
  );
});

test("scenario 22: a job of a time to come starts then, where a loop runs", async (t) => {
  const it = await scenario(t, five);
  const starts = await started(it);
  const runAt = new Date(Date.now() + 1200);
  await it.stage("1@k", {}, { runAt });
  await until("it has started", async () => starts.length === 1);
  t.true((starts[0]?.at ?? 0) >= runAt.getTime() - 5);
});

/** Counts jobs as they run, by the clock. */
class Count {
  running = 0;
  most = 0;
  #busyMs = 0;
  #since = performance.now();
  #changedAt = this.#since;

  change(by: number): void {
    const now = performance.now();
    this.#busyMs += this.running * (now - this.#changedAt);
    this.#changedAt = now;
    this.running += by;
    this.most = Math.max(this.most, this.running);
  }

  /** Which share of the slots was busy since it was asked last. */
  share(slots: number): number {
    this.change(0);
    const share = this.#busyMs / (slots * (this.#changedAt - this.#since));
    this.#busyMs = 0;
    this.#since = this.#changedAt;
    return share;
  }
}

/** Beside other tests, each hop takes as much longer as the test's own looks do. */
function leastBusy(lateMs: number): number {
  return MEAN_MS / (MEAN_MS / LEAST_BUSY + HOPS * Math.max(0, lateMs));
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

/** Worker processes, each with slots for the whole cap and a tick loop. */
async function startProcesses(t: ExecutionContext, url: string, count: Count): Promise<() => Promise<void>> {
  const chance = random(seedOf(t));
  const children = Array.from({ length: 4 }, () => {
    const orders: Orders = { url, seed: chance.below(2 ** 31) };
    return fork(WORKER, [JSON.stringify(orders)], { execArgv: [] });
  });
  t.teardown(() => children.forEach((child) => void child.kill("SIGKILL")));
  let ready = 0;
  for (const child of children) {
    child.on("message", (news: News) => {
      if (news === "ready") ready++;
      else {
        count.change(news);
        child.send("counted", () => {});
      }
    });
  }
  await until("all processes are ready", () => ready === children.length);
  return async () => {
    await Promise.all(
      children.map(async (child) => {
        const gone = once(child, "exit");
        child.kill("SIGTERM");
        await gone;
      }),
    );
  };
}

test.serial(
  "scenario 23: a cap that 1,000 partitions share is kept, and used, by four processes",
  async (t) => {
    t.timeout(300_000);
    const it = await scenario(t, policy, { settings: SETTINGS });
    const jobs = Array.from({ length: 1000 }, (_, n) => `${FULL ? 4 : 2}@k${n}`);
    await it.stage(jobs.join(" "), { account: "shared" });
    const count = new Count();
    const stop = await startProcesses(t, it.url, count);
    await until("all slots are taken", () => count.running === CAP);

    let mostInFlight = 0;
    /** By how much the share of busy slots in so many seconds is too small; 0 or less: not at all. */
    const measure = async (seconds: number): Promise<number> => {
      count.share(CAP);
      let looks = 0;
      const started = performance.now();
      while (performance.now() - started < seconds * 1000) {
        mostInFlight = Math.max(mostInFlight, (await it.limiter("shared")).in_flight);
        await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
        looks++;
      }
      const share = count.share(CAP);
      const lateMs = (performance.now() - started) / looks - LOOK_MS;
      const least = FULL ? LEAST_BUSY : leastBusy(lateMs);
      t.log(
        `${percent(share)} busy for ${seconds} s, expected ${percent(least)}; looks ${lateMs.toFixed(1)} ms late`,
      );
      t.true((await it.staged()) > 0, "work waited all the time");
      return least - share;
    };
    let short = await measure(FULL ? 60 : 5);
    for (let again = 0; !FULL && again < 5 && short > 0; again++) short = await measure(5);
    await it.utils.pause({ all: true });
    await stop();

    t.is(count.most, CAP);
    t.true(mostInFlight <= CAP, `${mostInFlight} in flight`);
    t.true(short <= 0, `too few slots were busy, by ${percent(short)}`);
  },
);
