// PostgreSQL plans the engine's statements once for a session, by the statistics that it has then. No plan may compare each
// row with each, whatever they say: autovacuum may have analyzed tables while they were empty. Every node of every plan
// counts the rows that it reads (auto_explain, nested statements of functions included).
import test, { type ExecutionContext } from "ava";
import { makeEngine } from "../../src/db/engine.ts";
import { classedWeight } from "../../src/policy/class.ts";
import {
  concurrency,
  type Engine,
  type EngineOptions,
  engine,
  type Finished,
  throttle,
} from "../helpers/engine.ts";
import { table } from "../helpers/table.ts";

const PARTITIONS = 300;
/** A node may read so many rows for each partition. Each row with each would be 300. */
const MOST_EACH = 20;

interface Node {
  readonly "Node Type": string;
  readonly "Actual Rows": number;
  readonly "Actual Loops": number;
  readonly "Relation Name"?: string;
  readonly Plans?: readonly Node[];
  readonly [removed: `Rows Removed by ${string}`]: number;
}

interface Read {
  readonly rows: number;
  readonly node: string;
  readonly statement: string;
}

const STATISTICS: Record<string, (world: Engine) => Promise<unknown>> = {
  "of empty tables": (world) => world.pool.query("vacuum analyze"),
  "of tables with one row": async (world) => {
    await world.stage(["first"]);
    await world.passes();
    await world.pool.query("vacuum analyze");
  },
  // a vacuum may leave an emptied table its pages: then PostgreSQL expects one row, however many come
  "of tables that were emptied": async (world) => {
    await world.stage(keys("gone"));
    await world.route();
    await world.admit({ claim: PARTITIONS });
    await world.finish(await world.inFlight());
    await world.route();
    await world.pool.query("vacuum (truncate off, analyze)");
  },
  "of tables that are full": async (world) => {
    await world.stage(keys("full"));
    await world.route();
    await world.admit({ claim: PARTITIONS });
    await world.pool.query("vacuum analyze");
  },
};

/** What sweeps and operators do to many jobs at once, in an order in which each finds many. */
const VERBS = [
  "select * from dispatch_policy.adopt('p', 2000)",
  "select dispatch_policy_internal._route('p', null, 10000)",
  "select * from dispatch_policy.pause('p')",
  "select * from dispatch_policy.resume('p')",
  'select * from dispatch_policy.set_limit($$p$$, $$all$$, $${"max": 50000}$$)',
  "select dispatch_policy_internal._route('p', null, 10000)",
  "select * from dispatch_policy.clear_limit('p', 'all')",
  "select dispatch_policy_internal._route('p', null, 10000)",
  "select * from dispatch_policy.admit('p', 100)",
  "select * from dispatch_policy_internal._sweep_in_flight(interval '0')",
  "select * from dispatch_policy_internal._sweep_in_flight(interval '0')",
  "select dispatch_policy_internal._sweep_counters()",
  "select * from dispatch_policy_internal._sweep_partitions(now())",
  "select * from dispatch_policy_internal._sweep_overdue()",
  "select dispatch_policy_internal._sweep_replaced()",
  "select dispatch_policy_internal._sweep_pending()",
  "select dispatch_policy_internal._sweep_expired(now())",
  "select * from dispatch_policy.cancel(policy => 'p', count => 100)",
  "select * from dispatch_policy.remove(policy => 'p', count => 100)",
  "select dispatch_policy.switch_policy('p', false)",
  "select * from dispatch_policy.unstage('p', 100)",
  "select dispatch_policy_internal._collect_partitions(now() + interval '1 day', interval '1 hour')",
  "select dispatch_policy_internal._collect_limiters(now() + interval '1 day', interval '1 hour')",
];

for (const [which, make] of Object.entries(STATISTICS)) {
  test(`no statement compares each partition with each, with statistics ${which}`, async (t) => {
    t.timeout(120_000);
    const { world, session, check } = await explained(t, make);
    for (const round of ["one", "two", "two"]) {
      // by turns, so that each statement meets what is there already, and what is new
      await world.stage(keys(round), { as: session });
      await world.stage(keys(`more-${round}`), { as: session });
      await world.route(session);
      for (let pass = 0; pass < 2; pass++) await world.admit({ as: session, claim: PARTITIONS });
      const jobs = await world.inFlight();
      t.true(jobs.length >= PARTITIONS);
      const [failing, ending] = [jobs.slice(0, PARTITIONS / 2), jobs.slice(PARTITIONS / 2)];
      await world.pool.query("select graphile_worker.complete_jobs($1)", [ending]);
      await world.release(await failed(world, failing), session);
      const parked = await world.number(
        "select count(*)::int from dispatch_policy.staged_jobs where job_id is not null",
      );
      t.true(parked >= failing.length, `${parked} parked`);
      await world.route(session);
      await world.release(ending, session);
    }
    check();
  });

  test(`neither does one of a policy with classes, with statistics ${which}`, async (t) => {
    t.timeout(120_000);
    const gates = [concurrency(1), concurrency(PARTITIONS / 3, { name: "all", scope: "policy" })];
    const { world, session, check } = await explained(t, make, { gates });
    await table(world.pool, "policies").set({ keyed_scopes: true, class_shares: [0.2] });
    for (let round = 0; round < 3; round++) {
      for (const weight of [1, classedWeight(1, 1)]) await world.stage(keys("k"), { as: session, weight });
      await world.route(session);
      await world.admit({ as: session, claim: PARTITIONS });
      await world.release(await world.inFlight(), session);
    }
    check();
  });

  test(`neither does one of a sweep or a verb, with statistics ${which}`, async (t) => {
    t.timeout(120_000);
    // SQL works out what adopted jobs need
    const gates = [throttle(1000), concurrency(1), concurrency(100_000, { name: "all", scope: "policy" })];
    const { world, session, check } = await explained(t, make, { gates, keyPath: "key" });
    await world.stage(keys("staged"));
    await world.route();
    await world.admit({ claim: PARTITIONS / 2 });
    await world.pool.query(
      `select from graphile_worker.add_jobs(array(
        select row('p', json_build_object('key', 'past-' || n), null, now(), null, null, 0, null)::graphile_worker.job_spec
        from generate_series(1, $1) n))`,
      [PARTITIONS],
    );
    for (const verb of VERBS) await session.query(verb);
    check();
  });
}

