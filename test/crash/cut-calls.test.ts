// The backend dies inside a call, at each row it writes in turn: nothing of the call is left, and it succeeds when it
// is made again.
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, engine, throttle, until } from "../helpers/engine.ts";
import { workerTable } from "../helpers/table.ts";

const TABLES = `select format('%I.%I', schemaname, tablename) as name from pg_tables
  where schemaname in ('dispatch_policy_internal', 'graphile_worker') and tablename not like '%migrations'`;

const BACKENDS = "select count(*)::int from pg_stat_activity where pid = $1";

/** From now on a session may say at which row it writes (its `test.cut_at`th) its backend ends. */
async function armed(t: ExecutionContext): Promise<Engine> {
  const world = await engine(t, {
    gates: [concurrency(2), throttle(100, { name: "all", scope: "policy" })],
    keyPath: "key",
  });
  await world.pool.query(`create sequence public.rows_written;
    create function public.cut() returns trigger language plpgsql as $$
    begin
      if current_setting('test.cut_at', true) <> '' then
        if nextval('public.rows_written') = current_setting('test.cut_at')::bigint then
          perform pg_terminate_backend(pg_backend_pid());
          perform pg_sleep(60);
        end if;
      end if;
      return coalesce(new, old);
    end $$`);
  for (const { name } of (await world.pool.query(TABLES)).rows)
    await world.pool.query(`create trigger cut before insert or update or delete on ${name}
      for each row execute function public.cut()`);
  return world;
}

/** Every row there is. */
async function everything(world: Engine): Promise<unknown> {
  const contents: Record<string, unknown> = {};
  for (const { name } of (await world.pool.query(TABLES)).rows) {
    const text = `select coalesce(json_agg(x order by x), '[]') as rows from (select t::text as x from ${name} t) t`;
    contents[name] = (await world.pool.query(text)).rows[0].rows;
  }
  return contents;
}

const retry = { after: 0, task: "p", maxAttempts: 25, queueName: null };

/** What has to have happened before, and the call. */
const CALLS: Record<
  string,
  (world: Engine) => Promise<(as: Awaited<ReturnType<Engine["session"]>>) => Promise<unknown>>
> = {
  staging: async (world) => (as) => world.stage(["a", "b", "a", "a"], { as }),
  routing: async (world) => {
    await world.stage(["a", "b", "a", "a"]);
    return (as) => world.route(as);
  },
  adoption: async (world) => {
    await world.stage("a", { jobKey: "b" });
    await world.pool.query(
      `select graphile_worker.add_job('p', '{"key": "a"}', job_key => k) from unnest(array[null, 'a', 'b', 'c']) k`,
    );
    await workerTable(world.pool).set({ attempts: 1, last_error: "oops" }, { key: "c" });
    return (as) => as.query("select * from dispatch_policy.adopt('p')");
  },
  admission: async (world) => {
    await world.stage(["a", "b", "a", "a"]);
    await world.route();
    return (as) => world.admit({ as });
  },
  parking: async (world) => {
    const failed = await admitted(world);
    await workerTable(world.pool).set({ attempts: 1, last_error: "no" });
    return (as) =>
      world.release(
        failed.map((job) => ({ job, ok: false, retry })),
        as,
      );
  },
  release: async (world) => {
    const done = await admitted(world);
    await world.pool.query("select graphile_worker.complete_jobs($1)", [done]);
    return (as) => world.release(done, as);
  },
};

async function admitted(world: Engine): Promise<string[]> {
  await world.stage(["a", "b", "a", "a"]);
  await world.passes();
  return world.inFlight();
}

for (const [name, prepare] of Object.entries(CALLS)) {
  test(`${name}: a backend that dies at any row leaves nothing of the call`, async (t) => {
    const world = await armed(t);
    const call = await prepare(world);
    const before = await everything(world);
    let cuts = 0;
    for (;;) {
      const session = await world.session();
      await world.pool.query("alter sequence public.rows_written restart");
      await session.query(`set test.cut_at = '${cuts + 1}'`);
      const error = await call(session).then(
        () => null,
        (error) => error,
      );
      if (error === null) break;
      t.is(error.code, "57P01", error.message);
      // the client hears of it before the locks are gone: a router would be found at work
      await until("its backend has ended", async () => (await world.number(BACKENDS, [session.pid])) === 0);
      t.deepEqual(await everything(world), before, `cut at row ${cuts + 1}`);
      cuts++;
    }
    t.log(`${cuts} cuts`);
    t.true(cuts >= 4);
    t.is((await world.drain()) + (name === "release" ? 3 : 0), 4);
    const { notes: _, ...left } = await world.leftovers();
    t.deepEqual(left, { staged: 0, arrivals: 0, in_flight: 0, counters: 0, reserved: 0, blocked: 0 });
    t.is(await world.number("select count(*)::int from graphile_worker.jobs"), 0);
  });
}
