// The last jobs of a group end at the same moment: one callback comes, and nobody waits for an open transaction.
import test, { type ExecutionContext } from "ava";
import { type Engine, type EngineOptions, engine, type Queryable } from "../../helpers/engine.ts";

/** A group with a job in each of these partitions, of which some are admitted. Returns the ids that they have in staging. */
async function world(t: ExecutionContext, partitions: string[], options: Partial<EngineOptions> = {}) {
  const it = await engine(t, { gates: [], keyPath: "key", ...options });
  const { rows } = await it.pool.query(
    "select id from dispatch_policy.enqueue_group($1, 'replace', null, $2) order by n",
    [JSON.stringify([it.batch(partitions)]), JSON.stringify({ identifier: "p", payload: { key: "then" } })],
  );
  return { it, ids: rows.map(({ id }) => id as string) };
}

const remove = (id: string, as: Queryable) =>
  as.query("select dispatch_policy.remove(array[$1::bigint])", [id]);
const callbacks = async (it: Engine) =>
  (await it.pool.query("select payload -> '_group' as counts from dispatch_policy.staged_jobs")).rows.map(
    ({ counts }) => counts,
  );
const sweep = (it: Engine) => it.pool.query("select dispatch_policy_internal._close_groups()");

for (const how of ["commits", "rolls back"] as const) {
  test(`of two sessions that release the last two jobs the first ${how}: one callback comes`, async (t) => {
    const { it } = await world(t, ["a", "b"]);
    await it.passes();
    const [one, other] = await it.inFlight();
    await it.waitsLong();
    const [first, second] = [await it.session(), await it.session()];
    await first.query("begin");
    await it.release([one!], first);
    const released = it.release([other!], second);
    await it.waitsForLock(second);
    t.deepEqual(await callbacks(it), []);
    await first.query(how === "commits" ? "commit" : "rollback");
    t.deepEqual(await released, [other]);
    if (how === "rolls back") {
      t.deepEqual(await callbacks(it), []);
      await it.release([one!]);
    }
    const counts = await callbacks(it);
    t.is(counts.length, 1);
    t.like(counts[0], { total: 2, succeeded: 2 });
  });
}

test("a release waits for whoever ends the group's other job", async (t) => {
  const { it, ids } = await world(t, ["a", "b"]);
  await it.route();
  await it.admit({ claim: 1 });
  const [job] = await it.inFlight();
  const { rows } = await it.pool.query("select id from dispatch_policy.staged_jobs");
  await it.waitsLong();
  const [operator, releasing] = [await it.session(), await it.session()];
  await operator.query("begin");
  await remove(rows[0].id, operator);
  const released = it.release([job!], releasing);
  await it.waitsForLock(releasing);
  await operator.query("commit");
  await released;
  t.is(ids.length, 2);
  t.like((await callbacks(it))[0], { total: 2, succeeded: 1, removed: 1 });
});

for (const how of ["commits", "rolls back"] as const) {
  test(`no release or pass waits for an application that has ended a job of the group, and ${how}`, async (t) => {
    const { it } = await world(t, ["a", "b", "c"]);
    await it.route();
    await it.admit({ claim: 1 });
    const [job] = await it.inFlight();
    const { rows } = await it.pool.query("select id from dispatch_policy.staged_jobs order by id");
    const app = await it.session();
    await app.query("begin");
    await remove(rows[0].id, app);
    t.deepEqual(await it.release([job!]), [job]);
    t.deepEqual(await it.inFlight(), [], "its slot is free");
    await it.table("staged_jobs").set({ expires_at: "-infinity" }, { id: rows[1].id });
    await it.admit();
    t.is(await it.number("select count(*)::int from dispatch_policy.group_jobs"), 1, "both are appended");
    await app.query(how === "commits" ? "commit" : "rollback");
    t.deepEqual(await callbacks(it).then((all) => all.filter(Boolean)), []);
    if (how === "commits") await sweep(it);
    else await remove(rows[0].id, it.pool); // the next end adds up what was left
    const counts = (await callbacks(it)).filter(Boolean);
    t.is(counts.length, 1);
    t.like(counts[0], { total: 3, succeeded: 1, removed: 1, dropped: 1 });
  });
}

test("a transaction whose snapshot is older than another end leaves the sum to a sweep", async (t) => {
  const { it, ids } = await world(t, ["a", "b"]);
  await it.route();
  const app = await it.session();
  await app.query("begin isolation level repeatable read");
  await app.query("select from dispatch_policy.groups");
  await remove(ids[0]!, it.pool);
  await remove(ids[1]!, app);
  await app.query("commit");
  t.deepEqual(await callbacks(it), []);
  await sweep(it);
  t.like((await callbacks(it))[0], { total: 2, removed: 2 });
});
