// Jobs that Graphile Worker takes alone, and refuses as what they have become by their admission.
import test from "ava";
import { concurrency, type Engine, engine } from "../../helpers/engine.ts";

/** A number that json holds and jsonb does not: it can be stored, and not be merged. */
const UNMERGEABLE = "[1e400000]";

async function stageKeyed(it: Engine, jobs: number): Promise<void> {
  const batch = it.batch(Array(jobs).fill("mine")) as { jobs: object[] };
  const keyed = batch.jobs.map((job, n) => ({ ...job, jobKey: `k${n}`, payload: "PAYLOAD" }));
  const text = JSON.stringify([{ ...batch, jobs: keyed }]).replaceAll('"PAYLOAD"', UNMERGEABLE);
  await it.pool.query("select id from dispatch_policy_internal._stage($1, 'replace')", [text]);
}

test("jobs that cannot be merged with the admitted ones of their keys are quarantined, and the others go", async (t) => {
  const it = await engine(t, { gates: [concurrency(100)] });
  await stageKeyed(it, 6);
  t.is(await it.passes(), 6);
  await it.stage(Array.from({ length: 20 }, (_, n) => `good${n}`));
  await stageKeyed(it, 6);
  await it.route();
  const { admitted, quarantined } = await it.admit();
  t.deepEqual({ admitted, quarantined }, { admitted: 20, quarantined: 6 });
  t.is(await it.wrongCounters(), 0);
});
