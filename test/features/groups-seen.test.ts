// Open job groups as operators see them: what utils, the command, the pages and the metrics say is what SQL says.
import test, { type ExecutionContext } from "ava";
import { ArgumentError, addPolicyJobs, type GroupJob } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { rowsOf, runCommand } from "../helpers/command.ts";
import { policyOf, scenario } from "../helpers/scenario.ts";
import { table } from "../helpers/table.ts";

const report = policyOf("report");
const HERE = "http://localhost";

async function world(t: ExecutionContext) {
  const it = await scenario(t, { backoff: () => false }, { others: [report] });
  const ui = createUi({ pool: it.pool, authorize: () => ({ name: "eve", role: "viewer" }) });
  const page = async (path: string) => {
    const answer = await ui(new Request(HERE + path));
    const text = await answer.text();
    return { status: answer.status, text: text.replace(/<[^>]*>/g, " ").replace(/\s+/g, " "), html: text };
  };
  const cli = (...args: string[]) => runCommand(it.url, ...args);
  const group = async (keys: readonly string[], options: object = {}) => {
    const jobs = keys.map((key) => ({ policy: it.own, payload: { key }, ...options }));
    const added = await addPolicyJobs(it.pool, jobs, { then: { policy: report, payload: { key: "r" } } });
    return { id: (added[0] as { groupId: string }).groupId, jobs: added.map(({ id }) => id) };
  };
  const figures = async () => {
    const { rows } = await it.pool.query(
      "select name, value from dispatch_policy.metrics() where name ~ 'group'",
    );
    return Object.fromEntries(rows.map(({ name, value }) => [name, value])) as Record<string, number>;
  };
  return { it, ui, page, cli, group, figures };
}

test("a group and the jobs that are left, where each stands, as SQL has them", async (t) => {
  const { it, page, cli, group } = await world(t);
  const hands = await it.hands();
  const open = await group(["a", "b", "c", "d"]);
  await it.tick();
  await hands.run(4);
  await hands.end(1, "well", "a");
  await hands.end(1, "badly", "b");
  await it.utils.remove({
    ids: [(await group(["a"], { runAt: new Date(Date.now() + 3_600_000) })).jobs[0]!],
  });
  const later = await group(["late"], { runAt: new Date(Date.now() + 3_600_000) });

  const [listed, second, ...others] = await it.utils.groups();
  t.deepEqual(others, []);
  t.like(listed, {
    ...{ id: open.id, callback: "report", policy: "report", total: 4, jobsLeft: 2, succeeded: 1, failed: 1 },
    ...{ oldestJobId: open.jobs[2], error: null },
  });
  t.false("jobs" in listed!);
  t.like(second, { id: later.id, jobsLeft: 1, oldestJobId: later.jobs[0] });

  const [one] = await it.utils.groups({ group: open.id });
  const stand = (jobs: readonly GroupJob[]) => jobs.map(({ id, state, partition }) => [id, state, partition]);
  t.deepEqual(stand(one!.jobs!), [
    [open.jobs[2], "running", "c"],
    [open.jobs[3], "running", "d"],
  ]);
  const [waits] = (await it.utils.groups({ group: later.id }))[0]!.jobs!;
  t.like(waits, { state: "staged", policy: "p", partition: "late", jobId: null, attempts: 0 });
  const inSql = await it.rows(
    `select g.id, g.total, g.jobs_left, g.oldest_job_id, j.id as job, j.job_id, j.state
     from dispatch_policy.groups g join dispatch_policy.group_jobs j on j.group_id = g.id order by j.id`,
  );
  t.deepEqual(
    inSql.map(({ id, job, state }) => [id, job, state]),
    [...one!.jobs!.map(({ id, state }) => [open.id, id, state]), [later.id, waits!.id, "staged"]],
  );
  t.deepEqual(await it.rows("select id from graphile_worker.jobs where locked_at is not null order by id"), [
    ...one!.jobs!.map(({ jobId }) => ({ id: jobId })),
  ]);

  const list = await page("/groups");
  t.regex(list.text, new RegExp(`${open.id} report, of policy report 4 2 1 1 .* ${open.jobs[2]}`));
  const shown = await page(`/group?group=${open.id}`);
  t.is(shown.status, 200);
  t.regex(shown.text, /2 of 4 jobs have ended\. The callback report is added when all have\./);
  t.regex(shown.text, new RegExp(`${open.jobs[2]} ✓ running p p c .*${open.jobs[3]} ✓ running p p d`));
  t.regex((await page(`/job?id=${open.jobs[2]}`)).html, new RegExp(`href="/group\\?group=${open.id}"`));
  t.is((await page("/group?group=77")).status, 404);
  t.is((await page("/group?group=x")).status, 404);

  const table = await cli("groups");
  t.regex(table.stdout, new RegExp(`^ *${open.id} +report +4 +2 +1 +1 .* ${open.jobs[2]}$`, "m"));
  const asked = await cli("groups", open.id);
  t.regex(asked.stdout, new RegExp(`^${open.jobs[3]} +running +p +d `, "m"));
  for (const { stdout } of [table, asked])
    t.deepEqual(
      stdout.split("\n").filter((line) => line.length > 80),
      [],
    );
  const [json] = rowsOf((await cli("groups", open.id, "--json")).stdout);
  t.like(json, { id: open.id, jobsLeft: 2, jobs: [{ id: open.jobs[2], state: "running" }] });
  t.like(await cli("groups", "77"), { code: 3, stderr: "Job group 77 is not open.\n" });
  t.is((await cli("groups", "x")).code, 2);

  await hands.end(2, "well");
  t.deepEqual(await it.utils.groups({ group: open.id }), []);
  t.is((await page(`/group?group=${open.id}`)).status, 404, "its callback was added");
});

