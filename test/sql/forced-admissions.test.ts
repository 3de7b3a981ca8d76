// What an operator admits past the gates counts, and stands in nobody's way where there is room.
import test from "ava";
import { concurrency, engine } from "../helpers/engine.ts";

test("after a forced admission the others go as far as the cap lets them", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage(["a", "a", "a"]);
  await world.route();
  await world.pool.query("select dispatch_policy.admit('p', 1)");
  t.is(await world.passes(2), 2);
});

test("a forced admission that finds its jobs locked makes nobody wait for a cap with room", async (t) => {
  const world = await engine(t, { gates: [concurrency(2)] });
  const ids = await world.stage(Array(4).fill("a"));
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await app.query("select from dispatch_policy._private_staged_jobs where id = any($1) for update", [
    ids.slice(0, 2),
  ]);
  await world.pool.query("select dispatch_policy.admit('p', 2, partition => 'a')");
  t.is((await world.partition("a")).blocked_on, null);
  await app.query("commit");
});
