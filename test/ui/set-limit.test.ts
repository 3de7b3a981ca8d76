// The page of set-limit: it offers what the verb takes for the gate, says what each number is and would be, and prints the SQL and
// the command that do the same.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import {
  adaptiveConcurrency,
  concurrency,
  definePolicy,
  makePolicyUtils,
  throttle,
} from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { atLength } from "../helpers/at-length.ts";
import { runInTurn } from "../helpers/command.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { silent } from "../helpers/silent.ts";
import { HERE, sent } from "./world.ts";

type Ctx = { plan: string };
const GATES = [
  throttle<Ctx>({ rate: 60, per: "1 minute" }),
  throttle<Ctx>({ name: "window", rate: 90, per: "1 hour", window: "sliding" }),
  throttle<Ctx>({ name: "days", rate: 500, per: "1 day", window: "calendar" }),
  concurrency<Ctx>({ name: "plan", scope: (ctx) => ctx.plan, max: 4 }),
  concurrency<Ctx>({ name: "memory", scope: "policy", max: 2, perWorker: true }),
  concurrency<Ctx>({ name: "trial", max: 9, shadow: true }),
  adaptiveConcurrency<Ctx>({ name: "learns", initialMax: 5, targetLagMs: 500, max: 20 }),
  concurrency<Ctx>({ name: "bought", max: (ctx) => (ctx.plan === "pro" ? 7 : 3) }),
];
const work = definePolicy("work", { context: (payload) => payload as Ctx, partitionBy: "k", gates: GATES });

async function world(t: ExecutionContext) {
  const { pool, url } = await lentDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  t.teardown(() => utils.release());
  await utils.addJobs([
    { identifier: "work", payload: { k: "a", plan: "free" } },
    { identifier: "work", payload: { k: "b", plan: "pro" } },
  ]);
  await utils.tick();
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "operator" }) });
  return {
    ...{ pool, url, utils },
    page: async (verb: string, asked: Record<string, string>) => {
      const query = new URLSearchParams({ policy: "work", ...asked });
      return (await ui(new Request(`${HERE}/act/${verb}?${query}`))).text();
    },
    send: async (verb: string, form: Record<string, string>) => {
      const body = new URLSearchParams({ policy: "work", reason: "it's -odd", ...form });
      const answer = await sent(ui, `${HERE}/act/${verb}`, body);
      return { status: answer.status, text: await answer.text(), to: body };
    },
    /** The page that a form has led to. */
    again: async (form: URLSearchParams) =>
      (await ui(new Request(`${HERE}/policy?policy=work&did=${form.get("form")}`))).text(),
    /** What is set, with its ends. */
    exactly: async () =>
      (
        await pool.query(
          `select gate, key, "where", set, "from", date_trunc('milliseconds', until) as until from dispatch_policy.overrides order by 5 nulls first`,
        )
      ).rows,
    /** What the view says of a gate and a key. */
    limiter: async (gate: string, key: string) =>
      (
        await pool.query(
          "select rate, per, capacity, max from dispatch_policy.limiters where gate = $1 and scope_key = $2",
          [gate, key],
        )
      ).rows[0],
    overrides: async () =>
      (
        await pool.query(
          `select gate, key, "where", set, by, reason, round(extract(epoch from "from" - now()) / 60)::int as from,
             round(extract(epoch from until - now()) / 60)::int as until
           from dispatch_policy.overrides order by gate, set`,
        )
      ).rows,
  };
}

const inputs = (page: string) =>
  [...page.matchAll(/<(?:input|select) name="([^"]+)"/g)].map(([, name]) => name!);

/** The table of numbers: each with what it is, and what it would be. */
function changes(page: string): Record<string, readonly [string, string]> {
  const [, table = ""] = page.split("<caption>What changes</caption>");
  const rows = table.split("</tbody>")[0]!.split("<tr>").slice(2);
  return Object.fromEntries(
    rows.map((row) => {
      const [number, now, then] = [...row.matchAll(/<td[^>]*>(.*?)<\/td>/g)].map(([, cell]) => cell!);
      return [number, [now!, then!]];
    }),
  );
}

