// The empty text is a key like any other: in verbs, in tasks, on pages and in commands. It never stands for "all".
import test, { type ExecutionContext } from "ava";
import type { JobHelpers } from "graphile-worker";
import { definePolicy, makePolicyUtils } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { runInTurn } from "../helpers/command.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";
import { HERE, sent } from "../ui/world.ts";

interface Context {
  key: string;
  account: string;
}
const work = definePolicy("work", {
  context: (payload) => payload as Context,
  partitionBy: (ctx) => ctx.key,
  gates: ({ throttle, concurrency }) => [
    concurrency({ name: "account", scope: (ctx) => ctx.account, max: 1 }),
    throttle({ name: "calls", scope: (ctx) => ctx.account, rate: 100, per: "1 hour" }),
    throttle({ name: "all", scope: "policy", rate: 1000, per: "1 hour" }),
  ],
});

/** Two jobs of the empty key and account, and two of others: of each one goes. */
async function world(t: ExecutionContext) {
  const { pool, url } = await lentDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  t.teardown(() => utils.release());
  const add = async (key: string, account: string) =>
    (await utils.addJob(work, { key, account })).id as string;
  const empty = [await add("", ""), await add("", "")];
  const others = [await add("x", "acme"), await add("x", "acme")];
  await utils.tick();
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "operator" }) });
  const page = async (path: string) => (await ui(new Request(HERE + path))).text();
  const send = async (path: string, form: Record<string, string>) => {
    return (await sent(ui, HERE + path, new URLSearchParams({ reason: "r", ...form }))).text();
  };
  const rows = async (text: string) => (await pool.query(text)).rows;
  const cli = (...args: readonly string[]) => runInTurn({ DATABASE_URL: url }, ...args);
  return { pool, utils, empty, others, page, send, rows, cli };
}

test("a task holds, takes from and syncs its own account, and the gate of the whole policy", async (t) => {
  const said: unknown[] = [];
  const task = async (_payload: unknown, helpers: JobHelpers) => {
    const own = helpers.dispatchPolicy!;
    for (const gate of ["calls", "all"]) {
      said.push((await own.take({ gate })).taken, (await own.sync({ gate, remaining: 5 })).lowered);
      await own.hold({ gate, forMs: 60_000, reason: "429" });
    }
    said.push("held");
  };
  const { utils, pool } = await startWorker(t, { policies: [work], tasks: { work: task } });
  await utils.addJob(work, { key: "y", account: "" });
  await until("it has run", () => said.includes("held"));
  t.deepEqual(said, [true, true, true, true, "held"]);
  const { rows } = await pool.query("select gate, scope_key from dispatch_policy.audit where verb = 'hold'");
  t.deepEqual(rows, [
    { gate: "calls", scope_key: "" },
    { gate: "all", scope_key: null },
  ]);
  await utils.setLimit({ policy: "work", gate: "calls", key: "", set: { rate: 1 } });
  await utils.clearLimit({ policy: "work", gate: "calls", key: "" });
  const { rows: past } = await pool.query(
    "select key, hold from dispatch_policy.past_limits where gate = 'calls' order by id",
  );
  t.deepEqual(past, [
    { key: "", hold: true },
    { key: "", hold: false },
  ]);
});

test("explain tells the empty key from the whole policy", async (t) => {
  const { utils } = await world(t);
  const { gates, partition } = await utils.explain({ policy: "work", partition: "" });
  t.is(partition, "");
  const keys = Object.fromEntries(gates.map(({ gate, key }) => [gate, key]));
  t.like(keys, { account: "", calls: "", all: null });
});

test("each verb of a partition or a key concerns the empty one alone", async (t) => {
  const { utils, empty, rows } = await world(t);
  const here = { policy: "work", partition: "" };
  const one = { matched: 1, changed: 1 };
  t.like(await utils.pause(here), one);
  t.deepEqual(await rows("select partition from dispatch_policy.stops"), [{ partition: "" }]);
  t.like(await utils.resume(here), one);
  t.like(await utils.hold({ ...here, forMs: 60_000 }), one);
  t.like(await utils.resume(here), one);
  t.like(await utils.hold({ policy: "work", gate: "account", key: "", forMs: 60_000 }), one);
  t.like((await utils.limits())[0], { key: "", hold: true });
  t.like(await utils.clearLimit({ policy: "work", gate: "account", key: "" }), one);
  t.like(await utils.setLimit({ policy: "work", gate: "account", key: "", set: { max: 3 } }), one);
  t.like(await utils.take({ policy: "work", gate: "calls", key: "" }), { taken: true });
  t.like(await utils.sync({ policy: "work", gate: "calls", key: "", remaining: 1 }), { lowered: true });
  t.like(await utils.refreshContext({ ...here, context: {} }), { matched: 1 });
  t.like(await utils.admit({ ...here, drain: true, dryRun: true }), { matched: 1 });
  const exported: string[] = [];
  for await (const { id } of utils.export(here)) exported.push(id);
  t.deepEqual(exported, empty.slice(1), "the first is in flight");
  t.like(await utils.move({ ...here, toPartition: "x" }), { matched: 1, changed: 1 });
  t.like(await utils.move({ policy: "work", partition: "x", toPartition: "" }), { matched: 2, changed: 2 });
  t.like(await utils.remove(here), { matched: 2, changed: 2 });
  t.like(await utils.cancel(here), { matched: 1, changed: 1 });
});

