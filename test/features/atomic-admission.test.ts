import test from "ava";
import type { Task } from "graphile-worker";
import { runOnce, WorkerPreset } from "graphile-worker";
import { concurrency, throttle } from "../../src/index.ts";
import { refusePayloads } from "../helpers/native.ts";
import { type Ctx, FULL, type Scenario, scenario, VIAS } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";
import { workerNameOf } from "../helpers/table.ts";

const wideThrottle = throttle<Ctx>({ rate: 10_000, per: "1 minute" });

const jobsInWorker = async (it: Scenario) =>
  (await it.rows("select count(*)::int as n from graphile_worker.jobs"))[0].n;

for (const via of VIAS) {
  for (const [words, gates] of [
    ["5@k", "throttle and concurrency"],
    ["5@a 7@b", "throttle and concurrency, two partitions"],
  ]) {
    test(`scenario 10: when Graphile Worker refuses all, nothing happened: ${gates} (${via})`, async (t) => {
      const it = await scenario(
        t,
        { gates: [throttle<Ctx>({ rate: 100, per: "1 minute" }), concurrency<Ctx>({ max: 10 })] },
        { via },
      );
      const jobs = await it.stage(words ?? "");
      const accept = await refusePayloads(it.pool, "");
      await it.tick().catch(() => {});
      t.is(await it.staged(), jobs.length);
      t.deepEqual(await it.inFlight(), []);
      t.is(await jobsInWorker(it), 0);
      for (const { tokens, in_flight } of await it.rows(
        "select * from dispatch_policy.limiters where gate in ('throttle', 'concurrency')",
      )) {
        t.true(tokens === null || tokens === 100);
        t.is(in_flight, 0);
      }
      await accept();
      t.is((await it.tick(10)).admitted, jobs.length, "and nothing is lost");
    });
  }

  test(`scenario 10: one poisonous job among 20 good ones is quarantined (${via})`, async (t) => {
    const it = await scenario(t, { gates: [wideThrottle] }, { via });
    const accept = await refusePayloads(it.pool, "indigestible");
    await it.stage("10@k");
    const [bad] = await it.stage("1@k", { account: "indigestible" });
    await it.stage("10@k");
    await it.tick();
    t.is((await it.inFlight()).length, 20);
    t.is(await jobsInWorker(it), 20);
    const [refused, ...others] = await it.rows("select * from dispatch_policy.staged_jobs");
    t.deepEqual(others, []);
    t.like(refused, { id: bad?.id, reason: "quarantined" });
    t.regex(refused.error, /indigestible/);
    t.true((await it.limiter("throttle")).tokens <= 9980.01);

    await accept();
    t.is((await it.tick(3600)).admitted, 1, "tried again later");
  });

  test(`scenario 10: a poisonous job first of 1,000 in a partition (${via})`, async (t) => {
    const it = await scenario(t, { gates: [wideThrottle], admissionBatchSize: 1000 }, { via });
    await refusePayloads(it.pool, "indigestible");
    await it.stage("1@k", { account: "indigestible" });
    await it.stage("999@k");
    const first = await it.tick();
    const second = await it.tick();
    t.is(first.admitted + second.admitted, 999);
    t.is(await it.staged(), 1);
  });
}

test("scenario 10: with the usual batch the 999 behind the poisonous one go on too", async (t) => {
  const it = await scenario(t, { gates: [wideThrottle] });
  await refusePayloads(it.pool, "indigestible");
  await it.stage("1@k", { account: "indigestible" });
  await it.stage("999@k");
  let admitted = 0;
  for (let n = 0; n < 11; n++) admitted += (await it.tick()).admitted;
  t.is(admitted, 999);
});