test("the form has the numbers that the gate takes, and no others", async (t) => {
  const { page } = await world(t);
  const always = ["gate", "from", "for", "reason"];
  for (const { name, scope, overrides } of GATES) {
    const numbers = Object.keys(overrides).map((column) => column.replaceAll("_", "-"));
    const reach = { partition: ["key", "where"], key: ["key"], policy: [] }[scope];
    const asked = inputs(await page("set-limit", { gate: name }));
    t.deepEqual(asked.toSorted(), [...always, ...reach, ...numbers].toSorted(), name);
    t.deepEqual(
      Object.keys(changes(await page("set-limit", { gate: name }))).toSorted(),
      Object.keys(overrides)
        .map((column) => column.replace(/_ms$/, "").replaceAll("_", " "))
        .toSorted(),
      name,
    );
  }
  const all = new Set(GATES.flatMap(({ overrides }) => Object.keys(overrides)));
  const asked = inputs(await page("set-limit", {}));
  t.deepEqual(
    asked.toSorted(),
    [...always, "key", "where", ...[...all].map((column) => column.replaceAll("_", "-"))].toSorted(),
  );
  t.true(
    inputs(await page("set-limit", { gate: "memory", rate: "5" })).includes("rate"),
    "what was given stays, and the verb says what is wrong",
  );
});

test("the form begins with the numbers that are in force for the key, and with none if some are given", async (t) => {
  const it = await world(t);
  const numbers = async (asked: Record<string, string>) => {
    const page = await it.page("set-limit", asked);
    const names = ["rate", "per", "burst", "min", "max", "initial-max", "target-lag-ms"];
    return Object.fromEntries(
      names.flatMap((name) => {
        const value = new RegExp(`name="${name}" value="([^"]*)"`).exec(page)?.[1];
        return value ? [[name, value]] : [];
      }),
    );
  };
  const key = { gate: "throttle", key: "a" };
  t.deepEqual(await numbers({}), {});
  t.deepEqual(await numbers(key), { rate: "60", per: "60 seconds" });
  await it.utils.setLimit({ policy: "work", ...key, set: { rate: 20, burst: 30 } });
  t.deepEqual(await numbers(key), { rate: "20", per: "60 seconds", burst: "30" });
  t.deepEqual(await numbers({ ...key, key: "b" }), { rate: "60", per: "60 seconds" });
  t.deepEqual(await numbers({ ...key, rate: "5" }), { rate: "5" });
  t.deepEqual(await numbers({ gate: "bought", key: "b" }), { max: "7" });
  t.deepEqual(await numbers({ gate: "bought" }), {}, "the context says it");
  const learns = { "initial-max": "5", min: "1", max: "20", "target-lag-ms": "500" };
  t.deepEqual(await numbers({ gate: "learns" }), learns);
  t.deepEqual((await it.page("set-limit", key)).match(/>show what changes</)?.length, 1);
  t.deepEqual(changes(await it.page("set-limit", key)).rate, ["20", "20"]);
});

test("what each number is, and would be, is what the gate then goes by", async (t) => {
  const it = await world(t);
  const will = async (verb: string, form: Record<string, string>) => changes(await it.page(verb, form));
  const does = async (verb: string, form: Record<string, string>) => {
    const { status, text } = await it.send(verb, form);
    t.is(status, 200, text);
  };
  const key = { gate: "throttle", key: "a" };
  t.deepEqual(await will("set-limit", { ...key, rate: "20" }), {
    rate: ["60", "20"],
    per: ["1 min", "1 min"],
    burst: ["as the rate", "as the rate"],
  });
  await does("set-limit", { gate: "throttle", rate: "20", burst: "30" });
  t.like(await it.limiter("throttle", "a"), { rate: 20, capacity: 30 });

  // for the numbers that are left out the policy's own apply, also over another limit
  const burst = await will("set-limit", { ...key, burst: "5" });
  t.deepEqual(burst, { rate: ["20", "60"], per: ["1 min", "1 min"], burst: ["30", "5"] });
  await does("set-limit", { ...key, burst: "5", per: "30 seconds" });
  t.like(await it.limiter("throttle", "a"), { rate: 60, per: 30, capacity: 5 });
  t.like(await it.limiter("throttle", "b"), { rate: 20, capacity: 30 });

  // a limit of every key does not change what is known of a single one
  const where = { gate: "throttle", where: '{"plan": "pro"}' };
  t.deepEqual((await will("set-limit", { ...where, rate: "8" })).rate, ["20", "8"]);
  await does("set-limit", { ...where, rate: "8" });
  t.like(await it.limiter("throttle", "b"), { rate: 8, capacity: 8 });
  t.deepEqual((await will("clear-limit", { ...where })).rate, ["8", "20"]);
  t.deepEqual((await will("clear-limit", { gate: "throttle" })).rate, ["20", "60"]);
  t.deepEqual((await will("clear-limit", key)).rate, ["60", "20"]);
  await does("clear-limit", where);
  t.like(await it.limiter("throttle", "b"), { rate: 20, capacity: 30 });

  t.deepEqual(await will("set-limit", { gate: "learns", "target-lag-ms": "90", min: "2" }), {
    "initial max": ["5", "5"],
    "target lag": ["500 ms", "90 ms"],
    min: ["1", "2"],
    max: ["20", "20"],
  });
  // of a number that comes from the context: what the jobs of the key brought
  const bought = (more: object) => will("set-limit", { gate: "bought", max: "1", ...more });
  t.deepEqual((await bought({ key: "b" })).max, ["7", "1"]);
  t.deepEqual((await bought({})).max, ["as the context says", "1"]);
  await it.utils.hold({ policy: "work", gate: "memory", forMs: 60_000, reason: "r", by: "bo" });
  t.deepEqual((await will("set-limit", { gate: "memory", max: "3" })).max, ["0", "0"], "its hold stays");
});

