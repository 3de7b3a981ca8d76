// The router beside transactions that others leave open, and beside arrivals it cannot apply.
import { readdirSync, readFileSync } from "node:fs";
import test from "ava";
import { migrate } from "../../../src/db/migrate.ts";
import { concurrency, type Engine, engine, type Queryable, throttle } from "../../helpers/engine.ts";
import { roles } from "../../helpers/roles.ts";
import { nameOf } from "../../helpers/table.ts";

const SQL = new URL("../../../sql/", import.meta.url);
const SRC = new URL("../../../src/", import.meta.url);

const HOLD_HOT = "select dispatch_policy.hold('p', 'hot', now() + interval '1 hour')";

/** As many single adds of a job that is staged already, as notes. */
async function arrive(world: Engine, partition: string, count: number): Promise<void> {
  const { id, key, limits } = await world.partition(partition);
  const now = () => "now()";
  const note = { policy: "p", partition_id: id, key, limits: JSON.stringify(limits) };
  const head = { due_at: now, head_run_at: now, head_id: () => "10^15::bigint + n" };
  await world.table("arrivals").add({ ...note, ...head }, count);
}

/** Routes a batch of so many at most. */
function routeSome(world: Engine, most: number): Promise<number> {
  return world.number("select dispatch_policy_internal._route('p', null, $1)", [most]);
}

function arrivals(world: Engine): Promise<number> {
  return world.table("arrivals").count();
}

test("more arrivals than a batch, of a partition that a transaction holds, keep nobody else waiting", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage("hot");
  t.is(await world.passes(), 1);
  const app = await world.session();
  await app.query("begin");
  await app.query(HOLD_HOT);
  await world.stage("hot");
  await arrive(world, "hot", 10_500);
  await world.stage(["other", "third"]);

  t.is(await world.passes(), 2, "those of other and third");
  t.true((await arrivals(world)) < 1000, "what waits for the partition is read once, not on each pass");
  t.is(await world.route(), 0, "nothing that it can do");
  await app.query("rollback");
  t.is(await world.passes(), 1);
  t.is(await arrivals(world), 0);
});

test("arrivals that are merged while their partition is locked do what they would have done", async (t) => {
  const cap = (max: number) => [concurrency(max)];
  const lives: unknown[] = [];
  for (const max of [10_000, 3]) {
    const world = await engine(t, { gates: cap(2) });
    await world.stage("a");
    await world.route();
    const app = await world.session();
    await app.query("begin");
    await world.table("partitions", app).lock();
    await world.stage("a", { gates: cap(7), priority: -5, cost: 0.5 });
    await world.stage("a", { gates: cap(9), weight: 3, runAt: new Date(0) });
    await world.stage("a", { gates: cap(8), priority: 3, weight: 2 });
    await world.pool.query("select dispatch_policy_internal._route('p', null, $1)", [max]);
    t.is(await arrivals(world), max === 3 ? 1 : 3);
    await app.query("commit");
    await world.route();
    const { weight, min_cost, head_priority, head_id, head_run_at, due_at } = await world.partition("a");
    const [first] = await world.table("staged_jobs").all({ priority: -5 });
    const isHead = head_id === first.id && +head_run_at === +first.run_at && due_at <= first.run_at;
    const { max: limit } = await world.limiter("concurrency");
    lives.push({ weight, min_cost, head_priority, isDue: due_at < new Date(), isHead, limit });
  }
  t.deepEqual(lives[0], lives[1]);
  t.like(lives[0], { weight: 2, min_cost: 0.5, head_priority: -5, limit: 8 });
});

test("new numbers for a limiter that a transaction holds wait alone", async (t) => {
  const account = (max: number) => [concurrency(max, { name: "account", scope: (key) => key.slice(0, 1) })];
  const world = await engine(t, { gates: account(1) });
  await world.stage(["a1", "b1"]);
  t.is(await world.passes(), 2);
  const app = await world.session();
  await app.query("begin");
  await world.table("limiters", app).lock({ scope_key: "a" }, "no key update");
  await world.stage(["a1", "a2", "b1", "b2", "c1"], { gates: account(3) });

  t.is(await world.route(), 3, "those of b and c");
  t.is(await arrivals(world), 2);
  t.is((await world.limiter("account", "b")).max, 3);
  t.is((await world.admit()).admitted, 3);
  await app.query("rollback");
  t.is(await world.passes(), 2);
  t.is((await world.limiter("account", "a")).max, 3);
});

/** The limits of an arrival, with this as the cap. */
const ofMax = (max: string) => (its: string) => `jsonb_set(${its}, '{0,max}', '${max}')`;

