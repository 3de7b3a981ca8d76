// Each action of the pages in Chromium: it counts first, asks why, and does what it says. The command and the SQL that it
// prints do the same to partitions like it. A run takes one action of two. Without a Chromium these tests are skipped.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import type { Browser, Page } from "playwright-core";
import { definePolicy, makePolicyUtils, type PolicyUtils } from "../../src/index.ts";
import { ACTIONS } from "../../src/ui/pages/actions.ts";
import { type ActionName, titleOf } from "../../src/ui/pages/form.ts";
import { createUi } from "../../src/ui/ui.ts";
import { atLength, type Register } from "../helpers/at-length.ts";
import { runInTurn } from "../helpers/command.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { findChromium, launch, noticed, served, titled } from "./browser.ts";

const work = definePolicy("work", {
  partitionBy: "k",
  gates: ({ concurrency }) => [concurrency({ max: 2 })],
});
const REASON = "it's -odd; $(ls)";
/** An action is done to the first by the page, to the second by the SQL that it prints, and to the third by the command. */
const WAYS = ["page", "sql", "command"] as const;

/** What the database says of a partition. Times are minutes from now. */
const STATE = `select p.paused, p.stop_reason as reason, p.stopped_by as by, p.staged, p.in_flight,
  round(extract(epoch from nullif(p.paused_until, 'infinity') - now()) / 60)::int as paused_for,
  round(extract(epoch from p.held_until - now()) / 60)::int as held_for,
  (select jsonb_agg(jsonb_build_array(o.set, round(extract(epoch from o.until - now()) / 60)::int, o.by, o.reason))
   from dispatch_policy.overrides o where o.policy = p.policy and o.key = p.partition) as limits,
  (select count(*)::int from dispatch_policy.staged_jobs s where s.policy = p.policy and s.partition = p.partition || ' moved') as moved,
  (select count(*)::int from dispatch_policy.jobs j where j.policy = p.policy and j.partition = p.partition and j.state = 'failed') as failed
from dispatch_policy.partitions p where p.policy = 'work' and p.partition = $1`;

const FRESH = {
  ...{ paused: false, reason: null, by: null, staged: 2, in_flight: 2, paused_for: null, held_for: null },
  ...{ limits: null, moved: 0, failed: 0 },
};
const WHY = { reason: REASON, by: "ana" };

interface Row {
  readonly verb: ActionName;
  /** What is done to each of the partitions before. Its first job is in flight. */
  readonly before?: (utils: PolicyUtils, partition: string, first: string) => Promise<unknown>;
  /** What the page says before it asks. */
  readonly counts?: RegExp;
  /** What is typed, by label. A text in which % stands for the partition. */
  readonly fields?: Readonly<Record<string, string>>;
  /** What the page says then, if one asks it for the difference. */
  readonly differs?: readonly string[];
  /** What differs afterwards from a fresh partition. */
  readonly after: Partial<Record<keyof typeof FRESH, unknown>>;
  /** What differs from it once the action is undone. */
  readonly undone?: Partial<Record<keyof typeof FRESH, unknown>>;
}

const REACH = /It concerns 1 partition, with 2 staged jobs and 2 in flight\./;
const TWO = /2 jobs match now\./;
const MINUTES = { "Another length": "10 minutes" };
const pause = (utils: PolicyUtils, partition: string) =>
  utils.pause({ policy: "work", partition, reason: "before", by: "bo" });
const setLimit = (utils: PolicyUtils, key: string) =>
  utils.setLimit({ policy: "work", gate: "concurrency", key, set: { max: 5 }, reason: "before", by: "bo" });

