// A tenant sees their own partitions, and learns nothing about others.
import test, { type ExecutionContext } from "ava";
import { definePolicy, makePolicyUtils } from "../../src/index.ts";
import { ACTION_PAGES } from "../../src/ui/pages/action.ts";
import { BULK_PAGES } from "../../src/ui/pages/bulk.ts";
import { PAGES } from "../../src/ui/pages/pages.ts";
import { TICKED_PAGES } from "../../src/ui/pages/ticked.ts";
import { createUi, type Viewer } from "../../src/ui/ui.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { startWorker } from "../helpers/worker.ts";
import { HERE, type Options } from "./world.ts";

const work = definePolicy("work", {
  context: (payload) => payload as { account: string },
  partitionBy: "k",
  gates: ({ throttle, concurrency }) => [
    concurrency({ max: 2 }),
    concurrency({ name: "account", scope: (ctx) => ctx.account, max: 3 }),
    throttle({ name: "everybody", rate: 1000, per: "1 hour", scope: "policy" }),
  ],
});
const other = definePolicy("other_policy", { partitionBy: "k" });
const MINE = { work: ["mine", "mine too", "mine late"], other_policy: ["mine"], undeclared: ["mine"] };
const IDA: Viewer = { name: "ida", role: "tenant", partitions: MINE };

/** Two partitions of a tenant, and those of others, who share an account's limit with them. */
async function world(t: ExecutionContext, options: Options = {}) {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work, other], logger: silent });
  t.teardown(() => utils.release());
  const add = (k: string, account: string, count: number) =>
    utils.addJobs(
      Array.from({ length: count }, () => ({ identifier: "work", payload: { k, account, card: "4242" } })),
    );
  const mine = await add("mine", "shared", 4);
  await utils.tick();
  await add("mine too", "shared", 2);
  await utils.tick();
  await add("secret1", "shared", 7);
  await add("secret2", "secretaccount", 5);
  await utils.addJob("other_policy", { k: "secret3" });
  await utils.tick();
  const ui = createUi({ pool, authorize: () => IDA, ...options });
  const get = (path: string) => ui(new Request(HERE + path));
  const text = async (path: string) => (await get(path)).text();
  return { pool, utils, add, mine, get, text };
}

/** What others do. */
async function othersAct({ utils, add }: Awaited<ReturnType<typeof world>>): Promise<void> {
  const why = { reason: "secretreason", by: "secretperson" };
  await add("secret1", "shared", 3);
  await add("secret4", "secretaccount", 9);
  await utils.pause({ policy: "work", partition: "secret1", ...why });
  await utils.hold({ policy: "work", partition: "secret2", forMs: 60_000, ...why });
  await utils.setLimit({ policy: "work", gate: "account", key: "shared", set: { max: 2 }, ...why });
  await utils.setLimit({ policy: "work", gate: "account", key: "secretaccount", set: { max: 1 }, ...why });
  await utils.pause({ policy: "other_policy", partition: "secret3", ...why });
  await utils.tick();
  await utils.sweep();
}

const row = (page: string, key: string) =>
  [
    ...(page.split("<tr>").find((one) => one.includes(`>${key}</a>`)) ?? "").matchAll(
      /<td[^>]*>(.*?)<\/td>/g,
    ),
  ].map(([, cell]) => cell!.replace(/<[^>]*>/g, ""));

