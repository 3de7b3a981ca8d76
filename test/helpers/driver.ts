// What adding jobs must do through the client of any library.
import type { ExecutionContext } from "ava";
import {
  addPolicyJob,
  addPolicyJobs,
  concurrency,
  definePolicy,
  type Queryable,
  type StagedJob,
} from "../../src/index.ts";
import type { TestDatabase } from "./database.ts";
import { until } from "./until.ts";
import { startWorker } from "./worker.ts";

/** A library's connection to a database. */
export interface Driver {
  /** Outside of a transaction. */
  readonly client: Queryable;
  /** Commits, or rolls back and fails if the callback does. */
  transaction<T>(act: (client: Queryable) => Promise<T>): Promise<T>;
  close(): Promise<unknown>;
}

type Payload = { key: string; [name: string]: unknown };
export const one = definePolicy("one", { partitionBy: "key", gates: [concurrency({ max: 1 })] });
export const other = definePolicy("other", {
  partitionBy: "key",
  gates: [concurrency({ max: 5, scope: "policy" })],
});
export const bounded = definePolicy("bounded", { partitionBy: "key", maxPending: { policy: 2 } });

/** Each of these would show if a driver read, renamed or encoded it. */
const odd: Payload = {
  key: 'a "quoted" $1 key',
  snake_case: { inner_name: [1, null, "2", { deep_er: [[]] }], "{}": "{1,2}" },
  at: "2026-01-02T03:04:05.678Z",
  json: '{"a": [1]}',
  text: "it's \\ 😀 %s ? :name",
  big: 9_007_199_254_740_991,
  none: null,
};

/** Fails unless a job is staged exactly if the driver's transaction commits, and then runs as it was added. */
export async function addsJobs(
  t: ExecutionContext,
  database: TestDatabase,
  open: (url: string) => Driver | Promise<Driver>,
): Promise<void> {
  const seen: Payload[] = [];
  const work = async (payload: unknown) => void seen.push(payload as Payload);
  const worker = await startWorker(t, {
    database,
    policies: [one, other, bounded],
    tasks: { one: work, other: work, bounded: work },
  });
  const driver = await open(database.url);
  t.teardown(() => driver.close());
  const staged = async () =>
    (await worker.row("select count(*)::int as n from dispatch_policy.staged_jobs")).n as number;

  await rollsBack(t, driver);
  t.is(await staged(), 0, "after a rollback");

  const later = new Date(Date.now() + 3_600_000 + 7);
  const [first, keyedJob, ...bulk] = await driver.transaction((client) => add(client, later));
  isStaged(t, first!, odd);
  isStaged(t, keyedJob!, { key: "keyed" }, later);
  t.like(keyedJob, { key: "job key", priority: -3, max_attempts: 2, flags: { red: true, "b,{}": true } });
  isStaged(t, bulk[0]!, odd);
  isStaged(t, bulk[1]!, { key: "later" }, later);
  isStaged(t, bulk[2]!, { key: "b", list: [1, [2]] });
  await until("all that are due ran", () => seen.length === 3, { seen: () => seen });
  const byKey = (a: Payload, b: Payload) => (a.key < b.key ? -1 : 1);
  t.deepEqual(seen.toSorted(byKey), [odd, odd, { key: "b", list: [1, [2]] }].toSorted(byKey));
  await worker.everythingIsReleased();
  t.is(await staged(), 2, "the two that are due later");
  const explained = await worker.utils.explain({ id: keyedJob!.id });
  t.deepEqual([explained.runAt, explained.queueName], [later, "queue"]);

  await refuses(t, driver);
  t.is(await staged(), 2, "after refusals");
  await passesOn(t, driver, later, () => worker.utils.disable({ policy: "other" }));
}

/** One at a time, with a job key, and several in one call. */
async function add(client: Queryable, later: Date): Promise<StagedJob[]> {
  const first = await addPolicyJob(client, one, odd);
  const spec = { queueName: "queue", priority: -3, maxAttempts: 2, flags: ["red", "b,{}"] };
  const keyedJob = await addPolicyJob(
    client,
    one,
    { key: "keyed" },
    { jobKey: "job key", runAt: later, ...spec },
  );
  const again = await addPolicyJob(
    client,
    one,
    { key: "keyed" },
    { jobKey: "job key", jobKeyMode: "unsafe_dedupe" },
  );
  if (again.id !== keyedJob.id) throw new Error("The key was not found");
  const ofOne = await addPolicyJobs(client, [
    { policy: other, payload: odd },
    { policy: other, payload: { key: "later" }, runAt: later },
  ]);
  const [ofSeveral] = await addPolicyJobs(client, [
    { policy: other, payload: { key: "b", list: [1, [2]] } },
    { policy: one, payload: { key: "keyed" }, runAt: later, jobKey: "job key", ...spec },
  ]);
  return [first, keyedJob, ...ofOne, ofSeveral!];
}

function isStaged(t: ExecutionContext, job: StagedJob, payload: Payload, runAt?: Date): void {
  t.like(job, { staged: true, partition: payload.key, payload });
  t.regex(job.id, /^1\d{15}$/);
  for (const at of ["run_at", "created_at", "updated_at"] as const)
    t.true(job[at] instanceof Date && Number.isFinite(job[at].getTime()), `${at}: ${job[at]}`);
  if (runAt) t.deepEqual(job.run_at, runAt);
  else
    t.true(Math.abs(job.run_at.getTime() - job.created_at.getTime()) < 60_000, "a job that is due at once");
}

async function rollsBack(t: ExecutionContext, driver: Driver): Promise<void> {
  const added: StagedJob[] = [];
  const rolledBack = driver.transaction(async (client) => {
    added.push(...(await add(client, new Date())));
    throw new Error("the application's");
  });
  await t.throwsAsync(rolledBack, { message: "the application's" });
  t.is(added.length, 5);
}

const KEYS = ["a", "b", "c"];

/** The database's refusals reach the caller as this package's errors. */
async function refuses(t: ExecutionContext, driver: Driver): Promise<void> {
  const fill = (client: Queryable) =>
    addPolicyJobs(
      client,
      KEYS.map((key) => ({ policy: bounded, payload: { key } })),
    );
  const put = (text: string) => (client: Queryable) => addPolicyJob(client, other, { key: "b", text });
  const isRefused = { code: "invalid_argument", message: /half of a surrogate pair/ };
  await t.throwsAsync(driver.transaction(fill), { code: "backlog_full", message: /^the backlog/ });
  await t.throwsAsync(driver.transaction(put("\0")), isRefused);
  await t.throwsAsync(driver.transaction(put("\ud83d")), isRefused);
  const wrong = (client: Queryable) => client.query("select 1 / $1::pg_catalog.int4 as r", [0]);
  await t.throwsAsync(driver.transaction(wrong), { code: "22012", message: /division by zero/ });
}

/** A policy that is switched off: its jobs go to Graphile Worker, and are in the form of Graphile Worker's. */
async function passesOn(t: ExecutionContext, driver: Driver, later: Date, disable: () => Promise<unknown>) {
  await disable();
  const job = await addPolicyJob(driver.client, other, odd, { runAt: later });
  t.like(job as object, { staged: false, task_identifier: "other", payload: odd, run_at: later });
  t.true(job.created_at instanceof Date && job.updated_at instanceof Date);
  t.is(job.locked_at, null);
}