const ROWS: readonly Row[] = [
  {
    ...{ verb: "pause", counts: REACH, fields: MINUTES, after: { paused: true, paused_for: 10, ...WHY } },
    undone: {},
  },
  {
    ...{ verb: "resume", before: pause, counts: REACH, after: {} },
    undone: { paused: true, ...WHY },
  },
  { verb: "hold", counts: REACH, fields: MINUTES, after: { held_for: 10, ...WHY }, undone: {} },
  {
    ...{ verb: "admit", counts: TWO, fields: { "How many at most": "1" } },
    after: { staged: 1, in_flight: 3 },
  },
  {
    ...{ verb: "admit", counts: TWO, fields: { "How many at most": "all" } },
    after: { staged: 0, in_flight: 4 },
  },
  {
    ...{ verb: "set-limit", fields: { Gate: "concurrency", Key: "%", "Jobs at once": "5", ...MINUTES } },
    differs: ["max", "2", "5"],
    after: { limits: [[{ max: 5 }, 10, "ana", REASON]] },
    undone: {},
  },
  {
    ...{ verb: "clear-limit", before: setLimit, counts: REACH },
    differs: ["max", "5", "2"],
    after: {},
    undone: { limits: [[{ max: 5 }, null, "ana", REASON]] },
  },
  { verb: "move", counts: TWO, fields: { "To the partition": "% moved" }, after: { staged: 0, moved: 2 } },
  {
    verb: "retry",
    before: (utils, _, first) => utils.permanentlyFailJobs([first], "502"),
    ...{ counts: /1 job matches now\./, after: { in_flight: 1, staged: 3 } },
  },
  { verb: "remove", counts: TWO, after: { staged: 0 } },
  { verb: "cancel", counts: /4 jobs match now\./, after: { staged: 0, in_flight: 0, failed: 2 } },
  { verb: "release-slots", after: { in_flight: 1, staged: 3 } },
];

const program = findChromium();
const inBrowser: Register = program ? atLength : test.serial.skip;
let browser: Browser;
let it: Awaited<ReturnType<typeof world>>;
const ends: (() => unknown)[] = [];

if (program) {
  test.before(async () => {
    browser = await launch(program);
    it = await world();
  });
  test.after.always(async () => {
    for (const end of ends.toReversed()) await end();
    await browser?.close();
  });
}

/** Three partitions for each row, which are alike: two jobs in flight, and two that wait. */
async function world() {
  const { url, pool, drop } = await testDatabase();
  ends.push(drop);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  ends.push(() => utils.release());
  const firsts = new Map<string, string>();
  for (const n of ROWS.keys())
    for (const way of WAYS) {
      const job = { identifier: "work", payload: { k: keyOf(n, way) } };
      const [first] = await utils.addJobs([job, job, job, job]);
      firsts.set(keyOf(n, way), first!.id);
    }
  await utils.tick();
  const { base, close } = await served(
    createUi({ pool, authorize: () => ({ name: "ana", role: "operator" }) }),
  );
  ends.push(close);
  const context = await browser.newContext();
  ends.push(() => context.close());
  return { url, pool, utils, base, context, firstOf: (key: string) => firsts.get(key)! };
}

const keyOf = (n: number, way: (typeof WAYS)[number]) => `${ROWS[n]!.verb}-${n}-${way}`;

for (const [n, row] of ROWS.entries())
  inBrowser(
    `${row.verb}, ${n + 1} of ${ROWS.length}: the page, its SQL and its command`,
    async (t: ExecutionContext) => {
      const key = keyOf(n, "page");
      for (const way of WAYS) await row.before?.(it.utils, keyOf(n, way), it.firstOf(keyOf(n, way)));
      const page = await it.context.newPage();
      t.teardown(() => page.close());
      await open(page, row, key);
      if (row.counts) t.regex(await textOf(page), row.counts);
      await isFilledIn(t, page, row, key);
      await confirm(page, row.verb);
      const after = { ...FRESH, ...row.after };
      await page.reload();
      await noticed(page, BY_ANA);
      t.deepEqual(await stateOf(key), after, "by the page, once");

      const [command = "", sql = ""] = await page.locator(".notice pre").allTextContents();
      await it.pool.query(textFor(sql, n, "sql"));
      if (row.verb === "cancel") await it.utils.sweep(); // SQL leaves it to a sweep to free the slots
      t.deepEqual(await stateOf(keyOf(n, "sql")), after, sql);
      const { stderr, code } = await runInTurn(
        { DATABASE_URL: it.url },
        ...(await wordsOf(textFor(command, n, "command"))),
      );
      t.is(code, 0, stderr);
      t.deepEqual(await stateOf(keyOf(n, "command")), after, command);
      const audited = await it.pool.query(
        "select by, reason from dispatch_policy.audit where coalesce(scope_key, partition) = any($1) and by <> 'bo' order by id",
        [WAYS.map((way) => keyOf(n, way))],
      );
      t.deepEqual(
        audited.rows,
        [WHY, WHY, WHY].map(({ by, reason }) => ({ by, reason })),
      );
      await isUndone(t, page, row, key);
    },
  );

