// Adoption beside workers, producers, verbs and ticks: each job is in one place, and of two jobs of a key the newer counts.
import test from "ava";
import { concurrency, Engine, engine, type Queryable, type Session } from "../../helpers/engine.ts";
import { addPast, admissionOf, completeJob, failJob, fetchJob, startJob } from "../../helpers/native.ts";
import { nameOf, workerTable } from "../../helpers/table.ts";

const ROOMY = { gates: [concurrency(9)], keyPath: "a" };
const FULL = { gates: [concurrency(1)], keyPath: "a" };

interface Step {
  readonly matched: number;
  readonly changed: number;
  readonly last_id: string | null;
}

async function adopt(it: Engine, as: Queryable = it.pool): Promise<Step> {
  return (await as.query("select * from dispatch_policy.adopt($1)", [it.policy])).rows[0];
}

/** The step of an adoption that waits for a row which `change` has locked in a transaction. That one then commits. */
async function adoptBeside(it: Engine, change: (as: Session) => Promise<unknown>): Promise<Step> {
  const [other, adopting] = [await it.session(), await it.session()];
  await other.query("begin");
  await change(other);
  const adopted = adopt(it, adopting);
  await it.waitsForLock(adopting);
  await other.query("commit");
  return adopted;
}

const add = (it: Engine, v: string, { key = "", as = it.pool as Queryable } = {}) =>
  addPast(it, { payload: { a: "a", v }, as, ...(key && { key }) });

async function stage(it: Engine, v: string, { key = "k", as = it.pool as Queryable } = {}): Promise<void> {
  const batch = it.batch(["a"], { jobKey: key }) as { jobs: object[] };
  const jobs = batch.jobs.map((job) => ({ ...job, payload: { a: "a", v } }));
  await as.query("select id from dispatch_policy_internal._stage($1, 'replace')", [
    JSON.stringify([{ ...batch, jobs }]),
  ]);
}

/** The values of the jobs in staging and of those in Graphile Worker that have not failed for good. */
async function places(it: Engine): Promise<{ staged: string[]; waiting: string[] }> {
  const staged = await it.table("staged_jobs").all({}, "id");
  const waiting = await workerTable(it.pool).all({ attempts: (its) => `${its} < max_attempts` }, "id");
  return { staged: staged.map(({ payload }) => payload.v), waiting: waiting.map(({ payload }) => payload.v) };
}

test("a job that a worker is fetching stays, and the others are adopted", async (t) => {
  const it = await engine(t, FULL);
  const [one] = [await add(it, "one"), await add(it, "two"), await add(it, "three")];
  const worker = await it.session();
  await worker.query("begin");
  await fetchJob(it, one, "w", worker);
  t.like(await adopt(it), { matched: 3, changed: 2 });
  await worker.query("commit");
  t.like(await adopt(it), { matched: 0, changed: 0, last_id: null });
  t.deepEqual(await places(it), { staged: ["two", "three"], waiting: ["one"] });
  t.is(
    (await startJob(it, { id: one, attempts: 1, revision: 0, key: null }, { poolId: "w" })).verdict,
    "copied",
  );
});

test("a worker finds nothing while a step of adoption is open, nor afterwards", async (t) => {
  const it = await engine(t, FULL);
  await add(it, "one");
  const [adopting, worker] = [await it.session(), await it.session()];
  const fetch = () => workerTable(worker).lock({ is_available: true }, "update skip locked");
  await adopting.query("begin");
  t.is((await adopt(it, adopting)).changed, 1);
  t.is(await fetch(), 0);
  await adopting.query("commit");
  t.is(await fetch(), 0);
  t.deepEqual(await places(it), { staged: ["one"], waiting: [] });
});

test("a worker that fetches a job while adoption waits for its row keeps it", async (t) => {
  const it = await engine(t, FULL);
  await it.waitsLong();
  const one = await add(it, "one");
  const step = await adoptBeside(it, async (worker) => {
    await fetchJob(it, one, "w", worker);
  });
  t.like(step, { matched: 1, changed: 0 });
  t.deepEqual(await places(it), { staged: [], waiting: ["one"] });
});

test("a job that is fetched and fails while adoption waits for its row keeps its attempt", async (t) => {
  const it = await engine(t, FULL);
  await it.waitsLong();
  const one = await add(it, "one");
  const step = await adoptBeside(it, async (worker) => {
    await workerTable(worker).set({ attempts: 1, last_error: "oops" }, { id: one });
  });
  t.is(step.changed, 0);
  t.is((await adopt(it)).changed, 1, "the next step parks it");
  const { rows } = await it.pool.query(
    "select state, attempts, last_error from dispatch_policy.jobs where id = $1",
    [one],
  );
  t.deepEqual(rows, [{ state: "parked", attempts: 1, last_error: "oops" }]);
});

