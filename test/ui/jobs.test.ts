// What is done to many jobs at once: what the filter shows, what the count says and what changes are the same jobs.
import test, { type ExecutionContext } from "ava";
import { definePolicy } from "../../src/index.ts";
import { createUi, type Staff } from "../../src/ui/ui.ts";
import { startWorker } from "../helpers/worker.ts";
import { world as database, HERE } from "./world.ts";

const work = definePolicy("work", { partitionBy: "k" });

/** Two jobs that failed for good as the partner was away, one for its own fault, and two that wait for their retry. */
async function world(t: ExecutionContext) {
  const tasks = {
    work: async (payload: unknown) => {
      throw new Error((payload as { error: string }).error);
    },
  };
  const worker = await startWorker(t, { policies: [work], tasks });
  const fails = (k: string, error: string, maxAttempts: number) => ({
    identifier: "work",
    payload: { k, error },
    maxAttempts,
  });
  const jobs = [
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
      const headers = { "sec-fetch-site": "same-origin" };
      return (await ui(new Request(HERE + action, { method: "POST", body, headers }))).text();
    },
    /** Sends the form of an address that was followed. */
    async send(path: string) {
      const { pathname, searchParams } = new URL(HERE + path);
      searchParams.set("reason", "the partner is back");
      const headers = { "sec-fetch-site": "same-origin" };
      return (await ui(new Request(HERE + pathname, { method: "POST", body: searchParams, headers }))).text();
    },
  };
}

test("failed jobs of a filter are counted first, and brought back: others stay", async (t) => {
  const it = await world(t);
  const page = await it.text("/jobs?state=failed&policy=work&error=502");
  t.is(page.match(/<td[^>]*>never</g)?.length, 2, "they are not due");
  const these = await it.follow(page, "retry these 2");
  t.regex(these.text, /<strong>2<\/strong> jobs match/, these.path);
  const all = await it.follow(page, "retry all that match");
  t.regex(all.text, /<strong>2 jobs<\/strong> match now/, all.path);
  t.regex(all.text, /name="error" value="502"/);
  t.regex(await it.sendShown(all.text), /2 of 2 jobs were taken, and 2 changed/);
  t.regex(await it.text("/jobs?state=failed&policy=work"), /retry these 1</);
  t.regex(await it.text("/jobs?state=failed&policy=work&error=502"), /No job matches/);
});

test("those of one partition are not all of the policy", async (t) => {
  const it = await world(t);
  const all = await it.follow(
    await it.text("/jobs?state=failed&policy=work&partition=b"),
    "retry all that match",
  );
  t.regex(all.text, /<strong>1 job<\/strong> matches/, all.path);
});

test("a viewer is offered nothing, and nobody is offered all of the jobs", async (t) => {
  const it = await world(t);
  t.notRegex(await it.text("/jobs"), /\/bulk\//);
  t.regex(await it.text("/jobs?policy=work"), /\/bulk\/remove/);
  it.become("viewer");
  t.notRegex(await it.text("/jobs?state=failed&policy=work"), /\/act\/|\/bulk\//);
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
  await pool.query("update dispatch_policy._private_staged_jobs set created_at = now() - interval '2 hours'");
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
  const these = await it.follow(page, "remove these 2");
  t.regex(these.text, /<strong>2<\/strong> jobs match/, these.path);
  const [, job] = /\/job\?id=(\d+)/.exec(page) ?? [];
  const one = await it.follow(await it.text(`/job?id=${job}`), "remove");
  t.regex(one.text, /<strong>1<\/strong> job matches/, one.path);
  t.regex(await it.send(one.path), /1 of 1 changed/);
  t.regex(await it.text("/jobs?state=parked"), /remove these 1</);
});
