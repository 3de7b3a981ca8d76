// A tick costs the same number of statements however many partitions there are: counted by pg_stat_statements, nested
// statements of functions included.
import test from "ava";
import { startPostgres } from "../../scripts/postgres/start.ts";
import { concurrency, type Engine, engine, throttle } from "../helpers/engine.ts";

const SIZES = [50, 1_000, 10_000]; // of fewer partitions it takes the small way

// A server of its own: a library is preloaded when a server starts, and others' statements are not counted.
const server = await startPostgres({ own: true, preload: ["pg_stat_statements"] });
process.env.DATABASE_URL = server.url;
test.after.always(() => server.stop());

test("a pass runs the same statements over 50, 1,000 and 10,000 partitions", async (t) => {
  t.timeout(300_000);
  const world = await engine(t, {
    gates: [
      throttle(1000),
      concurrency(2),
      concurrency(20_000, { name: "account", scope: (key) => `${Number(key.slice(1)) % 10}` }),
      concurrency(50_000, { name: "all", scope: "policy" }),
    ],
  });
  const { rows } = await world.pool.query(
    "select 1 from pg_available_extensions where name = 'pg_stat_statements'",
  );
  // nothing was counted: that is no pass
  if (rows.length === 0)
    return t.fail("This PostgreSQL lacks pg_stat_statements; set PG_BIN to one that has it.");
  await world.pool.query("create extension pg_stat_statements");

  // prepared plans and caches are there before anything is counted
  await stageMany(world, 50, "warm");
  await countedPass(world, 50);
  const counts: Record<string, Record<string, number>> = {};
  for (const size of SIZES) {
    await stageMany(world, size, `s${size}`);
    counts[size] = await countedPass(world, size);
  }
  t.log(JSON.stringify(counts));
  t.true(counts[50]!.route! > 0 && counts[50]!.admit! > 0);
  t.deepEqual(counts[1_000], counts[50]);
  t.deepEqual(counts[10_000], counts[50]);
});

async function stageMany(world: Engine, partitions: number, prefix: string): Promise<void> {
  await world.stage(Array.from({ length: partitions * 2 }, (_, i) => `${prefix}${i % partitions}`));
}

/** How many statements it takes to route, admit and release two jobs of each of `partitions` partitions. */
async function countedPass(world: Engine, partitions: number): Promise<Record<string, number>> {
  const session = await world.session();
  await session.query("set pg_stat_statements.track = 'all'");
  const count = async (act: () => Promise<unknown>) => {
    await session.query("select pg_stat_statements_reset()");
    await act();
    const { rows } = await session.query(
      `select coalesce(sum(s.calls), 0)::int as n from pg_stat_statements s
       join pg_database d on d.oid = s.dbid and d.datname = current_database()
       where s.query !~ 'pg_stat_statements'`,
    );
    return rows[0].n as number;
  };
  const route = await count(async () => {
    // a batch that is full is put together by statements of its own
    const { rows } = await session.query("select dispatch_policy_internal._route('p', null, 20000) as n");
    if (rows[0].n === 0) throw new Error("Nothing was routed");
  });
  const admit = await count(async () => {
    const { admitted } = await world.admit({ as: session, claim: partitions });
    if (admitted !== 2 * partitions) throw new Error(`${admitted} admitted, not ${2 * partitions}`);
  });
  const jobs = await world.inFlight();
  const release = await count(() => world.release(jobs, session));
  return { route, admit, release };
}