test("a tenant sees their partitions, their jobs and their own limits", async (t) => {
  const { text, mine } = await world(t);
  const page = await text("/");
  t.deepEqual(row(page, "mine"), [
    "work",
    "mine",
    "2",
    "2",
    "its own limit, concurrency",
    "–",
    "depends on others",
  ]);
  t.deepEqual(row(page, "mine too"), ["work", "mine too", "1", "1", "its turn", "–", "depends on others"]);
  t.is(page.match(/nothing: it has had no job lately/g)?.length, 3);
  t.regex(page, /ida, tenant/);
  t.deepEqual([...page.matchAll(/<nav.*?<\/nav>/gs)].flatMap(([nav]) => nav.match(/<a /g)).length, 1);

  const partition = await text("/partition?policy=work&partition=mine");
  t.regex(partition, /<dt>next job waits for<\/dt><dd>its own limit, concurrency<\/dd>/);
  t.deepEqual([...partition.matchAll(/\/job\?id=(\d+)">/g)].length, 4, "two that wait, and two in flight");
  t.notRegex(partition, /account|everybody|shared/);

  const [flying, , waiting] = mine;
  t.regex(
    await text(`/job?id=${flying!.id}`),
    /<dd>it was admitted, and has not started<\/dd>.*<dt>admitted</s,
  );
  t.regex(await text(`/job?id=${waiting!.id}`), /<dd>it waits<\/dd>.*its own limit/s);
});

test("a tenant sees when a job starts, unless that would tell how much others have used", async (t) => {
  const { utils, pool, text } = await world(t);
  const runAt = new Date(Date.now() + 86_400_000);
  const [shared, alone] = await utils.addJobs([
    { identifier: "work", payload: { k: "mine late", account: "late" }, runAt },
    { identifier: "other_policy", payload: { k: "mine" }, runAt },
  ]);
  await utils.tick();
  await table(pool, "policies").set({ crontab_ticked_at: () => "now()" }); // else nothing lets jobs go
  const starts = async (id: string) =>
    /<dt>expected to start<\/dt><dd>(.*?)<\/dd>/.exec(await text(`/job?id=${id}`))?.[1];
  t.regex((await starts(alone!.id)) ?? "", /^in (23 h|1 d)/);
  t.is(await starts(shared!.id), "depends on others");
  t.truthy((await utils.explain({ id: shared!.id })).estimate, "operators see it");
});

test("no answer names others, or what operators did and said", async (t) => {
  const it = await world(t, { showPayloads: true });
  await othersAct(it);
  const ids = await it.pool.query<{ id: string; partition: string }>(
    "select id::text, partition from dispatch_policy.jobs",
  );
  const others = ids.rows.filter(({ partition }) => !partition.startsWith("mine")).map(({ id }) => id);
  t.true(others.length > 20);
  const secrets = new RegExp(`secret|4242|account|everybody|id=(?:${others.join("|")})\\b`);
  const queries = [
    ...it.mine.map(({ id }) => `id=${id}`),
    ...[
      "policy=work&partition=mine",
      "policy=work&partition=secret1",
      "policy=other_policy&partition=secret3",
    ],
    ...["policy=undeclared&partition=mine", "policy=work&partition=%00", "from=1", "from=x", "id=x", ""],
    ...others.slice(0, 3).map((id) => `id=${id}`),
  ];
  const nothing = await it.text("/nothing");
  for (const path of [
    ...Object.keys(PAGES),
    ...Object.keys(ACTION_PAGES),
    ...Object.keys(BULK_PAGES),
    ...Object.keys(TICKED_PAGES),
    "/nothing",
  ])
    for (const query of queries) {
      const answer = await it.get(`${path}?${query}`);
      const text = await answer.text();
      t.true([200, 404].includes(answer.status), `${path}?${query}: ${answer.status}`);
      t.notRegex(text, secrets, `${path}?${query}`);
      t.notRegex(
        text,
        /<datalist|<small>[\d,]+\+?<\/small>/,
        `${path}?${query}: names and counts are of all`,
      );
      if (answer.status === 404) t.is(text, nothing, `${path}?${query}`);
    }
  for (const path of [
    "/job?id=x",
    `/job?id=${others[0]}`,
    "/job",
    "/partition?policy=work&partition=secret1",
    "/jobs",
  ])
    t.is((await it.get(path)).status, 404, path);
});

test("whatever others do, a tenant's pages stay as they are", async (t) => {
  const it = await world(t);
  const paths = ["/", "/partition?policy=work&partition=mine", "/partition?policy=work&partition=mine+too"];
  paths.push(...it.mine.map(({ id }) => `/job?id=${id}`));
  const before = await Promise.all(paths.map(it.text));
  await othersAct(it);
  for (const [place, path] of paths.entries()) t.is(await it.text(path), before[place]!, path);
  await it.utils.pause({ policy: "work", partition: "mine", reason: "secretreason", by: "secretperson" });
  t.deepEqual(row(await it.text("/"), "mine").slice(4), ["the end of a stop", "–", "depends on others"]);
});

test("a tenant of a value of the context sees its partitions, those that come later, and no others", async (t) => {
  const it = await world(t);
  const viewer: Viewer = {
    ...{ name: "eli", role: "tenant", where: { work: { account: "secretaccount" }, nobody: { a: 1 } } },
    partitions: { work: ["mine too"], other_policy: ["secret3"] },
  };
  const ui = createUi({ pool: it.pool, authorize: () => viewer });
  const ask = async (path: string) => {
    const answer = await ui(new Request(HERE + path, { headers: { "cache-control": "max-age=9" } }));
    return { status: answer.status, text: await answer.text() };
  };
  const keys = (page: string) => [...page.matchAll(/partition=([^"]+)">/g)].map(([, key]) => key).toSorted();
  t.deepEqual(keys((await ask("/")).text), ["mine+too", "secret2", "secret3"]);
  const [late] = await it.add("secret5", "secretaccount", 1);
  t.is((await ask(`/job?id=${late!.id}`)).status, 404, "its partition is not known yet");
  await it.utils.tick();
  t.is((await ask("/partition?policy=work&partition=secret5")).status, 200);
  t.is((await ask(`/job?id=${late!.id}&x`)).status, 200);
  for (const path of ["/partition?policy=work&partition=mine", `/job?id=${it.mine[0]!.id}`, "/partitions"])
    t.is((await ask(path)).status, 404, path);
  const other = createUi({
    pool: it.pool,
    authorize: () => ({ name: "eli", role: "tenant", where: { work: { account: "shared" } } }),
  });
  const page = await (await other(new Request(`${HERE}/`))).text();
  t.deepEqual(keys(page), ["mine", "mine+too", "secret1"]);
});

test("a job that has ended is found by its history alone, without its error", async (t) => {
  const ends = definePolicy("ends", { partitionBy: "k", history: { keep: "7 days" } });
  const forgets = definePolicy("forgets", { partitionBy: "k" });
  const fails = () => {
    throw new Error("the secret cause");
  };
  const { utils, pool, sees, everythingIsReleased } = await startWorker(t, {
    policies: [ends, forgets],
    tasks: { ends: fails, forgets: fails },
  });
  const [mine, its, forgotten] = await utils.addJobs([
    { identifier: "ends", payload: { k: "mine" }, maxAttempts: 1 },
    { identifier: "ends", payload: { k: "another's" }, maxAttempts: 1 },
    { identifier: "forgets", payload: { k: "mine" }, maxAttempts: 1 },
  ]);
  await sees("job:failed", 3);
  await everythingIsReleased();
  const { jobId } = (await utils.history({ partition: "another's" }))[0]!;
  const partitions = { ends: ["mine"], forgets: ["mine"] };
  const ui = createUi({ pool, authorize: () => ({ name: "ida", role: "tenant", partitions }) });
  const ask = async (id: string) => {
    const answer = await ui(new Request(`${HERE}/job?id=${id}`));
    return { status: answer.status, text: await answer.text() };
  };
  const shown = await ask(mine!.id);
  t.is(shown.status, 200);
  t.regex(shown.text, /<dt>outcome<\/dt><dd>failed<\/dd>/);
  t.notRegex(shown.text, /secret/);
  for (const id of [its!.id, jobId!, forgotten!.id]) t.is((await ask(id)).status, 404);
});

test("tenants do not share a page", async (t) => {
  const { pool } = await world(t);
  const keys: Readonly<Record<string, string[]>> = { ida: ["mine"], bea: ["secret1"] };
  const ui = createUi({
    pool,
    authorize: ({ headers }) => {
      const name = headers.get("who")!;
      return { name, role: "tenant", partitions: { work: keys[name]! } };
    },
  });
  const text = async (who: string) =>
    (await ui(new Request(`${HERE}/`, { headers: { who, "cache-control": "max-age=9" } }))).text();
  t.regex(await text("ida"), />mine<\/a>/);
  const beas = await text("bea");
  t.regex(beas, />secret1<\/a>/);
  t.notRegex(beas, />mine<\/a>/);
});

test("a long list of partitions goes on on another page", async (t) => {
  const { pool } = await world(t);
  const partitions = { work: Array.from({ length: 25 }, (_, n) => `k${n}`) };
  const ui = createUi({ pool, authorize: () => ({ name: "ida", role: "tenant", partitions }) });
  const first = await (await ui(new Request(`${HERE}/`))).text();
  const keys = (page: string) => page.match(/<td[^>]*>k\d+/g)?.map((one) => one.replace(/.*>/, ""));
  t.is(keys(first)?.length, 20);
  const [, next = ""] = /href="([^"]*)" rel="next"/.exec(first) ?? [];
  const second = await (await ui(new Request(HERE + next))).text();
  t.deepEqual(keys(second), ["k20", "k21", "k22", "k23", "k24"]);
  t.notRegex(second, /rel="next"/);
});
