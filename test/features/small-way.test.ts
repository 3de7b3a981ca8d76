// An error in the small way of admission makes nothing wrong, only slow. So it is said wherever somebody may look.
import test from "ava";
import { z } from "zod";
import { policyEvents } from "../../src/events.ts";
import { concurrency, definePolicy } from "../../src/index.ts";
import { plantIn } from "../helpers/inside.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const work = definePolicy("work", {
  payload: z.object({ key: z.string() }),
  partitionBy: "key",
  gates: [concurrency({ max: 1 })],
});

test("an error that nobody expects is emitted, logged, counted and found, and passes admit the jobs", async (t) => {
  const started: string[] = [];
  const gate = Promise.withResolvers<void>();
  const it = await startWorker(t, {
    policies: [work],
    tasks: {
      work: async (_payload, { job }) => {
        started.push(job.id);
        await gate.promise;
      },
    },
  });
  const failed: { policy: string; error: string }[] = [];
  policyEvents(it.runner.events).on("dispatchPolicy:smallWayFailed", (event) => void failed.push(event));
  await plantIn(it.pool, {
    ...{ name: "an error", of: "_first_lack" },
    ...{ from: /^begin$/m, to: "begin\n  perform 1 / 0;" },
  });

  for (let n = 0; n < 3; n++) await it.utils.addJob("work", { key: "a" });
  await until("one runs, and the others wait for its slot", async () => {
    const { reason } = (await it.row("select reason from dispatch_policy.partitions")) ?? {};
    return started.length === 1 && reason === "concurrency_full";
  });
  gate.resolve();
  await until("all have run", () => started.length === 3);
  await it.everythingIsReleased();

  const ofReleases = failed.length;
  await it.utils.addJob("work", { key: "a" }); // at once, if nothing went wrong
  await until("the job that was added then has run", () => started.length === 4);
  await it.everythingIsReleased();
  await until("the add's error is emitted as well", () => failed.length > ofReleases);

  t.true(ofReleases > 0);
  t.is(failed[0]!.policy, "work");
  t.regex(failed[0]!.error, /^22012 in _first_lack line \d+: division by zero$/);
  const said = it.log.filter(({ level, message }) => level === "error" && message.includes(failed[0]!.error));
  t.is(said.length, failed.length);
  await it.utils.sweep();
  t.regex(
    await it.utils.metrics(),
    /^dispatch_policy_left_to_pass_total\{policy="work",reason="failed: 22012 in _first_lack line \d+"\} \d$/m,
  );
  const found = (await it.utils.doctor()).filter(({ id }) => id === "small-way-failed");
  t.regex(found[0]?.sentence ?? "", /^Policy "work": \d admissions? took the long way/);
  for (const name of ["activity", "minutes"]) await table(it.pool, name).remove(); // each test that leaves it fails
});
