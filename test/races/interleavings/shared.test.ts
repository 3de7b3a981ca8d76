// Two policies and the limit that they share, with sessions paused at the decisive moment.
import test, { type ExecutionContext } from "ava";
import type pg from "pg";
import { concurrency, shared } from "../../../src/index.ts";
import { until } from "../../helpers/engine.ts";
import { type Ctx, policyOf, type Scenario, scenario } from "../../helpers/scenario.ts";

/** Policies a and b with a cap over both, and passes that wait for locks. */
async function two(t: ExecutionContext, max: number): Promise<Scenario> {
  const gates = [shared("api", concurrency<Ctx>({ scope: "policy", max }))];
  const it = await scenario(t, policyOf("a", { gates }), { others: [policyOf("b", { gates })] });
  await it.utils.addJobs([]);
  for (const name of ["_lock_limiters_soon", "_release"])
    await it.pool.query(`alter function dispatch_policy_internal.${name} set lock_timeout = 0`);
  return it;
}

async function stage(it: Scenario, policy: string, count: number, key = "k"): Promise<void> {
  const jobs = Array.from({ length: count }, () => ({ identifier: policy, payload: { key } }));
  await it.utils.addJobs(jobs as never);
}

const tick = async (db: pg.Client | pg.Pool, policy: string): Promise<number> =>
  (await db.query("select admitted from dispatch_policy.tick($1)", [policy])).rows[0].admitted;

async function running(it: Scenario, policy: string): Promise<string[]> {
  const text = "select job_id from dispatch_policy.in_flight_jobs where policy = $1 order by staged_id";
  return (await it.rows(text, [policy])).map(({ job_id }) => job_id);
}

async function end(it: Scenario, policy: string, as: pg.Client | pg.Pool = it.pool): Promise<void> {
  const jobs = await running(it, policy);
  await it.rows("select graphile_worker.complete_jobs($1)", [jobs]);
  await as.query("select left_ids from dispatch_policy_internal._release($1, null, true)", [
    JSON.stringify(jobs.map((job) => ({ job, ok: true }))),
  ]);
}

const waits = (it: Scenario, session: pg.Client) =>
  until("a session waits for a lock", async () => {
    const pid = (session as unknown as { processID: number }).processID;
    return (await it.rows("select cardinality(pg_blocking_pids($1)) as n", [pid]))[0].n > 0;
  });

test("passes of two policies at one moment admit what the cap allows", async (t) => {
  const it = await two(t, 3);
  for (const policy of ["a", "b"]) {
    // the limiter is there
    await stage(it, policy, 1);
    await tick(it.pool, policy);
    await end(it, policy);
  }
  await stage(it, "a", 2);
  await stage(it, "b", 2);
  const [one, other] = [await it.transaction(), await it.transaction()];
  t.is(await tick(one, "a"), 2);
  const second = tick(other, "b");
  await waits(it, other);
  await one.query("commit");
  t.is(await second, 1, "it saw what the other has admitted");
  await other.query("commit");
  t.is((await cap(it)).in_flight, 3);
});

const cap = async (it: Scenario) =>
  (await it.rows("select * from dispatch_policy.limiters where gate = 'api'"))[0];

test("a pass that waits for another policy's release has the slot that it frees", async (t) => {
  const it = await two(t, 1);
  await stage(it, "a", 1);
  await tick(it.pool, "a");
  await stage(it, "b", 1);
  t.is(await tick(it.pool, "b"), 0);
  const [one, other] = [await it.transaction(), await it.transaction()];
  await end(it, "a", one);
  t.is(await tick(it.pool, "b"), 0, "nothing is freed yet");
  await one.query("commit");
  t.is(await tick(other, "b"), 1);
  await other.query("commit");
  t.deepEqual([await running(it, "a"), (await running(it, "b")).length], [[], 1]);
});

test("a slot whose release is taken back is nobody's", async (t) => {
  const it = await two(t, 1);
  await stage(it, "a", 1);
  await tick(it.pool, "a");
  await stage(it, "b", 1);
  await tick(it.pool, "b");
  const one = await it.transaction();
  const jobs = await running(it, "a");
  await one.query("select left_ids from dispatch_policy_internal._release($1, null, true)", [
    JSON.stringify(jobs.map((job) => ({ job, ok: true }))),
  ]);
  await one.query("rollback");
  t.is(await tick(it.pool, "b"), 0);
  t.is((await cap(it)).in_flight, 1);
});

