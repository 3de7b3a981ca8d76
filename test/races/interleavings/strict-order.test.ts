// Strict order beside a release that stages the retry of a failed job.
import test from "ava";
import { concurrency, engine } from "../../helpers/engine.ts";

const gates = [concurrency(1, { name: "strict_order" })];

for (const passesOn of [false, true])
  test(`a pass that waits for the release of a failed job lets no later one go, ${passesOn ? "" : "no "}slots are passed on`, async (t) => {
    const it = await engine(t, { gates, order: "strict" });
    await it.waitsLong();
    await it.stage(["a", "a"]);
    t.is(await it.passes(), 1);
    const [job] = await it.inFlight();
    // as if somebody had said that there is room
    await it.table("partitions").set({ denied_until: "-infinity", blocked_on: null });
    const [release, pass] = [await it.session(), await it.session()];
    await release.query("begin");
    const retry = { attempt: 0, task: "p", after: 3600, priority: 0, maxAttempts: 25 };
    t.deepEqual(await it.release([{ job: job!, ok: false, retry }], release, { passesOn }), [job]);
    const admitting = it.admit({ as: pass });
    await it.waitsForLock(pass);
    await release.query("commit");
    t.like(await admitting, { admitted: 0 });
    t.is(await it.passes(2), 0);
    t.like(await it.partition("a"), { denied_reason: "strict_order" });
    t.deepEqual(await it.inFlight(), []);
    t.is(await it.wrongCounters(), 0);
  });