test("scenario 10: three poisonous jobs in three partitions, one of them alone in its own", async (t) => {
  const it = await scenario(t, { gates: [wideThrottle, concurrency<Ctx>({ max: 50 })] });
  await refusePayloads(it.pool, "indigestible");
  await it.stage("1@a 1@b 1@alone", { account: "indigestible" });
  await it.stage("20@a 20@b 20@c");
  await it.tick();
  await it.tick();
  t.deepEqual(await it.inFlightBy(), { a: 20, b: 20, c: 20 });
  t.is(await it.staged(), 3);
  for (const key of ["a", "b", "c"]) t.is((await it.limiter("concurrency", key)).in_flight, 20);
});

test("scenario 10: poisonous jobs staged last, and more of them than good ones", async (t) => {
  const it = await scenario(t, { gates: [wideThrottle] });
  await refusePayloads(it.pool, "indigestible");
  await it.stage("20@k");
  await it.stage("30@k 5@other", { account: "indigestible" });
  const { admitted } = await it.tick();
  t.is(admitted, 20, "in the same pass");
  const reasons = await it.rows("select distinct reason from dispatch_policy.staged_jobs");
  t.deepEqual(reasons, [{ reason: "quarantined" }]);
  t.deepEqual(await it.inFlightBy(), { k: 20 });
});

test("scenario 10: fifty partitions of poisonous jobs do not hide the good ones behind them", async (t) => {
  const it = await scenario(t, { gates: [wideThrottle] });
  await refusePayloads(it.pool, "indigestible");
  const bad = Array.from({ length: 60 }, (_, n) => `1@bad${n}`).join(" ");
  await it.stage(bad, { account: "indigestible" });
  await it.stage("5@good");
  let admitted = 0;
  for (let pass = 0; pass < 2; pass++) admitted += (await it.tick()).admitted;
  t.is(admitted, 5);
});

test("scenario 10: nothing but poisonous jobs, two of them, are quarantined", async (t) => {
  const it = await scenario(t, { gates: [wideThrottle] });
  const accept = await refusePayloads(it.pool, "");
  await it.stage("1@a 1@b");
  t.is((await it.tick()).admitted, 0);
  const errors = await it.rows("select error from dispatch_policy.staged_jobs");
  t.deepEqual(errors, [{ error: "indigestible" }, { error: "indigestible" }]);
  await accept();
  t.is((await it.tick(3600)).admitted, 2);
});

test("scenario 10: when Graphile Worker itself is broken, the error says so and no job is blamed", async (t) => {
  const it = await scenario(t, { gates: [wideThrottle] });
  await it.stage("20@k");
  await it.rows(
    "alter function graphile_worker.add_jobs(graphile_worker.job_spec[], boolean) rename to gone",
  );
  await t.throwsAsync(it.tick(), { message: /add_jobs/ });
  const [{ n }] = await it.rows(
    "select count(*)::int as n from dispatch_policy.staged_jobs where failures > 0",
  );
  t.is(n, 0);
  await it.rows(
    "alter function graphile_worker.gone(graphile_worker.job_spec[], boolean) rename to add_jobs",
  );
  t.is((await it.tick()).admitted, 20);
});

test("scenario 10: jobs that pass alone and not all at once pass in parts", async (t) => {
  const it = await scenario(t, { gates: [wideThrottle] });
  // as PostgreSQL refuses arrays of more than a gigabyte
  await it.rows(`create function public.too_much() returns trigger language plpgsql as $$
    begin
      if (select count(*) from added) > 8 then raise exception 'array size exceeds the maximum' using errcode = '54000'; end if;
      return null;
    end $$`);
  await it.rows(`create trigger too_much after insert on ${workerNameOf()} referencing new table as added
    for each statement execute function public.too_much()`);
  await it.stage("30@a 30@b");
  t.is((await it.tick()).admitted, 60);
});

test("scenario 10: the good ones really run", async (t) => {
  const it = await scenario(t);
  await refusePayloads(it.pool, "indigestible");
  await it.stage("10@k");
  await it.stage("1@k", { account: "indigestible" });
  await it.stage("10@k");
  let ran = 0;
  const task: Task = async () => void ran++;
  await runOnce({
    ...{ preset: { extends: [WorkerPreset, it.preset] }, pgPool: it.connections(4), logger: silent },
    ...{ taskList: { p: task }, noHandleSignals: true },
  });
  t.is(ran, 20);
  t.is(await it.staged(), 1);
});

