import test from "ava";
import type { Task } from "graphile-worker";
import { PolicyDefinitionError, runTickLoop, throttle } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { CLOCKS, type Ctx, FULL, policyOf, type Scenario, scenario, VIAS } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";

const near = (value: number, expected: number, within: number) => Math.abs(value - expected) <= within;
const tokens = async (it: Scenario, gate = "throttle") => (await it.limiter(gate)).tokens;

for (const clock of CLOCKS) {
  for (const via of VIAS) {
    const how = `${via}, clock: ${clock}`;

    test(`scenario 19: ten a minute (${how})`, async (t) => {
      const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 10, per: "1 minute" })] }, { via, clock });
      await it.stage("100@k");
      const first = await it.tick();
      t.is(first.admitted, 10);
      t.deepEqual(first.denied, { throttle_empty: 1 });
      const waits = (Number(first.nextEligibleAt) - Number(it.at(0))) / 1000;
      t.true(near(waits, 6, 0.05), `${waits}`);
      t.is((await it.tick()).admitted, 0, "the same instant again");
      t.is((await it.tick(30)).admitted, 5);
      t.is((await it.tick(35.9)).admitted, 0);
      t.is((await it.tick(36)).admitted, 1);
      t.is((await it.tick(3600)).admitted, 10, "no more than the bucket holds");
    });

    test(`scenario 19: a rate of 0 (${how})`, async (t) => {
      const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 0, per: "1 minute" })] }, { via, clock });
      await it.stage("3@k");
      const pass = await it.tick();
      t.is(pass.admitted, 0);
      t.deepEqual(pass.denied, { rate_zero: 1 });
      t.true(near(Number(pass.nextEligibleAt) - Number(it.at(60)), 0, 50));
      t.is((await it.tick(61)).admitted, 0);
    });

    test(`scenario 19: half a job a second (${how})`, async (t) => {
      const it = await scenario(
        t,
        { gates: [throttle<Ctx>({ rate: 0.5, per: "1 second" })] },
        { via, clock },
      );
      await it.stage("10@k");
      const admitted: number[] = [];
      for (const second of [0, 1, 1.9, 2, 3, 4, 6, 7.9, 8]) admitted.push((await it.tick(second)).admitted);
      t.deepEqual(admitted, [1, 0, 0, 1, 0, 1, 1, 0, 1]);
    });

    test(`scenario 19: two and a half a second (${how})`, async (t) => {
      const it = await scenario(
        t,
        { gates: [throttle<Ctx>({ rate: 2.5, per: "1 second" })] },
        { via, clock },
      );
      await it.stage("10@k");
      const first = await it.tick();
      t.is(first.admitted, 2);
      t.true(
        near((Number(first.nextEligibleAt) - Number(it.at(0))) / 1000, 0.2, 0.05),
        "half a token is left",
      );
      if (clock === "soon" || clock === "tomorrow") t.true(near(await tokens(it), 0.5, 0.001));
      t.is((await it.tick(0.2)).admitted, 1);
    });

    test(`scenario 20: costs (${how})`, async (t) => {
      const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 10, per: "1 hour" })] }, { via, clock });
      await it.stage("3@k", { cost: 4 });
      t.is((await it.tick()).admitted, 2);
      t.true(near(await tokens(it), 2, clock === "past" ? 10 : 0.05));
      t.is((await it.tick(719)).admitted, 0);
      t.is((await it.tick(720)).admitted, 1, "at 4 tokens");
    });

    test(`scenario 20: a job dearer than the bucket goes when that is full (${how})`, async (t) => {
      const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 10, per: "1 hour" })] }, { via, clock });
      await it.stage("1@k", { cost: 15 });
      await it.stage("1@k");
      t.is((await it.tick()).admitted, 1);
      if (clock !== "past") t.true(near(await tokens(it), -5, 0.05));
      t.is((await it.tick(6 * 360 - 5)).admitted, 0);
      t.is((await it.tick(6 * 360)).admitted, 1, "the debt is paid first");
    });
  }
}

test("scenario 19: a rate below 0 and one that was lowered to 0", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: (ctx) => ctx.rate, per: "10 seconds" })] });
  await it.stage("3@below", { rate: -1 });
  await it.stage("1@k", { rate: 5 });
  t.is((await it.tick()).admitted, 1);
  await it.stage("1@k", { rate: 0 });
  const pass = await it.tick(10);
  t.is(pass.admitted, 0);
  t.deepEqual(pass.denied, { rate_zero: 2 });
  await it.stage("1@k", { rate: 5 });
  t.true((await it.tick(30)).admitted > 0);
});

