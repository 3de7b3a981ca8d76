// A policy that no worker has any more, and for which jobs wait: the leader of any other one warns.
import test from "ava";
import { Logger } from "graphile-worker";
import { makeEngine } from "../../src/db/engine.ts";
import { addPolicyJob, definePolicy, makePolicyUtils } from "../../src/index.ts";
import { makeOrphans } from "../../src/pool/orphans.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const old = definePolicy("old", { tasks: ["work"], partitionBy: "account" });
const other = definePolicy("other", { partitionBy: "account" });
const WARNING =
  /^(\d+ jobs wait|1 job waits) for policy "(\w+)", which no live worker has\..*remove-policy --policy \2 --into/;

test("a worker warns of jobs that wait for a policy that nobody has", async (t) => {
  const database = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: database.pool, policies: [old], logger: silent });
  await utils.addJobs([1, 2, 3].map((n) => ({ identifier: "work", payload: { account: `a${n}` } })));
  await utils.release();
  const it = await startWorker(t, {
    database,
    policies: [other],
    tasks: { other: () => {} },
    preset: { sweepInterval: "100 ms" },
  });
  const warnings = () => it.log.filter(({ message }) => WARNING.test(message));
  await until("it warns", () => warnings().length > 0);
  t.regex(warnings()[0]!.message, /^3 jobs wait for policy "old"/);
  t.true((await it.utils.status({ policy: "old" })).policies[0]?.orphaned);
});

test("it warns at the second look in a row, then once an hour, and of names that nobody declared", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [other], logger: silent });
  t.teardown(() => utils.release());
  const said: string[] = [];
  const logger = new Logger(() => (level, message) => void said.push(`${level} ${message}`));
  let now = 0;
  const orphans = makeOrphans(logger, () => now);
  const engine = makeEngine("dispatch_policy");
  const look = () => orphans.look(utils.withPgClient, engine);
  await look();
  await addPolicyJob(pool, old, { account: "a" } as never); // which no process has declared
  await look();
  t.deepEqual(said, []);
  await look();
  await look();
  t.is(said.length, 1);
  t.regex(
    said[0]!,
    /^warning 1 job waits for policy "old", which nobody declared\..*call unstage --policy old/,
  );
  t.notRegex(said[0]!, /switch it off/);
  now = 3_599_999;
  await look();
  t.is(said.length, 1);
  now = 3_600_000;
  await look();
  t.is(said.length, 2);
});

test("a live worker that has the policy, or a job that ended lately, is no reason to warn", async (t) => {
  const it = await startWorker(t, { policies: [old], tasks: { work: () => {} } });
  const engine = makeEngine("dispatch_policy");
  const orphans = () => it.utils.withPgClient(engine.orphanedPolicies);
  await it.utils.addJob(
    "work",
    { account: "a" } as never,
    { runAt: new Date(Date.now() + 3_600_000) } as never,
  );
  await until("it has said so", async () => {
    const { n } = await it.row(
      "select count(*)::int as n from dispatch_policy.workers where 'old' = any(policies)",
    );
    return n === 1;
  });
  t.deepEqual(await orphans(), []);
  await it.utils.addJob("work", { account: "b" } as never);
  await it.sees("job:success", 1);
  await it.everythingIsReleased();
  await it.runner.stop();
  t.deepEqual(await orphans(), []);
  await table(it.pool, "limiters").set({ sampled_at: (its) => `${its} - interval '5 minutes'` });
  t.deepEqual(await orphans(), [{ policy: "old", jobs: 1, declared: true }]);
});