test("a job that is replaced under its key while adoption waits for its row is the one that is adopted", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  await add(it, "old", { key: "k" });
  const step = await adoptBeside(it, async (app) => {
    await add(it, "new", { key: "k", as: app });
  });
  t.is(step.changed, 0, "it changed meanwhile");
  t.deepEqual(await places(it), { staged: [], waiting: ["new"] });
  t.is((await adopt(it)).changed, 1);
  t.deepEqual(await places(it), { staged: ["new"], waiting: [] });
  t.is(await it.passes(), 1);
});

test("a job that another task gets in the same row while adoption waits stays in Graphile Worker", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  await add(it, "old", { key: "k" });
  const step = await adoptBeside(it, async (app) => {
    await addPast(it, { key: "k", task: "plain", payload: { a: "a", v: "plain" }, as: app });
  });
  t.is(step.changed, 0);
  t.deepEqual(await places(it), { staged: [], waiting: ["plain"] });
});

test("one added past the policy under the key of a job that is being adopted counts", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  await add(it, "old", { key: "k" });
  const [adopting, app] = [await it.session(), await it.session()];
  await adopting.query("begin");
  t.is((await adopt(it, adopting)).changed, 1);
  const added = add(it, "new", { key: "k", as: app });
  await it.waitsForLock(app);
  await adopting.query("commit");
  await added;
  t.is(await it.passes(2), 0);
  t.deepEqual(await places(it), { staged: [], waiting: ["new"] });
});

test("one staged under the key of a job that is being adopted counts", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  await add(it, "old", { key: "k" });
  const [adopting, app] = [await it.session(), await it.session()];
  await adopting.query("begin");
  t.is((await adopt(it, adopting)).changed, 1);
  const staged = stage(it, "new", { as: app });
  await it.waitsForLock(app);
  await adopting.query("commit");
  await staged;
  t.deepEqual(await places(it), { staged: ["new"], waiting: [] });
  t.is(await it.passes(2), 1);
  t.deepEqual(await places(it), { staged: [], waiting: ["new"] });
});

test("one staged after it is not lost to an older one that is adopted", async (t) => {
  const it = await engine(t, ROOMY);
  await add(it, "old", { key: "k" });
  await stage(it, "new");
  t.like(await adopt(it), { matched: 1, changed: 1 });
  t.deepEqual(await places(it), { staged: ["new"], waiting: [] });
  t.is(await it.passes(2), 1);
});

test("one that is being staged while an older one of its key is adopted counts", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  await add(it, "old", { key: "k" });
  const step = await adoptBeside(it, async (app) => {
    await stage(it, "new", { as: app });
  });
  t.is(step.changed, 1);
  t.deepEqual(await places(it), { staged: ["new"], waiting: [] });
});

const HOUR = "now() + interval '1 hour'";

for (const [of, native, own] of [
  ["later", HOUR, "null"],
  ["earlier", "now()", HOUR],
] as const) {
  test(`one that preserves the ${of} time of the job of its key keeps it once that one is adopted`, async (t) => {
    const it = await engine(t, ROOMY);
    await it.pool.query(
      `select graphile_worker.add_job('p', '{"a":"a"}', job_key => 'k', run_at => ${native})`,
    );
    const { rows } = await it.pool.query("select run_at from graphile_worker.jobs");
    await it.pool.query(
      `select dispatch_policy.add_job('p', '{"a":"a","v":"new"}', job_key => 'k', run_at => ${own},
         job_key_mode => 'preserve_run_at')`,
    );
    await it.route();
    t.is((await adopt(it)).changed, 1);
    t.deepEqual(await places(it), { staged: ["new"], waiting: [] });
    const kept = await it.pool.query("select run_at from dispatch_policy.staged_jobs");
    t.deepEqual(kept.rows, rows);
    t.is(await it.passes(2), of === "earlier" ? 1 : 0);
  });
}

test("a tick that has a job with preserve_run_at, and one that adopts the job of its key, keep the time", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  await it.pool.query(`select graphile_worker.add_job('p', '{"a":"a"}', job_key => 'k', run_at => ${HOUR})`);
  const { rows } = await it.pool.query("select run_at from graphile_worker.jobs");
  await it.pool.query(
    `select dispatch_policy.add_job('p', '{"a":"a","v":"new"}', job_key => 'k', job_key_mode => 'preserve_run_at')`,
  );
  await it.route();
  const [adopting, ticking] = [await it.session(), await it.session()];
  await adopting.query("begin");
  t.is((await adopt(it, adopting)).changed, 1);
  const admitted = it.admit({ as: ticking });
  await Promise.race([it.waitsForLock(ticking), admitted]);
  await adopting.query("commit");
  t.is((await admitted).admitted, 0);
  t.is(await it.passes(2), 0);
  const kept = await it.pool.query("select run_at from dispatch_policy.staged_jobs");
  t.deepEqual(kept.rows, rows);
});

