// The doctor as a whole: nothing is wrong with a database under load, and what is wrong comes the worst first.
import test from "ava";
import { ArgumentError, concurrency, definePolicy, throttle } from "../../../src/index.ts";
import { runCommand } from "../../helpers/command.ts";
import { beginsNow, patient } from "../../helpers/doctor.ts";
import { until } from "../../helpers/until.ts";
import { startWorker } from "../../helpers/worker.ts";

test("a database under load gives no finding", async (t) => {
  const busy = definePolicy("busy", {
    partitionBy: "name",
    gates: [concurrency({ max: 2 }), throttle({ rate: 1000, per: "1 second", scope: "policy" })],
  });
  const it = await patient(t, [busy]);
  const worker = await startWorker(t, { database: it, policies: [busy], tasks: { busy: () => {} } });
  let adding = true;
  const load = (async () => {
    for (let i = 0; adding; i++) {
      const jobs = Array.from({ length: 20 }, (_, n) => ({
        identifier: "busy",
        payload: { name: `n${(i + n) % 30}` },
      }));
      await it.utils.addJobs(jobs);
    }
  })();
  await worker.sees("job:success", 50);
  for (let round = 0; round < 5; round++) {
    const sofar = worker.happened.length;
    t.deepEqual(await it.utils.doctor(), []);
    await until("it goes on", () => worker.happened.length > sofar);
  }
  const { code, stdout, stderr } = await runCommand(it.url, "doctor");
  t.deepEqual({ code, stdout, stderr }, { code: 0, stdout: "Nothing is wrong.\n", stderr: "" });
  adding = false;
  await load;
});

test("the command prints the worst first, each with what mends it", async (t) => {
  const it = await patient(t);
  await it.utils.addJob("greet", { name: "Ana" } as never);
  await it.utils.pause({ policy: "greet", by: "ana" });
  await beginsNow(it.pool);
  const { code, stdout } = await runCommand(it.url, "doctor");
  t.is(code, 1);
  t.is(
    stdout,
    `critical  no-worker: No live worker has the task "greet" of policy "greet", for
which jobs wait (0 in flight).
    Start the worker that has it, or register the task: run({ preset, taskList: { "greet": task } })

warning  everything-paused: Every policy is paused, the first is "greet", by
ana.
    select * from dispatch_policy.resume("all" => true);
`,
  );
});

test("a wrong threshold is refused", async (t) => {
  const { utils } = await patient(t);
  const refused = (thresholds: object, message: RegExp) =>
    t.throwsAsync(utils.doctor({ thresholds }), { instanceOf: ArgumentError, message });
  await refused({ notifyQueu: 1 }, /notifyQueu/);
  await refused({ notifyQueue: -1 }, /doctor: thresholds\.notifyQueue must be a finite number, 0 or more/);
  t.deepEqual(await utils.doctor({ thresholds: { notifyQueue: undefined } }), []);
});
