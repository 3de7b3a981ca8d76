// Of two jobs of one key the newer one counts, whichever way each of them came: through this package or past it, of a task
// with a policy or without one.
import test, { type ExecutionContext } from "ava";
import { makePolicyUtils } from "../../../src/index.ts";
import {
  concurrency,
  type Engine,
  type EngineOptions,
  engine,
  type Queryable,
} from "../../helpers/engine.ts";
import { inside } from "../../helpers/inside.ts";
import { addPast, completeJob, failJob, fetchJob, startJob } from "../../helpers/native.ts";
import { silent } from "../../helpers/silent.ts";
import { workerTable } from "../../helpers/table.ts";

const ROOMY = { gates: [concurrency(9)] };
const KEY = { key: "k" };

async function stage(
  it: Engine,
  v: string,
  { partition = "a", as = it.pool as Queryable, flags = [] as readonly string[] } = {},
): Promise<void> {
  const batch = it.batch([partition], { jobKey: "k", ...(flags.length > 0 && { flags }) }) as {
    jobs: object[];
  };
  const jobs = batch.jobs.map((job) => ({ ...job, payload: { v } }));
  await as.query("select id from dispatch_policy_internal._stage($1, 'replace')", [
    JSON.stringify([{ ...batch, jobs }]),
  ]);
}

/** Fills the partition's only slot. */
async function full(it: Engine): Promise<void> {
  await it.stage("a");
  await it.passes();
}

/** What there is of the key, in staging and in Graphile Worker. */
async function versions(it: Engine): Promise<{ staged: string[]; waiting: string[] }> {
  const staged = await it.table("staged_jobs").all({ job_key: "k" });
  const waiting = await workerTable(it.pool).all({ key: "k" });
  return { staged: staged.map(({ payload }) => payload.v), waiting: waiting.map(({ payload }) => payload.v) };
}

const TASKS = { "of a policy": "p", "of none": "plain" };

for (const [what, task] of Object.entries(TASKS)) {
  test(`staged, then added past the policy, of a task ${what}: the native one runs`, async (t) => {
    const it = await engine(t, ROOMY);
    await stage(it, "old");
    await addPast(it, { ...KEY, task, payload: { v: "new" } });
    t.is(await it.passes(2), 0);
    t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
    t.deepEqual(await it.leftovers(), await (await engine(t, ROOMY)).leftovers());
  });

  test(`staged, then added past the policy, of a task ${what}, twice`, async (t) => {
    const it = await engine(t, ROOMY);
    await addPast(it, { ...KEY, task, payload: { v: "older" } });
    await stage(it, "old");
    await addPast(it, { ...KEY, task, payload: { v: "new" } });
    t.is(await it.passes(2), 0);
    t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
  });

  test(`added past the policy, of a task ${what}, then staged: the staged one takes its place`, async (t) => {
    const it = await engine(t, ROOMY);
    await addPast(it, { ...KEY, task, payload: { v: "old" } });
    await stage(it, "new");
    t.is(await it.passes(2), 1);
    t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
  });

  test(`one of a task ${what} that is added while an admission overwrites its key stays`, async (t) => {
    const it = await engine(t, ROOMY);
    await it.waitsLong();
    await stage(it, "old");
    await it.route();
    const app = await it.session();
    await app.query("begin");
    await addPast(it, { ...KEY, task, payload: { v: "new" }, as: app });
    const ticking = await it.session();
    // it has looked, and waits for the key, when the application commits
    const admitting = it.admit({ as: ticking });
    await Promise.race([it.waitsForLock(ticking), admitting]);
    await app.query("commit");
    await admitting;
    await it.passes(2);
    await it.admit({ now: new Date(Date.now() + 60_000) });
    t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
  });
}

test("staged twice: the later one stays", async (t) => {
  const it = await engine(t, ROOMY);
  await stage(it, "old");
  await stage(it, "new");
  t.is(await it.passes(), 1);
  t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
});

