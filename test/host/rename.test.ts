// A rolling rename: old workers have a policy's old name and new ones its new name. `status` says who has which.
import test from "ava";
import { definePolicy } from "../../src/index.ts";
import { runCommand } from "../helpers/command.ts";
import { testDatabase } from "../helpers/database.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const old = definePolicy("old", { tasks: ["work"], partitionBy: "account" });
const renamed = definePolicy("new", { tasks: ["work"], partitionBy: "account" });
const tasks = { work: () => {} };

test("status beside a rolling rename names the live workers of either name, and calls neither orphaned", async (t) => {
  const database = await testDatabase(t);
  const words = async () => (await runCommand(database.url, "status")).stderr.replace(/\s+/g, " ");
  const before = await startWorker(t, { database, policies: [old], tasks });
  await startWorker(t, { database, policies: [renamed], tasks });
  const pools = await until("both say what they have", async () => {
    const { workers } = await before.utils.status();
    const of = (policy: string) => workers.find(({ policies }) => policies.includes(policy))?.poolId;
    const found = { old: of("old"), new: of("new") };
    return found.old && found.new ? found : undefined;
  });
  const status = await before.utils.status();
  t.like(
    status.policies.find(({ policy }) => policy === "old"),
    { orphaned: false, tasksTakenBy: ["new"] },
  );
  t.like(
    status.policies.find(({ policy }) => policy === "new"),
    { orphaned: false, tasksTakenBy: [] },
  );
  const said = await words();
  t.regex(
    said,
    new RegExp(
      `old: its tasks went to new\\. old is in 1 live worker \\(${pools.old}\\); new is in 1 live worker \\(${pools.new}\\)\\.`,
    ),
  );
  t.notRegex(said, /no live worker/);
  await before.runner.stop();
  t.regex(
    await words(),
    /old: no live worker has the policy\. old: its tasks went to new\. old is in no live worker;/,
  );
});