test("arrivals that raise an error are left, and the rest of their batch is routed", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  const keys = Array.from({ length: 40 }, (_, n) => `k${n}`);
  await world.stage(keys);
  for (const key of ["k3", "k17", "k38"])
    await world.table("arrivals").set({ limits: ofMax("1e20") }, { key });
  const routing = await world.session();
  const warnings: (string | undefined)[] = [];
  routing.on("notice", ({ message }) => void warnings.push(message));

  t.is(await world.route(routing), 37);
  t.is((await world.admit()).admitted, 37);
  t.is(warnings.length, 3);
  t.regex(warnings[0] ?? "", /policy 'p' cannot route the arrivals of partition .*out of range/);
  await world.table("arrivals").set({ limits: ofMax("1") });
  t.is(await world.passes(), 3);
});

test("however many arrivals raise an error, each pass gets further", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage(Array.from({ length: 300 }, (_, n) => `k${n}`));
  await world.table("arrivals").set({ limits: ofMax("1e20") }, { id: (its) => `${its} % 10 = 0` });
  const routed: number[] = [];
  while ((await arrivals(world)) > 30 && routed.length < 100) routed.push(await world.route());
  t.log(routed.join(" "));
  t.is(await arrivals(world), 30);
});

test("a resume in an open transaction, of a partition that no job has made yet, stops no router", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.pool.query("select dispatch_policy.pause('p', partition => 'a')");
  const operator = await world.session();
  await operator.query("begin");
  await operator.query("select dispatch_policy.resume('p', partition => 'a')");
  await world.stage(["a", "b"]);
  t.is(await world.passes(), 1, "that of b");
  await operator.query("rollback");
  t.is(await world.passes(2), 0, "a is paused");
  await world.pool.query("select dispatch_policy.resume('p', partition => 'a')");
  t.is(await world.passes(), 1);
});

test("a quiet partition's arrival is routed with the first batch of a flood", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage("loud");
  t.is(await world.passes(), 1);
  await arrive(world, "loud", 20);
  await world.stage("quiet");

  t.is(await routeSome(world, 6), 6);
  t.is(await arrivals(world), 15);
  t.is((await world.admit()).admitted, 1, "that of quiet");
  const left = (await world.table("arrivals").all({}, "id")).map(({ id }) => Number(id));
  t.is(left.at(-1)! - left[0]!, left.length - 1, "what is left is what was in the middle");
  for (const routed of [6, 6, 3]) t.is(await routeSome(world, 6), routed);
  t.is(await arrivals(world), 0);
});

test("an end among the newest arrivals of a flood waits for those before it", async (t) => {
  const breaker = { failures: 2, withinSeconds: 60, cooldownSeconds: 60 };
  const world = await engine(t, { gates: [concurrency(5)], breaker });
  await world.stage(["loud", "failing"]);
  t.is(await world.passes(), 2);
  await arrive(world, "loud", 20);
  await world.release([{ job: (await world.inFlight("failing"))[0]!, ok: false }]);
  const waiting = () => world.table("arrivals").count({ outcome: (its) => `${its} is not null` });

  t.is(await routeSome(world, 6), 6);
  t.is(await waiting(), 1, "only work of loud was routed");
  while ((await routeSome(world, 6)) >= 6);
  t.is(await waiting(), 0);
  t.is((await world.partition("failing")).failures, 1);
});

for (const [where, before, after] of [
  ["the oldest", 0, 20],
  ["the middle", 10, 10],
  ["the newest", 20, 0],
] as const)
  test(`a stop that came behind a flood counts for a job among ${where} arrivals`, async (t) => {
    const world = await engine(t, { gates: [concurrency(5)] });
    await world.stage("loud");
    t.is(await world.passes(), 1);
    await arrive(world, "loud", before);
    await world.stage("new");
    await arrive(world, "loud", after);
    await world.pool.query("select dispatch_policy.pause('p', partition => 'new')");

    for (let routed = 6; routed >= 6; ) {
      routed = await routeSome(world, 6);
      t.is((await world.admit()).admitted, 0);
      t.true((await world.partition("new")).paused_until > new Date());
    }
    t.is(await arrivals(world), 0);
    await world.pool.query("select dispatch_policy.resume('p', partition => 'new')");
    t.is((await world.admit()).admitted, 1);
  });

test("a stop that an open resume is about to delete counts until then, however far behind its job is", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage("loud");
  t.is(await world.passes(), 1);
  await world.pool.query("select dispatch_policy.pause('p', partition => 'new')");
  await world.stage("new");
  await arrive(world, "loud", 5);
  await world.stage("new");
  await arrive(world, "loud", 10);
  const operator = await world.session();
  await operator.query("begin");
  await operator.query("select dispatch_policy.resume('p', partition => 'new')");

  while ((await routeSome(world, 4)) > 0) t.is((await world.admit()).admitted, 0);
  await operator.query("rollback");
  t.is(await world.passes(2), 0, "new is paused");
  await world.pool.query("select dispatch_policy.resume('p', partition => 'new')");
  t.is(await world.passes(), 2);
});