test("staged, then passed on for a task without a policy: that one counts, also when it has run by then", async (t) => {
  const it = await engine(t, ROOMY);
  const utils = await makePolicyUtils({ pgPool: it.pool, policies: [], logger: silent });
  t.teardown(() => utils.release());
  await stage(it, "old");
  const { id } = await utils.addJob("plain", { v: "new" }, { jobKey: "k" });
  await it.pool.query("select graphile_worker.complete_jobs($1)", [[id]]);
  t.is(await it.passes(2), 0);
  t.deepEqual(await versions(it), { staged: [], waiting: [] });
});

test("a native job that was only rescheduled since does not count as newer", async (t) => {
  const it = await engine(t, ROOMY);
  const old = await addPast(it, { ...KEY, payload: { v: "old" } });
  await stage(it, "new");
  await it.pool.query("select graphile_worker.reschedule_jobs($1, priority => 3)", [[old]]);
  t.is(await it.passes(2), 1);
  t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
});

test("nor does one that had replaced another before it was rescheduled", async (t) => {
  const it = await engine(t, ROOMY);
  await addPast(it, { ...KEY, payload: { v: "older" } });
  const old = await addPast(it, { ...KEY, payload: { v: "old" } });
  await stage(it, "new");
  await it.pool.query("select graphile_worker.reschedule_jobs($1, priority => 3)", [[old]]);
  t.is(await it.passes(2), 1);
  t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
});

const WAYS = [
  ["staged", (it: Engine, v: string, as: Queryable) => stage(it, v, { as })],
  [
    "added past the policy",
    async (it: Engine, v: string, as: Queryable) => void (await addPast(it, { ...KEY, payload: { v }, as })),
  ],
] as const;

for (const [[first, addFirst], [second, addSecond]] of [WAYS, WAYS.toReversed()] as const) {
  test(`${first}, then ${second}, in one transaction: the second counts`, async (t) => {
    const it = await engine(t, ROOMY);
    const app = await it.session();
    await app.query("begin");
    await addFirst(it, "old", app);
    await addSecond(it, "new", app);
    await app.query("commit");
    await it.passes(2);
    t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
  });
}

for (const unmanaged of ["enforce", "run"] as const) {
  test(`one that was staged while its predecessor was being admitted outlives that one's retry: ${unmanaged}`, async (t) => {
    const it = await engine(t, ROOMY);
    await it.waitsLong();
    await stage(it, "old");
    await it.route();
    const [ticking, app] = [await it.session(), await it.session()];
    await ticking.query("begin");
    t.is((await it.admit({ as: ticking })).admitted, 1);
    const staging = stage(it, "new", { as: app });
    await it.waitsForLock(app);
    await ticking.query("commit");
    await staging;
    await it.route();
    const [job] = await it.inFlight();
    await fetchJob(it, job!);
    await it.pool.query("select dispatch_policy.release_slots($1)", [job]); // hangs, an operator thinks
    await failJob(it, job!, 0);
    const { verdict } = await startJob(it, await fetchJob(it, job!), { payload: { v: "old" }, unmanaged });
    t.is(verdict, unmanaged === "run" ? "admitted" : "copied");
    t.deepEqual((await versions(it)).staged, ["new"]);
  });
}

test("nor does an admitted one that has failed since", async (t) => {
  const it = await engine(t, ROOMY);
  await stage(it, "old");
  await it.passes();
  const [job] = await it.inFlight();
  await stage(it, "new");
  await it.pool.query("select graphile_worker.permanently_fail_jobs($1, 'x')", [[job]]);
  t.is(await it.passes(2), 1);
  t.deepEqual((await versions(it)).staged, []);
});

test("one that starts when a newer one of its key is staged gives way to it", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await full(it);
  await stage(it, "oldest");
  const job = await addPast(it, { ...KEY, payload: { v: "native" } });
  await stage(it, "new"); // in the place of the oldest, whose created_at stays
  const { verdict } = await startJob(it, await fetchJob(it, job), { payload: { v: "native" } });
  t.is(verdict, "copied");
  t.deepEqual((await versions(it)).staged, ["new"]);
});

