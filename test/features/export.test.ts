// Staged jobs with their payloads, and the way back: `utils.export`.
import { readFile } from "node:fs/promises";
import test, { type ExecutionContext } from "ava";
import {
  ArgumentError,
  addPolicyJobs,
  concurrency,
  definePolicy,
  type ExportedJob,
  fixed,
  makePolicyUtils,
  UnknownPolicyError,
} from "../../src/index.ts";
import { runCommand } from "../helpers/command.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const p = definePolicy("p", {
  partitionBy: "key",
  gates: [concurrency({ max: 1 })],
  backoff: fixed("1 hour"),
  expiresAfter: "3 hours",
});
const other = definePolicy("other", { partitionBy: "key" });
const policy = "p";
const PAGE = new URL("../../docs/operating.md", import.meta.url);
const soon = new Date(Date.now() + 3_600_000);
const later = new Date(Date.now() + 7_200_000);

async function world(t: ExecutionContext) {
  const database = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: database.pool, policies: [p, other], logger: silent });
  t.teardown(() => utils.release());
  const rows = async (text: string) => (await database.pool.query(text)).rows;
  return { ...database, utils, rows };
}

async function all(jobs: AsyncIterable<ExportedJob>): Promise<ExportedJob[]> {
  const found = [];
  for await (const job of jobs) found.push(job);
  return found;
}

const STAGED = `select partition, task_identifier, payload::text, queue_name, run_at, priority, max_attempts, job_key, flags,
    date_trunc('milliseconds', expires_at) as expires_at
  from dispatch_policy.staged_jobs order by task_identifier desc, id`;

test("what was exported and removed is the same again once it is added again", async (t) => {
  const it = await world(t);
  await it.utils.addJobs([
    { identifier: "p", payload: { key: "a", n: 1 } },
    {
      ...{ identifier: "p", payload: { key: "a", n: 2 }, jobKey: "k", queueName: "q", priority: -3 },
      ...{ maxAttempts: 7, flags: ["f"], runAt: soon, expiresAt: later },
    },
    { identifier: "p", payload: { key: "b" } },
    { identifier: "other", payload: { key: "a" } },
  ]);
  const before = await it.rows(STAGED);
  const kept = await all(it.utils.export({ policy, reason: "way out", by: "ana" }));
  t.deepEqual(
    kept.map(({ partition, spec }) => [partition, spec.payload]),
    [
      ["a", { key: "a", n: 1 }],
      ["a", { key: "a", n: 2 }],
      ["b", { key: "b" }],
    ],
  );
  t.like(kept[1], {
    ...{ policy, attempts: 0, lastError: null },
    spec: {
      identifier: "p",
      jobKey: "k",
      queueName: "q",
      priority: -3,
      maxAttempts: 7,
      flags: ["f"],
      runAt: soon,
      expiresAt: later,
    },
  });
  t.like(await it.rows("select verb, policy, reason, by, matched, changed from dispatch_policy.audit"), [
    { verb: "export", policy, reason: "way out", by: "ana", matched: 3, changed: 0 },
  ]);
  const [first] = kept;
  t.deepEqual(await all(it.utils.export({ ids: [first!.id] })), [first!]);
  t.is((await all(it.utils.export({ policy, partition: "a" }))).length, 2);
  t.deepEqual(await it.rows(STAGED), before, "nothing has changed");

  t.is((await it.utils.remove({ policy })).changed, 3);
  await it.utils.addJobs(kept.map(({ spec }) => spec) as never);
  t.deepEqual(await it.rows(STAGED), before);

  t.is((await it.utils.remove({ policy })).changed, 3);
  await addPolicyJobs(
    it.pool,
    kept.map(({ spec: { identifier, payload, ...spec } }) => ({ policy: p, payload, ...spec })) as never,
  );
  t.deepEqual(await it.rows(STAGED), before);
});

test("a failed job that waits for its retry has its payload, its key and the attempts that it has left", async (t) => {
  const it = await startWorker(t, {
    policies: [p],
    tasks: {
      p: async () => {
        throw new Error("answer 502");
      },
    },
  });
  const options = { jobKey: "k", queueName: "q", maxAttempts: 5, flags: ["f"], priority: 2 };
  await it.utils.addJob("p", { key: "a", n: 1 }, options);
  const jobs = workerTable(it.pool);
  await until("it is parked", async () => {
    const { n } = await it.row(
      "select count(*)::int as n from dispatch_policy.staged_jobs where job_id is not null",
    );
    return n === 1;
  });
  await it.everythingIsReleased();
  const [before, { run_at: runAt }] = [
    await jobs.one(),
    await it.row("select run_at from dispatch_policy.staged_jobs"),
  ];
  const [job] = await all(it.utils.export({ policy }));
  t.like(job, {
    ...{ partition: "a", attempts: 1, lastError: "answer 502" },
    spec: { identifier: "p", payload: { key: "a", n: 1 }, ...options, maxAttempts: 4, runAt },
  });
  t.deepEqual(await jobs.one(), before, "Graphile Worker's row is as it was");

  await jobs.remove();
  t.deepEqual(await all(it.utils.export({ policy })), [], "one that is gone is left out");
});

