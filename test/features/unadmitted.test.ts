// Jobs that were added past their policy: by graphile_worker.add_job, as a trigger or another language would.
import test from "ava";
import type { Job } from "graphile-worker";
import { adaptiveConcurrency, definePolicy, makePolicyUtils, policyEvents } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { payloadTexts } from "../helpers/native.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker, type TestWorker, type WorkerOptions } from "../helpers/worker.ts";

type Unmanaged = "enforce" | "run" | "reject";

const policyWith = (unmanaged: Unmanaged, more: object = {}) =>
  definePolicy("work", {
    partitionBy: "account",
    gates: ({ concurrency }) => [concurrency({ max: 1 })],
    unmanaged,
    ...more,
  });

/** A worker whose jobs run until they are let go; `past` adds a job past its policy. */
async function world(
  t: Parameters<typeof startWorker>[0],
  unmanaged: Unmanaged,
  more: Partial<WorkerOptions> & { policy?: object } = {},
) {
  const running = new Map<number, () => void>();
  const seen: Job[] = [];
  let over = false;
  const { policy, ...options } = more;
  const worker = await startWorker(t, {
    policies: [policyWith(unmanaged, policy)],
    tasks: {
      work: async (payload, { job }) => {
        seen.push(job);
        if (!over) await new Promise<void>((resolve) => running.set((payload as { n: number }).n, resolve));
      },
    },
    ...options,
  });
  t.teardown(() => {
    over = true; // a job that starts later would keep the worker from stopping
    running.forEach((end) => void end());
  });
  const past = (n: number, spec = "") =>
    worker.pool.query(
      `select graphile_worker.add_job('work', json_build_object('account', 'a', 'n', $1::int)${spec})`,
      [n],
    );
  return { worker, running, seen, past };
}

/** A pass takes those that it knows in their order: one that is staged last may be the first of them. */
const areRouted = (worker: TestWorker) =>
  until("the router knows them all", async () => (await table(worker.pool, "arrivals").count()) === 0);

const inFlight = (worker: TestWorker) =>
  worker.row("select count(*)::int as n from dispatch_policy.in_flight_jobs").then(({ n }) => n);

test("one admitted at its start says nothing of the lag, which an adaptive gate learns by", async (t) => {
  const { worker, running, past } = await world(t, "enforce", {
    policy: { gates: [adaptiveConcurrency({ initialMax: 5, targetLagMs: 60_000 })] },
  });
  const ran = async (n: number) => {
    await until(`job ${n} runs`, () => running.has(n));
    running.get(n)?.();
    await worker.everythingIsReleased();
  };
  await worker.utils.addJob("work", { account: "a", n: 1 });
  await ran(1);
  await table(worker.pool, "limiters").set({ lag_ewma_ms: 1000 }, { kind: (its) => `${its} <> 'ahead'` });
  await past(2);
  await ran(2);
  const { lag } = await worker.row(
    "select lag_ewma_ms as lag from dispatch_policy.limiters where gate = 'adaptive_concurrency'",
  );
  t.is(lag, 1000);
});

test("with room it goes at once, and counts in flight; the next one waits in staging", async (t) => {
  const { worker, running, past } = await world(t, "enforce");
  const copied: unknown[] = [];
  policyEvents(worker.runner.events).on("dispatchPolicy:copy", (event) => void copied.push(event));
  await past(1);
  await worker.sees("job:start");
  await until("it occupies a slot", async () => (await inFlight(worker)) === 1);
  await past(2);
  const [original] = await worker.sees("job:success");
  t.deepEqual(original!.payload, { account: "a", n: 2 });
  t.deepEqual([...running.keys()], [1], "it did not run");
  const staged = await worker.row("select id::text, payload from dispatch_policy.staged_jobs");
  t.deepEqual(staged.payload, { account: "a", n: 2 });
  t.deepEqual(copied, [{ policy: "work", jobId: original!.id, stagedId: staged.id, quarantined: false }]);
  running.get(1)!();
  await until("the copy runs", () => running.has(2));
  running.get(2)!();
  await worker.everythingIsReleased();
  t.deepEqual(
    worker.happened.filter(({ event }) => event === "job:error" || event === "job:failed"),
    [],
  );
});

