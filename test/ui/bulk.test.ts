// A verb for all jobs of a filter goes in steps, each of which is a form: it says how far it is, and ends where one stops it.
import test, { type ExecutionContext } from "ava";
import { definePolicy, makePolicyUtils } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { silent } from "../helpers/silent.ts";
import { HERE, sent } from "./world.ts";

const work = definePolicy("work", {
  partitionBy: "k",
  gates: ({ concurrency }) => [concurrency({ max: 600 })],
});
const other = definePolicy("other", { partitionBy: "k" });
const COUNTED = 1100;

async function world(t: ExecutionContext) {
  const { pool } = await lentDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work, other], logger: silent });
  t.teardown(() => utils.release());
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "operator" }) });
  const send = async (path: string, form: Readonly<Record<string, string>>) => {
    const answer = await sent(ui, HERE + path, new URLSearchParams(form));
    return { status: answer.status, text: await answer.text() };
  };
  const get = async (path: string) => (await ui(new Request(HERE + path))).text();
  return {
    ...{ pool, utils, send, get },
    add: (k: string, count: number, spec: object = {}) =>
      utils.addJobs(Array.from({ length: count }, () => ({ identifier: "work", payload: { k }, ...spec }))),
    /** What a page has in its form. */
    formOf: (page: string): Record<string, string> =>
      Object.fromEntries(
        [...page.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)"/g)].map(([, name, value]) => [
          name!,
          value!,
        ]),
      ),
    /** Goes on until there is no further step. Returns what each page said. */
    async goOn(path: string, form: Readonly<Record<string, string>>) {
      const said: string[] = [];
      for (let next = form; ; ) {
        const { text } = await send(path, next);
        said.push(/[\d ,]+ of [^.]*changed\.|(?<=role="status">)[A-Z].*? By \w+/.exec(text)?.[0] ?? text);
        if (!text.includes("data-goes-on")) return said;
        next = this.formOf(text);
      }
    },
    states: async (where = "true") =>
      (
        await pool.query(
          `select state, count(*)::int as n from dispatch_policy.jobs where policy = 'work' and ${where} group by state order by state`,
        )
      ).rows.map(({ state, n }) => `${n} ${state}`),
    audited: async () =>
      (
        await pool.query(
          "select verb, by, reason, changed from dispatch_policy.audit where by = 'ana' order by id",
        )
      ).rows,
  };
}

test("all staged jobs of a filter are removed in steps, each in the audit, and others stay", async (t) => {
  const it = await world(t);
  await it.add("a", COUNTED, { queueName: "slow" });
  await it.add("a", 7);
  await it.utils.addJob("other", { k: "a" }, { queueName: "slow" });
  const path = "/bulk/remove?policy=work&queue=slow";
  const page = await it.get(path);
  t.regex(page, /<strong>1,100 jobs<\/strong> match now\. They are taken in steps of 500/);
  t.regex(page, /<dt>queue<\/dt><dd>slow<\/dd>/);
  const without = await it.send("/bulk/remove", it.formOf(page));
  t.regex(without.text, /Say why/);
  t.deepEqual(await it.audited(), []);
  t.deepEqual(await it.goOn("/bulk/remove", { ...it.formOf(page), reason: "r", by: "eve" }), [
    "500 of 1,100 jobs were taken, and 500 changed.",
    "1,000 of 1,100 jobs were taken, and 1,000 changed.",
    "Removed 1,100 of 1,100 staged jobs. By ana",
  ]);
  t.deepEqual(await it.states(), ["7 staged"]);
  t.deepEqual(
    await it.audited(),
    [500, 500, 100].map((changed) => ({ verb: "remove", by: "ana", reason: "r", changed })),
  );
  t.is((await it.pool.query("select from dispatch_policy.jobs where policy = 'other'")).rowCount, 1);
});

