// A rate is in force from the beginning of an override to its end, and brings nothing for the time before.
import test from "ava";
import { throttle } from "../../src/index.ts";
import { type Ctx, type Scenario, scenario } from "../helpers/scenario.ts";

async function admittedAt(it: Scenario, ...seconds: readonly number[]): Promise<number[]> {
  const counts: number[] = [];
  for (const second of seconds) counts.push((await it.tick(second)).admitted);
  return counts;
}

test("a higher rate counts from its beginning", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 10, per: "1 minute" })] });
  await it.stage("100@k");
  t.deepEqual(await admittedAt(it, 0), [10]);
  await it.utils.setLimit({ policy: "p", gate: "throttle", set: { rate: 60 }, from: it.at(30) });
  t.deepEqual(await admittedAt(it, 30, 31), [5, 1], "30 s at 10 a minute, then 1 a second");
});

test("a halt brings nothing for the time it held", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 60, per: "1 minute" })] });
  await it.stage("200@k");
  t.deepEqual(await admittedAt(it, 0), [60]);
  await it.utils.setLimit({
    policy: "p",
    gate: "throttle",
    set: { rate: 0 },
    from: it.at(0),
    until: it.at(30),
  });
  t.deepEqual(await admittedAt(it, 1, 15, 29.9, 30, 33), [0, 0, 0, 0, 3]);
});

test("a lower rate over all of a policy, and its end", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ scope: "policy", rate: 60, per: "1 minute" })] });
  await it.stage("200@k");
  t.deepEqual(await admittedAt(it, 0), [60]);
  await it.utils.setLimit({
    policy: "p",
    gate: "throttle",
    set: { rate: 1 },
    from: it.at(0),
    until: it.at(60),
  });
  t.deepEqual(await admittedAt(it, 10, 30, 49), [0, 0, 0]);
  t.deepEqual(
    await admittedAt(it, 62),
    [3],
    "one of the minute at one a minute, two of two seconds at one a second",
  );
});

test("overrides of one key and of the whole gate, nobody looking while they came and went", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 60, per: "1 minute" })] });
  await it.stage("60@k 60@j");
  t.deepEqual(await admittedAt(it, 0), [120]);
  await it.stage("60@k 60@j");
  const limit = { policy: "p", gate: "throttle" };
  await it.utils.setLimit({ ...limit, set: { rate: 0 }, from: it.at(10), until: it.at(30) });
  await it.utils.setLimit({ ...limit, key: "k", set: { rate: 30 }, from: it.at(20), until: it.at(40) });
  t.deepEqual(await admittedAt(it, 45), [50]);
  t.deepEqual(await it.inFlightBy(), { j: 60 + 25, k: 60 + 25 });
});
