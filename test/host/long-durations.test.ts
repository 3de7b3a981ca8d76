// A duration longer than a timer can run, some 24 days. Node would end such a timer after 1 ms, and warns of it.
import { setImmediate as turn } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { makeSleeper, sleep } from "../../src/admit/sleeper.ts";
import { definePolicy } from "../../src/index.ts";
import { makePulse } from "../../src/pool/pulse.ts";
import { isChecked, startWorker } from "../helpers/worker.ts";

const LONG_MS = 1e6 * 86_400_000;

/** What Node has warned of since. */
function overflows(t: ExecutionContext): readonly string[] {
  const seen: string[] = [];
  const listen = (warning: Error) => {
    if (warning.name === "TimeoutOverflowWarning") seen.push(warning.message);
  };
  process.on("warning", listen);
  t.teardown(() => process.off("warning", listen));
  return seen;
}

test.serial("a pulse, a sleep and a loop's sleep do not end at once", async (t) => {
  const seen = overflows(t);
  const ended: string[] = [];
  const pulse = makePulse(async () => {
    ended.push("pulse");
    return LONG_MS;
  });
  pulse.schedule(LONG_MS);
  await pulse.now();
  const end = new AbortController();
  const slept = sleep(LONG_MS, end.signal).then(() => ended.push("sleep"));
  void makeSleeper({ keepsAlive: false })
    .sleepUntil(() => performance.now() + LONG_MS)
    .then(() => ended.push("loop"));
  await turn();
  t.deepEqual(ended, ["pulse"], "the one beat that was asked for");
  await pulse.stop();
  end.abort();
  await slept;
  t.deepEqual(seen, []);
});

for (const loop of [true, false])
  test.serial(`a worker with settings of a million days sets no such timer; loop: ${loop}`, async (t) => {
    const seen = overflows(t);
    const worker = await startWorker(t, {
      policies: [definePolicy("p", { partitionBy: "key" })],
      tasks: { p: async () => {} },
      preset: {
        loop,
        workerHeartbeatInterval: "300000 days",
        workerStaleAfter: "1000000 days",
        sweepInterval: "1000000 days",
        loopHeartbeat: "1000000 days",
        tickMaxDuration: "1000000 days",
      },
    });
    await isChecked(worker.log);
    await worker.utils.addJob("p", { key: "a" });
    if (loop) await worker.sees("job:success");
    await worker.stop();
    t.deepEqual(seen, []);
  });