test("a policy that begins to wait while the slot is freed is told", async (t) => {
  const it = await two(t, 1);
  await stage(it, "a", 1);
  await tick(it.pool, "a");
  await stage(it, "b", 1);
  const [one, other] = [await it.transaction(), await it.transaction()];
  t.is(await tick(one, "b"), 0, "it waits, and nobody sees that yet");
  const released = end(it, "a", other);
  await waits(it, other);
  await one.query("commit");
  await released;
  await other.query("commit");
  t.is(await tick(it.pool, "b"), 1);
});

test("a partition that its router gives a limit keeps it from a sweep", async (t) => {
  const it = await two(t, 1);
  await stage(it, "a", 1);
  await tick(it.pool, "a");
  await end(it, "a");
  await it.rows("delete from dispatch_policy_internal.partitions");
  const collect =
    "select dispatch_policy_internal._collect_limiters(clock_timestamp() + '1 hour', '1 second') as n";
  await it.rows(
    "update dispatch_policy_internal.policies set definition = jsonb_set(definition, '{gates}', '[]') where name = 'api'",
  );
  const one = await it.transaction();
  await one.query(
    "select from dispatch_policy_internal.turns t join dispatch_policy_internal.policies p on p.id = t.policy_id where p.name = 'b' and t.step = 'route' for update of t",
  );
  t.is((await it.rows(collect))[0].n, 0);
  await one.query("rollback");
  t.is((await it.rows(collect))[0].n, 1);
});

/** A tick loop leads these policies, as far as anybody knows. */
const led = (it: Scenario, ...policies: string[]) =>
  it.rows(
    `insert into dispatch_policy_internal.leases (policy, shard, holder, expires_at)
     select p, 'default', 'loop', clock_timestamp() + interval '29 seconds' from unnest($1::text[]) p
     on conflict (policy, shard) do update set expires_at = excluded.expires_at`,
    [policies],
  );

/** Policy a runs, and then b and a wait. */
async function waiting(t: ExecutionContext): Promise<Scenario> {
  const it = await two(t, 1);
  await stage(it, "a", 2);
  await tick(it.pool, "a");
  await stage(it, "b", 2);
  await tick(it.pool, "b");
  return it;
}

test("a release passes a slot on to another policy, whose turn it is", async (t) => {
  const it = await waiting(t);
  await led(it, "a", "b");
  await end(it, "a");
  t.deepEqual([(await running(it, "a")).length, (await running(it, "b")).length], [0, 1]);
  await end(it, "b");
  const went = [(await running(it, "a")).length, (await running(it, "b")).length];
  t.deepEqual(went.toSorted(), [0, 1], "of equals one");
  t.is((await cap(it)).in_flight, 1);
});

test("not if nobody ticks that policy", async (t) => {
  const it = await waiting(t);
  await led(it, "a");
  await end(it, "a");
  t.deepEqual([(await running(it, "a")).length, (await running(it, "b")).length], [0, 0]);
  t.is(await tick(it.pool, "a"), 0, "it is told, and nobody else has its place yet");
  t.is(await tick(it.pool, "b"), 1);
});

test("nor if another session has that policy's ahead bound locked", async (t) => {
  const it = await waiting(t);
  await led(it, "a", "b");
  const one = await it.transaction();
  await one.query(
    `select from dispatch_policy_internal.limiters l join dispatch_policy_internal.policies p on p.ahead_limiter_id = l.id
     where p.name = 'b' for update of l`,
  );
  await end(it, "a");
  t.deepEqual([(await running(it, "a")).length, (await running(it, "b")).length], [0, 0]);
  await one.query("rollback");
  t.is(await tick(it.pool, "b"), 1);
});

/** Another session keeps the first partition in line. Returns how it lets go. */
async function firstIsLocked(it: Scenario): Promise<() => Promise<unknown>> {
  const one = await it.transaction();
  await one.query(
    `select from dispatch_policy_internal.partitions where id = (
       select id from dispatch_policy_internal.partitions where blocked_on is not null order by fair_key, due_at limit 1)
     for update`,
  );
  return () => one.query("rollback");
}