test("an older staged one of its key gives way to the one that is adopted", async (t) => {
  const it = await engine(t, ROOMY);
  await stage(it, "old");
  const id = await add(it, "new", { key: "k" });
  t.is((await adopt(it)).changed, 1);
  const { rows } = await it.pool.query("select id, payload ->> 'v' as v from dispatch_policy.staged_jobs");
  t.deepEqual(rows, [{ id, v: "new" }]);
  t.is(await it.passes(2), 1);
});

test("an older one that was staged without knowing it, and commits while it is adopted, gives way", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  await adoptBeside(it, async (app) => {
    await stage(it, "old", { as: app });
    await add(it, "new", { key: "k" });
  });
  await adopt(it);
  t.deepEqual(await places(it), { staged: ["new"], waiting: [] });
});

/**
 * An adoption that has read its page, and waits for a job of the page that is being replaced. Once that is committed, it
 * tries each job alone.
 */
async function adoptsLate(it: Engine): Promise<() => Promise<Step>> {
  await it.waitsLong();
  const [app, adopting] = [await it.session(), await it.session()];
  await app.query("begin");
  await add(it, "other", { key: "other", as: app });
  const adopted = adopt(it, adopting);
  await it.waitsForLock(adopting);
  return async () => {
    await app.query("commit");
    return adopted;
  };
}

test("one that is staged once the job of its key has run is not dropped for it", async (t) => {
  const it = await engine(t, ROOMY);
  await add(it, "other", { key: "other" });
  const old = await add(it, "old", { key: "k" });
  const goesOn = await adoptsLate(it);
  await fetchJob(it, old);
  await completeJob(it, old);
  await stage(it, "new");
  t.like(await goesOn(), { matched: 2, changed: 0 });
  t.deepEqual((await places(it)).staged, ["new"]);
});

test("nor is it if the job of its key had failed before it ran", async (t) => {
  const it = await engine(t, ROOMY);
  await add(it, "other", { key: "other" });
  const old = await add(it, "old", { key: "k" });
  await fetchJob(it, old);
  await failJob(it, old, 0);
  const goesOn = await adoptsLate(it);
  await fetchJob(it, old);
  await completeJob(it, old);
  await stage(it, "new");
  t.like(await goesOn(), { matched: 2, changed: 0 });
  t.deepEqual((await places(it)).staged, ["new"]);
});

test("the copy of a job that is replaced and copied while adoption waits is not dropped", async (t) => {
  const it = await engine(t, FULL);
  await it.stage("a");
  await it.passes();
  await add(it, "other", { key: "other" });
  const one = await add(it, "old", { key: "k" });
  const goesOn = await adoptsLate(it);
  await add(it, "new", { key: "k" });
  const fetched = await fetchJob(it, one);
  t.is((await startJob(it, fetched, { payload: { a: "a", v: "new" } })).verdict, "copied");
  await completeJob(it, one);
  t.like(await goesOn(), { matched: 2, changed: 0 });
  t.deepEqual((await places(it)).staged, ["new"]);
});

test("a tick that admits a newer one of its key while adoption waits keeps it", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  await add(it, "old", { key: "k" });
  await stage(it, "new");
  await it.route();
  const step = await adoptBeside(it, async (ticking) => {
    t.is((await it.admit({ as: ticking })).admitted, 1);
  });
  t.is(step.changed, 0);
  t.is((await adopt(it)).matched, 0, "an admitted job is not adopted");
  t.deepEqual(await places(it), { staged: [], waiting: ["new"] });
});

test("two who adopt at once: the second waits for its turn, and each job is adopted once", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  for (const v of ["one", "two"]) await add(it, v);
  const [first, second] = [await it.session(), await it.session()];
  await first.query("begin");
  t.is((await adopt(it, first)).changed, 2);
  const late = adopt(it, second);
  await it.waitsForLock(second);
  const { rows } = await it.pool.query(
    "select * from dispatch_policy_internal._adopt_unless_busy($1, 0, 10)",
    [it.policy],
  );
  t.like(rows[0], { busy: true, changed: null }, "a worker leaves it to them");
  await first.query("commit");
  t.is((await late).changed, 0);
  t.deepEqual(await places(it), { staged: ["one", "two"], waiting: [] });
  t.is(await it.passes(2), 2);
});

