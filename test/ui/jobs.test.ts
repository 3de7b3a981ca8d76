// What is done to many jobs at once: what the filter shows, what the count says and what changes are the same jobs.
import test, { type ExecutionContext } from "ava";
import { addPolicyJob, definePolicy } from "../../src/index.ts";
import { createUi, type Staff } from "../../src/ui/ui.ts";
import { table, workerTable } from "../helpers/table.ts";
import { startWorker } from "../helpers/worker.ts";
import { cellsOf, world as database, HERE, sent } from "./world.ts";

const work = definePolicy("work", { partitionBy: "k", backoff: () => "1 hour" });

const fails = (k: string, error: string, maxAttempts: number) => ({
  identifier: "work",
  payload: { k, error },
  maxAttempts,
});

/** Two jobs that failed for good as the partner was away, one for its own fault, two that wait for their retry, and others. */
async function world(t: ExecutionContext, others: readonly string[] = []) {
  const tasks = {
    work: async (payload: unknown) => {
      throw new Error((payload as { error: string }).error);
    },
  };
  const worker = await startWorker(t, { policies: [work], tasks });
  const jobs = [
    ...others.map((error) => fails("a", error, 1)),
    ...[
      fails("a", "502 of the partner", 1),
      fails("b", "502 of the partner", 1),
      fails("a", "no such order", 1),
    ],
    ...[fails("a", "502 of the partner", 9), fails("b", "no such order", 9)],
  ];
  await worker.utils.addJobs(jobs);
  await worker.sees("job:error", jobs.length);
  await worker.everythingIsReleased();
  await worker.stop();
  let role: Staff["role"] = "operator";
  const ui = createUi({ pool: worker.pool, authorize: () => ({ name: "ana", role }) });
  const text = async (path: string) => (await ui(new Request(HERE + path))).text();
  return {
    text,
    pool: worker.pool,
    /** The page behind a button, for the jobs whose boxes stand in a page. */
    ticked: async (page: string, says: string) => {
      const [, to] = new RegExp(`<button formaction="([^"]*)"[^>]*>${says}<`).exec(page) ?? [];
      const ids = [...page.matchAll(/<input type="checkbox" name="ids" value="(\d+)" form="ticked"/g)];
      const query = new URLSearchParams([
        ["ids", ""],
        ...ids.map(([, id]): [string, string] => ["ids", id!]),
      ]);
      const path = to ? `${to}?${query}` : `no button says ${says}`;
      return { path, text: to ? await text(path) : "" };
    },
    become(other: Staff["role"]) {
      role = other;
    },
    /** The page behind the link of this text. */
    follow: async (page: string, says: string) => {
      const path = new RegExp(`href="([^"]*)">${says}<`).exec(page)?.[1]?.replaceAll("&amp;", "&");
      return { path: path ?? `no link says ${says}`, text: path ? await text(path) : "" };
    },
    /** Sends the form that a page shows. */
    async sendShown(page: string) {
      const [, action = ""] = /<form class="act" method="post" action="([^"]*)"/.exec(page) ?? [];
      const body = new URLSearchParams({ reason: "the partner is back" });
      for (const [, name = "", value = ""] of page.matchAll(
        /<input type="hidden" name="([^"]*)" value="([^"]*)"/g,
      ))
        body.set(name, value);
      return (await sent(ui, HERE + action, body)).text();
    },
    /** Sends the form of an address that was followed. */
    async send(path: string) {
      const { pathname, searchParams } = new URL(HERE + path);
      searchParams.set("reason", "the partner is back");
      return (await sent(ui, HERE + pathname, searchParams)).text();
    },
  };
}

test("failed jobs of a filter are counted first, and brought back: others stay", async (t) => {
  const it = await world(t);
  t.is((await it.text("/jobs?policy=work")).match(/<td[^>]*>never</g)?.length, 3, "they are not due");
  const page = await it.text("/jobs?state=failed&policy=work&error=502");
  const these = await it.ticked(page, "Retry ticked");
  t.regex(these.text, /<strong>2<\/strong> jobs match/, these.path);
  const all = await it.follow(page, "Retry all that match");
  t.regex(all.text, /<strong>2 jobs<\/strong> match now/, all.path);
  t.regex(all.text, /name="error" value="502"/);
  t.regex(await it.sendShown(all.text), /<h1>Jobs<.*Brought back 2 of 2 failed jobs\. By ana/s);
  t.is((await it.text("/jobs?state=failed&policy=work")).match(/type="checkbox"/g)?.length, 1);
  t.regex(await it.text("/jobs?state=failed&policy=work&error=502"), /No job matches/);
});

test("those of one partition are not all of the policy", async (t) => {
  const it = await world(t);
  const all = await it.follow(
    await it.text("/jobs?state=failed&policy=work&partition=b"),
    "Retry all that match",
  );
  t.regex(all.text, /<strong>1 job<\/strong> matches/, all.path);
});