test("a policy's next partition has the place of one that another session has locked", async (t) => {
  const it = await two(t, 1);
  await stage(it, "a", 1);
  await tick(it.pool, "a");
  await stage(it, "a", 1, "x");
  await stage(it, "a", 1, "y");
  t.is(await tick(it.pool, "a"), 0);
  await firstIsLocked(it);
  await end(it, "a");
  await tick(it.pool, "a");
  t.is((await running(it, "a")).length, 1);
});

for (const max of [1, 2])
  test(`a policy whose partition another session has locked loses its ${max} places after a second, and has its turn then`, async (t) => {
    const it = await two(t, max);
    await stage(it, "a", max);
    await tick(it.pool, "a");
    await stage(it, "b", 9);
    await tick(it.pool, "b");
    await stage(it, "a", 9);
    t.is(await tick(it.pool, "a"), 0);
    const letGo = await firstIsLocked(it);
    await end(it, "a");
    t.is(await tick(it.pool, "a"), 0, "it is b's turn");
    await until("a has what b leaves", async () => {
      t.is(await tick(it.pool, "b"), 0);
      await tick(it.pool, "a");
      return (await running(it, "a")).length === max;
    });
    await letGo();
    await tick(it.pool, "b");
    await end(it, "a");
    await until("b has its turn", async () => {
      await tick(it.pool, "a");
      await tick(it.pool, "b");
      return (await running(it, "b")).length > 0;
    });
  });

/** A process starts that has the limit with another max. */
const redeclare = (it: Scenario, max: number) =>
  it.makeUtils(
    ["a", "b"].map((name) =>
      policyOf(name, {
        gates: [shared("api", concurrency<Ctx>({ scope: (ctx) => ctx.account, max }), { version: max })],
      }),
    ),
  );

const numbers = async (it: Scenario) =>
  (await it.rows("select max from dispatch_policy.limiters where gate = 'api' order by id")).map(
    ({ max }) => max,
  );

test("a limiter that is made while another definition comes into force has its numbers", async (t) => {
  const it = await two(t, 9);
  await (await redeclare(it, 10)).addJobs([{ identifier: "a", payload: { key: "k" } }] as never);
  const one = await it.transaction();
  await one.query("select dispatch_policy_internal._route('a', null, 100)");
  const started = redeclare(it, 11);
  await until(
    "the declaration waits",
    async () =>
      (await it.rows("select from pg_locks where not granted and locktype = 'transactionid'")).length > 0,
  );
  await one.query("commit");
  await started;
  t.deepEqual(await numbers(it), [11]);
});

test("another definition does not wait for a locked limiter, and a pass of the limit brings its numbers", async (t) => {
  const it = await two(t, 9);
  const jobs = ["k", "l"].map((key) => ({ identifier: "a", payload: { key } }));
  await (await redeclare(it, 10)).addJobs(jobs as never);
  await tick(it.pool, "a");
  const one = await it.transaction();
  await one.query(
    "select from dispatch_policy_internal.limiters where shared and scope_key = 'k' for update",
  );
  await redeclare(it, 11);
  t.deepEqual((await numbers(it)).toSorted(), [10, 11]);
  await one.query("rollback");
  await tick(it.pool, "api");
  t.deepEqual(await numbers(it), [11, 11]);
  await tick(it.pool, "api");
  t.deepEqual(await it.rows("select from dispatch_policy_internal.freed"), []);
});

test("a policy that is declared while its limit is removed is refused", async (t) => {
  const it = await two(t, 1);
  const declare = "select from dispatch_policy_internal._declare_policy($1, 'hash', '{}', clock_timestamp())";
  const [{ definition }] = await it.rows(
    "select definition from dispatch_policy_internal.policies where name = 'b'",
  );
  for (const policy of ["a", "b"]) await it.utils.removePolicy({ policy });
  const [one, other] = [await it.transaction(), await it.transaction()];
  await one.query("select from dispatch_policy.remove_policy('api')");
  const declared = other.query(declare, [JSON.stringify(definition)]);
  await waits(it, other);
  await one.query("commit");
  await t.throwsAsync(declared, { message: /nobody has declared its shared limit 'api'/ });
});
