// Jobs that wait for a policy that nobody declared: how they come about, who counts them, and each way out.
import test, { type ExecutionContext } from "ava";
import {
  type AnyPolicy,
  addPolicyJob,
  addPolicyJobs,
  definePolicy,
  makePolicyUtils,
  RemovalError,
  UnknownPolicyError,
} from "../../src/index.ts";
import { runCommand } from "../helpers/command.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";

const old = definePolicy("old", { tasks: ["work"], partitionBy: "account" });
const renamed = definePolicy("new", { tasks: ["work"], partitionBy: "account" });
/** Its key needs JavaScript. */
const shout = definePolicy("shout", {
  context: (payload: unknown) => ({ name: String((payload as { name?: unknown }).name).toUpperCase() }),
  partitionBy: (ctx) => ctx.name,
});

async function world(t: ExecutionContext, policies: readonly AnyPolicy[] = [renamed]) {
  const { pool, url } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies, logger: silent });
  t.teardown(() => utils.release());
  const undeclared = async () => (await utils.status()).undeclared;
  const native = async () =>
    (await pool.query("select task_identifier as task from graphile_worker.jobs order by id")).rows.map(
      ({ task }) => task,
    );
  const cli = async (...args: string[]) => {
    const { stdout, stderr, code } = await runCommand(url, ...args);
    return { stdout, stderr: stderr.replace(/\s+/g, " "), code };
  };
  return { pool, url, utils, undeclared, native, cli };
}

test("jobs of a producer that is deployed before the first worker: counted everywhere, and admitted once it is declared", async (t) => {
  const it = await world(t, []);
  await addPolicyJobs(it.pool, [
    { policy: old, payload: { account: "a" } },
    { policy: old, payload: { account: "b" }, jobKey: "k" },
  ] as never);
  await addPolicyJob(it.pool, old, { account: "b" } as never, { jobKey: "k" });
  t.deepEqual(await it.undeclared(), [{ policy: "old", staged: 2 }]);
  t.like(await it.utils.status({ policy: "old" }), { policies: [], undeclared: [{ staged: 2 }] });
  await t.throwsAsync(it.utils.status({ policy: "nowhere" }), { instanceOf: UnknownPolicyError });
  const said = /2 jobs wait for policy "old", which nobody declared\./;
  const status = await it.cli("status");
  t.is(status.code, 0);
  t.regex(status.stderr, said);
  t.regex((await it.cli("policies")).stderr, said);
  t.regex((await it.cli("policies", "--policy", "old")).stderr, said);
  t.regex((await it.cli("uninstall", "--dry-run")).stdout, /^2 waiting jobs would go back/);

  const later = await makePolicyUtils({ pgPool: it.pool, policies: [old], logger: silent });
  t.teardown(() => later.release());
  t.is((await later.tick()).admitted, 2);
  t.deepEqual(await it.undeclared(), []);
});

test("a producer that still has a removed policy: its jobs are unstaged, or move", async (t) => {
  const it = await world(t);
  await addPolicyJob(it.pool, old, { account: "a" } as never);
  await t.throwsAsync(it.utils.removePolicy({ policy: "old" }), {
    instanceOf: RemovalError,
    message: /1 jobs wait for policy 'old', expected none without "into"\. .* Or call unstage first/,
  });
  t.like(await it.utils.unstage({ policy: "old", dryRun: true }), { matched: 1, changed: 0 });
  t.deepEqual(await it.native(), []);
  t.like(await it.utils.unstage({ policy: "old" }), { matched: 1, changed: 1 });
  t.deepEqual(await it.native(), ["work"]);
  t.deepEqual(await it.undeclared(), []);

  await addPolicyJob(it.pool, old, { account: "b" } as never);
  t.like(await it.cli("remove-policy", "--policy", "old", "--into", "new", "--yes"), { code: 0 });
  t.deepEqual(await it.undeclared(), []);
  await it.utils.tick();
  t.is((await it.utils.tick()).admitted, 1);
});

test("a job from SQL whose transaction outlived its policy, and has no partition yet", async (t) => {
  const it = await world(t, [renamed, shout]);
  const client = await it.pool.connect();
  try {
    await client.query("begin");
    await client.query("select dispatch_policy.add_job('shout', '{\"name\": \"Ana\"}')");
    t.like(await it.utils.removePolicy({ policy: "shout" }), { removed: true });
    await client.query("commit");
  } finally {
    client.release();
  }
  t.deepEqual(await it.undeclared(), [{ policy: "shout", staged: 1 }]);
  const { rows } = await it.pool.query(
    "select policy, jobs, declared from dispatch_policy_internal._orphaned_policies()",
  );
  t.deepEqual(rows, [{ policy: "shout", jobs: 1, declared: false }]);
  t.like(await it.utils.unstage({ policy: "shout" }), { matched: 1, changed: 1 });
  t.deepEqual(await it.native(), ["shout"]);
  t.deepEqual(await it.undeclared(), []);
  await t.throwsAsync(it.utils.unstage({ policy: "shout" }), { instanceOf: UnknownPolicyError });
});

test("a job that is removed by its id does not count, and an uninstall unstages the others", async (t) => {
  const it = await world(t);
  const first = await addPolicyJob(it.pool, old, { account: "a" } as never);
  await addPolicyJob(it.pool, old, { account: "a" } as never);
  t.like(await it.utils.remove({ ids: [first.id] }), { changed: 1 });
  t.deepEqual(await it.undeclared(), [{ policy: "old", staged: 1 }]);
  t.like(await it.utils.uninstall(), { unstaged: 1 });
  t.is((await it.native()).length, 1);
});