test("scenario 19: a burst is what goes at once", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 10, per: "1 minute", burst: 3 })] });
  await it.stage("100@k");
  t.is((await it.tick()).admitted, 3);
  t.is((await it.tick(6)).admitted, 1);
  t.is((await it.tick(600)).admitted, 3);
});

test("scenario 19: a rate of 10,000 a minute does not bind", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 10_000, per: "60 seconds" })] });
  await it.stage("100@k 100@l");
  t.is((await it.tick()).admitted, 200);
});

test("scenario 19: a clock that goes backwards brings no tokens", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 10, per: "1 minute" })] });
  await it.stage("100@k");
  t.is((await it.tick(60)).admitted, 10);
  t.is((await it.tick(30)).admitted, 0);
  t.is((await it.tick(60)).admitted, 0);
});

test("scenario 19: an operator's rate, from a time until a time", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 10, per: "1 minute" })] });
  await it.stage("100@k");
  t.is((await it.tick()).admitted, 10);
  await it.utils.setLimit({
    ...{ policy: "p", gate: "throttle", set: { rate: 60, per: "1 minute" } },
    ...{ from: it.at(6), until: it.at(36) },
  });
  t.is((await it.tick(6)).admitted > 0, true);
  const within = (await it.tick(16)).admitted;
  t.true(within >= 10, `${within} in ten seconds at one a second`);
  await it.tick(36);
  t.is((await it.tick(42)).admitted, 1, "back to one every six seconds");
});

test("scenario 20: a job that costs nothing goes with an empty bucket; it takes no token", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 2, per: "1 hour" })] });
  await it.stage("5@k", { cost: 0 });
  await it.stage("2@k", { cost: 1 });
  t.is((await it.tick()).admitted, 7);
  await it.stage("5@k", { cost: 0 });
  t.is((await it.tick()).admitted, 5);
  t.true(near(await tokens(it), 0, 0.01));
});

test("scenario 20: costs against a bucket that partitions share", async (t) => {
  const it = await scenario(t, {
    gates: [throttle<Ctx>({ scope: "policy", rate: 10, per: "1 hour" })],
  });
  await it.stage("2@a 2@b", { cost: 4 });
  t.is((await it.tick()).admitted, 2);
  t.deepEqual(await it.inFlightBy(), { a: 1, b: 1 });
  t.true(near(await tokens(it), 2, 0.05));
});

for (const via of VIAS) {
  test(`scenario 20: ten a second and thirty in any burst of a minute (${via})`, async (t) => {
    const it = await scenario(
      t,
      {
        gates: [
          throttle<Ctx>({ name: "second", rate: 10, per: "1 second" }),
          throttle<Ctx>({ name: "minute", rate: 30, per: "60 seconds" }),
        ],
      },
      { via },
    );
    await it.stage("500@k");
    const admitted: number[] = [];
    for (let second = 0; second < 60; second++) admitted.push((await it.tick(second)).admitted);
    t.deepEqual(admitted.slice(0, 3), [10, 10, 10]);
    t.true(Math.max(...admitted.slice(4)) <= 1);
    const sum = admitted.reduce((a, b) => a + b);
    t.true(near(sum, 60, 1), `${sum}`);
  });
}

/** Notes when each job was admitted. */
function notingTask(admitted: number[]): Task {
  return async (_payload, { dispatchPolicy }) => void admitted.push(dispatchPolicy!.admittedAt!.getTime());
}

test("scenario 19: where a loop runs, jobs start as tokens come", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 5, per: "1 second" })] });
  const admitted: number[] = [];
  await it.worker({ tasks: { p: notingTask(admitted) } });
  await it.stage("10@k");
  await until("all have started", async () => admitted.length === 10);
  const last = Math.max(...admitted) - Math.min(...admitted);
  t.true(last >= 990, `the last one ${last} ms after the first`);
});

