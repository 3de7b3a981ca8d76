// The last jobs of a group end at the same moment: one callback comes, and nobody waits for an open transaction.
import test, { type ExecutionContext } from "ava";
import { type Engine, type EngineOptions, engine, type Queryable, readEvents } from "../../helpers/engine.ts";

/** A group with a job in each of these partitions, of which some are admitted. Returns the ids that they have in staging. */
async function world(
  t: ExecutionContext,
  partitions: string[],
  options: Partial<EngineOptions> = {},
  then: object = {},
) {
  const it = await engine(t, { gates: [], keyPath: "key", ...options });
  const { rows } = await it.pool.query(
    "select id from dispatch_policy.enqueue_group($1, 'replace', null, $2) order by n",
    [
      JSON.stringify([it.batch(partitions)]),
      JSON.stringify({ identifier: "p", payload: { key: "then" }, ...then }),
    ],
  );
  return { it, ids: rows.map(({ id }) => id as string) };
}

const remove = (id: string, as: Queryable) =>
  as.query("select dispatch_policy.remove(array[$1::bigint])", [id]);
const callbacks = async (it: Engine) => (await it.groupCounts()).filter(Boolean);

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
    await it.waitsForLock(second); // of the ahead bound
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
    t.deepEqual(await callbacks(it), []);
    t.is(await it.number("select jobs_left from dispatch_policy.groups"), 1, "both are counted");
    await app.query(how === "commits" ? "commit" : "rollback");
    if (how === "rolls back") await remove(rows[0].id, it.pool);
    const counts = await callbacks(it);
    t.is(counts.length, 1);
    t.like(counts[0], { total: 3, succeeded: 1, removed: 1, dropped: 1 });
  });
}

test("while one session reads what happened, another reads nothing, and what comes meanwhile is read next", async (t) => {
  const { it, ids } = await world(t, ["a", "b"]);
  await it.route();
  await remove(ids[0]!, it.pool);
  const reader = await it.session();
  await reader.query("begin");
  await readEvents(reader);
  await remove(ids[1]!, it.pool);
  t.deepEqual(await callbacks(it), []);
  await reader.query("commit");
  t.like((await callbacks(it))[0], { total: 2, removed: 2 });
});

test("who has a group locked keeps what ended of it unread, and delays nothing else", async (t) => {
  const { it, ids } = await world(t, ["a", "b"]);
  await it.route();
  await it.table("policies").set({ history_kept_for: 3600 });
  const app = await it.session();
  await app.query("begin");
  await it.table("groups", app).lock();
  await remove(ids[0]!, it.pool);
  await it.readEvents();
  t.is(await it.table("events").count(), 1);
  await app.query("commit");
  await it.readEvents();
  t.is(await it.number("select jobs_left from dispatch_policy.groups"), 1);
  t.is(await it.table("history").count(), 1, "it is told once");
  await remove(ids[1]!, it.pool);
  t.like((await callbacks(it))[0], { total: 2, removed: 2 });
});

test("a transaction whose snapshot is older than another end leaves nothing out", async (t) => {
  const { it, ids } = await world(t, ["a", "b"]);
  await it.route();
  const app = await it.session();
  await app.query("begin isolation level repeatable read");
  await app.query("select from dispatch_policy.groups");
  await remove(ids[0]!, it.pool);
  await remove(ids[1]!, app);
  await app.query("commit");
  t.like((await callbacks(it))[0], { total: 2, removed: 2 });
});

test("a callback whose job key an open transaction adds delays nothing, and comes with a sweep after it", async (t) => {
  const { it, ids } = await world(t, ["a"], {}, { jobKey: "daily" });
  await it.route();
  const app = await it.session();
  await app.query("begin");
  await it.stage("b", { as: app, jobKey: "daily" } as never);
  await remove(ids[0]!, it.pool);
  t.deepEqual(await callbacks(it), [], "it does not wait for the application");
  t.is(await it.number("select jobs_left from dispatch_policy.groups"), 0);
  await app.query("commit");
  await it.pool.query("select dispatch_policy_internal._close_groups()");
  t.like((await callbacks(it))[0], { total: 1, removed: 1 });
});
