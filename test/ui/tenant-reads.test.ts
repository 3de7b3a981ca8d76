// What a tenant's pages read. A page that read rows of others would take longer the more they have, and tell that by its time.
// So rows are counted, as PostgreSQL counts them: those that statements and functions return or fetch, of tables and indexes.
//
// Two things that others have do count, and so are the same here all the time. The table of jobs in flight is small, has no index
// by partition, and is read as a whole. Of the partitions that wait in one line, up to 1,000 that go first are read: the
// tenant's own wait for their own limits.
//
// The page that finds partitions by their context reads up to MOST_READ of them, of whomever, and no more.
import test, { type ExecutionContext } from "ava";
import type pg from "pg";
import { definePolicy, makePolicyUtils } from "../../src/index.ts";
import { MOST_READ } from "../../src/ui/pages/tenant/own.ts";
import { createUi, type Tenant } from "../../src/ui/ui.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { HERE } from "./world.ts";

const work = definePolicy("work", {
  context: (payload) => payload as { account: string; owner?: string },
  partitionBy: "k",
  gates: ({ concurrency }) => [
    concurrency({ max: 2 }),
    concurrency({ name: "account", scope: (ctx) => ctx.account, max: 3 }),
    concurrency({ name: "all", scope: "policy", max: 6 }),
  ],
});
const IDA: Tenant = { name: "ida", role: "tenant", partitions: { work: ["mine", "mine too"] } };
/** The same partitions, by their context. */
const EVE: Tenant = { name: "eve", role: "tenant", where: { work: { owner: "me" } } };

const READ = `select sum(pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid))::int as rows
from pg_class c where c.relkind in ('r', 'i') and c.relnamespace::regnamespace::text in ('dispatch_policy_internal', 'graphile_worker')`;

/** On a small table PostgreSQL takes all rows, where it takes those of an index on a large one. */
const BY_INDEX =
  "set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off";

/** A statement, and how many rows it read. */
type Read = readonly [statement: string, rows: number];

