// Jobs that failed for good are brought back: through their gates, and only those that are meant.
import test, { type ExecutionContext } from "ava";
import { ArgumentError, concurrency, definePolicy, UnknownPolicyError } from "../../src/index.ts";
import { runCommand } from "../helpers/command.ts";
import { workerTable } from "../helpers/table.ts";
import { startWorker } from "../helpers/worker.ts";

const work = definePolicy("work", {
  partitionBy: "k",
  gates: [concurrency({ max: 1 })],
  job: { maxAttempts: 1 },
});

interface Payload {
  readonly k: string;
  readonly n: number;
}

/** Each job fails for good until the partner is up. */
async function world(t: ExecutionContext) {
  let isUp = false;
  let most = 0;
  const running = new Map<string, number>();
  const ran: number[] = [];
  const worker = await startWorker(t, {
    policies: [work],
    worker: { concurrentJobs: 4 },
    tasks: {
      work: async (payload) => {
        const { k, n } = payload as Payload;
        running.set(k, (running.get(k) ?? 0) + 1);
        most = Math.max(most, running.get(k)!);
        await new Promise((resolve) => setTimeout(resolve, 5));
        running.set(k, running.get(k)! - 1);
        if (!isUp) throw new Error(n % 2 === 0 ? "502 of the partner" : "no such order");
        ran.push(n);
      },
    },
  });
  const jobs = [0, 1, 2, 3, 4, 5].map((n) => ({
    identifier: "work",
    payload: { k: n < 4 ? "a" : "b", n },
  }));
  await worker.utils.addJobs(jobs);
  await worker.sees("job:failed", jobs.length);
  await worker.everythingIsReleased();
  return {
    ...{ worker, ran },
    repair() {
      isUp = true;
    },
    get most() {
      return most;
    },
  };
}

test("all of a policy run again, one at a time, with all their attempts", async (t) => {
  const it = await world(t);
  const { utils } = it.worker;
  it.repair();
  t.deepEqual(await utils.retry({ policy: "work", dryRun: true }), { matched: 6, changed: 0 });
  t.deepEqual(await utils.retry({ policy: "work", reason: "502s", by: "ana" }), { matched: 6, changed: 6 });
  const again = await it.worker.sees("job:success", 6);
  t.deepEqual(
    again.map(({ attempt }) => attempt),
    [1, 1, 1, 1, 1, 1],
  );
  t.deepEqual(it.ran.toSorted(), [0, 1, 2, 3, 4, 5]);
  t.is(it.most, 1);
  t.like(await it.worker.row("select * from dispatch_policy.audit where verb = 'retry'"), {
    ...{ policy: "work", partition: null, reason: "502s", by: "ana", matched: 6, changed: 6 },
  });
  t.deepEqual(await utils.retry({ policy: "work" }), { matched: 0, changed: 0 });
});

test("or those of a partition, those with an error, those that failed then, those with an id", async (t) => {
  const it = await world(t);
  const { utils, pool } = it.worker;
  const failed = await pool.query(
    "select id, policy, partition from dispatch_policy.jobs where state = 'failed' order by partition, id",
  );
  t.deepEqual(
    failed.rows.map(({ policy, partition }) => `${policy}/${partition}`),
    ["work/a", "work/a", "work/a", "work/a", "work/b", "work/b"],
  );
  const count = async (options: object) =>
    (await utils.retry({ policy: "work", dryRun: true, ...options })).matched;
  t.is(await count({ partition: "b" }), 2);
  t.is(await count({ partition: "c" }), 0);
  t.is(await count({ error: "502" }), 3);
  t.is(await count({ error: "502", partition: "b" }), 1);
  t.is(await count({ since: new Date(Date.now() + 60_000) }), 0);
  t.is(await count({ until: new Date(Date.now() - 60_000) }), 0);
  t.is(await count({ since: new Date(Date.now() - 60_000), until: new Date(Date.now() + 60_000) }), 6);
  it.repair();
  t.deepEqual(await utils.retry({ ids: [failed.rows[0].id] }), { matched: 1, changed: 1 });
  t.deepEqual(await utils.retry({ policy: "work", partition: "b" }), { matched: 2, changed: 2 });
  await it.worker.sees("job:success", 3);
  t.is(await count({}), 3);
});