for (const flagsOf of ["running", "waiting"] as const) {
  test(`with exactly the flags of an admitted job that is ${flagsOf}: still one runs at once`, async (t) => {
    const database = await testDatabase(t);
    const { pool } = database;
    const options = { pgPool: pool, policies: [policyWith("enforce")], logger: silent };
    const before = await makePolicyUtils(options);
    t.teardown(() => before.release());
    await before.addJob("work", { account: "a", n: 1 });
    await before.tick();
    const { rows } = await pool.query("select flags from graphile_worker.jobs");
    const flags = Object.keys(rows[0].flags);
    const copy = (n: number) =>
      pool.query(
        "select graphile_worker.add_job('work', json_build_object('account', 'a', 'n', $1::int), flags => $2)",
        [n, flags],
      );
    if (flagsOf === "waiting") for (const n of [2, 3, 4]) await copy(n);
    const { worker, running, seen } = await world(t, "enforce", { database });
    await until("the admitted one runs", () => running.has(1));
    if (flagsOf === "running") for (const n of [2, 3, 4]) await copy(n);
    await until("the others have started, and wait in staging", () => {
      return running.size > 1 || worker.happened.filter(({ event }) => event === "job:success").length === 3;
    });
    await areRouted(worker);
    for (const n of [1, 2, 3, 4]) {
      await until("one runs", () => running.size > 0);
      t.deepEqual([...running.keys()], [n]);
      const end = running.get(n)!;
      running.delete(n);
      end();
    }
    await worker.everythingIsReleased();
    t.is(seen.length, 4, "each ran once");
  });
}

test("what goes along: queue, priority, run_at, key, flags and the attempts that are left", async (t) => {
  const { worker, running, seen, past } = await world(t, "enforce");
  await past(1);
  await until("the first runs", () => running.has(1));
  const rest = `, queue_name => 'q', run_at => '2020-02-29', max_attempts => 7, job_key => 'k',
    priority => 3, flags => array['mine']`;
  await past(2, rest);
  await worker.sees("job:success");
  const staged = await worker.row(
    "select queue_name, run_at, max_attempts, job_key, priority, flags from dispatch_policy.staged_jobs",
  );
  t.deepEqual(staged, {
    ...{ queue_name: "q", run_at: new Date("2020-02-29 00:00:00"), max_attempts: 7, job_key: "k" },
    ...{ priority: 3, flags: ["mine"] },
  });
  running.get(1)!();
  await until("the copy runs", () => running.has(2));
  const copy = seen.at(-1)!;
  t.is(copy.key, "k");
  t.is(copy.attempts, 1);
  t.true("mine" in (copy.flags ?? {}));
});

/** Numbers that JavaScript rounds, and texts that PostgreSQL stores in json and nowhere else. */
const ODD = [
  '{"account": "a", "n": 2, "ids": [9007199254740993, {"x": 12345678901234567890.5}, 1e2]}',
  '{"account": "a", "n": 3, "x": 1e400}',
  '{"account": "a", "n": 4, "x": [-0.0, 0.1234567890123456]}',
  '{"account":"a","n":5,"x":"\\u0000"}',
  '{"account":"a","n":6,"x":["\\ud800",{"\\udc00":1.5}]}',
  '{"account": "a", "n": 7, "x": ["\\u0000", 1e400]}',
];