/** A pool of which each transaction says at its end what it has read. */
function counting(pool: pg.Pool, reads: { statements: Read[] }): pg.Pool {
  const query = async (client: pg.PoolClient, ...args: readonly unknown[]) => {
    const [given] = args;
    const text = typeof given === "string" ? given : (given as { text: string }).text;
    if (/^(begin|rollback)/.test(text)) {
      const answer = await client.query(...(args as [string]));
      if (text !== "rollback") await client.query(BY_INDEX);
      return answer;
    }
    const rows = async () => (await client.query<{ rows: number }>(READ)).rows[0]!.rows;
    const before = await rows();
    const answer = await client.query(...(args as [string]));
    reads.statements.push([text, (await rows()) - before]);
    return answer;
  };
  const connect = async () => {
    const client = await pool.connect();
    return new Proxy(client, {
      get(target, name) {
        if (name === "query") return (...args: readonly unknown[]) => query(target, ...args);
        const value = Reflect.get(target, name);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  };
  return { connect } as unknown as pg.Pool;
}

async function world(t: ExecutionContext, tenant: Tenant = IDA) {
  const { pool } = await lentDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  t.teardown(() => utils.release());
  const add = (k: string, account: string, count: number) =>
    utils.addJobs(
      Array.from({ length: count }, () => ({ identifier: "work", payload: { k, account, owner: "me" } })),
    );
  const [flying] = await add("mine", "shared", 4);
  const [waiting] = await add("mine too", "another", 3);
  await utils.tick();
  const reads: { statements: Read[] } = { statements: [] };
  const ui = createUi({ pool: counting(pool, reads), authorize: () => tenant });
  return {
    pool,
    mine: [flying!.id, waiting!.id],
    /** So many partitions with a job each. */
    async add(name: string, count: number, owner: string) {
      await utils.addJobs(
        Array.from({ length: count }, (_, n) => ({
          identifier: "work",
          payload: { k: `${name} ${n}`, account: "another", owner },
        })),
      );
    },
    /** Others get these partitions, with so many staged jobs each. As many jobs as before are in flight. */
    async othersCome(from: number, to: number, each = 3) {
      const jobs = Array.from({ length: (to - from) * each }, (_, n) => ({
        identifier: "work",
        payload: { k: `other ${from + Math.floor(n / each)}`, account: n % 2 ? "shared" : `account ${n}` },
      }));
      const [first] = await utils.addJobs(jobs);
      const unrouted = async () => (await table(pool, "arrivals").count()) > 0;
      do await utils.tick();
      while (await unrouted());
      await pool.query("vacuum analyze");
      return first!.id;
    },
    async ask(path: string) {
      reads.statements.length = 0;
      const answer = await ui(new Request(HERE + path));
      const said = { status: answer.status, headers: [...answer.headers], text: await answer.text() };
      return { said, statements: [...reads.statements] };
    },
  };
}

/** What another look at the same rows may differ by: a page of an index that was split, say. */
const SLACK = 10;

for (const tenant of [IDA, EVE])
  test(`whatever others have in staging, the pages of ${tenant.name} read as many rows as before`, async (t) => {
    const it = await world(t, tenant);
    const paths = ["/partition?policy=work&partition=mine", ...it.mine.map((id) => `/job?id=${id}`)];
    if (tenant === IDA) paths.push("/"); // the other one looks for partitions there: see below
    await it.othersCome(0, 400);
    const before = [];
    for (const path of paths) before.push(await it.ask(path));
    await it.othersCome(400, 1200);
    for (const [place, path] of paths.entries()) {
      const { said, statements } = await it.ask(path);
      t.is(said.status, 200, path);
      t.deepEqual(statements.map(textOf), before[place]!.statements.map(textOf), path);
      for (const [n, [text, rows]] of statements.entries()) {
        const [, rowsBefore] = before[place]!.statements[n]!;
        t.true(rows <= rowsBefore + SLACK, `${path}: ${text} read ${rows} rows, and ${rowsBefore} before`);
      }
    }
  });

/** Of a partition that is looked at: its entry in the index, and its row, each as returned and as fetched. */
const ROWS_OF_ONE = 4;

test("to find partitions by their context, a page reads so many rows and no more; the next ones go on", async (t) => {
  const it = await world(t, EVE);
  await it.othersCome(0, MOST_READ + 500, 1);
  const rows: number[] = [];
  const found: string[] = [];
  let path: string | undefined = "/";
  while (path !== undefined) {
    const { said, statements } = await it.ask(path);
    found.push(...[...said.text.matchAll(/partition=([^"]+)">/g)].map(([, key]) => key!));
    const looked = statements.filter(([text]) => text.includes("partitions_with"));
    t.is(looked.length, 1);
    rows.push(looked[0]![1]);
    path = /href="([^"]*)" rel="next"/.exec(said.text)?.[1]?.replaceAll("&amp;", "&");
  }
  t.deepEqual(found.toSorted(), ["mine", "mine+too"]);
  t.is(rows.length, 2);
  const most = (MOST_READ + SLACK) * ROWS_OF_ONE;
  t.true(rows[0]! <= most && rows[0]! > MOST_READ, `${rows}`);
  await it.othersCome(MOST_READ + 500, MOST_READ + 3000, 1);
  const { statements } = await it.ask("/");
  const [, again] = statements.find(([text]) => text.includes("partitions_with"))!;
  t.true(again <= most, `${again} rows, and ${rows[0]} before`);
});

test("pages of partitions of a context follow one another without a gap, and begin at no id of another's", async (t) => {
  const it = await world(t, EVE);
  await it.add("work", 60, "me");
  await it.othersCome(0, 140, 1);
  type Page = { keys: string[]; goes_on: string | null; read: number };
  const page = async (after: string | null, most: number, mostRead: number) =>
    (
      await it.pool.query<Page>(
        `select * from dispatch_policy.partitions_with('work', '{"owner": "me"}', $1, $2, $3)`,
        [after, most, mostRead],
      )
    ).rows[0]!;
  const { rows } = await it.pool.query<{ id: string; partition: string; own: boolean }>(
    `select id, partition, context @> '{"owner": "me"}' as own from dispatch_policy.partitions order by id`,
  );
  const own = rows.filter((row) => row.own);
  t.is(own.length, 62);
  for (const [most, mostRead] of [
    ...[[1, 1] as const, [7, 3] as const, [3, 50] as const],
    ...[[500, 7] as const, [500, 500] as const],
  ]) {
    const keys: string[] = [];
    let after: string | null = null;
    do {
      const found: Page = await page(after, most, mostRead);
      t.true(found.keys.length <= most);
      keys.push(...found.keys);
      after = found.goes_on;
      t.true(
        after === null ||
          after.endsWith("-0000-0000-0000-000000000000") ||
          own.some(({ id }) => id === after),
        `${after}`,
      );
    } while (after !== null);
    t.deepEqual(
      keys,
      own.map(({ partition }) => partition),
      `${most}, ${mostRead}`,
    );
  }
  for (const { id } of rows.filter((row) => !row.own))
    t.deepEqual(
      await page(id, 5, 20),
      await page(`${id.slice(0, 3)}00000-0000-0000-0000-000000000000`, 5, 20),
    );
  t.deepEqual(await page(null, 5, 20), await page("00000000-0000-0000-0000-000000000000", 5, 20));
});

for (const tenant of [IDA, EVE])
  test(`what is another's and what is not there get the same bytes, by the same statements: ${tenant.name}`, async (t) => {
    const it = await world(t, tenant);
    const theirs = await it.othersCome(0, 50);
    const nothing = await it.ask("/nothing");
    t.is(nothing.said.status, 404);
    for (const [foreign, missing] of [
      ["/partition?policy=work&partition=other+1", "/partition?policy=work&partition=nobody"],
      [`/job?id=${theirs}`, `/job?id=${BigInt(theirs) + 1_000_000n}`],
      ["/jobs?policy=work", "/jobs?policy=nothing"],
    ] as const) {
      const [one, other] = [await it.ask(foreign), await it.ask(missing)];
      t.deepEqual(one.said, other.said, foreign);
      t.deepEqual(one.said, nothing.said, foreign);
      t.deepEqual(one.statements.map(textOf), other.statements.map(textOf), foreign);
      t.true(
        !foreign.startsWith("/partition") || one.statements.length === (tenant === IDA ? 0 : 1),
        "a key is looked up in the tenant's own alone, and a context by the key",
      );
    }
  });

function textOf([text]: Read): string {
  return text;
}