test("scenario 21: the same by runTickLoop, with a worker", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ scope: "policy", rate: 20, per: "1 second" })] });
  const end = new AbortController();
  t.teardown(() => end.abort());
  const loops = [1, 2].map(() =>
    runTickLoop({ preset: it.preset, pgPool: it.connections(4), logger: silent, signal: end.signal }),
  );
  // they stay in flight, where it says when the gates let them in
  const { promise, resolve } = Promise.withResolvers<void>();
  let started = 0;
  const task: Task = () => {
    started++;
    return promise;
  };
  await it.worker({ tasks: { p: task }, loop: false, slots: 40 });
  await it.stage(Array.from({ length: 40 }, (_, n) => `1@k${n}`).join(" "));
  await until("all have started", async () => started === 40);
  const [row] = await it.rows(
    `select extract(epoch from max(admitted_at) - min(admitted_at))::float8 as seconds from dispatch_policy.in_flight_jobs`,
  );
  resolve();
  end.abort();
  await Promise.all(loops);
  const { seconds } = row as { seconds: number };
  t.true(seconds >= 0.999, `the last one ${seconds} s after the first`);
});

test.serial("scenario 21: a throttle over the whole policy, four loops over two shards", async (t) => {
  const seconds = FULL ? 10 : 2;
  t.timeout(120_000);
  const it = await scenario(
    t,
    { gates: [throttle<Ctx>({ scope: "policy", rate: 50, per: "1 second" })] },
    { settings: { defaults: { ahead: null } } },
  );
  for (const shard of ["a", "b"]) {
    const keys = Array.from({ length: 50 }, (_, n) => `${Math.ceil((60 * seconds) / 50) + 5}@${shard}${n}`);
    await it.stage(keys.join(" "), { shard });
  }
  const end = new AbortController();
  t.teardown(() => end.abort());
  const loops = ["a", "a", "b", "b"].map(async (shard) => {
    const utils = await it.makeUtils();
    while (!end.signal.aborted) await utils.tick({ policy: "p", shard });
  });
  const admitted = async () => {
    const [row] = await it.rows(
      `select count(*)::int as n, coalesce(extract(epoch from max(admitted_at) - min(admitted_at)), 0)::float8 as took
       from dispatch_policy.in_flight_jobs`,
    );
    return row as { n: number; took: number };
  };
  while ((await admitted()).took < seconds) await it.utils.status();
  end.abort();
  await Promise.all(loops);
  const { n, took } = await admitted();
  t.log(`${n} in ${took} s`);
  t.true(near(n, 50 + 50 * took, 5), `${n} in ${took} s`);
});

for (const via of VIAS) {
  for (const [day, times] of [
    ["23", ["2083-03-14T04:59:59Z", "2083-03-14T05:00:00Z", "2083-03-15T03:59:59Z", "2083-03-15T04:00:00Z"]],
    ["25", ["2083-11-07T03:59:59Z", "2083-11-07T04:00:00Z", "2083-11-08T04:59:59Z", "2083-11-08T05:00:00Z"]],
  ] as const) {
    test(`scenario 35: ten a day of New York, on a day of ${day} hours (${via})`, async (t) => {
      const gate = throttle<Ctx>({
        rate: 10,
        per: "1 day",
        window: "calendar",
        timeZone: "America/New_York",
      });
      const it = await scenario(t, { gates: [gate] }, { via });
      const tickAt = (time: string) => it.tick((Date.parse(time) - Number(it.at(0))) / 1000);
      await it.stage("50@k");
      t.is((await tickAt(times[0])).admitted, 10);
      const first = await tickAt(times[1]);
      t.is(first.admitted, 10);
      t.deepEqual(first.denied, { throttle_empty: 1 });
      t.is(Number(first.nextEligibleAt), Date.parse(times[3]));
      t.is((await tickAt(times[2])).admitted, 0);
      t.is((await tickAt(times[3])).admitted, 10);
    });
  }
}

test("a policy with a time zone that only Node knows is an error that names it", async (t) => {
  const it = await scenario(t, { gates: [] });
  // as if the server's time zones were older: it has none of this name
  const gate = throttle<Ctx>({
    name: "quota",
    rate: 1,
    per: "1 day",
    window: "calendar",
    timeZone: "Etc/UTC",
  });
  const policy = policyOf("q", {
    gates: [{ ...gate, constants: { ...gate.constants, calendar: "day Mars/Olympus_Mons" } }],
  });
  await t.throwsAsync(
    it.makeUtils([policy]).then(() => it.utils.tick({ policy: "q" })),
    {
      instanceOf: PolicyDefinitionError,
      message: /^policy 'q': gate 'quota': timeZone is 'Mars\/Olympus_Mons', expected a zone of/,
    },
  );
});