for (const via of VIAS) {
  test(`scenario 11: throttle and concurrency together charge what moved (${via})`, async (t) => {
    const it = await scenario(
      t,
      { gates: [throttle<Ctx>({ rate: 100, per: "1 minute" }), concurrency<Ctx>({ max: 2 })] },
      { via },
    );
    await it.stage("10@k");
    const pass = await it.tick();
    t.is(pass.admitted, 2);
    t.deepEqual(pass.denied, { concurrency_full: 1 });
    const { tokens } = await it.limiter("throttle");
    t.true(Math.abs(tokens - 98) <= 0.1, `${tokens}`);
    t.like(await it.limiter("concurrency"), { in_flight: 2, available: 0 });
    t.is((await it.inFlight()).length, 2);
    t.is(await it.staged(), 8);
  });

  test(`scenario 11: the narrower of the two decides, whichever it is, in whatever order (${via})`, async (t) => {
    const it = await scenario(
      t,
      { gates: [concurrency<Ctx>({ max: 7 }), throttle<Ctx>({ rate: 3, per: "1 minute" })] },
      { via },
    );
    await it.stage("10@k 2@l");
    const pass = await it.tick();
    t.is(pass.admitted, 5);
    t.deepEqual(await it.inFlightBy(), { k: 3, l: 2 });
    t.deepEqual(pass.denied, { throttle_empty: 1 });
    t.true(Math.abs((await it.limiter("throttle", "l")).tokens - 1) <= 0.1);
  });
}

const charged = { gates: [throttle<Ctx>({ rate: 10, per: "1 hour" }), concurrency<Ctx>({ max: 2 })] };

test("scenario 12: a forced admission is charged like any other", async (t) => {
  const it = await scenario(t, charged);
  await it.stage("1@k");
  t.deepEqual(await it.utils.admit({ policy: "p", partition: "k", count: 5 }), {
    ...{ matched: 1, changed: 1, notDue: 0 },
  });
  t.true(Math.abs((await it.limiter("throttle")).tokens - 9) <= 0.1);
  t.is((await it.limiter("concurrency")).in_flight, 1);
  t.true(Math.abs((await it.partition("k")).decayed_admits - 1) <= 0.01);
  await it.stage("10@k");
  t.is((await it.tickNow()).admitted, 1, "one slot is left");
});

test("scenario 12: what is not due yet stays", async (t) => {
  const it = await scenario(t, charged);
  await it.stage("1@k");
  await it.stage("1@k", {}, { runAt: new Date(Date.now() + 3_600_000) });
  const { changed, notDue } = await it.utils.admit({ policy: "p", partition: "k", count: 100 });
  t.deepEqual({ changed, notDue }, { changed: 1, notDue: 1 });
  t.is(await it.staged(), 1);
  t.is((await it.inFlight()).length, 1);
});

test("scenario 12: past a full cap, an empty bucket, a pause and a hold", async (t) => {
  const it = await scenario(t, charged);
  await it.stage("20@k");
  await it.utils.pause({ policy: "p" });
  await it.utils.pause({ policy: "p", partition: "k" });
  t.is((await it.utils.admit({ policy: "p", count: 15 })).changed, 15);
  t.is((await it.limiter("concurrency")).in_flight, 15);
  t.true(
    (await it.limiter("throttle")).tokens >= 0 && (await it.limiter("throttle")).tokens < 0.1,
    "stops at 0",
  );
  t.is((await it.utils.admit({ policy: "p", partition: "k", drain: true })).changed, 5);
  t.is(await it.staged(), 0);
});