test("neither does routing in a session that has made limiters one by one before", async (t) => {
  t.timeout(120_000);
  const { world, session, check } = await explained(t, STATISTICS["of empty tables"]!);
  // more calls than PostgreSQL plans anew
  for (let n = 0; n < 14; n++)
    await session.query("select * from dispatch_policy.take('p', 'throttle', $1)", [`taken-${n}`]);
  await world.stage(keys("new"), { as: session });
  await world.route(session);
  check();
});

/** Graphile Worker has recorded that these jobs failed: their ends, as workers send them. */
async function failed(world: Engine, jobs: readonly string[]): Promise<Finished[]> {
  const { rows } = await world.pool.query(
    `update graphile_worker._private_jobs set attempts = attempts + 1, last_error = 'oops' where id = any($1)
     returning id, attempts, revision`,
    [jobs],
  );
  return rows.map(({ id, attempts, revision }) => ({
    ...{ job: id, ok: false, attempt: attempts },
    retry: { attempt: attempts, revision, after: 0, task: world.policy },
  }));
}

function keys(prefix: string): string[] {
  return Array.from({ length: PARTITIONS }, (_, n) => `${prefix}-${n}`);
}

/** A session that plans by these statistics. `check` asks what the nodes of its plans have read so far. */
async function explained(
  t: ExecutionContext,
  make: (world: Engine) => Promise<unknown>,
  options: Partial<EngineOptions> = {},
) {
  const world = await engine(t, {
    gates: [
      throttle(1000),
      concurrency(1),
      concurrency(100_000, { name: "account", scope: (key) => `${Number(key.at(-1)) % 10}` }),
      concurrency(100_000, { name: "all", scope: "policy" }),
    ],
    ...options,
  });
  await make(world);
  const session = await world.session();
  const reads: Read[] = [];
  const onNotice = ({ message = "" }: { message?: string | undefined }) => {
    if (!message.startsWith("duration:")) return;
    const { Plan, "Query Text": statement } = JSON.parse(message.slice(message.indexOf("{")));
    readsOf(Plan, statement.replace(/\s+/g, " ").slice(0, 300), reads);
  };
  session.on("notice", onNotice);
  t.teardown(() => session.off("notice", onNotice));
  await session.query(`load 'auto_explain'; set auto_explain.log_min_duration = 0;
    set auto_explain.log_nested_statements = on; set auto_explain.log_analyze = on; set auto_explain.log_timing = off;
    set auto_explain.log_format = json; set auto_explain.log_level = notice`);
  const check = () => {
    t.true(reads.length > 100);
    const many = reads.filter(({ rows }) => rows > MOST_EACH * PARTITIONS);
    t.deepEqual([...new Set(many.map(({ rows, node, statement }) => `${rows} ${node} ${statement}`))], []);
  };
  return { world, session, check };
}

test("the first pass of a session that admits jobs is done by each way before, and nothing goes twice", async (t) => {
  const it = await engine(t, { gates: [throttle(3, { per: 60 })] });
  await it.pool.query(
    `create function told() returns trigger language plpgsql as $$ begin raise notice 'goes'; return new; end $$;
    create trigger told before insert on dispatch_policy_internal.in_flight_jobs for each row execute function told()`,
  );
  const session = await it.session();
  const { admit } = makeEngine("dispatch_policy");
  let gone = 0;
  session.on("notice", ({ message }) => {
    if (message === "goes") gone++;
  });
  const pass = async (): Promise<[admitted: number, gone: number]> => {
    await it.route();
    const { admitted } = await admit(session, {
      policy: "p",
      shard: null,
      claim: 50,
      now: null,
      bounded: true,
      routes: false,
    });
    return [admitted, gone];
  };
  t.deepEqual(await pass(), [0, 0]); // nothing to do plans nothing
  await it.stage(["a", "a"]);
  t.deepEqual(await pass(), [2, 6], "once by each way of admission, and once for good");
  await it.stage(["a", "a"]);
  t.deepEqual(await pass(), [1, 7], "one token is left, and the session is warm");
  t.is((await it.inFlight("a")).length, 3);
});

function readsOf(node: Node, statement: string, reads: Read[]): void {
  const removed = Object.entries(node).filter(([name]) => name.startsWith("Rows Removed by"));
  const each = removed.reduce((sum, [, rows]) => sum + Number(rows), node["Actual Rows"]);
  reads.push({
    rows: each * node["Actual Loops"],
    node: `${node["Node Type"]} ${node["Relation Name"] ?? ""}`,
    statement,
  });
  for (const child of node.Plans ?? []) readsOf(child, statement, reads);
}
