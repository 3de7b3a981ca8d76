// No test can tell a database that another one had from a new one.
import test from "ava";
import pg from "pg";
import { concurrency, Engine } from "../helpers/engine.ts";
import { type LentDatabase, lentDatabase } from "../helpers/lent.ts";
import { nameOf, table } from "../helpers/table.ts";

/** Has a database as a test would. Returns its name. */
async function borrow(act: (database: LentDatabase) => Promise<unknown>, passed = true): Promise<string> {
  const ends: (() => unknown)[] = [];
  const database = await lentDatabase({ passed, teardown: (end) => void ends.unshift(end) });
  await act(database);
  for (const end of ends) await end();
  return database.url;
}

test.serial(
  "the next test gets it without the rows and with its sessions, which have nothing open",
  async (t) => {
    const seen: unknown[] = [];
    const use = async (database: LentDatabase) => {
      const { url, pool } = database;
      const world = new Engine(url, pool, { gates: [concurrency(1)] }, database);
      await world.declare();
      const session = await world.session();
      const { rows } = await session.query("show lock_timeout");
      const [id] = await world.stage(["a", "a"]);
      seen.push([rows[0].lock_timeout, session.pid, id, await world.staged(), await world.passes()]);
      await session.query(`set lock_timeout = '1h'; begin; lock table ${nameOf("limiters")}`);
    };
    t.is(await borrow(use), await borrow(use));
    t.deepEqual(seen[1], seen[0]);
  },
);

test.serial("a test in which the small way failed fails, though a pass did its work", async (t) => {
  const leave = (reason: string) =>
    borrow(({ pool }) =>
      table(pool, "activity").add({ policy_id: 1, at: new Date(), left_to_pass: { [reason]: 1 } }),
    );
  await leave("arrivals");
  await t.throwsAsync(leave("failed: 22012 in _first_lack line 7"), {
    message: /no assertion sees.*22012 in _first_lack/,
  });
});

test.serial("so does a test that leaves a count below zero", async (t) => {
  const leave = (in_flight: number) =>
    borrow(({ pool }) =>
      table(pool, "limiters").add({
        policy_id: 1,
        gate: "g",
        scope_key: "k",
        kind: "concurrency",
        breadth: 0,
        position: 0,
        in_flight,
      }),
    );
  await leave(0);
  await t.throwsAsync(leave(-1), { message: /no assertion sees: limiter \d+ has -1 jobs in flight/ });
});

const CHANGES: Record<string, string> = {
  "a table": "create table kept ()",
  "a function": "alter function dispatch_policy_internal._admit set lock_timeout = 0",
  statistics: `analyze ${nameOf("turns")}`,
  "a grant": "grant usage on schema dispatch_policy to public",
  "a setting": `do $$ begin execute format('alter database %I set lock_timeout = 1', current_database()); end $$`,
};

for (const [what, statement] of Object.entries(CHANGES))
  test.serial(`nobody gets it after a change: ${what}`, async (t) => {
    const changed = await borrow(({ pool }) => pool.query(statement));
    t.not(await borrow(async () => {}), changed);
  });

test.serial("nor after a failure, nor while somebody is connected", async (t) => {
  const failed = await borrow(async () => {}, false);
  const client: pg.Client[] = [];
  const connected = await borrow(async ({ url }) => {
    client.push(new pg.Client({ connectionString: url }));
    client[0]!.on("error", () => {});
    await client[0]!.connect();
  });
  const next = await borrow(async () => {});
  t.is(new Set([failed, connected, next]).size, 3);
});