test("scenario 12: one that only looks changes nothing", async (t) => {
  const it = await scenario(t, charged);
  await it.stage("3@k");
  t.like(await it.utils.admit({ policy: "p", count: 2, dryRun: true }), { matched: 2, changed: 0 });
  t.is(await it.staged(), 3);
});

for (const count of [0, -1, 1.5, Number.NaN]) {
  test(`scenario 12: a count of ${count} is refused`, async (t) => {
    const it = await scenario(t);
    await it.stage("1@k");
    await t.throwsAsync(it.utils.admit({ policy: "p", partition: "k", count }), { message: /count/ });
    if (Number.isInteger(count))
      await t.throwsAsync(
        it.rows("select * from dispatch_policy.admit('p', $1, partition => 'k')", [count]),
        {
          message: /count/,
        },
      );
    t.is(await it.staged(), 1);
  });
}

test("scenario 12: from SQL, right after staging", async (t) => {
  const it = await scenario(t, charged);
  await it.stage("1@k");
  const [row] = await it.rows("select * from dispatch_policy.admit('p', 5, partition => 'k')");
  t.like(row, { matched: 1, changed: 1 });
  t.is((await it.inFlight()).length, 1);
});

for (const [what, gate] of [
  ["throttle capacity", throttle<Ctx>({ rate: 10, per: "1 day" })],
  ["concurrency", concurrency<Ctx>({ max: 10 })],
] as const) {
  for (const via of VIAS) {
    test(`scenario 13: four ticks at once, ${what} 10 (${via})`, async (t) => {
      const it = await scenario(t, { gates: [gate] }, { via });
      for (let trial = 0; trial < (FULL ? 50 : 20); trial++) {
        await it.stage(`100@k${trial}`);
        await Promise.all([1, 2, 3, 4].map(() => it.tickNow()));
        await it.tickNow();
        t.is((await it.inFlight(`k${trial}`)).length, 10);
        t.is(await it.staged(`k${trial}`), 90);
      }
    });
  }
}

test("scenario 13: a limit that partitions share, ticked four times at once", async (t) => {
  const it = await scenario(t, {
    gates: [
      concurrency<Ctx>({ name: "account", scope: (ctx) => ctx.account, max: 10 }),
      throttle<Ctx>({ name: "all", scope: "policy", rate: 1000, per: "1 day" }),
    ],
  });
  for (let trial = 0; trial < 10; trial++) {
    await it.stage(`30@a${trial} 30@b${trial} 30@c${trial}`, { account: `x${trial}` });
    await Promise.all([1, 2, 3, 4].map(() => it.tickNow()));
    await it.tickNow();
    t.is((await it.inFlight()).length, 10 * (trial + 1));
  }
});

for (const via of VIAS) {
  for (const fairness of [undefined, null] as const) {
    test(`scenario 14: the budget is used up, and no more (${via}, fairness ${fairness})`, async (t) => {
      const it = await scenario(
        t,
        { tickAdmissionBudget: 100, ...(fairness === null ? { fairness } : {}) },
        { via },
      );
      await it.stage("1000@p0 1@p1 1@p2 1@p3 1@p4 1@p5 1@p6 1@p7 1@p8 1@p9");
      t.is((await it.tick()).admitted, 100);
      t.is((await it.inFlight()).length, 100);
      if (fairness === undefined) t.is((await it.inFlightBy()).p0, 91);
      t.is((await it.tick()).admitted, 100);
    });
  }
}

test("scenario 14: a budget beside weights, a cap and a batch", async (t) => {
  const it = await scenario(t, {
    ...{ tickAdmissionBudget: 37, admissionBatchSize: 20 },
    gates: [concurrency<Ctx>({ max: (ctx) => ctx.max })],
  });
  await it.stage("100@a", { weight: 3, max: 5 });
  await it.stage("100@b", { weight: 1, max: 100 });
  await it.stage("100@c", { weight: 1, max: 100 });
  t.is((await it.tick()).admitted, 37);
  t.deepEqual(await it.inFlightBy(), { a: 5, b: 16, c: 16 });
});
