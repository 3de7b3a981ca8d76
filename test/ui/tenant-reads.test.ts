// What a tenant's pages read. A page that read rows of others would take longer the more they have, and tell that by its time.
// So rows are counted, as PostgreSQL counts them: those that statements and functions return or fetch, of tables and indexes.
//
// Two things that others have do count, and so are the same here all the time. The table of jobs in flight is small, has no index
// by partition, and is read as a whole. Of the partitions that wait in one line, up to 1,000 that go first are read: the
// tenant's own wait for their own limits.
import test, { type ExecutionContext } from "ava";
import type pg from "pg";
import { definePolicy, makePolicyUtils } from "../../src/index.ts";
import { createUi, type Tenant } from "../../src/ui/ui.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { silent } from "../helpers/silent.ts";
import { HERE } from "./world.ts";

const work = definePolicy("work", {
  context: (payload) => payload as { account: string },
  partitionBy: "k",
  gates: ({ concurrency }) => [
    concurrency({ max: 2 }),
    concurrency({ name: "account", scope: (ctx) => ctx.account, max: 3 }),
    concurrency({ name: "all", scope: "policy", max: 6 }),
  ],
});
const IDA: Tenant = { name: "ida", role: "tenant", partitions: { work: ["mine", "mine too"] } };

const READ = `select sum(pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid))::int as rows
from pg_class c where c.relkind in ('r', 'i') and c.relnamespace::regnamespace::text in ('dispatch_policy', 'graphile_worker')`;

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
    utils.addJobs(Array.from({ length: count }, () => ({ identifier: "work", payload: { k, account } })));
  const [flying] = await add("mine", "shared", 4);
  const [waiting] = await add("mine too", "another", 3);
  await utils.tick();
  const reads: { statements: Read[] } = { statements: [] };
  const ui = createUi({ pool: counting(pool, reads), authorize: () => tenant });
  return {
    mine: [flying!.id, waiting!.id],
    /** Others get these partitions, with three staged jobs each. As many jobs as before are in flight. */
    async othersCome(from: number, to: number) {
      const jobs = Array.from({ length: (to - from) * 3 }, (_, n) => ({
        identifier: "work",
        payload: { k: `other ${from + Math.floor(n / 3)}`, account: n % 2 ? "shared" : `account ${n}` },
      }));
      const [first] = await utils.addJobs(jobs);
      for (let n = 0; n < 10; n++) await utils.tick();
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

test("whatever others have in staging, a tenant's pages read as many rows as before", async (t) => {
  const it = await world(t);
  const paths = ["/", "/partition?policy=work&partition=mine", ...it.mine.map((id) => `/job?id=${id}`)];
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

test("what is another's and what is not there get the same bytes, by the same statements", async (t) => {
  const it = await world(t);
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
      !foreign.startsWith("/partition") || one.statements.length === 0,
      "a key is looked up in the tenant's own alone",
    );
  }
});

function textOf([text]: Read): string {
  return text;
}
