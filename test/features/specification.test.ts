// What a policy's functions see of how a job was added, later on.
import test from "ava";
import { definePolicy } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { scenario } from "../helpers/scenario.ts";

test("a running job's partition follows from what it was added with", async (t) => {
  const it = await scenario(
    t,
    definePolicy("p", {
      context: (_payload: unknown, { priority, jobKey }) => ({ key: `${priority}-${jobKey}` }),
      partitionBy: (c) => c.key,
    }),
  );
  const seen: (string | undefined)[] = [];
  await it.worker({
    tasks: { p: async (_payload, helpers) => void seen.push(helpers.dispatchPolicy?.partition) },
    loop: false,
  });
  await it.utils.addJob("p", {} as never, { priority: 3, jobKey: "k" });
  await it.tickNow();
  await until("it ran", () => seen.length === 1);
  t.deepEqual(seen, ["3-k"]);
});

test("a retry that is moved gets the limits of a job of its priority", async (t) => {
  const policy = definePolicy("p", {
    context: (_payload: unknown, { priority }) => ({ max: priority ?? 0 }),
    partitionBy: () => "x",
    gates: ({ concurrency }) => [concurrency({ max: (c) => c.max })],
    backoff: () => ({ after: "1 second", partition: "y" }),
  });
  const it = await scenario(t, policy);
  const hands = await it.hands();
  await it.utils.addJob("p", {} as never, { priority: 4 });
  await it.tickNow();
  await hands.end(1, "badly");
  await it.tick(60);
  t.is((await it.limiter("concurrency", "y")).max, 4);
});