test("a page waits for who has a failed job locked, and then reads it", async (t) => {
  const it = await startWorker(t, {
    policies: [p],
    tasks: {
      p: async () => {
        throw new Error("no");
      },
    },
  });
  await it.utils.addJob("p", { key: "a" });
  await until("it is parked", async () => {
    const { n } = await it.row(
      "select count(*)::int as n from dispatch_policy.staged_jobs where job_id is not null",
    );
    return n === 1;
  });
  const client = await it.pool.connect();
  await client.query("begin");
  await workerTable(client).lock();
  const reading = all(it.utils.export({ policy }));
  await until("the page waits", async () => {
    const { n } = await it.row(
      `select count(*)::int as n from pg_stat_activity
       where datname = current_database() and query ~ 'export' and wait_event_type = 'Lock'`,
    );
    return n === 1;
  });
  await client.query("commit");
  client.release();
  t.is((await reading).length, 1);
});

test("a job whose key is not worked out, and jobs that no router has seen, are among them", async (t) => {
  const it = await world(t);
  const late = definePolicy("late", {
    context: (payload) => payload as { key: string },
    partitionBy: ({ key }) => key,
    gates: [concurrency({ max: 1 })],
  });
  const utils = await makePolicyUtils({ pgPool: it.pool, policies: [late], logger: silent });
  t.teardown(() => utils.release());
  await it.pool.query(`select dispatch_policy.add_job('late', '{"key": "a"}')`);
  await it.pool.query(`select dispatch_policy.add_job('late', '{"key": "a"}', partition_key => 'named')`);
  await utils.addJob("late", { key: "b" });
  t.deepEqual(
    (await all(utils.export({ policy: "late" }))).map(({ policy: of, partition }) => [of, partition]),
    [
      ["late", null],
      ["late", "named"],
      ["late", "b"],
    ],
  );
  t.is((await all(utils.export({ policy: "late", partition: "named" }))).length, 1);
});

test("pages are bounded by jobs and by bytes, and none is missing or twice", async (t) => {
  const it = await world(t);
  const big = "x".repeat(3_000_000);
  await it.utils.addJobs(
    Array.from({ length: 1100 }, (_, n) => ({ identifier: "p", payload: { key: "a", n } })),
  );
  await it.utils.addJobs(
    Array.from({ length: 7 }, (_, n) => ({ identifier: "p", payload: { key: "a", n: 1100 + n, big } })),
  );
  const jobs = await all(it.utils.export({ policy, partition: "a" }));
  t.deepEqual(
    jobs.map(({ spec }) => (spec.payload as { n: number }).n),
    Array.from({ length: 1107 }, (_, n) => n),
  );
  const pages = await it.rows("select matched from dispatch_policy.audit order by id");
  t.deepEqual(
    pages.map(({ matched }) => matched),
    [500, 500, 103, 3, 1],
  );
});

const withoutSpaces = ({ payload, partition, job_key, expires_at }: Record<string, string>) => [
  payload!.replaceAll(" ", ""),
  partition,
  job_key,
  expires_at,
];

test("the command writes lines with all digits, which SQL and JavaScript read", async (t) => {
  const it = await world(t);
  await it.pool.query(
    `select dispatch_policy.add_job('p', '{"key": "a", "n": 12345678901234567890, "m": 1.0}', job_key => 'k', flags => '{f}',
      expires_at => now() + interval '1 hour')`,
  );
  await it.utils.addJob("p", { key: "a" });
  const { stdout, stderr, code } = await runCommand(it.url, "export", "--policy", policy, "--by", "ana");
  t.deepEqual([stderr, code], ["Wrote 2 staged jobs.\n", 0]);
  t.regex(stdout, /"payload":\{"key":"a","n":12345678901234567890,"m":1\.0\}/);
  const before = await it.rows(STAGED);
  await it.utils.remove({ policy });
  const [create = "", addAgain = ""] = (await readFile(PAGE, "utf8"))
    .match(/create table kept .*?\n```/s)![0]
    .split(";\n");
  await it.pool.query(create);
  await it.pool.query("insert into kept select unnest($1::json[])", [stdout.trim().split("\n")]);
  await it.pool.query(addAgain);
  t.deepEqual((await it.rows(STAGED)).map(withoutSpaces), before.map(withoutSpaces));
  const dry = await runCommand(it.url, "export", "--policy", policy, "--partition", "a", "--dry-run");
  t.deepEqual([dry.stdout, dry.stderr, dry.code], ["2 staged jobs would be written.\n", "", 0]);
  const none = await runCommand(it.url, "export", "999");
  t.deepEqual([none.stdout, none.stderr, none.code], ["", "No staged job matches.\n", 3]);
  t.is((await runCommand(it.url, "export")).code, 2);
});

test("what is refused", async (t) => {
  const it = await world(t);
  t.throws(() => it.utils.export({} as never), {
    instanceOf: ArgumentError,
    message: /^export: expected { ids } or { policy, partition\? }, got neither$/,
  });
  t.throws(() => it.utils.export({ ids: ["x"] }), {
    instanceOf: ArgumentError,
    message: /^export: ids must be/,
  });
  await t.throwsAsync(all(it.utils.export({ policy: "nobody" })), { instanceOf: UnknownPolicyError });
  for (const [call, message] of [
    ["export()", /expected ids or a policy, got neither/],
    ["export(ids => '{1}', partition => 'a')", /partition is 'a', expected a policy with it/],
    ["export('p', count => 0)", /count is 0, expected 1 or more/],
  ] as const)
    await t.throwsAsync(it.pool.query(`select dispatch_policy.${call}`), { code: "DPARG", message });
});
