// What a leader's sweep says of its repairs.
import test from "ava";
import type { Engine } from "../../src/db/engine.ts";
import { makeLife } from "../../src/pool/pool-context.ts";
import { makeSweeper } from "../../src/pool/sweeper.ts";
import { until } from "../helpers/until.ts";

/** An engine whose steps repair this much; all other steps find nothing. */
function repairing(steps: Record<string, unknown>): Engine {
  return new Proxy({} as Engine, { get: (_, step: string) => async () => steps[step] ?? [] });
}

function sweeperOf(
  engine: Engine,
  { onSwept, warn }: { onSwept(): void; warn(message: string, data: unknown): void },
) {
  const ages = { partitionInactiveAfterMs: 0, keepAuditForMs: 0, metricsRetentionMs: 6e8 };
  return makeSweeper(
    {
      ...{ engine, poolId: "pool", events: { emit() {} } as never, registry: { policies: [] } as never },
      ...{ withPgClient: ((act: (client: never) => unknown) => act({} as never)) as never },
      ...{ sweepIntervalMs: 0, ages, onSwept },
      logger: { warn, info() {}, debug() {} } as never,
    },
    makeLife(),
  );
}

test("a sweep names what it repaired, in words, and has the numbers as the message's data", async (t) => {
  const engine = repairing({
    sweepWorkers: { pools: 1, jobs: 2 },
    sweepCounters: 3,
    sweepPartitions: { woken: 0, unblocked: 1 },
    sweepPending: 0,
  });
  const said: [string, unknown][] = [];
  await new Promise<void>((onSwept) => {
    const warn = (message: string, data: unknown) => void said.push([message, data]);
    sweeperOf(engine, { onSwept, warn }).sweepIfDue();
  });
  const repaired = {
    pools: 1,
    unlocked: 2,
    overdue: 0,
    jobs: 0,
    counters: 3,
    asleep: 0,
    blocked: 1,
    pending: 0,
  };
  t.deepEqual(said, [
    [
      "A sweep repaired what a crash or a wrong clock left: 1 dead worker pool, 2 jobs that dead pools had locked, " +
        "3 wrong counters, 1 partition that waited in vain. " +
        "Nothing is to be done. If it comes again and again, the command doctor says what is wrong",
      { repaired },
    ],
  ]);
});

test("a sweep that takes longer than its interval is not joined by the next", async (t) => {
  const { promise, resolve } = Promise.withResolvers<{ pools: number; jobs: number }>();
  let begun = 0;
  let swept = 0;
  const sweepWorkers = () => {
    begun++;
    return promise;
  };
  const engine = new Proxy({} as Engine, {
    get: (_, step: string) => (step === "sweepWorkers" ? sweepWorkers : async () => []),
  });
  const sweeper = sweeperOf(engine, { onSwept: () => void swept++, warn() {} });
  for (let beat = 0; beat < 3; beat++) sweeper.sweepIfDue();
  await until("the other steps are over", () => swept === 2);
  t.is(begun, 1);
  resolve({ pools: 0, jobs: 0 });
  await until("the first one is over", () => swept === 3);
  sweeper.sweepIfDue();
  await until("it sweeps again", () => swept === 4);
  t.is(begun, 2);
});