test("one that is admitted at its start takes the place of an older staged one", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await full(it);
  await stage(it, "old");
  await it.route();
  const job = await addPast(it, { ...KEY, payload: { v: "new" } });
  const { verdict } = await startJob(it, await fetchJob(it, job), { partition: "b", payload: { v: "new" } });
  t.is(verdict, "admitted");
  t.deepEqual((await versions(it)).staged, []);
});

test("the copy of a job that was copied is as old as the job", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await full(it);
  const job = await addPast(it, { ...KEY, payload: { v: "old" } });
  const fetched = await fetchJob(it, job);
  await addPast(it, { ...KEY, payload: { v: "new" } }); // the old one runs: it loses the key, and this is a row of its own
  const { verdict } = await startJob(it, fetched, { payload: { v: "old" } });
  t.is(verdict, "copied");
  await it.finish(await it.inFlight());
  await it.passes(2);
  t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
});

const NEWER_WAYS = {
  staged: (it: Engine) => stage(it, "new"),
  "added past the policy and adopted": async (it: Engine) => {
    await addPast(it, { ...KEY, payload: { a: "a", v: "new" } });
    await it.pool.query("select * from dispatch_policy.adopt('p')");
  },
};

for (const [way, addNewer] of Object.entries(NEWER_WAYS)) {
  test(`one that is copied once a newer one of its key was admitted does not come back over it: ${way}`, async (t) => {
    const it = await engine(t, { gates: [concurrency(2)], keyPath: "a" });
    await full(it);
    const [first] = await it.inFlight();
    const old = await addPast(it, { ...KEY, payload: { a: "a", v: "old" } });
    const fetched = await fetchJob(it, old); // a local queue has it, say
    await addNewer(it);
    t.is(await it.passes(), 1);
    t.is((await startJob(it, fetched, { payload: { v: "old" } })).verdict, "copied");
    await completeJob(it, old);
    t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
    await it.finish([first!]);
    t.is(await it.passes(2), 1, "it runs, without the key");
    t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
    const { rows } = await it.pool.query("select key from graphile_worker.jobs order by key");
    t.deepEqual(rows, [{ key: "k" }, { key: null }]);
  });
}

/** Stages the copy of a job, as its process does that has seen no room for it. */
const copied = (it: Engine, as: Queryable, job: string) =>
  inside(as, "select dispatch_policy_internal._stage_copy($1, 0, $2, null, false)", [
    job,
    JSON.stringify(it.batch(["a"], { jobKey: "k" })),
  ]);

test("nor does one that is copied while the newer one is being admitted", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  const old = await addPast(it, { ...KEY, payload: { v: "old" } });
  await fetchJob(it, old);
  await stage(it, "new");
  await it.route();
  const [ticking, starting] = [await it.session(), await it.session()];
  await ticking.query("begin");
  t.is((await it.admit({ as: ticking })).admitted, 1);
  const taken = copied(it, starting, old);
  await it.waitsForLock(starting);
  await ticking.query("commit");
  await taken;
  t.is(await it.passes(2), 1);
  t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
});

test("nor does one that is copied while the newer one is being adopted", async (t) => {
  const it = await engine(t, { ...ROOMY, keyPath: "a" });
  await it.waitsLong();
  const old = await addPast(it, { ...KEY, payload: { a: "a", v: "old" } });
  await fetchJob(it, old);
  const [adopting, starting] = [await it.session(), await it.session()];
  await adopting.query("begin");
  await addPast(it, { ...KEY, payload: { a: "a", v: "new" }, as: adopting });
  t.is((await adopting.query("select * from dispatch_policy.adopt('p')")).rows[0].changed, 1);
  const taken = copied(it, starting, old);
  await it.waitsForLock(starting);
  await adopting.query("commit");
  await taken;
  t.deepEqual(await versions(it), { staged: ["new"], waiting: [] });
  t.is(await it.passes(2), 2);
  t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
});

test("the next job of a key, in the row of one that was copied before a crash, is not taken for it", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await full(it);
  const job = await addPast(it, { ...KEY, payload: { v: "old" } });
  t.is((await startJob(it, await fetchJob(it, job), { payload: { v: "old" } })).verdict, "copied");
  // the worker dies before the original completes, and a sweep unlocks it
  await it.pool.query("select graphile_worker.force_unlock_workers('{worker}')");
  t.is(await addPast(it, { ...KEY, payload: { v: "new" } }), job, "in the same row");
  await startJob(it, await fetchJob(it, job), { payload: { v: "new" } });
  t.deepEqual((await versions(it)).staged, ["new"]);
});