test("a viewer is offered nothing, and nobody is offered all of the jobs", async (t) => {
  const it = await world(t);
  t.notRegex(await it.text("/jobs"), /\/bulk\//);
  t.regex(await it.text("/jobs?policy=work"), /\/bulk\/remove/);
  it.become("viewer");
  t.notRegex(await it.text("/jobs?state=failed&policy=work"), /\/act\/|\/bulk\/|type="checkbox"/);
});

test("a form of jobs says so if none is ticked", async (t) => {
  const it = await world(t);
  t.regex(await it.text("/act/retry?ids="), /<h1>That does not work<.*ids is empty, .* tick the jobs/s);
});

/** Above the list of failed jobs: each error, how many there are, and what its links lead to. */
const errorsOf = (page: string) =>
  cellsOf(page, "By error").map(([error, jobs]) => `${jobs} ${error?.replace(/&#39;/g, "'")}`);

test("failed jobs are grouped by error, whatever its numbers and ids are, and a group is brought back", async (t) => {
  const it = await world(t, [
    "timeout of 8d1e4a0c-11aa-4b0e-9c3e-0f5d3b2aabcd after 31 ms",
    "timeout of 11111111-aaaa-bbbb-cccc-dddddddddddd after 1,032.5 ms",
    "timeout of ord9xY after 7 ms",
    "timeout of ord9xY",
  ]);
  const page = await it.text("/jobs?state=failed&policy=work");
  const errors = errorsOf(page);
  t.deepEqual(errors.slice(0, 2), ["3 timeout of # after # ms", "2 # of the partner"]);
  t.deepEqual(
    errors.slice(2).toSorted(),
    ["1 no such order", "1 timeout of ord9xY"],
    "one has its own numbers",
  );
  const [, to = ""] = /href="([^"]*)">timeout of # after # ms</.exec(page) ?? [];
  const alike = await it.text(to.replaceAll("&amp;", "&"));
  t.is(alike.match(/type="checkbox"/g)?.length, 3);
  t.regex(alike, /name="alike" value="timeout of # after # ms"/);
  t.notRegex(alike, /By error/);
  const all = await it.follow(page, "Retry these…");
  t.regex(all.text, /<strong>3 jobs<\/strong> match now/, all.path);
  t.regex(await it.sendShown(all.text), /<h1>Jobs<.*Brought back 3 of 3 failed jobs\. By ana/s);
  t.deepEqual(errorsOf(await it.text("/jobs?state=failed&policy=work")).slice(0, 1), ["2 # of the partner"]);
});

