// What is replayed, and how long the replayed runs last.
import test from "ava";
import type { LoadRow, RecordedLoad } from "../../src/db/engine.ts";
import { even, spread } from "../../src/replay/durations.ts";
import { figuresOf, spanOf } from "../../src/replay/figures.ts";
import { OTHERS, planOf } from "../../src/replay/plan.ts";

const NOW = Date.parse("2030-01-01T01:00:30Z");
const minute = (ago: number) => new Date(NOW - 30_000 - ago * 60_000).toISOString();

const row = (ago: number, came: Record<number, number>, rest: Partial<LoadRow> = {}): LoadRow => ({
  ...{ minute: minute(ago), row: "a", cost: 0, admitted: 0, ended: 0, runSeconds: 0 },
  ...{ seconds: Object.keys(came).map(Number), came: Object.values(came) },
  ...rest,
});

const gate = (name: string, scope: string) => ({ name, kind: "throttle", scope, position: 0 });
const partition = (id: string, waiting = 0) => ({
  ...{ row: id, key: id, shard: "default", context: {}, weight: 1, waiting },
  limits: [
    { gate: "own", kind: "throttle", scope: "partition", position: 0 },
    { gate: "all", kind: "throttle", scope: "policy", position: 1 },
  ],
});
const recorded = (rest: object): RecordedLoad =>
  ({
    ...{
      now: new Date(NOW).toISOString(),
      from: minute(60),
      settings: {},
      runs: [],
      overrides: [],
    },
    definition: { name: "p", gates: [gate("own", "partition"), gate("all", "policy")] },
    ...{ load: [], partitions: [partition("a")] },
    ...rest,
  }) as never;

test("the jobs of a second are spread over it, and each takes the mean cost of its minute", (t) => {
  const { jobs, from } = planOf(recorded({ load: [row(1, { 0: 1, 10: 4 }, { cost: 10 })] }), 100);
  const seconds = jobs.map(({ at }) => (at - from) / 1000);
  t.deepEqual(seconds, [0, 10, 10.2, 10.5, 10.7]);
  t.true(jobs.every(({ cost }) => cost === 2));
});

test("jobs that come after now are not replayed, and do not wait now", (t) => {
  const load = [row(0, { 5: 2, 45: 7 }, { admitted: 1 })];
  const plan = planOf(recorded({ load, partitions: [partition("a", 8)] }), 100);
  t.is(plan.jobs.length, 2);
  t.like(plan.partitions[0], { came: 2, admitted: 1, replayedBacklog: 0 });
});

test("what waited at the beginning follows from what waits now", (t) => {
  const load = [row(2, { 5: 20 }, { admitted: 15, ended: 4, runSeconds: 6 })];
  const plan = planOf(recorded({ load, partitions: [partition("a", 35)] }), 100);
  t.like(plan.partitions[0], { replayedBacklog: 30, otherBacklog: 0, meanRun: 1.5 });
  const bounded = planOf(recorded({ load, partitions: [partition("a", 35)] }), 20);
  t.like(bounded, { waited: 30, waitedReplayed: 20 });
  t.like(bounded.partitions[0], { replayedBacklog: 20, otherBacklog: 10 });
});

test("with more jobs than may be replayed, the time is shorter: the newest minutes stay", (t) => {
  const load = [row(3, { 1: 50 }), row(2, { 1: 50 }), row(1, { 1: 50 })];
  const plan = planOf(recorded({ load }), 120);
  t.is(plan.from, Date.parse(minute(2)));
  t.is(plan.jobs.length, 100);
  t.is(plan.recorded, 150);
  t.is(planOf(recorded({ load }), 150).jobs.length, 150);
  t.is(planOf(recorded({ load }), 10).from, Date.parse(minute(1)), "at least one minute");
});

test("jobs that waited before count as well, and small backlogs are replayed whole", (t) => {
  const load = [
    row(3, { 1: 5 }, { admitted: 90 }),
    row(2, {}, { admitted: 90 }),
    row(1, {}, { admitted: 90 }),
  ];
  const backlogs = [partition("a", 500), partition("b", 20), partition("c", 0)];
  const plan = planOf(recorded({ load, partitions: backlogs }), 200);
  t.is(plan.from, Date.parse(minute(2)));
  t.deepEqual(
    plan.partitions.map(({ replayedBacklog }) => replayedBacklog),
    [180, 20, 0],
  );
  t.is(plan.partitions[0]?.otherBacklog, 500);
});

test("partitions without a row of their own are one, which only gates over the policy limit", (t) => {
  const load = [row(1, { 0: 1 }), row(1, { 0: 5 }, { row: OTHERS })];
  const { partitions, jobs } = planOf(recorded({ load }), 100);
  const others = partitions.find(({ isOthers }) => isOthers);
  t.deepEqual(
    others?.limits.map(({ gate }) => gate),
    ["all"],
  );
  t.is(others?.came, 5);
  t.is(jobs.length, 6);
});

test("runs are as different as those recorded, with the mean of their partition, and the same each time", (t) => {
  const shape = { runs: Array.from({ length: 101 }, (_, n) => (n < 51 ? 0.5 + n / 100 : 1 + n / 10)) };
  const draw = () => {
    const next = spread(shape);
    return Array.from({ length: 101 }, () => next(4));
  };
  const runs = draw();
  t.deepEqual(runs, draw());
  const mean = runs.reduce((sum, run) => sum + run, 0) / runs.length;
  t.true(Math.abs(mean - 4000) < 1, `${mean}`);
  t.true(Math.max(...runs) > 3 * Math.min(...runs));
  t.is(even(4), 4000);
  t.is(spread({ runs: [] })(4), 4000);
});

test("a job that still waits has waited until the end, and several replays give a span", (t) => {
  const plan = planOf(recorded({ load: [row(1, { 0: 2 })] }), 100);
  const ran = (admitted: readonly (number | null)[]) =>
    figuresOf(
      admitted.map((wait) => ({ partition: 0, at: plan.from, admittedAt: wait && plan.from + wait * 1000 })),
      plan,
    )[0]!;
  const span = spanOf([ran([1, 3, null]), ran([2, 3, 4])]);
  t.deepEqual(span.started, { from: 2, to: 3 });
  t.deepEqual(span.waiting, { from: 0, to: 1 });
  t.deepEqual(span.medianWaitSeconds, { from: 3, to: 3 });
  t.deepEqual(span.longestWaitSeconds, { from: 4, to: 90 });
});
