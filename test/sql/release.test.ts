// What a release says beside what it did: whether the next one may wait.
import test from "ava";
import { concurrency, type Engine, engine } from "../helpers/engine.ts";

/** Null: nobody waits. */
async function saturates(it: Engine, job: string | undefined): Promise<boolean | null> {
  await it.pool.query("select graphile_worker.complete_jobs($1)", [[job]]);
  const { rows } = await it.pool.query("select saturated from dispatch_policy._release($1, null)", [
    JSON.stringify([{ job }]),
  ]);
  return rows[0].saturated;
}

/** Two slots, and room for two jobs more; one at a time of each partition. */
async function bounded(t: Parameters<typeof engine>[0]): Promise<Engine> {
  const it = await engine(t, { gates: [concurrency(1)], ahead: 2 });
  await it.pool.query("select dispatch_policy._worker_alive('pool', 2, $1, 'host', 1, '1 hour', '0')", [
    [it.policy],
  ]);
  return it;
}

function finishes(it: Engine, perSecond: number): Promise<unknown> {
  const text = "update dispatch_policy._private_limiters set finished_per_second = $1 where kind = 'ahead'";
  return it.pool.query(text, [perSecond]);
}

test("a release that nobody waits for does not say whether the next one may wait", async (t) => {
  const it = await bounded(t);
  await it.stage("a");
  await it.passes();
  await finishes(it, 4);
  const [job] = await it.inFlight();
  t.is(await saturates(it, job), null);
});

test("the next release may wait where the workers have work for as long", async (t) => {
  const it = await bounded(t);
  await it.stage(["a", "b", "c", "d", "e", "f"]);
  t.is(await it.passes(2), 4);
  t.is((await it.partition("f")).denied_reason, "ahead_full");
  const [first, second, third] = await it.inFlight();
  t.false(await saturates(it, first), "nobody knows yet how much they do in a second");
  await finishes(it, 4);
  t.true(await saturates(it, second));
  await finishes(it, 5);
  t.false(await saturates(it, third), "they do more");
});

test("a release is not to wait where a gate is waited for, whatever the workers have to do", async (t) => {
  const it = await bounded(t);
  await it.stage(["a", "a", "b", "c", "d", "e"]);
  await it.passes(2);
  await finishes(it, 4);
  t.deepEqual(
    [(await it.partition("a")).denied_reason, (await it.partition("e")).denied_reason],
    ["concurrency_full", "ahead_full"],
  );
  const [ofA] = await it.inFlight("a");
  t.false(await saturates(it, ofA));
  const [ofB] = await it.inFlight("b");
  t.true(await saturates(it, ofB));
});
