// Places of classes beside other admissions.
import test from "ava";
import { concurrency } from "../../../src/index.ts";
import { type Ctx, scenario } from "../../helpers/scenario.ts";
import { until } from "../../helpers/until.ts";

test("a place that somebody takes while a pass waits for the limiter moves the classes' places", async (t) => {
  const it = await scenario(t, {
    class: (ctx: Ctx) => ctx.max - 1,
    classShare: { 1: 0.5 },
    gates: [concurrency({ max: 3, scope: "policy" })],
  });
  await it.stage("3@x");
  await it.tick();
  await it.stage("3@n", { max: 2 });
  await it.stage("3@a 1@b");
  await it.tick();
  await it.finish(2);
  const other = await it.transaction();
  await other.query("select from dispatch_policy.admit('p', 1, 'b')"); // the fourth place, a later class's
  const pass = it.tick();
  await until("the pass waits", async () => {
    const waiting = await it.rows("select from pg_stat_activity where wait_event_type = 'Lock'");
    return waiting.length > 0;
  });
  await other.query("commit");
  await pass;
  t.deepEqual(await it.inFlightBy(), { x: 1, b: 1, a: 1 }, "the fifth is none of a later class");
});
