// What pages ask for reads what it shows, however much else there is. PostgreSQL counts the rows that a statement and its
// functions return or fetch, of tables and indexes.
import test from "ava";
import { concurrency, Engine, type EngineOptions, engine } from "../helpers/engine.ts";

const READ = `select sum(pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid))::int as rows
from pg_class c where c.relkind in ('r', 'i') and c.relnamespace = 'dispatch_policy_internal'::regnamespace`;

/** On a small table PostgreSQL takes all rows, where it takes those of an index on a large one. */
const BY_INDEX =
  "set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off";

/** What another look at the same rows may differ by: a page of an index that was split, say. */
const SLACK = 20;

async function ask(world: Engine, text: string, settings = BY_INDEX) {
  const client = await world.pool.connect();
  try {
    await client.query(
      `begin; set local search_path = pg_catalog, dispatch_policy_internal, pg_temp; ${settings}`,
    );
    const [first] = (await client.query<{ rows: number }>(READ)).rows;
    const { rows } = await client.query(text);
    const [last] = (await client.query<{ rows: number }>(READ)).rows;
    return { rows, read: last!.rows - first!.rows };
  } finally {
    await client.query("rollback");
    client.release();
  }
}

/** So many partitions more, with so many jobs each. */
async function come(world: Engine, name: string, count: number, each = 1) {
  const keys = Array.from({ length: count }, (_, n) => `${name}-${n}`);
  await world.stage(Array.from({ length: each }, () => keys).flat());
  while ((await world.route()) > 0);
  await world.pool.query("vacuum analyze");
}

test("the oldest due job is found without a look at the others, and not looked for by who asks for names", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const due = "oldest_due_age_seconds, oldest_due_id, oldest_due_partition";
  const seen: number[] = [];
  for (const count of [100, 1000]) {
    await come(world, `of ${count}`, count);
    const { rows, read } = await ask(world, `select ${due} from dispatch_policy.policies`);
    t.is(rows[0].oldest_due_partition, "of 100-0");
    seen.push(read);
  }
  t.true(seen[1]! <= seen[0]! + SLACK, `${seen}`);
  const plan = await ask(world, "explain select policy from dispatch_policy.policies");
  t.false(JSON.stringify(plan.rows).includes("staged_jobs"));
});

const ADMISSIBLE = `select dispatch_policy_internal._admissible_jobs(p, clock_timestamp()) as jobs
  from dispatch_policy_internal.policies p where p.name = 'p'`;

for (const [which, looked] of [
  ["ready", "clock_timestamp()"],
  ["not looked at yet", "timestamptz '-infinity'"],
] as const)
  test(`admissible jobs are counted by the first of each shard's partitions: ${which}`, async (t) => {
    const world = await engine(t, {
      gates: [concurrency(1)],
      shardOf: (key) => `shard ${Number(key.at(-1)) % 2}`,
    });
    const seen = [];
    for (const count of [300, 1500]) {
      await come(world, `of ${count}`, count);
      await world.pool.query(`update dispatch_policy_internal.partitions set looked_at = ${looked}`);
      await world.pool.query("vacuum analyze");
      seen.push(await ask(world, ADMISSIBLE));
    }
    for (const { rows } of seen) t.deepEqual(rows, [{ jobs: 100 }]);
    const [few, many] = seen.map(({ read }) => read) as [number, number];
    t.true(many <= few + SLACK, `${many} rows are read, and ${few} before`);
  });

const COUNTED =
  "select matched from dispatch_policy.remove(policy => 'p', partition => 'mine', dry_run => true)";

