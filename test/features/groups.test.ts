// Job groups: when all jobs of a call have ended for good, a callback is added, once.
import test from "ava";
import { z } from "zod";
import { ArgumentError, addPolicyJobs, definePolicy, type JobGroup, PayloadError } from "../../src/index.ts";
import { readEvents } from "../helpers/engine.ts";
import { policyOf, type Scenario, scenario } from "../helpers/scenario.ts";
import { until } from "../helpers/until.ts";

const report = policyOf("report");
const none = { succeeded: 0, failed: 0, removed: 0, dropped: 0, replaced: 0, gone: 0 };

/** What the callbacks have that were added. */
const callbacks = async (it: Scenario) => {
  await readEvents(it.pool);
  const rows = await it.rows(
    "select payload from dispatch_policy.staged_jobs where task_identifier = 'report' order by id",
  );
  return rows.map(({ payload }) => payload);
};

async function world(t: Parameters<typeof scenario>[0]) {
  const it = await scenario(t, { backoff: () => false }, { others: [report] });
  const groups = async () => {
    await readEvents(it.pool);
    return it.rows("select * from dispatch_policy.groups order by id");
  };
  return { it, groups };
}

/** Adds a job in each of these partitions. `via`: with which function, by the policy or by the task. */
async function add(it: Scenario, keys: string[], via: "addPolicyJobs" | "utils" = "addPolicyJobs") {
  const payload = { key: "r", month: "2026-11" };
  if (via === "addPolicyJobs") {
    const jobs = keys.map((key) => ({ policy: it.own, payload: { key } }));
    return addPolicyJobs(it.pool, jobs, { then: { policy: report, payload } });
  }
  const jobs = keys.map((key) => ({ identifier: it.policy, payload: { key } }));
  return it.utils.addJobs(jobs as never, false, { then: { identifier: "report", payload } });
}

for (const via of ["addPolicyJobs", "utils"] as const) {
  test(`a callback comes with the counts when the last job has ended for good (${via})`, async (t) => {
    const { it, groups } = await world(t);
    const hands = await it.hands();
    const jobs = await add(it, ["a", "b", "c"], via);
    await it.tick();
    await hands.end(1, "well", "a");
    await hands.end(1, "badly", "b");
    t.deepEqual(await callbacks(it), []);
    const [group] = await groups();
    t.like(group, {
      ...none,
      total: 3,
      succeeded: 1,
      failed: 1,
      jobs_left: 1,
      callback: "report",
      error: null,
    });
    t.deepEqual(
      jobs.map((job) => job.staged && job.groupId),
      [group.id, group.id, group.id],
    );
    const its = await it.utils.explain({ id: jobs[2]!.id });
    t.deepEqual(its.groups, [{ id: group.id, total: 3, jobsLeft: 1 }]);
    t.regex(its.sentence, /\. It belongs to job group \d+, of which 1 of 3 jobs are left\.$/);
    await hands.end(1, "well", "c");
    const _group = { ...none, id: group.id, total: 3, succeeded: 2, failed: 1 };
    t.deepEqual(await callbacks(it), [{ key: "r", month: "2026-11", _group }]);
    t.deepEqual(await groups(), []);
    t.is((await it.utils.explain({ id: jobs[2]!.id })).groups, undefined);
  });

  test(`without any job the callback comes at once (${via})`, async (t) => {
    const { it, groups } = await world(t);
    t.deepEqual([...(await add(it, [], via))], []);
    t.like((await callbacks(it))[0], { key: "r", _group: { ...none, total: 0 } });
    t.deepEqual(await groups(), []);
  });
}

test("scenario 44: a hundred jobs end in many workers at once, and one callback comes", async (t) => {
  const it = await scenario(t, {}, { others: [report] });
  const seen: JobGroup[] = [];
  const tasks = {
    p: () => {},
    report: (payload: unknown) => void seen.push((payload as { _group: JobGroup })._group),
  };
  await Promise.all([1, 2, 3].map(() => it.worker({ tasks, slots: 5 })));
  const keys = Array.from({ length: 100 }, (_, n) => `k${n % 10}`);
  await add(it, keys);
  await until("the callback ran", async () => seen.length > 0);
  t.like(seen[0], { ...none, total: 100, succeeded: 100 });
  t.deepEqual(await it.rows("select from dispatch_policy.group_jobs"), []);
  t.is(seen.length, 1);
});