test("a stop leaves the rest, and says how far it came; a step that is sent again does nothing", async (t) => {
  const it = await world(t);
  await it.add("a", 1600);
  const asks = await it.get("/bulk/remove?policy=work");
  t.regex(asks, /<pre>select \* from dispatch_policy\.remove\(policy =&gt; &#39;work&#39;, reason =&gt;/);
  const form = { ...it.formOf(asks), reason: "r" };
  const first = await it.send("/bulk/remove", form);
  const next = it.formOf(first.text);
  t.regex(first.text, /<progress aria-label="[^"]*" max="1600" value="500">/);
  const again = await it.send("/bulk/remove", form);
  t.regex(again.text, /500 of 1,600 jobs were taken, and 500 changed\..*data-goes-on/s);
  t.deepEqual(await it.states(), ["1100 staged"]);
  await it.send("/bulk/remove", it.formOf(again.text));
  t.deepEqual(await it.states(), ["600 staged"]);
  const late = await it.send("/bulk/remove", { ...next, stop: "1" });
  t.regex(
    late.text,
    /<h1>Jobs<.*Removed 1,000 of 1,000 staged jobs\. By ana/s,
    "a stop counts, whatever was sent before",
  );
  t.deepEqual(await it.states(), ["600 staged"]);
  t.is((await it.audited()).length, 2);
});

test("jobs that are admitted between two steps are cancelled all the same", async (t) => {
  const it = await world(t);
  await it.add("a", COUNTED);
  const form = { ...it.formOf(await it.get("/bulk/cancel?policy=work")), reason: "r" };
  const first = await it.send("/bulk/cancel", form);
  t.deepEqual(await it.states(), ["600 staged"]);
  await it.utils.tick();
  t.true((await it.states()).some((one) => one.endsWith("ready")));
  const said = await it.goOn("/bulk/cancel", it.formOf(first.text));
  t.is(said.at(-1), "Cancelled 1,100 of 1,100 jobs. By ana");
  t.deepEqual(await it.states("state <> 'failed'"), []);
});

test("failed jobs with a text in their error are brought back, each once", async (t) => {
  const it = await world(t);
  const ids = (await it.add("a", 30)).map(({ id }) => id);
  await it.utils.tick();
  await it.utils.permanentlyFailJobs(ids.slice(0, 20), "502 of the partner");
  await it.utils.permanentlyFailJobs(ids.slice(20), "no such order");
  t.deepEqual(await it.states(), ["30 failed"]);
  const page = await it.get("/bulk/retry?error=502");
  t.regex(page, /<strong>20 jobs<\/strong> match/);
  t.deepEqual(await it.goOn("/bulk/retry", { ...it.formOf(page), reason: "r" }), [
    "Brought back 20 of 20 failed jobs. By ana",
  ]);
  t.deepEqual(await it.states("state = 'failed'"), ["10 failed"]);
  // those that fail after the count are not meant
  const of = it.formOf(await it.get("/bulk/retry?error=no+such"));
  const [late] = (await it.add("a", 1)).map(({ id }) => id);
  await it.utils.tick();
  await it.utils.permanentlyFailJobs([late!], "no such order");
  t.deepEqual(await it.goOn("/bulk/retry", { ...of, reason: "r" }), [
    "Brought back 10 of 10 failed jobs. By ana",
  ]);
  t.deepEqual(await it.states("state = 'failed'"), ["1 failed"]);
});

test("staged jobs of a partition are moved, those of the filter alone", async (t) => {
  const it = await world(t);
  await it.add("a", 600, { queueName: "slow" });
  await it.add("a", 3);
  await it.utils.tick();
  await it.add("a", 550, { queueName: "slow" });
  await it.utils.tick();
  const page = await it.get("/bulk/move?policy=work&partition=a&queue=slow");
  const form = { ...it.formOf(page), "to-partition": "b", reason: "r" };
  const before = await it.states("partition = 'a' and state = 'staged' and queue_name is null");
  const said = await it.goOn("/bulk/move", form);
  t.is(said.length, 2, said.join());
  t.deepEqual(await it.states("partition = 'a' and state = 'staged'"), before);
  await it.utils.tick();
  t.true((await it.states("partition = 'b'")).length > 0);
});

test("a filter that would match what nobody meant is refused", async (t) => {
  const it = await world(t);
  for (const path of ["remove?task=work", "cancel?error=x", "move?policy=work", "retry"]) {
    t.regex(await it.get(`/bulk/${path}`), /the filter names no (policy|partition)/, path);
    const [verb, query] = path.split("?");
    const form = Object.fromEntries(new URLSearchParams(query));
    const sent = await it.send(`/bulk/${verb}`, { ...form, reason: "r" });
    t.is(sent.status, 400, path);
  }
  t.deepEqual(await it.audited(), []);
});