/** A job that failed and is parked, and a newer one of its key that waits in staging, so that nobody admits either. */
async function replacedWhileParked(
  t: ExecutionContext,
  { passes = 3, ...options }: Partial<EngineOptions> & { passes?: number } = {},
): Promise<Engine> {
  const it = await engine(t, { ...ROOMY, ...options });
  await stage(it, "old");
  await it.passes();
  const [job] = await it.inFlight();
  await workerTable(it.pool).set({ attempts: 1, last_error: "x" }, { id: job });
  const retry = { attempt: 1, after: 0, task: "p", maxAttempts: 25 };
  await it.release([{ job: job!, ok: false, retry }]);
  await stage(it, "new");
  await it
    .table("staged_jobs")
    .set({ due: false, run_at: () => "now() + interval '1 hour'" }, { job_key: "k" });
  await it.passes(passes);
  return it;
}

const sweepReplaced = (it: Engine) => it.number("select dispatch_policy_internal._sweep_replaced()");

test("one that a full backlog drops leaves none behind either, once a sweep has come by", async (t) => {
  const it = await replacedWhileParked(t, { maxPending: { partition: 1, whenFull: "drop_oldest" } });
  t.is(await sweepReplaced(it), 0, "the newer one is there, and takes its row");
  await it.stage("a", { runAt: new Date(Date.now() + 60_000) });
  t.deepEqual((await versions(it)).staged, []);

  const app = await it.session();
  await app.query("begin");
  await workerTable(app).lock();
  t.is(await sweepReplaced(it), 0, "somebody is at it");
  await app.query("commit");
  t.is(await sweepReplaced(it), 1);
  const { rows } = await it.pool.query(
    "select attempts = max_attempts as failed, last_error from graphile_worker.jobs",
  );
  t.deepEqual(rows, [{ failed: true, last_error: "replaced under its job key" }]);
  t.is(await sweepReplaced(it), 0);
  t.is(await it.table("superseded_jobs").count(), 0);
});

test("nor does a newer one that is admitted: the parked one's row is its own then", async (t) => {
  const it = await replacedWhileParked(t);
  await it.pool.query(
    "select dispatch_policy.reschedule_jobs(array(select id from dispatch_policy.staged_jobs), run_at => now())",
  );
  t.is(await it.passes(2), 1);
  t.is(await sweepReplaced(it), 0);
  t.is(await it.table("superseded_jobs").count(), 0);
  t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
});

for (const verb of ["remove(ids => array[$1::bigint])", "complete_jobs(array[$1::bigint])"]) {
  test(`${verb} of the newer one leaves no parked job behind that nothing would ever run`, async (t) => {
    const it = await replacedWhileParked(t);
    const { rows } = await it.pool.query("select id from dispatch_policy.staged_jobs where job_key = 'k'");
    await it.pool.query(`select * from dispatch_policy.${verb}`, [rows[0].id]);
    const { state } = (await it.pool.query("select state from dispatch_policy.jobs")).rows[0];
    t.is(state, "failed");
    t.is(await it.wrongCounters(), 0);
  });
}

for (const verb of ["remove(ids => array[$1::bigint])", "complete_jobs(array[$1::bigint])"]) {
  test(`${verb} of the newer one, while a pass drops the parked one, leaves none behind after a sweep`, async (t) => {
    const it = await replacedWhileParked(t, { passes: 0 });
    const { rows } = await it.pool.query("select id from dispatch_policy.staged_jobs where job_key = 'k'");
    await it.route();
    const admitting = await it.session();
    await admitting.query("begin");
    t.is((await it.admit({ as: admitting })).admitted, 0);
    await it.pool.query(`select * from dispatch_policy.${verb}`, [rows[0].id]);
    await admitting.query("commit");
    t.is(await sweepReplaced(it), 1, "neither saw what the other did");
    const { state } = (await it.pool.query("select state from dispatch_policy.jobs")).rows[0];
    t.is(state, "failed");
    t.is(await it.wrongCounters(), 0);
  });
}