test("a schema sees the counts that its callback will get, and refuses what does not fit before anything is added", async (t) => {
  const counted = definePolicy("report", {
    payload: z.strictObject({ key: z.string(), _group: z.object({ succeeded: z.number() }) }),
    partitionBy: "key",
  });
  const strict = definePolicy("report", { payload: z.strictObject({ key: z.string() }), partitionBy: "key" });
  const { it } = await world(t);
  const jobs = [{ policy: it.own, payload: { key: "a" } }];
  await addPolicyJobs(it.pool, jobs, { then: { policy: counted, payload: { key: "r" } } });
  await t.throwsAsync(addPolicyJobs(it.pool, jobs, { then: { policy: strict, payload: { key: "r" } } }), {
    instanceOf: PayloadError,
    message: /_group/,
  });
  await t.throwsAsync(addPolicyJobs(it.pool, jobs, { then: { policy: counted, payload: {} as never } }), {
    instanceOf: PayloadError,
  });
  t.is(await it.staged(), 1);
});

test("wrong callbacks are refused by name, and nothing is added", async (t) => {
  const { it } = await world(t);
  const jobs = [{ policy: it.own, payload: { key: "a" } }];
  const refused = async (then: unknown, message: RegExp) => {
    const error = await t.throwsAsync(addPolicyJobs(it.pool, jobs, { then: then as never }), { message });
    t.true(error instanceof ArgumentError || error instanceof PayloadError);
  };
  await refused(
    "report",
    /addPolicyJobs: then must be an object \{ policy, payload, \.\.\.options \}, got "report"/,
  );
  await refused({ policy: "report" }, /addPolicyJobs: then\.policy must be a policy made by definePolicy/);
  await refused({ policy: report, payload: [] }, /then: payload must be an object, because the counts/);
  await refused({ policy: report, payload: "x" }, /then: payload must be an object, because the counts/);
  await refused({ policy: report, payload: { key: "r" }, priorty: 3 }, /unknown option "priorty"/);
  await refused(
    { policy: report, payload: { key: "r" }, jobKeyMode: "replace" },
    /jobKeyMode is not for addPolicyJobs/,
  );
  await t.throwsAsync(
    it.utils.addJobs([{ identifier: "p", payload: { key: "a" } }] as never, false, { than: 1 } as never),
    {
      instanceOf: ArgumentError,
      message: /unknown option "than" of addJobs \(its last argument\)/,
    },
  );
  const by = (identifier: string, then: object) =>
    it.utils.addJobs([{ identifier, payload: { key: "a" } }] as never, false, { then: then as never });
  await t.throwsAsync(by("p", {}), {
    instanceOf: ArgumentError,
    message: /addJobs: then\.identifier is missing/,
  });
  await t.throwsAsync(by("p", { identifier: "nobody" }), {
    instanceOf: ArgumentError,
    message: /a job group has a job of nobody, expected tasks that have a policy/,
  });
  await t.throwsAsync(by("nobody", { identifier: "report", payload: { key: "r" } }), {
    instanceOf: ArgumentError,
    message: /a job group has a job of nobody, expected tasks that have a policy/,
  });
  t.is(await it.staged(), 0);
  t.deepEqual(await it.rows("select from dispatch_policy.groups"), []);
});

test("a process without the policies adds groups of policies that the database has", async (t) => {
  const { it } = await world(t);
  const other = await it.makeUtils([]);
  await other.addJobs([{ identifier: "p", payload: { key: "a" } }] as never, false, {
    then: { identifier: "report", payload: { key: "r" } },
  });
  await it.tick();
  await it.tick();
  await it.finish(1);
  t.like((await callbacks(it))[0], { key: "r", _group: { ...none, total: 1, gone: 1 } });
});