for (const localQueue of [undefined, { size: 3 }]) {
  test(`a copy has the payload that was added, and the worker keeps its jobs${localQueue ? ", with a local queue" : ""}`, async (t) => {
    const { worker, running, seen, past } = await world(
      t,
      "enforce",
      localQueue ? { worker: { localQueue } } : {},
    );
    await past(1);
    await until("the first runs", () => running.has(1));
    for (const [place, text] of ODD.entries())
      await worker.pool.query("select graphile_worker.add_job('work', $1, job_key => $2)", [
        text,
        place % 2 ? `k${place}` : null,
      ]);
    await worker.sees("job:success", ODD.length);
    const staged = await worker.pool.query("select payload::text as text from dispatch_policy.staged_jobs");
    t.deepEqual(staged.rows.map(({ text }) => text).toSorted(), ODD.toSorted());
    await until("of the worker's jobs the first one alone is left", async () => {
      const text = "select count(*)::int as n from graphile_worker.jobs where locked_at is not null";
      return (await worker.row(text)).n === 1;
    });
    await areRouted(worker);
    const ran: string[] = [];
    for (let n = 0; n <= ODD.length; n++) {
      await until(`job ${n + 1} runs`, () => running.size === 1);
      if (n > 0) ran.push(...(await payloadTexts(worker.pool, [seen[n]!.id])));
      const [end] = running.values();
      running.clear();
      end!();
    }
    t.deepEqual(ran.toSorted(), ODD.toSorted());
    t.deepEqual(
      worker.happened.filter(({ event }) => event === "job:error"),
      [],
    );
  });
}

test("run: at once, past the gates, and counted", async (t) => {
  const { worker, running, past } = await world(t, "run");
  await past(1);
  await past(2);
  await until("both run", () => running.size === 2);
  t.is(await inFlight(worker), 2);
  t.is(
    (await worker.row("select in_flight from dispatch_policy.limiters where gate = 'concurrency'")).in_flight,
    2,
  );
  await worker.utils.addJob("work", { account: "a", n: 3 });
  running.get(1)!();
  await until("one is released", async () => (await inFlight(worker)) === 1);
  t.false(running.has(3), "an admitted one waits for them");
  running.get(2)!();
  await until("the admitted one runs", () => running.has(3));
});

test("reject: quarantine with a reason, until it is rescheduled", async (t) => {
  const { worker, running, past } = await world(t, "reject");
  await past(1);
  await worker.sees("job:success");
  t.deepEqual([...running.keys()], []);
  const { id, error } = await worker.row("select id::text, error from dispatch_policy.staged_jobs");
  t.regex(error, /added past the policy.*"unmanaged" rejects/);
  const { repaired } = await worker.utils.sweep();
  t.true(
    Object.values(repaired).every((n) => n === 0),
    JSON.stringify(repaired),
  );
  await worker.utils.rescheduleJobs([id], { runAt: new Date() });
  await until("it runs", () => running.has(1));
});

test("a policy that is switched off lets it run and counts nothing", async (t) => {
  const { worker, running, past } = await world(t, "enforce", { policy: { enabled: false } });
  await past(1);
  await past(2);
  await until("both run", () => running.size === 2);
  t.is(await inFlight(worker), 0);
});

test("a payload without a key fails as a task would, and holds nothing", async (t) => {
  const { worker } = await world(t, "enforce");
  await worker.pool.query("select graphile_worker.add_job('work', '{\"n\": 1}')");
  const [failed] = await worker.sees("job:error");
  t.regex(failed!.error!, /account/);
  t.is(await inFlight(worker), 0);
});

test("a failed one is parked and admitted again, as others are", async (t) => {
  const attempts: number[] = [];
  const worker = await startWorker(t, {
    policies: [policyWith("enforce", { backoff: () => "1 second" })],
    tasks: {
      work: async (_payload, { job }) => {
        attempts.push(job.attempts);
        if (job.attempts === 1) throw new Error("once");
      },
    },
  });
  await worker.pool.query("select graphile_worker.add_job('work', '{\"account\": \"a\"}')");
  await worker.sees("job:success");
  t.deepEqual(attempts, [1, 2]);
  await worker.everythingIsReleased();
});

test("said once for each policy", async (t) => {
  const { worker, running, past } = await world(t, "run");
  await past(1);
  await past(2);
  await until("both run", () => running.size === 2);
  const said = worker.log.filter(({ message }) => message.includes('was added past policy "work"'));
  t.deepEqual(
    said.map(({ level, scope }) => [level, scope.label]),
    [["info", "dispatch-policy"]],
  );
});

