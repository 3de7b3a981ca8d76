// A rolling deployment: workers without this package run admitted jobs, and free no slots.
import { EventEmitter } from "node:events";
import test, { type ExecutionContext } from "ava";
import { Logger, run, type TaskList, type WorkerEvents } from "graphile-worker";
import type pg from "pg";
import { makeEngine } from "../../src/db/engine.ts";
import { concurrency, definePolicy, makePolicyUtils, policyEvents } from "../../src/index.ts";
import { makeEndedElsewhere } from "../../src/pool/ended-elsewhere.ts";
import { type Engine, engine } from "../helpers/engine.ts";
import { silent } from "../helpers/silent.ts";
import { nameOf, workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const work = definePolicy("work", {
  context: (payload) => payload as { tenant: string },
  partitionBy: "tenant",
  gates: [concurrency({ max: 3 })],
});

/** A worker of the release before, without the preset. */
async function oldWorker(t: ExecutionContext, pgPool: pg.Pool, taskList: TaskList): Promise<void> {
  const runner = await run({
    pgPool,
    taskList,
    concurrency: 10,
    pollInterval: 50,
    logger: silent,
    noHandleSignals: true,
  });
  t.teardown(() => runner.stop());
}

const jobsOf = (tenants: number, each: number) =>
  Array.from({ length: tenants * each }, (_, n) => ({
    identifier: "work",
    payload: { tenant: `t${n % tenants}` },
  }));

test("slots of jobs that end in workers without the preset are freed, and the limit holds", async (t) => {
  const running: Record<string, number> = {};
  let [most, old] = [0, 0];
  const task = (isOld: boolean) => async (payload: unknown) => {
    const { tenant } = payload as { tenant: string };
    running[tenant] = (running[tenant] ?? 0) + 1;
    most = Math.max(most, running[tenant]);
    await new Promise((resolve) => setTimeout(resolve, 20));
    running[tenant] -= 1;
    if (isOld) old++;
  };
  const worker = await startWorker(t, {
    policies: [work],
    tasks: { work: task(false) },
    preset: { sweepInterval: "1 hour" }, // only looks can help
    worker: { concurrentJobs: 2 },
  });
  await oldWorker(t, worker.pool, { work: task(true) });
  await worker.utils.addJobs(jobsOf(4, 30));
  await until(
    "all have run, and all slots are freed",
    async () => {
      const { n } = await worker.row(`select (select count(*) from dispatch_policy.staged_jobs)
      + (select count(*) from dispatch_policy.in_flight_jobs) as n`);
      return n === "0";
    },
    {
      withinMs: 60_000,
      seen: async () => [
        ...[old, worker.log.map(({ message }) => message)],
        await worker.row(`select (select json_agg(q) from dispatch_policy.partitions q) as partitions,
          (select json_agg(f) from dispatch_policy.in_flight_jobs f) as in_flight,
          (select json_agg(j) from graphile_worker.jobs j) as jobs,
          (select json_agg(l) from ${nameOf("leases")} l) as leases`),
      ],
    },
  );
  t.true(old > 12, `${old} ran in the old worker, more than all slots`);
  t.true(most <= 3, `${most} at once`);
  const { policies } = await worker.utils.status();
  const { endedElsewhere = 0 } = policies[0]!;
  t.true(
    endedElsewhere > 0 && endedElsewhere <= old,
    `${endedElsewhere} of ${old}: those that a look saw there`,
  );
  const told = worker.log.filter(({ message }) => message.includes("workers without this package"));
  t.deepEqual(
    told.map(({ level }) => level),
    ["warning"],
    "once",
  );
  t.regex(told[0]!.message, /^\d+ admitted jobs ended .*policies: work.* Add the preset/);
});

/** A worker of this pool runs the job. */
const lock = (it: Engine, id: string | undefined, locked_by: string) =>
  workerTable(it.pool).set({ locked_at: () => "now()", locked_by }, { id });

test("what ended in a worker with this package, or nobody knows where, is not said to have ended elsewhere", async (t) => {
  const it = await engine(t, { gates: [] });
  await it.stage(Array(3).fill("a"));
  t.is(await it.passes(), 3);
  const [ours, unknown, foreign] = await it.inFlight();
  await it.pool.query(
    "select dispatch_policy_internal._worker_alive('known', 1, '{p}', 'host', 1, '1 hour', '0')",
  );
  await lock(it, ours, "known");
  await lock(it, foreign, "old");
  const utils = await makePolicyUtils({ pgPool: it.pool, logger: silent });
  t.teardown(() => utils.release());
  const said: string[] = [];
  const counts: unknown[] = [];
  const events = new EventEmitter() as WorkerEvents;
  policyEvents(events).on("dispatchPolicy:endedElsewhere", (event) => counts.push(event));
  const logger = new Logger(() => (_, message) => void said.push(message));
  let looks = 0;
  const engineOf = makeEngine("dispatch_policy");
  const lookForLost: typeof engineOf.lookForLost = async (...args) => {
    const page = await engineOf.lookForLost(...args);
    looks += 1;
    return page;
  };
  const elsewhere = makeEndedElsewhere({
    ...{ withPgClient: utils.withPgClient, engine: { ...engineOf, lookForLost }, logger, events },
    onReleased: () => {},
  });
  t.teardown(() => elsewhere.stop());
  elsewhere.watch({ policy: "p", shard: "default" }, true);
  elsewhere.start();
  await until("a look has seen them run", () => looks > 0);
  await workerTable(it.pool).set({ locked_at: null, locked_by: null });
  await it.pool.query("select graphile_worker.complete_jobs($1)", [[ours, unknown, foreign]]);
  await until("their slots are freed", async () => (await it.inFlight()).length === 0);
  await it.readEvents();
  const { policies } = await utils.status();
  t.is(policies[0]?.endedElsewhere, 1);
  t.deepEqual(counts, [{ policy: "p", count: 1 }]);
  t.is(said.filter((line) => /^1 admitted jobs ended in workers without this package/.test(line)).length, 1);
  t.is(said.filter((line) => /their workers have not freed the slots \(policies: p\)/.test(line)).length, 1);
});

test("looks read in-flight jobs by pages, and come back to the first", async (t) => {
  const it = await engine(t, { gates: [] });
  await it.stage(Array(5).fill("a"));
  t.is(await it.passes(), 5);
  const ids = await it.inFlight();
  await it.pool.query("select graphile_worker.complete_jobs($1)", [[ids[0], ids[3]]]);
  const look = async (after: string) => {
    const text =
      "select next_after, known, lost from dispatch_policy_internal._look_for_lost('{p,other}', $1, 2)";
    return (await it.pool.query(text, [after])).rows[0];
  };
  const pages = [];
  let after = "0";
  do {
    const page = await look(after);
    pages.push([page.known, page.lost.map(({ job }: { job: string }) => job)]);
    after = page.next_after;
  } while (after !== "0");
  t.deepEqual(pages, [
    [["p"], [ids[0]]],
    [["p"], [ids[3]]],
    [["p"], []],
  ]);
});

test("a look tells the jobs that run in pools with this package from those that run in others", async (t) => {
  const it = await engine(t, { gates: [] });
  await it.stage(Array(3).fill("a"));
  t.is(await it.passes(), 3);
  const [ours, foreign] = await it.inFlight();
  await it.pool.query(
    "select dispatch_policy_internal._worker_alive('known', 1, '{p}', 'host', 1, '1 hour', '0')",
  );
  await lock(it, ours, "known");
  await lock(it, foreign, "old");
  const { rows } = await it.pool.query(
    "select ours, foreign_ids from dispatch_policy_internal._look_for_lost('{p}', 0, 10)",
  );
  t.deepEqual(rows, [{ ours: [ours], foreign_ids: [foreign] }]);
});

test("a slot that is the next admission's by now is not freed", async (t) => {
  const it = await engine(t, { gates: [] });
  await it.stage("a");
  t.is(await it.passes(), 1);
  const [id] = await it.inFlight();
  await it.pool.query("select graphile_worker.complete_jobs($1)", [[id]]);
  const { rows } = await it.pool.query(
    "select lost from dispatch_policy_internal._look_for_lost('{p}', 0, 10)",
  );
  await it.table("in_flight_jobs").set({ admission: (its: string) => `${its} + 1` });
  await it.pool.query("select dispatch_policy_internal._release_lost($1)", [JSON.stringify(rows[0].lost)]);
  t.deepEqual(await it.inFlight(), [id]);
});

test("a job that failed in a worker without the preset frees its slot, and waits parked for its retry", async (t) => {
  const it = await engine(t, { gates: [] });
  await it.stage("a");
  t.is(await it.passes(), 1);
  const [id] = await it.inFlight();
  const run_at = () => "now() + interval '1 hour'";
  await workerTable(it.pool).set({ attempts: 1, last_error: "refused", run_at }, { id });
  const { rows } = await it.pool.query(
    "select lost from dispatch_policy_internal._look_for_lost('{p}', 0, 10)",
  );
  await it.pool.query("select dispatch_policy_internal._release_lost($1)", [JSON.stringify(rows[0].lost)]);
  t.deepEqual(await it.inFlight(), []);
  const parked = await it.pool.query(
    `select s.job_id, s.run_at > now() + interval '59 minutes' as waits, j.run_at = 'infinity' as is_parked, j.attempts
     from dispatch_policy.staged_jobs s join graphile_worker.jobs j on j.id = s.job_id`,
  );
  t.deepEqual(parked.rows, [{ job_id: id, waits: true, is_parked: true, attempts: 1 }]);
});

test("while jobs keep ending elsewhere, those of a pass that leaves nobody waiting are found as well", async (t) => {
  const it = await engine(t, { gates: [] });
  const utils = await makePolicyUtils({ pgPool: it.pool, logger: silent });
  t.teardown(() => utils.release());
  const engineOf = makeEngine("dispatch_policy");
  let idle = 0;
  const lookForLost: typeof engineOf.lookForLost = async (...args) => {
    const page = await engineOf.lookForLost(...args);
    if (page.known.length === 0) idle += 1;
    return page;
  };
  const elsewhere = makeEndedElsewhere({
    ...{ withPgClient: utils.withPgClient, engine: { ...engineOf, lookForLost }, logger: silent },
    ...{ events: new EventEmitter() as WorkerEvents, onReleased: () => {} },
  });
  t.teardown(() => elsewhere.stop());
  const endsElsewhere = async () => {
    await it.stage("a");
    t.is(await it.passes(), 1);
    elsewhere.watch({ policy: "p", shard: "default" }, idle === 0);
    await it.pool.query("select graphile_worker.complete_jobs($1)", [await it.inFlight()]);
    await until("its slot is freed", async () => (await it.inFlight()).length === 0);
  };
  elsewhere.start();
  await endsElsewhere();
  await until("a look has found nothing in flight", () => idle > 0);
  await endsElsewhere();
});

test("a page with a job that may have ended elsewhere is looked at twice, before the pages behind it", async (t) => {
  const it = await engine(t, { gates: [], batchSize: 1000 });
  await it.stage(Array(501).fill("a"));
  t.is(await it.passes(), 501);
  const [job, ...others] = await it.inFlight();
  await it.pool.query("select graphile_worker.complete_jobs($1)", [[job]]);
  const utils = await makePolicyUtils({ pgPool: it.pool, logger: silent });
  t.teardown(() => utils.release());
  const engineOf = makeEngine("dispatch_policy");
  const looks: string[] = [];
  const lookForLost: typeof engineOf.lookForLost = (client, policies, after, limit) => {
    looks.push(after);
    return engineOf.lookForLost(client, policies, after, limit);
  };
  const elsewhere = makeEndedElsewhere({
    ...{ withPgClient: utils.withPgClient, engine: { ...engineOf, lookForLost }, logger: silent },
    ...{ events: new EventEmitter() as WorkerEvents, onReleased: () => {} },
  });
  t.teardown(() => elsewhere.stop());
  elsewhere.watch({ policy: "p", shard: "default" }, true);
  elsewhere.start();
  await until("its slot is freed", async () => (await it.inFlight()).length === 500);
  t.deepEqual(looks.slice(0, 2), ["0", "0"]);
  await until("it has looked at the page behind", () => looks.includes(others[498]!));
});
