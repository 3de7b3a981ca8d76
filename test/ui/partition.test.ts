// The page of a partition: where its jobs are, and the button that lets the next one go.
import test from "ava";
import { definePolicy, makePolicyUtils } from "../../src/index.ts";
import { silent } from "../helpers/silent.ts";
import { table, workerTable } from "../helpers/table.ts";
import { HERE, world } from "./world.ts";

const EP1 = "/partition?policy=fetch_endpoint&partition=ep1";

/** The links by which a page offers the verb first, as addresses. */
const buttons = (page: string) =>
  [...page.matchAll(/class="primary" href="([^"]*)">([^<]*)</g)].map(([, to, says]) => {
    const { pathname, searchParams } = new URL(to!.replaceAll("&amp;", "&"), HERE);
    return [pathname, Object.fromEntries(searchParams), says];
  });

/** The numbers below the sentence, by name. */
const numbers = (page: string) =>
  Object.fromEntries(
    [...page.matchAll(/<div><dt>(.*?)<\/dt><dd>(.*?)<\/dd><\/div>/gs)].map(([, term, value]) => [
      term,
      value!.replace(/<small>.*/s, "").replace(/<[^>]*>/g, ""),
    ]),
  );

test("one button lets the next job go: which one, is decided by the cause", async (t) => {
  const it = await world(t);
  const nobody = await it.text(EP1);
  t.regex(nobody, /Nobody admits its jobs: .*Start a worker that has its policy\. To let .* now:/s);
  t.deepEqual(buttons(nobody), [
    ["/act/admit", { policy: "fetch_endpoint", partition: "ep1", count: "1" }, "Let through now…"],
  ]);
  await table(it.pool, "policies").set({ crontab_ticked_at: () => "now()" });
  t.deepEqual(buttons(await it.text(EP1)), [
    [
      "/act/set-limit",
      { policy: "fetch_endpoint", gate: "concurrency", key: "ep1", max: "3", for: "1 hour" },
      "Change limit…",
    ],
  ]);
  const paused = await it.text("/partition?policy=fetch_endpoint&partition=ep3");
  t.deepEqual(buttons(paused), [["/act/resume", { policy: "fetch_endpoint", partition: "ep3" }, "Resume"]]);
  t.is(paused.match(/>Resume</g)?.length, 1, "it stands there once");
  await it.utils.setLimit({ policy: "fetch_endpoint", gate: "account", key: "acme", set: { max: 0 } });
  const zero = await it.text("/partition?policy=fetch_endpoint&partition=ep2");
  t.deepEqual(buttons(zero), [
    ["/act/clear-limit", { policy: "fetch_endpoint", gate: "account", key: "acme" }, "Clear limit"],
  ]);
  t.regex(zero, /Account limit is 0<\/span> <span class="code">max_zero</);
});

test("what a form cannot do is a command to copy", async (t) => {
  const it = await world(t);
  await it.utils.addJob("make_report", { tenant: "a" }, { runAt: new Date(Date.now() + 3_600_000) });
  await it.utils.tick();
  const page = await it.text("/partition?policy=make_report&partition=a");
  t.deepEqual(buttons(page), []);
  t.regex(page, /<pre>npx graphile-worker-dispatch-policy reschedule-jobs \d+ --run-at /);
});

test("a viewer is told to ask an operator", async (t) => {
  const it = await world(t, { viewer: { name: "vi", role: "viewer" } });
  const page = await it.text(EP1);
  t.deepEqual(buttons(page), []);
  t.regex(page, /To let [^<]* now, ask an operator\./);
});

test("it says what waits, runs and has failed, and which error came last", async (t) => {
  const it = await world(t);
  t.like(numbers(await it.text(EP1)), {
    waiting: "3",
    "in flight": "2",
    "failed for good": "0",
    dropped: "0",
  });
  const page = await it.text(EP1);
  t.regex(page, /last admitted<\/dt><dd><time/);
  t.notRegex(page, /<h2>Failed/);
  const job = await workerTable(it.pool).one({ task_id: (its) => `${its} is not null` }, "id");
  await workerTable(it.pool).set(
    {
      attempts: 25,
      max_attempts: 25,
      locked_at: null,
      locked_by: null,
      last_error: "no route to host\n at x",
    },
    { id: job.id },
  );
  await it.utils.sweep();
  const partition = (await it.utils.explain({ id: job.id })).partition ?? "";
  const after = await it.text(`/partition?policy=fetch_endpoint&partition=${partition}`);
  t.like(numbers(after), { "failed for good": "1" });
  t.regex(after, /<small>no route to host<\/small>/);
  t.regex(after, new RegExp(`<h2>Failed.*id=${job.id}.*no route to host`, "s"));
  t.regex(after, />Retry</);
});

test("jobs that were refused or dropped are named, with when and why", async (t) => {
  const it = await world(t);
  const policy = definePolicy("work", {
    partitionBy: "key",
    history: { keep: "1 day" },
    maxPending: { partition: 1, whenFull: "drop_oldest" },
  });
  const utils = await makePolicyUtils({ pgPool: it.pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  await utils.pause({ policy: "work" });
  const [first] = await utils.addJobs([{ identifier: "work", payload: { key: "a" } }]);
  const [second] = await utils.addJobs([{ identifier: "work", payload: { key: "a" } }]);
  await table(it.pool, "staged_jobs").set(
    { retry_at: () => "now() + interval '1 hour'", failures: 2, error: "value too long" },
    { id: second!.id },
  );
  await utils.tick();
  const page = await it.text("/partition?policy=work&partition=a");
  t.like(numbers(page), { dropped: "1" });
  t.regex(page, new RegExp(`<h2>Refused.*id=${second!.id}.*value too long`, "s"));
  t.regex(page, new RegExp(`<h2>Dropped.*id=${first!.id}.*max_pending`, "s"));
});

test("it says the class of its next job, unless that is 0", async (t) => {
  const it = await world(t);
  const policy = definePolicy("work", { partitionBy: "key", class: () => 2 });
  const utils = await makePolicyUtils({ pgPool: it.pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  await utils.pause({ policy: "work" });
  await utils.addJobs([{ identifier: "work", payload: { key: "a" } }]);
  await utils.tick();
  const fact = (page: string) => /<dt>class<\/dt>\s*<dd>(\d)<\/dd>/.exec(page)?.[1];
  t.is(fact(await it.text("/partition?policy=work&partition=a")), "2");
  t.is(fact(await it.text(EP1)), undefined);
});
