// How long a tick loop sleeps after a pass.
import test from "ava";
import { makeSleeps } from "../../src/admit/sleeps.ts";
import type { Pass } from "../../src/admit/tick.ts";

const pass: Pass = {
  ...{ claimed: 1, admitted: 0, denied: {}, dropped: 0, durationMs: 1, nextEligibleAt: null, nextInMs: null },
  ...{ lost: 0, full: false, more: false, busy: false, routed: false, progress: true, saturated: null },
};
const settings = { minTickIntervalMs: 5, loopHeartbeatMs: 1000 };

for (const [what, answer, ms, leastMs] of [
  ["nothing is to come", {}, 1000, 5],
  ["a job may go in a while", { nextInMs: 300 }, 301, 5],
  ["a job may go much later", { nextInMs: 5000 }, 1000, 5],
  ["there is more", { more: true, nextInMs: 300 }, 5, 5],
  ["a job may go now", { nextInMs: 0 }, 5, 5],
  ["a job was due before", { nextInMs: Number.NEGATIVE_INFINITY }, 5, 5],
  ["the workers have enough to do", { saturated: "workers" }, 1000, 25],
  ["a gate of the whole policy is full", { saturated: "gate" }, 1000, 5],
] as const) {
  test(`the next pass comes after ${ms} ms, or ${leastMs} if the loop is nudged, when ${what}`, (t) => {
    t.deepEqual(makeSleeps(settings).afterPass({ ...pass, ...answer }), { ms, leastMs });
  });
}

for (const ready of [{ more: true }, { nextInMs: -600 }]) {
  test(`passes that get nowhere are ever further apart, until one gets further: ${Object.keys(ready)}`, (t) => {
    const sleeps = makeSleeps(settings);
    const stuck = { ...pass, ...ready, progress: false };
    const slower = [10, 20, 40, 80, 100, 100];
    t.deepEqual(
      slower.map(() => sleeps.afterPass(stuck).ms),
      slower,
    );
    t.is(sleeps.afterPass({ ...stuck, progress: true }).ms, 5);
    t.is(sleeps.afterPass(stuck).ms, 10, "anew");
    t.is(sleeps.afterPass(pass).ms, 1000, "nothing is ready");
    t.is(sleeps.afterPass(stuck).ms, 10);
  });
}

test("no interval: the workers' rest is none, as passes in tests want it", (t) => {
  t.is(
    makeSleeps({ ...settings, minTickIntervalMs: 0 }).afterPass({ ...pass, saturated: "workers" }).leastMs,
    0,
  );
});

test("failures are further apart each time, whatever nudges, until a pass succeeds", (t) => {
  const sleeps = makeSleeps(settings);
  const further = [250, 500, 1000, 2000, 4000, 5000, 5000];
  t.deepEqual(
    further.map(() => sleeps.afterFailure()),
    further.map((ms) => ({ ms, leastMs: ms })),
  );
  sleeps.afterPass(pass);
  t.is(sleeps.afterFailure().ms, 250);
});
