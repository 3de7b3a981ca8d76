// What a leader's sweep says of its repairs.
import test from "ava";
import type { Engine } from "../../src/db/engine.ts";
import { makeLife } from "../../src/pool/pool-context.ts";
import { makeSweeper } from "../../src/pool/sweeper.ts";

/** An engine whose steps repair this much; all other steps find nothing. */
function repairing(steps: Record<string, unknown>): Engine {
  return new Proxy({} as Engine, { get: (_, step: string) => async () => steps[step] ?? [] });
}

test("a sweep names what it repaired, in words, and has the numbers as the message's data", async (t) => {
  const engine = repairing({
    sweepWorkers: { pools: 1, jobs: 2 },
    sweepCounters: 3,
    sweepPartitions: { woken: 0, unblocked: 1 },
    sweepPending: 0,
  });
  const said: [string, unknown][] = [];
  await new Promise<void>((resolve) => {
    const warn = (message: string, data: unknown) => void said.push([message, data]);
    makeSweeper(
      {
        ...{ engine, poolId: "pool", events: { emit() {} } as never, registry: { policies: [] } as never },
        ...{ withPgClient: ((act: (client: never) => unknown) => act({} as never)) as never },
        ...{
          sweepIntervalMs: 0,
          ages: { partitionInactiveAfterMs: 0, keepAuditForMs: 0, metricsRetentionMs: 6e8 },
          onSwept: resolve,
        },
        logger: { warn, info() {}, debug() {} } as never,
      },
      makeLife(),
    ).sweepIfDue();
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