/** By the links that an operator would follow. */
async function open(page: Page, { verb }: Row, key: string): Promise<void> {
  const query = new URLSearchParams({ policy: "work", partition: key });
  if (verb === "clear-limit") await page.goto(`${it.base}/limits`);
  else if (verb === "release-slots") await page.goto(`${it.base}/job?id=${it.firstOf(key)}`);
  else await page.goto(`${it.base}/partition?${query}`);
  if (verb === "clear-limit")
    await page.locator("tr", { hasText: key }).getByRole("link", { name: "Clear limit" }).click();
  else {
    const more = page.locator("main .actions summary");
    if ((await more.count()) > 0) await more.click();
    await page.locator("main").getByRole("link", { name: ACTIONS[verb].label, exact: true }).last().click();
  }
  await titled(page, titleOf(ACTIONS[verb]));
}

/** Fills in the form, and asks for the difference if there is one. */
async function isFilledIn(t: ExecutionContext, page: Page, { verb, fields = {}, differs }: Row, key: string) {
  const form = page.locator("form.act");
  for (const [label, value] of Object.entries(fields)) {
    const name = new RegExp(`^${label}`);
    if ((await form.getByRole("combobox", { name }).count()) === 1)
      await form.getByLabel(name).selectOption(value);
    else await form.getByLabel(name).fill(value.replace("%", key));
  }
  if (!differs) return;
  if (verb === "set-limit") {
    await page.getByRole("button", { name: "show what changes" }).click();
    await page.getByRole("table").waitFor();
    t.regex(await textOf(page), REACH);
  }
  t.deepEqual(await page.locator("tbody td").allTextContents(), differs);
}

/** Without a reason nothing is done. */
async function confirm(page: Page, verb: ActionName): Promise<void> {
  const name = titleOf(ACTIONS[verb]);
  await page.getByRole("button", { name, exact: true }).click();
  await titled(page, name);
  await page.getByLabel("Reason, for the audit").fill(REASON);
  await page.getByRole("button", { name, exact: true }).click();
  await noticed(page, BY_ANA);
}

const BY_ANA = /\w+\. By ana( · Undo)?$/;

async function isUndone(t: ExecutionContext, page: Page, { verb, undone }: Row, key: string): Promise<void> {
  const inverse =
    { "set-limit": "clear-limit", "clear-limit": "set-limit" }[verb as string] ?? ACTIONS[verb].inverse;
  t.is(await page.getByRole("link", { name: "Undo" }).count(), inverse ? 1 : 0);
  if (!inverse) return;
  await page.getByRole("link", { name: "Undo" }).click();
  await titled(page, titleOf(ACTIONS[inverse as ActionName]));
  t.regex(await textOf(page), REACH);
  await page.getByLabel("Reason, for the audit").fill("");
  await confirm(page, inverse as ActionName);
  t.deepEqual(await stateOf(key), { ...FRESH, ...undone }, "undone");
}

/** What the page prints, for another partition that is like its own. */
function textFor(text: string, n: number, way: (typeof WAYS)[number]): string {
  const [from, to] = [keyOf(n, "page"), keyOf(n, way)];
  return text.replaceAll(from, to).replaceAll(it.firstOf(from), it.firstOf(to));
}

/** The words of a command, as a shell reads them. */
async function wordsOf(command: string): Promise<string[]> {
  const given = command.replace(/^npx graphile-worker-dispatch-policy /, "");
  const { stdout } = await promisify(execFile)("sh", ["-c", `printf '%s\\n' ${given}`]);
  return stdout.trimEnd().split("\n");
}

async function stateOf(partition: string): Promise<object | undefined> {
  return (await it.pool.query(STATE, [partition])).rows[0];
}

async function textOf(page: Page): Promise<string> {
  return ((await page.textContent("main")) ?? "").replace(/\s+/g, " ");
}

test("each action has its row", (t) => {
  t.deepEqual([...new Set<string>(ROWS.map(({ verb }) => verb))].toSorted(), Object.keys(ACTIONS).toSorted());
});
