// Limits that are over: who set them and why, and what ended them.
import test from "ava";
import type pg from "pg";
import { nameOf, table } from "../helpers/table.ts";
import { cellsOf, world } from "./world.ts";

const GATE = { policy: "fetch_endpoint", gate: "account" } as const;

/** An hour later for the audit and the limits. */
async function anHourLater(pool: pg.Pool): Promise<void> {
  const earlier = (its: string) => `${its} - interval '1 hour'`;
  const detail = (its: string) => `${its}
    || case when ${its} ->> 'until' is null then '{}' else jsonb_build_object('until', (${its} ->> 'until')::timestamptz - interval '1 hour') end
    || case when ${its} ->> 'from' is null then '{}' else jsonb_build_object('from', (${its} ->> 'from')::timestamptz - interval '1 hour') end`;
  await table(pool, "audit").set({ at: earlier, detail });
  await table(pool, "overrides").set({ from_at: earlier, until_at: earlier, set_at: earlier });
}

test("each limit that is over says who set it and why, and what ended it", async (t) => {
  const { text, utils, pool } = await world(t);
  const inMinutes = (count: number) => new Date(Date.now() + count * 60_000);
  const set = (key: string, max: number, more: object = {}) =>
    utils.setLimit({ ...GATE, key, set: { max }, reason: `${key}${max}`, by: "bo", ...more });
  await set("cleared", 1);
  await utils.clearLimit({ ...GATE, key: "cleared", reason: "it is over", by: "cy" });
  await set("replaced", 1);
  await set("replaced", 2, { by: "di" });
  await set("timed", 1, { until: inMinutes(20) });
  await set("taken-back", 1, { from: inMinutes(90) });
  await utils.clearLimit({ ...GATE, key: "taken-back", reason: "no need", by: "cy" });
  await set("later", 1);
  await set("later", 2, { from: inMinutes(90) });
  const plan = { policy: "fetch_endpoint", gate: "concurrency", where: { plan: "free" } };
  await utils.setLimit({ ...plan, set: { max: 4 }, reason: "plans", by: "bo" });
  await utils.clearLimit({ ...plan, reason: "sold", by: "cy" });
  await utils.hold({ ...GATE, key: "held", forMs: 20 * 60_000, reason: "429", by: "bo" });
  await utils.hold({ ...GATE, key: "held", forMs: 30 * 60_000, reason: "429 again", by: "di" });
  await anHourLater(pool);
  // what is in force is not over
  const inForce = new Set((await utils.limits({ policy: "fetch_endpoint" })).map(({ reason }) => reason));
  t.deepEqual([...inForce].sort(), ["later1", "later2", "replaced2"]);

  const { rows } = await pool.query("select * from dispatch_policy.past_limits order by id desc");
  const cells = cellsOf(await text("/limits"), "Limits that are over");
  t.deepEqual(
    cells.map(([policy, gate, reach, values, from, , by, reason, end]) => [
      ...[policy, gate, reach, values, by, reason, from === "never began", end],
    ]),
    [
      ["fetch_endpoint", "account", "held", "hold", "di", "429 again", false, "its end came"],
      [
        "fetch_endpoint",
        "account",
        "held",
        "hold",
        "bo",
        "429",
        false,
        "a longer hold took its place, by di: 429 again",
      ],
      [
        ...["fetch_endpoint", "concurrency", "every partition with plan=free"],
        ...["max 4", "bo", "plans", false, "cleared, by cy: sold"],
      ],
      [
        "fetch_endpoint",
        "account",
        "taken-back",
        "max 1",
        "bo",
        "taken-back1",
        true,
        "cleared, by cy: no need",
      ],
      ["fetch_endpoint", "account", "timed", "max 1", "bo", "timed1", false, "its end came"],
      [
        ...["fetch_endpoint", "account", "replaced", "max 1", "bo", "replaced1", false],
        "another one took its place, by di: replaced2",
      ],
      [
        "fetch_endpoint",
        "account",
        "cleared",
        "max 1",
        "bo",
        "cleared1",
        false,
        "cleared, by cy: it is over",
      ],
    ],
  );
  for (const [n, { from, ended_at, never_began }] of rows.entries()) {
    const says = (at: Date) => at.toISOString().slice(0, 19).replace("T", " ");
    if (!never_began) t.is(cells[n]![4], says(from));
    t.is(cells[n]![5], says(ended_at));
    t.true(ended_at.getTime() <= Date.now());
  }
});

