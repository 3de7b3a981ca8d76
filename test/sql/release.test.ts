// What a release says beside what it did: whether the next one may wait.
import test from "ava";
import { concurrency, type Engine, engine } from "../helpers/engine.ts";
import { durations } from "../helpers/table.ts";

/** How many jobs may end before the next release. Null: nobody waits. */
async function mayEnd(it: Engine, job: string | undefined): Promise<number | null> {
  await it.pool.query("select graphile_worker.complete_jobs($1)", [[job]]);
  const { rows } = await it.pool.query("select may_end from dispatch_policy_internal._release($1, null)", [
    JSON.stringify([{ job }]),
  ]);
  return rows[0].may_end;
}

/** Two slots, and room for three jobs more; one at a time of each partition. */
async function bounded(t: Parameters<typeof engine>[0]): Promise<Engine> {
  const it = await engine(t, { gates: [concurrency(1)], ahead: 3 });
  await it.pool.query(
    "select dispatch_policy_internal._worker_alive('pool', 2, $1, 'host', 1, '1 hour', '0')",
    [[it.policy]],
  );
  return it;
}

/** The two slots finish so many jobs in a second. */
function finishes(it: Engine, perSecond: number): Promise<unknown> {
  const ends = { finished_per_second: 1e6, durations: durations({ [it.policy]: 2 / perSecond }) };
  return it.table("limiters").set(ends, { kind: "ahead" });
}

test("a release that nobody waits for does not say whether the next one may wait", async (t) => {
  const it = await bounded(t);
  await it.stage("a");
  await it.passes();
  await finishes(it, 4);
  const [job] = await it.inFlight();
  t.is(await mayEnd(it, job), null);
});

test("the next release may wait where the workers have work for as long", async (t) => {
  const it = await bounded(t);
  await it.stage(["a", "b", "c", "d", "e", "f", "g", "h"]);
  t.is(await it.passes(2), 5);
  t.is((await it.partition("h")).denied_reason, "ahead_full");
  await finishes(it, 2 / 0.15 - 0.1);
  t.is(await mayEnd(it, (await it.inFlight())[0]), 1, "two are ahead");
  t.is(await it.passes(2), 1);
  await finishes(it, 2 / 0.15 + 0.1);
  t.is(await mayEnd(it, (await it.inFlight())[0]), 0, "they do more than two in that time");
  await finishes(it, 2 / 0.15 - 0.1);
  t.is(await mayEnd(it, (await it.inFlight())[0]), 0, "one is ahead");
});

test("half of the jobs that are ahead may end before the next release, shared among the worker pools", async (t) => {
  const it = await engine(t, { gates: [], ahead: 40, batchSize: 100 });
  const alive = (pool: string) =>
    it.pool.query("select dispatch_policy_internal._worker_alive($1, 2, $2, 'host', 1, '1 hour', '0')", [
      pool,
      [it.policy],
    ]);
  await alive("one");
  await it.stage(Array(100).fill("a"));
  t.is(await it.passes(2), 42);
  await finishes(it, 4);
  t.is(await mayEnd(it, (await it.inFlight())[0]), 19, "39 are ahead");
  await alive("other");
  t.is(await mayEnd(it, (await it.inFlight())[0]), 9, "36 are ahead");
});

test("a release is not to wait where a gate is waited for, whatever the workers have to do", async (t) => {
  const it = await bounded(t);
  await it.stage(["a", "a", "b", "c", "d", "e", "f"]);
  await it.passes(2);
  await finishes(it, 4);
  t.deepEqual(
    [(await it.partition("a")).denied_reason, (await it.partition("f")).denied_reason],
    ["concurrency_full", "ahead_full"],
  );
  const [ofA] = await it.inFlight("a");
  t.is(await mayEnd(it, ofA), 0);
  t.is(await it.passes(2), 1);
  const [ofB] = await it.inFlight("b");
  t.is(await mayEnd(it, ofB), 1, "two are ahead, and nobody waits for what it frees but they");
});

test("an operator frees the slots of a job that was always due", async (t) => {
  const it = await bounded(t);
  await it.stage("a");
  await it.passes();
  const [job] = await it.inFlight();
  await it.pool.query("select from graphile_worker.reschedule_jobs($1, run_at => '-infinity')", [[job]]);
  const { rows } = await it.pool.query("select * from dispatch_policy.release_slots($1)", [job]);
  t.like(rows[0], { matched: 1, changed: 1 });
  t.deepEqual(await it.inFlight(), []);
});