/** Somebody who waits until another one's step of adoption is over, and what happens meanwhile. */
async function waitsForTurn(it: Engine, meanwhile: () => Promise<unknown>): Promise<Step> {
  const [first, second] = [await it.session(), await it.session()];
  await first.query("begin");
  await adopt(it, first);
  const late = adopt(it, second);
  const failed = late.catch(() => {});
  await it.waitsForLock(second);
  await meanwhile();
  await first.query("commit");
  await failed;
  return late;
}

test("a policy that is declared anew while somebody waits for the turn gives the jobs its new partitions", async (t) => {
  const it = await engine(t, ROOMY);
  const anew = new Engine(it.url, it.pool, { ...ROOMY, keyPath: "v" });
  t.is((await waitsForTurn(it, () => add(it, "b").then(() => anew.declare()))).changed, 1);
  await it.route();
  const { rows } = await it.pool.query("select partition from dispatch_policy.staged_jobs");
  t.deepEqual(rows, [{ partition: "b" }]);
});

test("a policy that is switched off while somebody waits for the turn is not adopted for", async (t) => {
  const it = await engine(t, ROOMY);
  await add(it, "one");
  const off = () =>
    add(it, "two").then(() => it.pool.query("select dispatch_policy.switch_policy('p', false)"));
  await t.throwsAsync(waitsForTurn(it, off), { code: "DPARG", message: /switched off/ });
  t.deepEqual(await places(it), { staged: ["one"], waiting: ["two"] });
});

test("nor by a worker that comes to its turn only then", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  await add(it, "one");
  const [owner, worker] = [await it.session(), await it.session()];
  await owner.query("begin");
  await owner.query(`lock table ${nameOf("turns")} in access exclusive mode`);
  const step = worker.query("select * from dispatch_policy_internal._adopt_unless_busy($1, 0, 10)", [
    it.policy,
  ]);
  await it.waitsForLock(worker);
  await owner.query("select dispatch_policy.switch_policy('p', false)");
  await owner.query("commit");
  t.deepEqual((await step).rows, [], "no row: the policy is off");
  t.deepEqual(await places(it), { staged: [], waiting: ["one"] });
});

test("a step that is rolled back leaves the jobs where they were", async (t) => {
  const it = await engine(t, ROOMY);
  await add(it, "one");
  const adopting = await it.session();
  await adopting.query("begin");
  t.is((await adopt(it, adopting)).changed, 1);
  await adopting.query("rollback");
  t.deepEqual(await places(it), { staged: [], waiting: ["one"] });
});

/** Each verb reaches a job that is adopted while it runs: it looked into staging before, and into Graphile Worker after. */
const VERBS: Record<string, string> = {
  remove_job: "select id from dispatch_policy.remove_job('k')",
  complete_jobs: "select id from dispatch_policy.complete_jobs(array[$1::bigint])",
  permanently_fail_jobs: "select id from dispatch_policy.permanently_fail_jobs(array[$1::bigint])",
  reschedule_jobs: "select id from dispatch_policy.reschedule_jobs(array[$1::bigint], run_at => 'infinity')",
};

for (const [verb, call] of Object.entries(VERBS)) {
  const ask = async (as: Queryable, id: string) =>
    (await as.query(call, call.includes("$1") ? [id] : [])).rows.map((row) => row.id !== null);

  test(`${verb} reaches a job that is being adopted`, async (t) => {
    const it = await engine(t, ROOMY);
    await it.waitsLong();
    const id = await add(it, "one", { key: "k" });
    const [adopting, operator] = [await it.session(), await it.session()];
    await adopting.query("begin");
    t.is((await adopt(it, adopting)).changed, 1);
    const asked = ask(operator, id);
    await it.waitsForLock(operator);
    await adopting.query("commit");
    t.deepEqual(await asked, [true]);
    t.is(await it.passes(2), 0);
  });

  test(`a job on which ${verb} is at work runs by no adoption`, async (t) => {
    const it = await engine(t, ROOMY);
    await it.waitsLong();
    const id = await add(it, "one", { key: "k" });
    await adoptBeside(it, async (operator) => {
      t.deepEqual(await ask(operator, id), [true]);
    });
    t.is(await it.passes(2), 0);
  });

  test(`${verb} takes the id that an adopted job had before`, async (t) => {
    const it = await engine(t, ROOMY);
    const id = await add(it, "one", { key: "k" });
    await adopt(it);
    t.deepEqual(await ask(it.pool, id), [true]);
    t.is(await it.passes(2), 0);
  });
}

