// Jobs that failed for good are brought back while others have them in their hands.
import { createHash } from "node:crypto";
import test from "ava";
import { concurrency, type Engine, engine, throttle } from "../../helpers/engine.ts";
import { addPast, failJob, fetchJob } from "../../helpers/native.ts";

const ROOMY = { gates: [concurrency(9)] };
const RETRY = "select * from dispatch_policy.retry(policy => 'p')";
const markOf = (key: string) => createHash("md5").update(`1:p${key}`).digest("hex").slice(0, 8);

/** Its last attempt fails. */
async function failForGood(it: Engine, job: string): Promise<void> {
  await it.pool.query("select graphile_worker.reschedule_jobs(array[$1::bigint], max_attempts => 1)", [job]);
  await fetchJob(it, job);
  await failJob(it, job, -1);
}

async function released(it: Engine, job: string): Promise<void> {
  await it.release([{ job, ok: false, attempt: 1 } as never]);
}

/** A job of a that ran, failed for good and was released. */
async function failed(it: Engine, options = {}): Promise<string> {
  await it.stage("a", options);
  await it.passes(2);
  const [job] = (await it.inFlight("a")) as [string];
  await failForGood(it, job);
  await released(it, job);
  return job;
}

const retry = async (it: Engine, text = RETRY) => (await it.pool.query(text)).rows[0];

for (const [what, first] of [
  ["another retry", RETRY],
  [
    "reschedule_jobs, which postpones it",
    "select dispatch_policy.reschedule_jobs(array[1::bigint], run_at => now() + interval '1 day', attempts => 0)",
  ],
] as const) {
  test(`one that ${what} has just brought back stays parked`, async (t) => {
    const it = await engine(t, ROOMY);
    await it.waitsLong();
    const job = await failed(it);
    const [one, two] = [await it.session(), await it.session()];
    await one.query("begin");
    await one.query(first);
    const second = two.query(RETRY);
    await it.waitsForLock(two);
    await one.query("commit");
    t.deepEqual((await second).rows, [{ matched: 1, changed: 0 }]);
    const row = "select run_at = 'infinity' as parked from graphile_worker.jobs where id = $1";
    t.deepEqual((await it.pool.query(row, [job])).rows, [{ parked: true }]);
    t.is(await it.staged(), 1);
  });
}

test("of two operators who reschedule a failed job at once, the second leaves it parked", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  const job = await failed(it);
  const again = "select dispatch_policy.reschedule_jobs(array[$1::bigint], run_at => now(), attempts => 0)";
  const [one, two] = [await it.session(), await it.session()];
  await one.query("begin");
  await one.query(again, [job]);
  const second = two.query(again, [job]);
  await it.waitsForLock(two);
  await one.query("commit");
  await second;
  const row = "select run_at = 'infinity' as parked from graphile_worker.jobs where id = $1";
  t.deepEqual((await it.pool.query(row, [job])).rows, [{ parked: true }]);
});

test("one whose end is not reported yet would start for spent tokens: it comes back after that", async (t) => {
  const it = await engine(t, { gates: [throttle(1, { per: 3600 })] });
  await it.stage("a");
  t.is(await it.passes(2), 1);
  const [job] = (await it.inFlight("a")) as [string];
  await failForGood(it, job);
  t.deepEqual(await retry(it), { matched: 0, changed: 0 });
  await released(it, job);
  t.deepEqual(await retry(it), { matched: 1, changed: 1 });
  t.is(await it.passes(2), 0, "there is no token");
});

test("one whose newer one waits in staging stays", async (t) => {
  const it = await engine(t, ROOMY);
  const job = await failed(it, { jobKey: "k" });
  await it.stage("a", { jobKey: "k", runAt: new Date(Date.now() + 3_600_000) });
  t.deepEqual(await retry(it), { matched: 0, changed: 0 });
  t.deepEqual(await retry(it, `select * from dispatch_policy.retry(array[${job}::bigint])`), {
    ...{ matched: 0, changed: 0 },
  });
});

test("one that was added past the policy, without a flag, comes back with its policy", async (t) => {
  const it = await engine(t, ROOMY);
  await failForGood(it, await addPast(it));
  t.deepEqual(await retry(it), { matched: 1, changed: 1 });
});

test("a made-up flag with the id of another job does not bring that one along", async (t) => {
  const it = await engine(t, ROOMY);
  const job = await failed(it);
  await failForGood(it, await addPast(it, { flags: [`dispatch_policy:${job}@1`] }));
  t.like(await retry(it, `select * from dispatch_policy.retry(array[${job}::bigint])`), { matched: 1 });
});

test("a flag with a quotation mark does not pass for one of another partition", async (t) => {
  const it = await engine(t, ROOMY);
  await failed(it, { flags: [`"dispatch_policy:5@1#${markOf("b")}`] });
  await it.stage("b");
  await it.route();
  const { rows } = await it.pool.query("select partition from dispatch_policy.jobs where state = 'failed'");
  t.deepEqual(rows, [{ partition: "a" }]);
  t.like(await retry(it, "select * from dispatch_policy.retry(policy => 'p', partition => 'b')"), {
    matched: 0,
  });
});

test("of two partitions with one mark none is guessed", async (t) => {
  const pair = ["tenant-121240", "tenant-151523"] as const;
  t.is(markOf(pair[0]), markOf(pair[1]));
  const it = await engine(t, ROOMY);
  await it.stage(pair);
  await it.passes(2);
  for (const job of await it.inFlight()) {
    await failForGood(it, job);
    await released(it, job);
  }
  const { rows } = await it.pool.query(
    "select policy, partition from dispatch_policy.jobs where state = 'failed'",
  );
  t.deepEqual(rows, Array(2).fill({ policy: "p", partition: null }));
  await t.throwsAsync(
    it.pool.query("select dispatch_policy.retry(policy => 'p', partition => $1)", [pair[0]]),
    {
      message:
        "dispatch_policy: retry: another partition has the same mark as 'tenant-121240': give the ids of the jobs",
    },
  );
  t.deepEqual(await retry(it), { matched: 2, changed: 2 });
});
