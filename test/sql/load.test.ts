// The load of policies that record it: how many jobs came to each partition, how many went, and how long they ran.
import test from "ava";
import { concurrency, type Engine, type EngineOptions, engine } from "../helpers/engine.ts";

async function recording(t: Parameters<typeof engine>[0], options: Partial<EngineOptions> = {}) {
  const it = await engine(t, { gates: [concurrency(2)], ...options });
  await it.table("policies").set({ load_kept_for: 3600 });
  return it;
}
const fold = (it: Engine) => it.readEvents();
async function load(it: Engine) {
  const keys = new Map((await it.table("partitions").all()).map(({ id, key }) => [id, key as string]));
  const sums = new Map<string, Record<"came" | "cost" | "admitted" | "ended" | "run_seconds", number>>();
  for (const row of await it.table("load").all()) {
    const key = keys.get(row.partition_id) ?? "others";
    const sum = sums.get(key) ?? { came: 0, cost: 0, admitted: 0, ended: 0, run_seconds: 0 };
    for (const jobs of row.came) sum.came += jobs;
    for (const field of ["cost", "admitted", "ended", "run_seconds"] as const)
      sum[field] += Number(row[field]);
    sums.set(key, sum);
  }
  return [...sums].sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, sum]) => ({ key, ...sum }));
}

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
  t.deepEqual(
    (await it.table("load").all()).map(({ minute, seconds, came }) => ({ minute, seconds, came })),
    [{ minute: new Date(minute), seconds: [3, 59, 3], came: [2, 1, 1] }],
  );
});

test("a job whose time passed long ago comes now, and one that is never due does not come", async (t) => {
  const it = await recording(t);
  await it.stage("a", { runAt: new Date(Date.now() - 3_600_000) });
  await it.route();
  await it.stage("a");
  await it.table("arrivals").set({ due_at: "infinity" });
  await it.route();
  await fold(it);
  const [row, ...others] = await it.table("load").all();
  t.deepEqual([row.came, others], [[1], []]);
  t.true(row.minute.getTime() > Date.now() - 120_000);
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
  t.is(rows.find(({ key }) => key === "others")!.came, 30);
  t.is(rows.find(({ key }) => key === "k129")!.came, 3);
  const known = rows.map(({ key }) => key).filter((key) => key !== "others");
  await it.stage(["new", "new", "new", "new", known[0]!], { runAt });
  await it.route();
  await fold(it);
  const later = await load(it);
  t.is(later.length, 101);
  t.is(later.find(({ key }) => key === "others")!.came, 34);
  t.is(later.find(({ key }) => key === known[0])!.came, 2 + (known[0] === "k129" ? 2 : 0));
});

test("a policy that does not record its load writes none, also beside one that does", async (t) => {
  const it = await engine(t, { gates: [concurrency(2)] });
  const declared = { definition: {}, definition_hash: "", declared_at: () => "now()" };
  await it.table("policies").add({ name: "other", ...declared, load_kept_for: 60 });
  await it.stage(["a", "b"]);
  await it.passes(1);
  await it.finish(await it.inFlight());
  t.is(await it.table("events").count(), 0);
  await fold(it);
  t.deepEqual(await load(it), []);
});

test("load goes when it is too old, and when its policy records none any more", async (t) => {
  const it = await recording(t);
  await it.stage("a");
  await it.passes(1);
  await fold(it);
  const collect = (now: string) => it.number(`select dispatch_policy_internal._collect_old('load', ${now})`);
  t.is(await collect("clock_timestamp() + interval '1 hour'"), 0);
  t.is(await collect("clock_timestamp() + interval '1 hour 3 minutes'"), 1);
  await it.stage("a");
  await it.passes(1);
  await fold(it);
  await it.table("policies").set({ load_kept_for: null });
  t.is(await collect("clock_timestamp()"), 1);
});