test("a job that was copied, and whose worker died, is not staged twice", async (t) => {
  const it = await engine(t, FULL);
  await it.stage("a");
  await it.passes();
  const one = await add(it, "one");
  const fetched = await fetchJob(it, one);
  t.is((await startJob(it, fetched, { payload: { a: "a", v: "one" } })).verdict, "copied");
  await it.pool.query("select graphile_worker.force_unlock_workers(array['worker'])");
  t.is((await adopt(it)).matched, 0);
  t.deepEqual((await places(it)).staged, ["one"]);
});

test("a job in flight that was admitted at its start and failed is not adopted beside its slot", async (t) => {
  const it = await engine(t, FULL);
  const one = await add(it, "one");
  const fetched = await fetchJob(it, one);
  t.is((await startJob(it, fetched, { payload: { a: "a", v: "one" } })).verdict, "admitted");
  await failJob(it, one, 0);
  t.is((await adopt(it)).matched, 0);
});

test("a failed job whose slot an operator freed is adopted once, whenever its process tells of its end", async (t) => {
  const it = await engine(t, FULL);
  await it.stage("a");
  await it.passes();
  const [job] = await it.inFlight();
  await fetchJob(it, job!);
  const admission = await admissionOf(it, job!);
  await it.pool.query("select dispatch_policy.release_slots($1)", [job]);
  await failJob(it, job!, 0);
  await workerTable(it.pool).set({ payload: { a: "a" } });
  t.deepEqual(await it.inFlight(), []);
  t.is((await adopt(it)).changed, 1);
  const retry = { attempt: 1, task: it.policy, after: 3600, maxAttempts: 25, priority: 0 };
  await it.release([{ job: job!, ok: false, attempt: 1, admission, retry } as never]);
  t.is((await adopt(it)).matched, 0);
  t.is(await it.staged(), 1);
  t.is(await it.passes(2), 1);
  t.deepEqual(await it.inFlight(), [job]);
});

test("a failed job that is deduplicated against while adoption waits for its row is left for the next step", async (t) => {
  const it = await engine(t, FULL);
  await it.waitsLong();
  const one = await add(it, "one", { key: "k" });
  await fetchJob(it, one);
  await failJob(it, one, 0);
  const step = await adoptBeside(it, async (app) => {
    await app.query("select graphile_worker.add_job($1, job_key => 'k', job_key_mode => 'unsafe_dedupe')", [
      it.policy,
    ]);
  });
  t.is(step.changed, 0);
  t.is((await adopt(it)).changed, 1);
  t.is(await it.passes(2), 1);
});

test("slots, verbs and retries find an adopted job by the id that it had before", async (t) => {
  const it = await engine(t, FULL);
  const id = await add(it, "one");
  await adopt(it);
  t.is(await it.passes(), 1);
  const [job] = await it.inFlight();
  t.not(job, id);
  const { rows } = await it.pool.query("select staged_id from dispatch_policy.in_flight_jobs");
  t.deepEqual(rows, [{ staged_id: id }]);
  await it.pool.query("select dispatch_policy.release_slots($1)", [id]);
  t.is(await it.staged(), 1, "it did not run, so it waits again");
  t.is(await it.passes(), 1);
  await it.pool.query("select graphile_worker.permanently_fail_jobs($1, 'x')", [[job]]);
  await it.release([job!]);
  await it.pool.query("select dispatch_policy.reschedule_jobs($1, run_at => now(), attempts => 0)", [[job]]);
  const again = await it.pool.query("select id, job_id from dispatch_policy.staged_jobs");
  t.deepEqual(again.rows, [{ id, job_id: job }]);
});

test("a job that was staged while the admission of the one before was not committed is newer than that one", async (t) => {
  const it = await engine(t, FULL);
  await it.waitsLong();
  await it.stage("a", { jobKey: "k" });
  await it.route();
  const [ticker, producer] = [await it.session(), await it.session()];
  await ticker.query("begin");
  t.is((await it.admit({ as: ticker })).admitted, 1);
  const staged = it.stage("a", { jobKey: "k", as: producer });
  await it.waitsForLock(producer);
  await ticker.query("commit");
  const [newer] = await staged;
  const [job] = await it.inFlight();
  await fetchJob(it, job!);
  await it.pool.query("select dispatch_policy.release_slots($1)", [job]);
  await failJob(it, job!, 0);
  await workerTable(it.pool).set({ payload: { a: "a" } });
  t.is((await adopt(it)).changed, 1);
  const { rows } = await it.pool.query("select id from dispatch_policy.staged_jobs where job_key = 'k'");
  t.deepEqual(rows, [{ id: newer }]);
});
