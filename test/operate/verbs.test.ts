// What operators' verbs do beside what other verbs did.
import test from "ava";
import { concurrency } from "../../src/index.ts";
import { type Ctx, scenario } from "../helpers/scenario.ts";

test("a later, shorter hold does not shorten the one in force", async (t) => {
  const it = await scenario(t);
  await it.stage("2@a");
  await it.tickNow();
  const until = new Date(Date.now() + 60_000);
  await it.utils.hold({ policy: "p", partition: "a", until });
  await it.utils.hold({ policy: "p", partition: "a", forMs: 1000 });
  t.deepEqual((await it.partition("a")).held_until, until);
});

test("admit finds due jobs beside partitions whose jobs were removed", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] });
  await it.stage("2@a 2@b 2@c 2@d 2@e");
  await it.tickNow();
  await it.utils.remove({ policy: "p" });
  await it.stage("1@z");
  t.like(await it.utils.admit({ policy: "p", count: 1 }), { matched: 1, changed: 1 });
});

for (const [how, removal] of Object.entries({
  remove_job: "remove_job('k')",
  complete_jobs: "complete_jobs(array[$1::bigint])",
  permanently_fail_jobs: "permanently_fail_jobs(array[$1::bigint])",
})) {
  test(`a job staged from SQL that ${how} removed before its key was worked out holds none up`, async (t) => {
    const it = await scenario(t, {});
    const add = `select (dispatch_policy.add_job('p', '{"key":"a"}', job_key => 'k')).id`;
    const [{ id }] = await it.rows(add);
    await it.rows(`select dispatch_policy.${removal}`, removal.includes("$1") ? [id] : []);
    await it.rows(`select dispatch_policy.add_job('p', '{"key":"c"}')`);
    await it.tickNow();
    await it.tickNow();
    t.is((await it.rows("select from dispatch_policy.in_flight_jobs")).length, 1);
    t.is((await it.rows("select from dispatch_policy._private_keyless_jobs")).length, 0);
  });
}

test("nor does one that was replaced from JavaScript", async (t) => {
  const it = await scenario(t, {});
  await it.rows(`select dispatch_policy.add_job('p', '{"key":"a"}', job_key => 'k')`);
  await it.utils.addJob("p", { key: "b" } as never, { jobKey: "k" });
  t.is((await it.tickNow()).admitted, 1);
  await it.rows(`select dispatch_policy.add_job('p', '{"key":"c"}')`);
  await it.tickNow();
  await it.tickNow();
  t.is((await it.rows("select from dispatch_policy.in_flight_jobs")).length, 2);
});

test("one that could not be worked out and was replaced is tried anew at once", async (t) => {
  const it = await scenario(t, {});
  await it.rows(`select dispatch_policy.add_job('p', '{}', job_key => 'k')`);
  await it.tickNow();
  t.is((await it.rows("select from dispatch_policy._private_keyless_jobs where retry_at > now()")).length, 1);
  await it.rows(`select dispatch_policy.add_job('p', '{"key":"a"}', job_key => 'k')`);
  t.is((await it.tickNow()).admitted, 1);
});

test("a cap past PostgreSQL's integers is refused, and nothing is staged", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: () => Number.MAX_SAFE_INTEGER })] });
  await t.throwsAsync(it.stage("1@a"), {
    message: /max .* a whole number, 0 to 2147483647, got 9007199254740991/,
  });
  t.is((await it.rows("select from dispatch_policy._private_staged_jobs")).length, 0);
});

test("the greatest batch and budget there may be", async (t) => {
  const it = await scenario(t, {
    gates: [concurrency<Ctx>({ max: 2 ** 31 - 1 })],
    admissionBatchSize: 2 ** 30,
    tickAdmissionBudget: 2 ** 30,
  });
  await it.stage("3@a");
  t.is((await it.tickNow()).admitted, 3);
  await it.stage("3@a");
  t.is((await it.rows("select changed from dispatch_policy.admit('p', 2147483647)"))[0].changed, 3);
});