test("the jobs of a partition are found by index, due or not", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.stage(["mine", "mine"]);
  await world.stage("mine", { runAt: new Date(Date.now() + 3_600_000) });
  await world.stage("unrouted");
  const byId = (key: string) => `select partition, run_at < now() as due from dispatch_policy.staged_jobs
    where partition_id = dispatch_policy_internal._partition_id('p', '${key}') order by id`;
  t.deepEqual((await ask(world, byId("unrouted"))).rows, [{ partition: "unrouted", due: true }]);
  await come(world, "other", 200, 3);
  const before = [];
  for (const text of [byId("mine"), COUNTED]) before.push(await ask(world, text, ""));
  await come(world, "another", 600, 3);
  const after = [];
  for (const text of [byId("mine"), COUNTED]) after.push(await ask(world, text, ""));
  const mine = [true, true, false].map((due) => ({ partition: "mine", due }));
  for (const [listed, counted] of [before, after]) {
    t.deepEqual(listed!.rows, mine);
    t.deepEqual(counted!.rows, [{ matched: 3 }]);
  }
  for (const [n, { read }] of after.entries())
    t.true(read <= before[n]!.read + SLACK, `${read} rows are read, and ${before[n]!.read} before`);
});

test("the view policies reads each partition once, of however many policies", async (t) => {
  const options: EngineOptions = { gates: [concurrency(1)] };
  const world = await engine(t, options);
  await come(world, "of p", 500);
  const text = "select policy, partitions, staged, in_flight from dispatch_policy.policies order by policy";
  const one = await ask(world, text, "");
  for (const policy of ["q", "r", "s"])
    await new Engine(world.url, world.pool, { ...options, policy }).declare();
  const four = await ask(world, text, "");
  t.deepEqual(four.rows, [
    { policy: "p", partitions: 500, staged: 500, in_flight: 0 },
    ...["q", "r", "s"].map((policy) => ({ policy, partitions: 0, staged: 0, in_flight: 0 })),
  ]);
  t.true(four.read < one.read + 500, `${four.read} rows are read, and ${one.read} of one policy`);
});

test("the figures of one policy read the partitions of others once at most, and nothing else of them", async (t) => {
  const options: EngineOptions = { gates: [concurrency(1)] };
  const world = await engine(t, options);
  await come(world, "of p", 50);
  await world.admit({ claim: 10 });
  const text = "select * from dispatch_policy.policy_metrics('p')";
  const alone = await ask(world, text);
  const other = new Engine(world.url, world.pool, { ...options, policy: "q" });
  await other.declare();
  await come(other, "of q", 500);
  await other.admit({ claim: 100 });
  const beside = await ask(world, text);
  // partitions have no index by policy alone
  t.true(
    beside.read < alone.read + 500 + SLACK,
    `${beside.read} rows are read, and ${alone.read} without another policy`,
  );
});

test("who asks for figures of no partition and no gate has none read", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const read = [];
  for (const count of [50, 500]) {
    await come(world, `of ${count}`, count);
    await world.admit({ claim: count });
    await world.pool.query("vacuum analyze");
    read.push((await ask(world, "select * from dispatch_policy.metrics('{last_pass_age_seconds}')")).read);
  }
  t.true(read[1]! <= read[0]! + SLACK, `${read} rows are read`);
});

test("the partitions that wait with the most jobs and those admitted most are found by one look at each", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.stage(["few", "most", "most", "most", "more", "more", "once"]);
  await world.route();
  await world.admit();
  const { rows } = await world.pool.query(
    `select v.partition, t.waits, t.admitted_most from dispatch_policy.top_partitions('p', 2, 1) t
     join dispatch_policy.partitions v on v.id = t.id where t.waits order by v.staged desc`,
  );
  t.deepEqual(
    rows.map(({ partition }) => partition),
    ["most", "more"],
  );
  const { rows: all } = await world.pool.query(
    `select count(*) filter (where t.waits)::int as waiting, count(*) filter (where t.admitted_most)::int as admitted
     from dispatch_policy.top_partitions('p', 10, 10) t`,
  );
  t.deepEqual(all, [{ waiting: 2, admitted: 4 }]);
  await come(world, "of many", 500);
  const { read } = await ask(world, "select * from dispatch_policy.top_partitions('p', 2, 1)", "");
  t.true(read < 2 * 504, `${read} rows are read`);
});

