// A policy goes, or gets another name: `removePolicy`.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import {
  type AnyPolicy,
  ArgumentError,
  addPolicyJob,
  concurrency,
  definePolicy,
  fixed,
  makePolicyUtils,
  RemovalError,
  UnknownPolicyError,
} from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { nameOf, table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
const old = definePolicy("old", {
  tasks: ["work"],
  partitionBy: "account",
  gates: [concurrency({ max: 1 })],
  backoff: fixed("1 hour"),
});
const renamed = definePolicy("new", {
  tasks: ["work"],
  partitionBy: "region",
  gates: [concurrency({ max: 2 })],
  maxPending: { policy: 100 },
});
const elsewhere = definePolicy("elsewhere", { partitionBy: "account" });
const SPECS = [
  { payload: { account: "a", region: "eu" } },
  { payload: { account: "a", region: "eu" }, jobKey: "k" },
  { payload: { account: "b", region: "us" }, runAt: new Date(Date.now() + 3_600_000) },
];

async function world(t: ExecutionContext) {
  const database = await testDatabase(t);
  const { pool, url } = database;
  const utilsOf = async (...policies: AnyPolicy[]) => {
    const utils = await makePolicyUtils({ pgPool: pool, policies, logger: silent });
    t.teardown(() => utils.release());
    return utils;
  };
  const rows = async (text: string, values: unknown[] = []) => (await pool.query(text, values)).rows;
  const staged = () =>
    rows("select id, policy, partition, job_key, run_at from dispatch_policy.staged_jobs order by id");
  return { database, pool, url, utilsOf, rows, staged };
}

/** Where this policy is still mentioned. */
async function mentions(it: Awaited<ReturnType<typeof world>>, policy: string, id: number) {
  const columns = await it.rows(
    `select table_name as name, column_name as by
     from information_schema.columns join information_schema.tables using (table_schema, table_name)
     where table_schema = 'dispatch_policy' and table_type = 'BASE TABLE' and column_name in ('policy', 'policy_id')
       and table_schema || '.' || table_name <> $1`,
    [nameOf("audit")],
  );
  const found: string[] = [];
  for (const { name, by } of columns) {
    const { length } = await it.rows(`select from dispatch_policy.${name} where ${by}::text = $1`, [
      by === "policy" ? policy : String(id),
    ]);
    if (length > 0) found.push(name);
  }
  return found;
}

test("a policy is renamed: its waiting jobs keep their ids and go by the new policy, and nothing of the old one stays", async (t) => {
  const it = await world(t);
  const before = await it.utilsOf(old);
  await before.addJobs(SPECS.map((spec) => ({ identifier: "work", ...spec })));
  await before.addJob("work", { account: "never routed", region: "eu" } as never);
  await before.setLimit({ policy: "old", gate: "concurrency", set: { max: 0 } });
  await before.tick();
  await before.pause({ policy: "old", partition: "b" });
  await it.pool.query('select dispatch_policy.add_job(\'work\', \'{"account": "x", "region": "eu"}\')');
  const waiting = await it.staged();
  const { id } = await table(it.pool, "policies").one();

  const utils = await it.utilsOf(renamed);
  t.deepEqual(await utils.removePolicy({ policy: "old", into: "new", dryRun: true }), {
    ...{ matched: 5, changed: 0, removed: false },
  });
  t.deepEqual(await utils.removePolicy({ policy: "old", into: "new", reason: "rename", by: "ana" }), {
    ...{ matched: 5, changed: 5, removed: true },
  });
  t.deepEqual(await mentions(it, "old", id), []);
  t.is((await utils.tick()).admitted, 0); // which works out where they belong
  t.is((await utils.tick()).admitted, 2);
  t.like((await utils.status()).policies, [{ policy: "new", staged: 3, inFlight: 2 }]);
  const left = await it.staged();
  t.deepEqual(
    left.map((job) => [job.id, job.run_at]),
    waiting.filter((job) => left.some((one) => one.id === job.id)).map((job) => [job.id, job.run_at]),
  );
  t.deepEqual(left.map(({ policy, partition }) => `${policy} ${partition}`).sort(), [
    ...["new eu", "new eu", "new us"],
  ]);
  t.like(
    await it.rows(
      "select verb, policy, by, reason, changed from dispatch_policy.audit order by id desc limit 2",
    ),
    [
      { verb: "remove_policy", policy: "old", by: "ana", reason: "rename", changed: 0 },
      { verb: "remove_policy", changed: 5 },
    ],
  );
});

test("a failed job that waits for its retry moves with its attempts", async (t) => {
  const it = await startWorker(t, {
    policies: [old],
    tasks: {
      work: async () => {
        throw new Error("not yet");
      },
    },
  });
  await it.utils.addJob("work", { account: "a", region: "eu" } as never);
  await until("it is parked", async () => {
    const { n } = await it.row(
      "select count(*)::int as n from dispatch_policy.staged_jobs where job_id is not null",
    );
    return n === 1;
  });
  await it.runner.stop();
  const utils = await makePolicyUtils({ pgPool: it.pool, policies: [renamed], logger: silent });
  t.teardown(() => utils.release());
  t.like(await utils.removePolicy({ policy: "old", into: "new" }), { changed: 1, removed: true });
  await utils.tick();
  await utils.tick();
  t.like(
    await it.row(
      "select id, policy, partition, job_id is not null as parked from dispatch_policy.staged_jobs",
    ),
    {
      ...{ policy: "new", partition: "eu", parked: true },
    },
  );
  const staged = await it.row("select id, run_at from dispatch_policy.staged_jobs");
  t.is((await utils.tick({ now: new Date(staged.run_at.getTime() + 1000) })).admitted, 1);
  t.like(
    await it.row("select attempts, last_error, run_at < 'infinity' as starts from graphile_worker.jobs"),
    {
      ...{ attempts: 1, last_error: "not yet", starts: true },
    },
  );
});

test("without waiting jobs a policy is just removed, and its task is a plain one again", async (t) => {
  const it = await world(t);
  const utils = await it.utilsOf(old);
  t.deepEqual(await utils.removePolicy({ policy: "old" }), { matched: 0, changed: 0, removed: true });
  await it.pool.query("select dispatch_policy.add_job('work', '{\"account\": \"x\"}')");
  t.is((await it.rows("select from graphile_worker.jobs where task_identifier = 'work'")).length, 1);
  await t.throwsAsync(utils.removePolicy({ policy: "old" }), { instanceOf: UnknownPolicyError });
});

test("what keeps a policy: waiting jobs without a place to go, jobs in flight, a live worker", async (t) => {
  const it = await world(t);
  const utils = await it.utilsOf(old, elsewhere);
  const refusal = (
    options: object,
    message: RegExp,
    instanceOf: new (...args: never[]) => Error = RemovalError,
  ) =>
    t.throwsAsync(utils.removePolicy({ policy: "old", ...options }), {
      instanceOf: instanceOf as never,
      message,
    });
  await utils.addJob("work", { account: "a" } as never);
  await utils.addJob("work", { account: "a" } as never);
  await refusal({}, /2 jobs wait for policy 'old', .* switch the policy off and call unstage/);
  await refusal(
    { into: "elsewhere" },
    /the task 'work', expected a task of policy 'elsewhere'/,
    ArgumentError,
  );
  await refusal({ into: "old" }, /into is 'old', expected another policy/, ArgumentError);
  await refusal({ into: "nowhere" }, /unknown policy/, UnknownPolicyError);
  await utils.tick();
  await refusal({ into: "elsewhere" }, /1 jobs of policy 'old' are in flight/);
  t.like((await utils.status({ policy: "old" })).policies[0], { staged: 1, inFlight: 1 });

  const worker = await startWorker(t, {
    database: it.database,
    policies: [old],
    tasks: { work: () => {} },
  });
  await until("it has said so", async () => {
    const who = await it.rows("select from dispatch_policy.workers where 'old' = any (policies)");
    return who.length === 1;
  });
  await t.throwsAsync(worker.utils.removePolicy({ policy: "old" }), {
    instanceOf: RemovalError,
    message:
      /live worker pools with policy 'old': 1, expected none: pool-\w+ \(process \d+ on .*\); take the policy out/,
  });
  await until("its jobs have ended", async () => {
    const { policies } = await worker.utils.status({ policy: "old" });
    return policies[0]?.staged === 0 && policies[0].inFlight === 0;
  });
  await worker.everythingIsReleased();
  await worker.runner.stop();
  t.like(await worker.utils.removePolicy({ policy: "old" }), { removed: true });
});

test("jobs that somebody adds under the old name afterwards wait, and move by a second call", async (t) => {
  const it = await world(t);
  const utils = await it.utilsOf(renamed);
  await it.utilsOf(old);
  // the last declaration has the task, as after a deployment
  await utils.release();
  const after = await it.utilsOf(renamed);
  t.like(await after.removePolicy({ policy: "old", into: "new" }), { removed: true });
  await addPolicyJob(it.pool, old, { account: "late", region: "eu" } as never);
  t.is((await after.tick()).admitted, 0);
  t.deepEqual(await after.removePolicy({ policy: "old", into: "new" }), {
    ...{ matched: 1, changed: 1, removed: true },
  });
  await after.tick();
  t.is((await after.tick()).admitted, 1);
});

test("the command renames and removes", async (t) => {
  const it = await world(t);
  await (await it.utilsOf(old)).addJob("work", SPECS[0]!.payload as never);
  await it.utilsOf(renamed);
  const run = (...args: string[]) =>
    promisify(execFile)(process.execPath, [MAIN, "remove-policy", ...args], {
      env: { ...process.env, DATABASE_URL: it.url },
    });
  await t.throwsAsync(run(), { message: /missing --policy/ });
  t.is(
    (await run("--policy", "old", "--into", "new", "--yes")).stdout,
    'Moved 1 waiting job to policy "new".\nRemoved policy "old".\n',
  );
  t.is((await run("--policy", "elsewhere").catch(({ stderr }) => stderr)).includes("unknown policy"), true);
});