test("lists go on behind the last id: of groups, and of the jobs of one", async (t) => {
  const { it, page, cli, group } = await world(t);
  const keys = Array.from({ length: 60 }, (_, n) => `k${n}`);
  const big = await group(keys);
  for (let n = 0; n < 55; n++) await group(["a"]);
  const [first] = await it.utils.groups({ group: big.id, limit: 40 });
  const [rest] = await it.utils.groups({ group: big.id, limit: 40, after: first!.jobs!.at(-1)!.id });
  t.deepEqual(
    [...first!.jobs!, ...rest!.jobs!].map(({ id }) => id),
    big.jobs,
  );
  const page1 = await it.utils.groups({ limit: 50 });
  const page2 = await it.utils.groups({ limit: 50, after: page1.at(-1)!.id });
  const all = (await it.rows("select id from dispatch_policy.groups order by id")).map(({ id }) => id);
  t.deepEqual(
    [...page1, ...page2].map(({ id }) => id),
    all,
  );
  t.regex((await page("/groups")).html, new RegExp(`href="/groups\\?after=${all[49]}" rel="next"`));
  t.regex((await page(`/groups?after=${all[49]}`)).text, new RegExp(` ${all.at(-1)} report`));
  t.regex(
    (await page(`/group?group=${big.id}`)).html,
    new RegExp(`&(amp;)?after=${big.jobs[49]}" rel="next"`),
  );
  t.regex((await cli("groups", "--limit", "50")).stderr, new RegExp(`add --after ${all[49]}`));

  await t.throwsAsync(it.utils.groups({ group: "x" }), {
    instanceOf: ArgumentError,
    message: /groups: group must be an id, such as "7", got "x"/,
  });
  await t.throwsAsync(it.utils.groups({ after: "x" }), {
    instanceOf: ArgumentError,
    message: /groups: after/,
  });
  await t.throwsAsync(it.utils.groups({ limit: 0 }), { instanceOf: ArgumentError, message: /groups: limit/ });
});

test("states of jobs in other hands, and a callback that cannot be added", async (t) => {
  const { it, page, group } = await world(t);
  const { id, jobs } = await group(["a", "b", "c"]);
  await it.tick();
  const states = async () => (await it.utils.groups({ group: id }))[0]!.jobs!.map(({ state }) => state);
  t.deepEqual(await states(), ["ready", "ready", "ready"]);
  const [{ job_id: first }] = await it.rows(
    "select job_id from dispatch_policy.in_flight_jobs where staged_id = $1",
    [jobs[0]],
  );
  await it.rows("select graphile_worker.permanently_fail_jobs(array[$1::bigint], 'why')", [first]);
  t.deepEqual(await states(), ["failed", "ready", "ready"]);
  await it.rows("select graphile_worker.complete_jobs(array[$1::bigint])", [first]);
  t.deepEqual(await states(), [null, "ready", "ready"]);
  t.regex((await page(`/group?group=${id}`)).text, /ended unseen/);
  await table(it.pool, "groups").set({ error: "the backlog is full" }, { id });
  t.regex((await page(`/group?group=${id}`)).text, /could not be added\. .*the backlog is full/);
  t.regex((await page("/groups")).text, /the backlog is full/);
});

test("metrics count open groups, and say since when the oldest is open", async (t) => {
  const { it, group, figures } = await world(t);
  t.deepEqual(await figures(), { open_groups: 0, oldest_group_age_seconds: 0 });
  await group(["a"]);
  await table(it.pool, "groups").set({ created_at: (its) => `${its} - interval '1 hour'` });
  await group(["b"]);
  const found = await figures();
  t.is(found.open_groups, 2);
  const [{ age }] = await it.rows(
    "select extract(epoch from clock_timestamp() - min(created_at))::float8 as age from dispatch_policy.groups",
  );
  t.true(found.oldest_group_age_seconds! >= 3600 && found.oldest_group_age_seconds! <= age);
  t.regex(await it.utils.metrics(), /^dispatch_policy_open_groups 2$/m);
});