test("what failed last is the first, page by page, and the counts are those of the lists", async (t) => {
  const { text, utils, pool } = await database(t);
  const jobs = await utils.addJobs(
    Array.from({ length: 120 }, () => ({ identifier: "no_policy", payload: {} })),
  );
  const ids = jobs.map(({ id }) => id);
  await utils.permanentlyFailJobs(ids, "boom");
  // the older a job, the later it failed; every tenth at the same time as another
  const updated_at = () => "now() - (id / 10 * 10) * interval '1 second'";
  await workerTable(pool).set({ updated_at }, { last_error: "boom" });
  const seen: string[] = [];
  const first = await text("/jobs?state=failed");
  t.is(countsOf(first).at(-1), "failed 120");
  t.deepEqual(errorsOf(first), ["120 boom"]);
  for (let page = first; ; ) {
    seen.push(...[...page.matchAll(/\/job\?id=(\d+)"/g)].map(([, id]) => id!));
    const next = /href="([^"]*)" rel="next"/.exec(page)?.[1]?.replaceAll("&amp;", "&");
    if (next === undefined) break;
    page = await text(next);
    t.notRegex(page, /By error/);
  }
  const { rows } = await pool.query(
    "select id::text from dispatch_policy.jobs where state = 'failed' order by failed_at desc, jobs.id desc",
  );
  t.is(rows.length, 120);
  t.deepEqual(
    seen,
    rows.map(({ id }) => id),
  );
});

test("jobs are found by queue, key and time, wherever they are", async (t) => {
  const { text, utils, pool } = await database(t);
  const mine = { queueName: "slow", jobKey: "the one" };
  const { id: staged } = await utils.addJob("make_report", { tenant: "a" }, mine);
  const { id: plain } = await utils.addJob("no_policy", {}, { queueName: "slow" });
  const ids = async (query: string) =>
    [...(await text(`/jobs?${query}`)).matchAll(/\/job\?id=(\d+)"/g)].map(([, id]) => id);
  t.deepEqual(await ids("queue=slow"), [plain, staged]);
  t.deepEqual(await ids("key=the+one"), [staged]);
  t.deepEqual(await ids("queue=slow&state=ready"), [plain]);
  t.deepEqual(await ids("queue=slow&added=1+hour&state=staged"), [staged]);
  await table(pool, "staged_jobs").set({ created_at: () => "now() - interval '2 hours'" });
  t.deepEqual(await ids("queue=slow&added=1+hour"), [plain]);
  for (const added of ["1+day", "constructor", ""])
    t.deepEqual(await ids(`queue=slow&added=${added}`), [plain, staged], added);
  const { rows } = await pool.query("select id::text from dispatch_policy.jobs j order by j.id limit 50");
  t.deepEqual(
    await ids(""),
    rows.map(({ id }) => id),
  );
});

test("jobs that wait for their retry are removed, from the list and from their own page", async (t) => {
  const it = await world(t);
  const page = await it.text("/jobs?state=parked");
  const these = await it.ticked(page, "Remove ticked");
  t.regex(these.text, /<strong>2<\/strong> jobs match/, these.path);
  const [, job] = /\/job\?id=(\d+)/.exec(page) ?? [];
  const one = await it.follow(await it.text(`/job?id=${job}`), "Remove");
  t.regex(one.text, /<strong>1<\/strong> job matches/, one.path);
  t.regex(await it.send(one.path), /<h1>Jobs<.*Removed 1 of 1 staged job\. By ana/s);
  t.is((await it.text("/jobs?state=parked")).match(/type="checkbox"/g)?.length, 1);
});

/** What stands beside the states. */
const countsOf = (page: string) =>
  [...page.matchAll(/>(\w+) <small>([^<]*)<\/small><\/a>/g)].map(([, state, count]) => `${state} ${count}`);

test("staged and parked jobs are counted beside their states; what would read all jobs is not", async (t) => {
  const it = await world(t);
  t.deepEqual(countsOf(await it.text("/jobs")), ["staged 0", "parked 2"]);
  t.deepEqual(countsOf(await it.text("/jobs?policy=work&partition=b")), ["staged 0", "parked 1"]);
  const { text, utils, pool } = await database(t);
  const staged = async (where = "true") =>
    (await pool.query(`select from dispatch_policy.staged_jobs where ${where}`)).rowCount;
  const [all, ofOne] = [await staged(), await staged("policy = 'fetch_endpoint'")];
  t.true(ofOne! > 0 && all! > ofOne!);
  t.deepEqual(countsOf(await text("/jobs?state=failed")), [`staged ${all}`, "parked 0", "failed 0"]);
  t.deepEqual(countsOf(await text("/jobs?policy=fetch_endpoint")), [`staged ${ofOne}`, "parked 0"]);
  t.deepEqual(countsOf(await text("/jobs?policy=fetch_endpoint&partition=ep1")), ["staged 3", "parked 0"]);
  for (const filter of ["partition=ep1", "task=send_mail", "policy=send_mail&queue=slow", "error=x"])
    t.deepEqual(countsOf(await text(`/jobs?${filter}`)), [], filter);
  t.deepEqual(countsOf(await text("/jobs?policy=gone")), ["parked 0"], "nobody knows of it");
  await addPolicyJob(pool, definePolicy("undeclared", { partitionBy: "k" }), { k: "a" });
  t.deepEqual(countsOf(await text("/jobs?policy=undeclared")), ["staged 1", "parked 0"]);
  await utils.addJobs(
    Array.from({ length: 1200 }, () => ({ identifier: "make_report", payload: { tenant: "a" } })),
  );
  t.regex(countsOf(await text("/jobs"))[0] ?? "", /^staged 1,2\d\d$/);
  const parked_job_id = () => "id - 900000000000000";
  await table(pool, "staged_jobs").set({ parked_job_id }, { task_identifier: "make_report" });
  const [most, parked] = countsOf(await text("/jobs"));
  t.regex(most ?? "", /^staged up to \d{3}$/);
  t.is(parked, "parked 1,000+");
  t.regex(countsOf(await text("/jobs?policy=make_report")).join(), /^staged up to [\d,]+$/);
});

test("filters complete the names of policies and tasks, also of a worker's task without a policy, and no keys", async (t) => {
  const it = await world(t);
  const { text, pool } = await database(t);
  await pool.query(
    "select dispatch_policy_internal._worker_alive($1, 10, $2, 'web-1', 4711, '1 hour', '0')",
    [...["pool-a1", ["send_mail", "nightly_clean_up"]]],
  );
  const listed = (page: string, name: string) => {
    t.regex(page, new RegExp(`<input name="${name}" value="[^"]*" list="names-of-${name}">`));
    const [, list = ""] = page.split(`<datalist id="names-of-${name}">`);
    return [...(list.split("</datalist>")[0] ?? "").matchAll(/value="([^"]*)"/g)].map(([, one]) => one);
  };
  const policies = ["fetch_endpoint", "make_report", "send_mail"];
  for (const path of ["/jobs", "/partitions", "/audit"])
    t.deepEqual(listed(await text(path), "policy"), policies, path);
  t.deepEqual(listed(await text("/jobs"), "task"), [
    "fetch_endpoint",
    "make_report",
    "nightly_clean_up",
    "send_mail",
  ]);
  t.deepEqual(listed(await it.text("/jobs"), "task"), ["work"]);
});
