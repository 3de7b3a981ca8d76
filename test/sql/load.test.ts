// The load of policies that record it: how many jobs came to each partition, how many went, and how long they ran.
import test from "ava";
import { concurrency, type Engine, type EngineOptions, engine } from "../helpers/engine.ts";

async function recording(t: Parameters<typeof engine>[0], options: Partial<EngineOptions> = {}) {
  const it = await engine(t, { gates: [concurrency(2)], ...options });
  await it.pool.query("update dispatch_policy._private_policies set load_kept_for = 3600");
  return it;
}
const fold = (it: Engine) => it.number("select dispatch_policy._fold_activity(10000)");
const load = async (it: Engine) =>
  (
    await it.pool.query(`
      select coalesce(q.key, 'others') as key, sum(l.cost) as cost, sum(l.admitted)::int as admitted, sum(l.ended)::int as ended,
        sum(l.run_seconds) as run_seconds, sum((select sum(c) from unnest(l.came) c))::int as came
      from dispatch_policy._private_load l left join dispatch_policy._private_partitions q on q.id = l.partition_id
      group by 1 order by 1`)
  ).rows;

test("it has what came, what was admitted and how long runs took, by partition", async (t) => {
  const it = await recording(t);
  await it.stage(["a", "a", "a", "b"], { cost: 2 });
  await it.passes(2);
  const jobs = await it.inFlight("a");
  await it.pool.query("select graphile_worker.complete_jobs($1)", [jobs]);
  await it.release([
    { job: jobs[0]!, durationMs: 3000 },
    { job: jobs[1]!, ok: false, durationMs: 500 },
  ]);
  await fold(it);
  t.deepEqual(await load(it), [
    { key: "a", came: 3, cost: 6, admitted: 2, ended: 2, run_seconds: 3.5 },
    { key: "b", came: 1, cost: 2, admitted: 1, ended: 0, run_seconds: 0 },
  ]);
});

test("jobs come in the second in which they are due, and a minute is added up over several folds", async (t) => {
  const it = await recording(t);
  const minute = Math.floor(Date.now() / 60_000) * 60_000 + 120_000;
  const at = (second: number) => new Date(minute + second * 1000 + 400);
  for (const [second, count] of [
    [3, 2],
    [59, 1],
    [3, 1],
  ] as const) {
    await it.stage(
      Array.from({ length: count }, () => "a"),
      { runAt: at(second) },
    );
    await it.route();
    await fold(it);
  }
  const { rows } = await it.pool.query("select minute, seconds, came from dispatch_policy._private_load");
  t.deepEqual(rows, [{ minute: new Date(minute), seconds: [3, 59, 3], came: [2, 1, 1] }]);
});

test("a job whose time passed long ago comes now, and one that is never due does not come", async (t) => {
  const it = await recording(t);
  await it.stage("a", { runAt: new Date(Date.now() - 3_600_000) });
  await it.route();
  await it.stage("a");
  await it.pool.query("update dispatch_policy._private_arrivals set due_at = 'infinity'");
  await it.route();
  await fold(it);
  const { rows } = await it.pool.query(
    "select minute > clock_timestamp() - interval '2 minutes' as is_now, came from dispatch_policy._private_load",
  );
  t.deepEqual(rows, [{ is_now: true, came: [1] }]);
});

test("a hundred partitions of a minute have rows of their own, those with the most jobs first; the others share one", async (t) => {
  const it = await recording(t);
  const keys = Array.from({ length: 130 }, (_, n) => `k${n}`);
  const runAt = new Date(Math.floor(Date.now() / 60_000) * 60_000 + 130_000);
  await it.stage([...keys, "k129", "k129"], { runAt });
  await it.route();
  await fold(it);
  const rows = await load(it);
  t.is(rows.length, 101);
  t.is(rows.find(({ key }) => key === "others").came, 30);
  t.is(rows.find(({ key }) => key === "k129").came, 3);
  const known = rows.map(({ key }) => key).filter((key) => key !== "others");
  await it.stage(["new", "new", "new", "new", known[0]!], { runAt });
  await it.route();
  await fold(it);
  const later = await load(it);
  t.is(later.length, 101);
  t.is(later.find(({ key }) => key === "others").came, 34);
  t.is(later.find(({ key }) => key === known[0]).came, 2 + (known[0] === "k129" ? 2 : 0));
});

test("a policy that does not record its load writes none, also beside one that does", async (t) => {
  const it = await engine(t, { gates: [concurrency(2)] });
  await it.pool.query(
    `insert into dispatch_policy._private_policies (name, definition, definition_hash, declared_at, load_kept_for)
     values ('other', '{}', '', now(), 60)`,
  );
  await it.stage(["a", "b"]);
  await it.passes(1);
  await it.finish(await it.inFlight());
  t.is(await it.number("select count(*)::int from dispatch_policy._private_activity where load <> '{}'"), 0);
  await fold(it);
  t.deepEqual(await load(it), []);
});

test("load goes when it is too old, and when its policy records none any more", async (t) => {
  const it = await recording(t);
  await it.stage("a");
  await it.passes(1);
  await fold(it);
  const collect = (now: string) => it.number(`select dispatch_policy._collect_load(${now})`);
  t.is(await collect("clock_timestamp() + interval '1 hour'"), 0);
  t.is(await collect("clock_timestamp() + interval '1 hour 3 minutes'"), 1);
  await it.stage("a");
  await it.passes(1);
  await fold(it);
  await it.pool.query("update dispatch_policy._private_policies set load_kept_for = null");
  t.is(await collect("clock_timestamp()"), 1);
});