test("the page of jobs tells the empty key from none", async (t) => {
  const { page, empty, others } = await world(t);
  const shown = async (path: string) => {
    const text = await page(path);
    const here = (ids: readonly string[]) => ids.some((id) => text.includes(`/job?id=${id}"`));
    return { text, empty: here(empty), others: here(others) };
  };
  t.like(await shown("/jobs?policy=work"), { empty: true, others: true });
  // as the form is sent with an empty field
  t.like(await shown("/jobs?policy=work&in=&task="), { empty: true, others: true });
  const onlyEmpty = { empty: true, others: false };
  const { text, ...found } = await shown("/jobs?policy=work&partition=");
  t.deepEqual(found, onlyEmpty);
  t.regex(text, /<input name="in" value="&quot;&quot;"[^>]*>/, "the form has it, and sends it again");
  t.regex(text, /href="\/bulk\/remove\?policy=work&amp;partition="/);
  t.like(await shown("/jobs?policy=work&in=%22%22"), onlyEmpty);
  const asked = await page("/bulk/move?policy=work&partition=");
  t.regex(asked, /<dt>partition<\/dt><dd>\(empty\)<\/dd>/);
  t.regex(asked, /<input type="hidden" name="partition" value="">/);
});

test("the pages of verbs act on the empty key, and their SQL and command do as well", async (t) => {
  const { page, send, rows, cli, utils } = await world(t);
  const link = /href="(\/act\/set-limit\?[^"]*key=[^"]*)"/.exec(
    await page("/partition?policy=work&partition="),
  );
  const form = await page(link![1]!.replaceAll("&amp;", "&"));
  t.regex(form, /<input name="key" value="&quot;&quot;">/);
  const limit = { policy: "work", gate: "account", key: '""', max: "4" };
  const done = await send("/act/set-limit", limit);
  t.like((await utils.limits())[0], { key: "", override: { max: 4 } });
  t.regex(await page("/limits"), /<td[^>]*>\(empty\)<\/td>/);
  const decoded = done.replaceAll("&#39;", "'").replaceAll("&gt;", ">").replaceAll("&quot;", '"');
  const [, command, sql] = /<pre>npx \S+ (.*?)<\/pre>\s*<pre>(.*?)<\/pre>/s.exec(decoded)!;
  t.regex(command!, /--key ''/);
  await rows(sql!);
  t.is((await cli(...command!.split(" ").map((word) => (word === "''" ? "" : word)))).code, 0);
  const limits = await utils.limits();
  t.deepEqual(
    limits.map(({ key }) => key),
    [""],
  );
  await send("/act/move", { policy: "work", partition: "x", "to-partition": '""' });
  const staged = "select distinct partition from dispatch_policy.staged_jobs where job_id is null";
  t.deepEqual(await rows(staged), [{ partition: "" }]);
});

test("commands take the empty key, and show it", async (t) => {
  const { cli, empty, others } = await world(t);
  const said = async (...args: readonly string[]) => {
    const { stdout, stderr, code } = await cli(...args);
    t.is(code, 0, stderr);
    return stdout;
  };
  const jobs = await said("jobs", "--policy", "work", "--partition", "");
  t.true(jobs.includes(empty[1]!), "the first has an id of Graphile Worker");
  t.false(jobs.includes(others[1]!));
  t.regex(jobs, /\(empty\)/);
  t.regex(
    await said("explain", "--policy", "work", "--partition="),
    /^work\/\(empty\).* account of \(empty\): /s,
  );
  t.regex(await said("partitions", "--policy", "work"), /\(empty\)/);
  const pause = ["--policy", "work", "--partition", ""];
  t.regex(await said("pause", ...pause), /partition \(empty\) of policy work/);
  t.regex(await said("stops"), /\(empty\)/);
  t.regex(await said("audit"), /work\/\(empty\)/);
  t.regex(await said("resume", ...pause), /partition \(empty\) of policy work/);
  await said("set-limit", "--policy", "work", "--gate", "account", "--key", "", "--max", "2");
  t.regex(await said("limits"), /\(empty\)/);
});