test("figures by reason are those of the view partitions, whatever stops a partition or its policy", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const other = new Engine(world.url, world.pool, { gates: [concurrency(1)], policy: "q" });
  await other.declare();
  for (const it of [world, other]) {
    await it.stage(["paused", "held", "was held", "full", "full", "full", "none"]);
    await it.stage(["later", "later and held"], { runAt: new Date(Date.now() + 3_600_000) });
    await it.route();
  }
  const { pool } = world;
  for (const policy of ["p", "q"]) {
    await pool.query("select from dispatch_policy.pause($1, partition => 'paused')", [policy]);
    for (const key of ["held", "later and held"])
      await pool.query("select from dispatch_policy.hold($1, $2, \"for\" => '1 hour')", [policy, key]);
  }
  await world.route();
  await pool.query("select dispatch_policy_internal._admit('p', 'default', 1, null, false)");
  const figures = async () =>
    (
      await pool.query(`select labels ->> 'policy' as policy, labels ->> 'reason' as reason, value::int as partitions
        from dispatch_policy.metrics() where name = 'waiting_partitions' order by 1, 2`)
    ).rows;
  const shown = async () =>
    (
      await pool.query(`select v.policy, coalesce(v.reason, case when q.due_at > now() then 'not_due' else 'none' end) as reason,
          count(*)::int as partitions
        from dispatch_policy.partitions v join dispatch_policy_internal.partitions q on q.id = v.id
        where v.staged > 0 group by 1, 2 order by 1, 2`)
    ).rows;
  const before = await figures();
  t.deepEqual(before, await shown());
  t.true(new Set(before.map(({ reason }) => reason)).size >= 4, JSON.stringify(before));
  await pool.query("select from dispatch_policy.pause('q')");
  const after = await figures();
  t.deepEqual(after, await shown());
  t.deepEqual(
    after.filter(({ policy }) => policy === "q").map(({ reason }) => reason),
    ["paused"],
  );
  const { rows: ofAll } = await pool.query(`select name, labels, value from dispatch_policy.metrics()
    where labels ->> 'policy' = 'p' order by 1, 2`);
  const { rows: ofOne } = await pool.query(
    "select name, labels, value from dispatch_policy.policy_metrics('p') order by 1, 2",
  );
  const steady = (rows: { name: string }[]) =>
    rows.filter(({ name }) => !["oldest_due_age_seconds", "last_pass_age_seconds"].includes(name));
  t.deepEqual(steady(ofOne), steady(ofAll));
  t.is(ofOne.length, ofAll.length);
  for (const { name } of ofOne) {
    const named = `name = '${name}' order by 2`;
    const { rows } = await pool.query(`select * from dispatch_policy.metrics('{${name}}') where ${named}`);
    const { rows: all } = await pool.query(`select * from dispatch_policy.metrics() where ${named}`);
    t.deepEqual(steady(rows), steady(all));
    const { rows: others } = await pool.query(
      `select * from dispatch_policy.metrics('{${name}}') where name <> '${name}'`,
    );
    t.deepEqual(others, []);
  }
});

test("a search reads each partition a few times at most, and of staged jobs those that it names", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const [id] = await world.stage("mine", { jobKey: "its key" });
  await come(world, "of few", 100, 10);
  const queries = ["mine", "mime", id!, "its key", "its kez", "nothing like it"];
  const text = (query: string) => `select kind from dispatch_policy.search('${query}')`;
  const few = [];
  for (const query of queries) few.push(await ask(world, text(query), ""));
  await come(world, "of many", 300, 10);
  for (const [n, query] of queries.entries()) {
    const { rows, read } = await ask(world, text(query), "");
    t.deepEqual(rows, few[n]!.rows, query);
    t.is(rows.length, query.startsWith("nothing") ? 0 : 1, query);
    const more = read - few[n]!.read;
    t.true(
      more <= 300 + SLACK,
      `${query}: ${more} rows more are read, and there are 300 partitions and 3,000 jobs more`,
    );
  }
});