const SET: readonly Record<string, string>[] = [
  {
    gate: "throttle",
    key: "a b",
    rate: "-0.5",
    per: "90 seconds",
    burst: "2",
    from: "10 hours",
    for: "90 minutes",
  },
  {
    gate: "throttle",
    where: '{"plan": "it\'s pro", "seats": 3, "zip": "012"}',
    rate: "9",
    for: "20 minutes",
  },
  { gate: "window", rate: "1.25" },
  { gate: "plan", key: "--x", max: "0", from: "1 day" },
  { gate: "memory", max: "3" },
  { gate: "learns", "initial-max": "3", min: "2", max: "8", "target-lag-ms": "250.5" },
];

for (const form of SET)
  atLength(`the page, its SQL and its command set the same: ${JSON.stringify(form)}`, async (t) => {
    const it = await world(t);
    const aim = Object.fromEntries(
      Object.entries(form).filter(([name]) => ["gate", "key", "where"].includes(name)),
    );
    const { status, text } = await it.send("set-limit", form);
    t.is(status, 200, text);
    const set = await it.overrides();
    t.is(set.length, 1);
    t.like(set[0], { gate: form.gate!, by: "ana", reason: "it's -odd" });
    t.is(set[0].from, form.from ? { "10 hours": 600, "1 day": 1440 }[form.from]! : null);
    t.is(set[0].until, form.for ? { "90 minutes": 690, "20 minutes": 20 }[form.for]! : null);
    const [command, sql] = printed(text);
    const [undo] = undosIn(text);
    const where = aim.where && { where: JSON.stringify(set[0].where) };
    t.deepEqual(undo, { verb: "clear-limit", policy: "work", ...aim, ...where, reason: "Undo: it's -odd" });
    for (const again of [() => it.pool.query(sql!), () => run(it.url, command!)]) {
      const cleared = await it.send("clear-limit", undo!);
      t.is(cleared.status, 200, cleared.text);
      t.deepEqual(await it.overrides(), []);
      await again();
      t.deepEqual(await it.overrides(), set);
    }
    const cleared = await it.send("clear-limit", aim);
    const [clears, clearsInSql] = printed(cleared.text);
    for (const again of [() => it.pool.query(clearsInSql!), () => run(it.url, clears!)]) {
      await it.pool.query(sql!);
      await again();
      t.deepEqual(await it.overrides(), []);
    }
  });

