// Producers that may not replace a job of their key, beside those who drop it because it has expired.
import test from "ava";
import { type Engine, engine, type Queryable } from "../../helpers/engine.ts";

const LONG_AGO = new Date("2020-01-01");

/** Adds a job of key k that keeps an older one, or replaces it. */
async function add(it: Engine, mode: "unsafe_dedupe" | "replace", as: Queryable): Promise<string> {
  const { rows } = await as.query("select id from dispatch_policy_internal._stage($1, $2)", [
    JSON.stringify([it.batch(["a"], { jobKey: "k" })]),
    mode,
  ]);
  return rows[0].id;
}

test("a job that finds its expired rival while a pass drops it is not lost with it", async (t) => {
  const it = await engine(t, { gates: [] });
  const [old] = await it.stage("a", { jobKey: "k", expiresAt: LONG_AGO });
  await it.route();
  const [pass, producer] = [await it.session(), await it.session()];
  await pass.query("begin");
  t.is((await it.admit({ as: pass })).admitted, 0);
  const added = add(it, "unsafe_dedupe", producer);
  await it.waitsForLock(producer);
  await pass.query("commit");
  t.not(await added, old);
  t.is(await it.staged(), 1);
  t.is(await it.passes(), 1);
  t.is(await it.wrongCounters(), 0);
});

test("strict producers of a key do not deadlock beside its expired job", async (t) => {
  const it = await engine(t, { gates: [], maxPending: { policy: 10, strict: true } });
  await it.stage("a", { jobKey: "k", expiresAt: LONG_AGO });
  const [holder, keeps, replaces] = [await it.session(), await it.session(), await it.session()];
  await holder.query("begin");
  await it.stage("b", { as: holder });
  const kept = add(it, "unsafe_dedupe", keeps);
  await it.waitsForLock(keeps);
  await replaces.query("begin");
  await it.table("staged_jobs", replaces).lock({ job_key: "k" }, "update nowait");
  await replaces.query("rollback");
  const replaced = add(it, "replace", replaces);
  await it.waitsForLock(replaces);
  await holder.query("commit");
  await Promise.all([kept, replaced]);
  t.is(await it.staged("a"), 1);
  t.is(await it.number("select dispatch_policy_internal._sweep_pending()"), 0);
});