for (const [what, change, goes] of [
  ["rescheduled", "select dispatch_policy.reschedule_jobs($1, priority => -1)", 1],
  ["removed", "select dispatch_policy.permanently_fail_jobs($1)", 0],
] as const)
  test(`jobs that are ${what} before their partition is routed pass its gates`, async (t) => {
    const world = await engine(t, { gates: [concurrency(1)] });
    await world.stage("loud");
    t.is(await world.passes(), 1);
    await arrive(world, "loud", 10);
    const ids = await world.stage(["new", "new", "new"]);
    await arrive(world, "loud", 10);
    await world.pool.query(change, [ids]);

    t.true((await routeSome(world, 6)) >= 6);
    t.is(await world.partition("new"), undefined, "its limits are still to come");
    t.is((await world.admit()).admitted, 0);
    while ((await routeSome(world, 6)) > 0);
    t.is(await arrivals(world), 0);
    t.is((await world.admit()).admitted, goes);
    t.is(await world.wrongCounters(), 0);
  });

test("a context that changes before its partition is routed leaves the partition its shard", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)], shardOf: () => "s1" });
  await world.stage("loud");
  await world.route();
  await arrive(world, "loud", 10);
  await world.stage("new");
  await arrive(world, "loud", 10);
  await world.pool.query(
    `select dispatch_policy.refresh_context('p', '{"plan": "pro"}', partition => 'new')`,
  );

  while ((await routeSome(world, 6)) > 0);
  const { shard, context } = await world.partition("new");
  t.deepEqual({ shard, context }, { shard: "s1", context: { plan: "pro" } });
  t.is(await arrivals(world), 0);
});

test("a full batch that is all there is is routed at once", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage("loud");
  t.is(await world.passes(), 1);
  await arrive(world, "loud", 3);
  await world.pool.query("select dispatch_policy.pause('p', partition => 'new')");
  t.is(await routeSome(world, 4), 4, "the stop as well, although it is the newest");
  t.is(await arrivals(world), 0);
});

test("an operator's open transaction on the policy stops no router", async (t) => {
  const world = await engine(t, { gates: [throttle(5)] });
  const operator = await world.session();
  await operator.query("begin");
  await operator.query("select dispatch_policy.pause('p')");
  await operator.query("select dispatch_policy.switch_policy('p', false)");
  await world.stage("a");
  t.is(await world.passes(), 1);
});

test("a role that may only connect has no lock that anything waits for", async (t) => {
  const world = await engine(t, {
    gates: [concurrency(5)],
    maxPending: { policy: 9, partition: 9, strict: true },
  });
  const { nameOf: roleOf, as } = roles(t, world, ["anybody"]);
  await world.pool.query(`create role ${roleOf("anybody")} login`);
  const anybody: Queryable = await as("anybody");
  const steps = ["route", "admit", "pending", "declare", "migrate"].map((step) => `dispatch_policy.${step}`);
  await anybody.query(
    "select pg_advisory_lock(hashtext(s), n) from unnest($1::text[]) s, generate_series(0, 50) n",
    [steps],
  );
  await anybody.query(
    "select pg_advisory_lock(hashtext(s), hashtext(n)) from unnest($1::text[]) s, unnest($2::text[]) n",
    [steps, ["p", "p:a"]],
  );
  await t.throwsAsync(world.table("turns", anybody).lock(), { code: "42501" });
  await t.throwsAsync(
    anybody.query(`begin; lock table ${nameOf("migrations")} in share row exclusive mode`),
    { code: "42501" },
  );
  await world.stage("a");
  t.is(await world.passes(), 1);
  await world.table("migrations").set({ routines_hash: "of an older release", routines_version: [0, 0, 1] });
  const upgrading = await world.pool.connect();
  t.teardown(() => upgrading.release());
  await upgrading.query("set statement_timeout = '1min'"); // a lock that is waited for becomes an error
  await t.notThrowsAsync(migrate(upgrading, { workerSchema: "graphile_worker", schema: "dispatch_policy" }));
});

test("but for forms, whose random names nobody knows, nothing takes an advisory lock: anybody may take those", (t) => {
  const files = [SQL, SRC].flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: "utf8" })
      .filter((name) => /\.(sql|ts)$/.test(name))
      .map((name) => new URL(name, folder)),
  );
  t.true(files.length > 200);
  const guilty = files.filter((file) =>
    /advisory(_xact)?_(un)?lock|try_advisory/.test(readFileSync(file, "utf8")),
  );
  t.deepEqual(
    guilty.map(({ pathname }) => pathname.slice(SRC.pathname.length)),
    ["db/engine.ts"],
  );
});