test("a limit that another one ends later is over at that time, and not before", async (t) => {
  const { utils, pool } = await world(t);
  const half = new Date(Date.now() + 30 * 60_000);
  await utils.setLimit({ ...GATE, key: "a", set: { max: 1 }, reason: "one", by: "bo" });
  await utils.setLimit({ ...GATE, key: "a", set: { max: 2 }, from: half, reason: "two", by: "bo" });
  const over = async () =>
    (await pool.query("select reason, ended_at, ended_by_verb from dispatch_policy.past_limits")).rows;
  t.deepEqual(await over(), []);
  await anHourLater(pool);
  const [one, ...others] = await over();
  t.like(one, { reason: "one", ended_by_verb: "set_limit" });
  t.is(one.ended_at.getTime(), half.getTime() - 3_600_000);
  t.deepEqual(others, []);
});

test("older ones are on further pages, without a gap", async (t) => {
  const { text, utils, pool } = await world(t);
  await utils.setLimit({ ...GATE, key: "k", set: { max: 1 }, reason: "r", by: "bo" });
  const audit = table(pool, "audit");
  const { policy, gate, scope_key, detail } = await audit.one({ verb: "set_limit" });
  const again = { verb: "set_limit", policy, gate, scope_key, detail, by: "bo", matched: 1, changed: 1 };
  await audit.add(again, 60);
  let seen = 0;
  for (let path: string | undefined = "/limits"; path !== undefined; ) {
    const page: string = await text(path);
    seen += cellsOf(page, "Limits that are over").length;
    path = /href="([^"]*)" rel="next"/.exec(page)?.[1]?.replaceAll("&amp;", "&");
  }
  t.is(seen, 60);
});

test("with a limit in force for each of many keys, each looks only at the calls for its own", async (t) => {
  const { utils, pool } = await world(t);
  await utils.setLimit({ ...GATE, key: "over", set: { max: 1 }, reason: "r", by: "bo" });
  await utils.clearLimit({ ...GATE, key: "over", reason: "r", by: "bo" });
  const keys = 300;
  const call = { policy: GATE.policy, by: "bo", matched: 1, changed: 1 };
  const limit = {
    verb: "set_limit",
    gate: GATE.gate,
    scope_key: () => "'key ' || n",
    detail: { set: { max: 1 } },
  };
  await table(pool, "audit").add({ ...call, ...limit }, keys);
  await table(pool, "audit").add({ ...call, verb: "pause" }, keys);
  await pool.query(`vacuum analyze ${nameOf("audit")}`);
  const client = await pool.connect();
  try {
    await client.query("begin");
    // on a small table PostgreSQL takes all rows, where it takes those of an index on a large one
    await client.query(
      "set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off",
    );
    // what the connection has read before counts as well, until PostgreSQL writes it down
    const readSoFar = async () =>
      (
        await client.query<{ rows: number }>(
          `select sum(pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid))::int as rows
           from pg_class c left join pg_index i on i.indexrelid = c.oid
           where $1::regclass in (c.oid, i.indrelid)`,
          [nameOf("audit")],
        )
      ).rows[0]!.rows;
    const before = await readSoFar();
    const { rows } = await client.query(
      "select key from dispatch_policy.past_limits order by id desc limit 50",
    );
    t.deepEqual(rows, [{ key: "over" }]);
    const read = (await readSoFar()) - before;
    t.true(read < keys * 10, `${read} rows`);
  } finally {
    await client.query("rollback");
    client.release();
  }
});