/** A staged job that was failed for good while a newer one of its key was being staged, and that others had run again. */
async function revivedBesideNewer(it: Engine): Promise<string> {
  await stage(it, "old");
  const [operator, app] = [await it.session(), await it.session()];
  await operator.query("begin");
  const { rows } = await operator.query(
    `select id from dispatch_policy.permanently_fail_jobs(array(
       select id from dispatch_policy.staged_jobs where job_key = 'k'))`,
  );
  const staging = stage(it, "new", { as: app });
  await it.waitsForLock(app);
  await operator.query("commit");
  await staging;
  const [{ id }] = rows;
  await it.pool.query("select graphile_worker.reschedule_jobs(array[$1::bigint], now(), attempts => 0)", [
    id,
  ]);
  return id;
}

for (const [what, max, verdict] of [
  ["for whom there is no room", 1, "copied"],
  ["for whom there is room", 9, "admitted"],
] as const) {
  test(`one that was failed for good, and is run again, ${what}, costs no newer staged one its place`, async (t) => {
    const it = await engine(t, { gates: [concurrency(max)] });
    await full(it);
    const job = await revivedBesideNewer(it);
    t.is((await startJob(it, await fetchJob(it, job), { payload: { v: "old" } })).verdict, verdict);
    t.deepEqual((await versions(it)).staged, ["new"]);
  });
}

test("nor does one that waits to run again when the newer one is admitted", async (t) => {
  const it = await engine(t, ROOMY);
  await revivedBesideNewer(it);
  t.is(await it.passes(2), 1);
  t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
});

interface Admits {
  /** Of the second version. */
  readonly partition?: string;
  /** Puts the second version into the first one's row. Returns a job that somebody then has run again. */
  act(it: Engine, as: Queryable): Promise<string | undefined>;
}

const ADMITS: Record<string, Admits> = {
  "a pass, once the key has moved to another partition,": {
    partition: "b",
    async act(it, as) {
      await it.admit({ as: as as never });
      return undefined;
    },
  },
  "an operator's admit": {
    async act(_, as) {
      await as.query("select * from dispatch_policy.admit('p', 1)");
      return undefined;
    },
  },
  "an operator, who fails it for good,": {
    async act(_, as) {
      const { rows } = await as.query(
        `select id from dispatch_policy.permanently_fail_jobs(array(
           select id from dispatch_policy.staged_jobs where job_key = 'k'))`,
      );
      return rows[0].id;
    },
  },
};

for (const [who, { partition = "a", act }] of Object.entries(ADMITS)) {
  test(`the newest one counts that is staged while ${who} puts the second one into a row younger than the transaction`, async (t) => {
    const it = await engine(t, ROOMY);
    await it.waitsLong();
    await it.stage("b");
    await it.route();
    const [old, app] = [await it.session(), await it.session()];
    await old.query("begin");
    await old.query("select now()");
    await stage(it, "first");
    t.is(await it.passes(1), 2);
    await stage(it, "second", { partition });
    await it.route();
    const failed = await act(it, old);
    const staging = stage(it, "third", { as: app });
    await it.waitsForLock(app);
    await old.query("commit");
    await staging;
    if (failed !== undefined)
      await it.pool.query("select graphile_worker.reschedule_jobs(array[$1::bigint], now(), attempts => 0)", [
        failed,
      ]);
    await it.passes(2);
    t.deepEqual(await versions(it), { staged: [], waiting: ["third"] });
  });
}

test("a flag with a quotation mark is nobody's: the newer one of the key counts", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  await stage(it, "old", { flags: ['"dispatch_policy:5@1'] });
  await it.route();
  const [ticking, app] = [await it.session(), await it.session()];
  await ticking.query("begin");
  await it.admit({ as: ticking });
  const staging = stage(it, "new", { as: app });
  await it.waitsForLock(app);
  await ticking.query("commit");
  await staging;
  await it.passes(2);
  t.deepEqual(await versions(it), { staged: [], waiting: ["new"] });
});