for (const partitionBy of ["account", (ctx: { account: string }) => ctx.account]) {
  test(`a payload stays as it was added wherever verbs take it, with a key by ${typeof partitionBy === "string" ? "path" : "function"}`, async (t) => {
    const context = (payload: unknown) => ({ account: (payload as { account: string }).account });
    const policy = definePolicy("work", {
      ...(typeof partitionBy === "string" ? {} : { context }),
      partitionBy: partitionBy as never,
      gates: ({ concurrency }) => [concurrency({ max: 1 })],
    });
    const { pool, url } = await testDatabase(t);
    const utils = await makePolicyUtils({ connectionString: url, policies: [policy], logger: silent });
    t.teardown(() => utils.release());
    const staged = async () =>
      (await pool.query("select payload::text as text from dispatch_policy.staged_jobs")).rows
        .map(({ text }) => text)
        .toSorted();
    const native = async () => (await payloadTexts(pool)).toSorted();
    for (const text of ODD) await pool.query("select graphile_worker.add_job('work', $1)", [text]);
    // SQL finds no path in a json with such a text: these jobs stay, and are caught at their start
    const [left, taken] = [ODD, ODD].map((all, place) =>
      all.filter((text) => (typeof partitionBy === "string" && /\\u[0d]/.test(text)) === (place === 0)),
    );
    t.like(await utils.adopt({ task: "work" }), { changed: taken!.length });
    t.deepEqual(await staged(), taken!.toSorted());
    t.deepEqual(await native(), left!.toSorted());
    const exported: unknown[] = [];
    for await (const { spec } of utils.export({ policy: "work" })) exported.push(spec.payload);
    t.deepEqual(
      exported,
      taken!.map((text) => JSON.parse(text)),
    );
    t.is((await utils.tick({ policy: "work" })).admitted, 1);
    await utils.disable({ policy: "work" });
    await utils.unstage({ policy: "work" });
    t.deepEqual(await staged(), []);
    t.deepEqual(await native(), ODD.toSorted());
    // failed for good, and run again
    const { rows } = await pool.query("select id::text from graphile_worker.jobs");
    const ids = rows.map(({ id }) => id);
    await utils.permanentlyFailJobs(ids, "enough");
    await utils.sweep();
    await utils.enable({ policy: "work" });
    await utils.rescheduleJobs(ids, { runAt: new Date(), attempts: 0 });
    t.deepEqual(await native(), ODD.toSorted());
  });
}

test("a failed copy whose key SQL cannot read goes by its gates when it is run again by hand", async (t) => {
  const starts: string[] = [];
  let end = () => {};
  const { runner, utils, pool, ...worker } = await startWorker(t, {
    policies: [policyWith("enforce", { backoff: () => false })],
    worker: { pollInterval: 100 }, // nobody notifies it of a job that is rescheduled
    tasks: {
      work: async (payload, { job }) => {
        const { n } = payload as { n: number };
        starts.push(`${n}, attempt ${job.attempts}`);
        if (n === 5 && starts.length === 2) throw new Error("for good");
        if (n !== 5) await new Promise<void>((resolve) => (end = resolve));
      },
    },
  });
  t.teardown(() => end());
  const startsTo = (count: number) => until(`${count} starts`, () => starts.length === count);
  await runner.addJob("work", { account: "a", n: 1 });
  await startsTo(1);
  await pool.query("select graphile_worker.add_job('work', $1)", [ODD[3]]);
  await worker.sees("job:success");
  end();
  const [failed] = await worker.sees("job:error");
  await worker.everythingIsReleased();
  await utils.addJob("work", { account: "a", n: 2 });
  await startsTo(3);
  await utils.rescheduleJobs([failed!.id], { runAt: new Date(), attempts: 0 });
  await worker.sees("job:success", 3);
  t.is(starts.length, 3, "it waits for the slot");
  end();
  await startsTo(4);
  t.deepEqual(starts, ["1, attempt 1", "5, attempt 1", "2, attempt 1", "5, attempt 1"]);
});