test("one that a newer job of its key has replaced stays, unless its id is given", async (t) => {
  const it = await world(t);
  const { utils, pool } = it.worker;
  const { id } = await it.worker.row(
    `select x.id from graphile_worker.jobs j cross join lateral graphile_worker.permanently_fail_jobs(
       array[j.id], 'replaced under its job key') x order by x.id limit 1`,
  );
  await workerTable(pool).set({ last_error: "mine" }, { id: (its) => `${its} <> ${id}` });
  t.is((await utils.retry({ policy: "work", dryRun: true })).matched, 5);
  t.is((await utils.retry({ ids: [id], dryRun: true })).matched, 1);
});

test("a job without a policy runs again at once", async (t) => {
  const it = await world(t);
  const { utils, pool } = it.worker;
  const { id } = await it.worker.row("select id from graphile_worker.add_job('plain', max_attempts => 1)");
  await pool.query("select graphile_worker.permanently_fail_jobs(array[$1::bigint], 'x')", [id]);
  t.deepEqual(await utils.retry({ ids: [id] }), { matched: 1, changed: 1 });
  t.like(
    await it.worker.row("select attempts, run_at <= now() as due from graphile_worker.jobs where id = $1", [
      id,
    ]),
    {
      ...{ attempts: 0, due: true },
    },
  );
});

test("what it takes is said", async (t) => {
  const { worker } = await world(t);
  const { utils } = worker;
  await t.throwsAsync(utils.retry({} as never), {
    instanceOf: ArgumentError,
    message: "retry: expected { ids } or { policy, partition? }, got neither",
  });
  await t.throwsAsync(utils.retry({ policy: "wrok" }), { instanceOf: UnknownPolicyError });
  await t.throwsAsync(utils.retry({ ids: ["1"], partition: "a" } as never), {
    instanceOf: ArgumentError,
    message: "retry: partition is 'a', expected a policy with it, got none",
  });
  for (const [text, message] of [
    ["retry()", "dispatch_policy: retry: expected ids or a policy, got neither"],
    ["retry(policy => 'work', count => 0)", "dispatch_policy: retry: count is 0, expected 1 or more"],
  ] as const)
    await t.throwsAsync(worker.pool.query(`select dispatch_policy.${text}`), { message });
});

test("from the command line", async (t) => {
  const it = await world(t);
  const { url } = it.worker.database;
  it.repair();
  t.deepEqual(await runCommand(url, "retry", "--policy", "work", "--error", "502", "--dry-run"), {
    ...{ stdout: "3 failed jobs would be brought back.\n", stderr: "", code: 0 },
  });
  t.deepEqual(await runCommand(url, "retry", "--policy", "work", "--since", "2020-01-01", "--by", "ana"), {
    ...{ stdout: "Brought back 6 of 6 failed jobs.\n", stderr: "", code: 0 },
  });
  await it.worker.sees("job:success", 6);
  t.like(await it.worker.row("select by, detail from dispatch_policy.audit where verb = 'retry'"), {
    by: "ana",
  });
  t.deepEqual(await runCommand(url, "retry", "--policy", "work", "--since", "yesterday"), {
    ...{ stdout: "", code: 2 },
    stderr:
      'retry: --since must be a time such as 2026-11-24T22:00Z, or a duration such as\n"30 minutes", got "yesterday"\n' +
      "See graphile-worker-dispatch-policy retry --help\n",
  });
  t.deepEqual(await runCommand(url, "retry"), {
    ...{ stdout: "", code: 2 },
    stderr:
      "retry: no jobs: give their ids, or --policy NAME\nSee graphile-worker-dispatch-policy retry --help\n",
  });
});