/** The command and the SQL that a page prints. */
function printed(page: string): readonly string[] {
  const entities = { "&#39;": "'", "&quot;": '"', "&gt;": ">", "&lt;": "<", "&amp;": "&" } as const;
  const plain = (text: string) =>
    text.replace(/&(#39|quot|gt|lt|amp);/g, (entity) => entities[entity as keyof typeof entities]);
  return [...page.matchAll(/<pre>(.*?)<\/pre>/gs)].map(([, text]) => plain(text!));
}

async function run(url: string, command: string): Promise<void> {
  const given = command.replace(/^npx graphile-worker-dispatch-policy /, "");
  const { stdout } = await promisify(execFile)("sh", ["-c", `printf '%s\\n' ${given}`]);
  const { stderr, code } = await runInTurn({ DATABASE_URL: url }, ...stdout.trimEnd().split("\n"));
  if (code !== 0) throw new Error(`${command}: ${stderr}`);
}

/** What the links ask for that undo what was done. */
function undosIn(page: string): readonly Record<string, string>[] {
  return [...page.matchAll(/href="\/act\/([^"?]*)\?([^"]*)">Undo/g)].map(([, verb, query]) => ({
    verb: verb!,
    ...Object.fromEntries(new URLSearchParams(query!.replaceAll("&amp;", "&"))),
  }));
}

test("who undoes a limit sets again what was there before, with its end", async (t) => {
  const it = await world(t);
  const aim = { gate: "throttle", key: "a" };
  const until = new Date(Date.now() + 3_000_000);
  const before = { rate: 20, per: "30 seconds" as const, burst: 5 };
  await it.utils.setLimit({ policy: "work", ...aim, set: before, until, reason: "first", by: "bo" });
  const first = await it.exactly();
  const undone = async (text: string, verb: string) => {
    const [undo] = undosIn(text);
    t.is(undo?.verb, verb);
    const page = await it.page(verb, undo!);
    for (const [name, value] of Object.entries(undo!))
      if (name !== "verb") t.true(page.includes(`value="${escaped(value)}"`), `${name} ${value}`);
    const answer = await it.send(verb, undo!);
    t.is(answer.status, 200, answer.text);
    return answer.text;
  };
  const set = await it.send("set-limit", { ...aim, rate: "1", for: "1 hour" });
  t.like((await it.exactly())[0], { set: { rate: 1 } });
  const back = await undone(set.text, "set-limit");
  t.deepEqual(await it.exactly(), first);
  // undone once more, the new one is there again; and then what was cleared
  const again = await undone(back, "set-limit");
  t.like((await it.exactly())[0], { set: { rate: 1 } });
  await undone(again, "set-limit");
  const cleared = await it.send("clear-limit", aim);
  t.deepEqual(await it.exactly(), []);
  await undone(cleared.text, "set-limit");
  t.deepEqual(await it.exactly(), first);
  // one whose end has passed meanwhile does not come back
  const last = await it.send("set-limit", { ...aim, rate: "1" });
  await it.pool.query(
    `update dispatch_policy_internal.audit set detail = jsonb_set(detail, '{was,0,until}', '"2020-01-01T00:00:00+00:00"') where detail ? 'was'`,
  );
  t.is(undosIn(await it.again(last.to))[0]?.verb, "clear-limit");
});

test("what was to come is set again by a link of its own; an empty key stays one", async (t) => {
  const it = await world(t);
  const aim = { policy: "work", gate: "throttle", key: "" };
  const [from, until] = [3_600_000, 7_200_000].map((ms) => new Date(Date.now() + ms));
  await it.utils.setLimit({ ...aim, set: { rate: 5 }, until: from });
  await it.utils.setLimit({ ...aim, set: { rate: 7 }, from, until });
  const before = await it.exactly();
  const { text } = await it.send("clear-limit", { gate: "throttle", key: "" });
  const links = undosIn(text);
  t.regex(text, />Undo: set rate 5 again<.*>Undo: set rate 7 again</s);
  t.is(links.length, 2);
  for (const link of links) await it.send("set-limit", link);
  t.deepEqual(await it.exactly(), before);
});

const escaped = (text: string) =>
  text.replaceAll("&", "&amp;").replaceAll("'", "&#39;").replaceAll('"', "&quot;");

test("the page of limits leads to the end of one that goes by context", async (t) => {
  const it = await world(t);
  const where = { plan: "free" };
  await it.utils.setLimit({
    policy: "work",
    gate: "throttle",
    where,
    set: { rate: 1 },
    reason: "r",
    by: "bo",
  });
  const ui = createUi({ pool: it.pool, authorize: () => ({ name: "ana", role: "operator" }) });
  const page = await (await ui(new Request(`${HERE}/limits`))).text();
  const [, href = ""] = /href="([^"]*)"[^>]*>Clear limit</.exec(page) ?? [];
  const asks = await (await ui(new Request(HERE + href.replaceAll("&amp;", "&")))).text();
  t.regex(asks, /It concerns <strong>1 partition<\/strong>/);
  const { status } = await it.send("clear-limit", { gate: "throttle", where: JSON.stringify(where) });
  t.is(status, 200);
  t.deepEqual(await it.utils.limits(), []);
});

test("a context that is no JSON is refused, with the way out", async (t) => {
  const { send } = await world(t);
  for (const where of ["plan=free", "[1]", "7"]) {
    const { status, text } = await send("set-limit", { gate: "throttle", where, rate: "1" });
    t.is(status, 400);
    t.regex(
      text,
      /where is .*, expected values of the context as JSON, such as {&quot;plan&quot;: &quot;free&quot;}/,
    );
  }
});
