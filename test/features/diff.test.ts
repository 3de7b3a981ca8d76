// "What would have happened?" A recorded load, replayed under the limits as they were and under others. One test after
// another, because each replay has a PGlite of 0.6 GB.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import {
  ArgumentError,
  definePolicy,
  makePolicyUtils,
  type PartitionDiff,
  type Span,
  UnknownPolicyError,
} from "../../src/index.ts";
import { atLength } from "../helpers/at-length.ts";
import { runCommand, runIn } from "../helpers/command.ts";
import { testDatabase } from "../helpers/database.ts";
import { happened, jobsOf, runLoad } from "../helpers/load.ts";
import { random, seedOf } from "../helpers/random.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";

const INDEX = new URL("../../src/index.ts", import.meta.url).href;
const paced = definePolicy("paced", {
  partitionBy: "to",
  gates: ({ throttle }) => [throttle({ rate: 2, per: "1 second", burst: 10 })],
  load: { keep: "1 hour" },
});
const capped = definePolicy("capped", {
  partitionBy: "to",
  gates: ({ concurrency }) => [concurrency({ max: 2 })],
  load: { keep: "1 hour" },
});
const forgetful = definePolicy("forgetful", { partitionBy: "to" });

async function world(t: Parameters<typeof testDatabase>[0] & object) {
  const { url, pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [paced, capped, forgetful], logger: silent });
  t.teardown(async () => utils.release());
  return { url, pool, utils };
}

/** Whether a figure is the true one, give or take 2 %, and what goes on between the last tick and the call. */
const near = ({ from, to }: Span, truth: number, share = 0.02, slack = 4) =>
  truth >= from - Math.max(slack, truth * share) && truth <= to + Math.max(slack, truth * share);

const byKey = (partitions: readonly PartitionDiff[]) =>
  new Map(partitions.map((one) => [one.partition, one]));

/** Each takes ten seconds of a processor. */

atLength(
  "under unchanged limits throttles replay what happened, and under others what would have",
  async (t) => {
    const { pool, utils } = await world(t);
    const jobs = jobsOf(random(seedOf(t)), 100, { acme: 280, beta: 120, quiet: 5 });
    const ran = await runLoad({ pool, utils }, "paced", jobs);
    const diff = await utils.diff({ policy: "paced", gate: "throttle", key: "acme", set: { rate: 1 } });
    t.false(diff.isInterval);
    t.is(diff.jobs, 405);
    t.is(diff.recordedJobs, 405);
    const found = byKey(diff.partitions);
    for (const key of ["acme", "beta", "quiet"]) {
      const { came, admitted, before, after } = found.get(key)!;
      const truth = happened(ran, key, diff.until.getTime());
      t.is(came, truth.came);
      t.is(admitted, truth.started);
      t.true(near(before.started, truth.started), `${key}: ${truth.started}, ${JSON.stringify(before)}`);
      t.true(near(before.waiting, truth.waiting), `${key}: ${truth.waiting}, ${JSON.stringify(before)}`);
      t.true(
        near(before.medianWaitSeconds, truth.p50, 0.02, 1),
        `${key}: ${truth.p50}, ${JSON.stringify(before)}`,
      );
      t.true(
        near(before.p95WaitSeconds, truth.p95, 0.02, 1.5),
        `${key}: ${truth.p95}, ${JSON.stringify(before)}`,
      );
      t.true(
        near(before.longestWaitSeconds, truth.longest, 0.02, 1.5),
        `${key}: ${truth.longest}, ${JSON.stringify(before)}`,
      );
      if (key !== "acme") t.deepEqual(after, before, `${key} has the limit that it had`);
    }
    const { before, after } = found.get("acme")!;
    const seconds = (diff.until.getTime() - Math.min(...jobs.map(({ at }) => at))) / 1000;
    t.true(near(after.started, 10 + seconds, 0.03), `${seconds} s: ${JSON.stringify(after)}`);
    t.true(after.waiting.from > before.waiting.from + 50);
  },
);

atLength("what depends on how long jobs run is a span around what happened", async (t) => {
  const { pool, utils } = await world(t);
  const next = random(seedOf(t));
  const jobs = jobsOf(next, 90, { acme: 70, beta: 25 }, () => next.between(1000, 6000));
  const ran = await runLoad({ pool, utils }, "capped", jobs);
  const diff = await utils.diff({ policy: "capped", gate: "concurrency", key: "acme", set: { max: 8 } });
  t.true(diff.isInterval);
  const found = byKey(diff.partitions);
  for (const key of ["acme", "beta"]) {
    const { before } = found.get(key)!;
    const truth = happened(ran, key, diff.until.getTime());
    t.true(
      near(before.started, truth.started, 0.06, 3),
      `${key}: ${truth.started}, ${JSON.stringify(before)}`,
    );
  }
  const { before, after } = found.get("acme")!;
  t.true(before.waiting.from > 5, JSON.stringify(before));
  t.is(after.waiting.to, 0, JSON.stringify(after));
  t.true(after.p95WaitSeconds.to < before.p95WaitSeconds.from);
});

atLength("a shorter time, fewer jobs: the newest are replayed, and what waited before counts", async (t) => {
  const { url, pool, utils } = await world(t);
  const now = Date.now();
  const jobs = [
    ...Array.from({ length: 400 }, (_, n) => ({ partition: "acme", at: now - 170_000 + n, runMs: 1 })),
    ...Array.from({ length: 10 }, (_, n) => ({ partition: "acme", at: now - 20_000 + n * 100, runMs: 1 })),
  ];
  await runLoad({ pool, utils }, "paced", jobs);
  // the environment names the schemas of the application's database, not those of the replay
  Object.assign(process.env, { DISPATCH_POLICY_SCHEMA: "ours", GRAPHILE_WORKER_SCHEMA: "theirs" });
  const diff = await utils.diff({ policy: "paced", gate: "throttle", set: { rate: 4 }, most: 150 });
  delete process.env.DISPATCH_POLICY_SCHEMA;
  delete process.env.GRAPHILE_WORKER_SCHEMA;
  t.true(diff.jobs < 410, `${diff.jobs}`);
  t.is(diff.recordedJobs, 410);
  t.true(diff.waited > 0 && diff.waitedReplayed <= 150, JSON.stringify(diff));
  const cli = await runCommand(
    url,
    "diff",
    "--policy",
    "paced",
    "--gate",
    "throttle",
    "--rate",
    "2",
    "--most",
    "50",
  );
  t.regex(
    cli.stdout,
    /^Nothing would have been different with the other limit of gate throttle for\s+every key\.$/m,
  );
  t.regex(cli.stderr, /410 jobs came in all: with a higher --most a longer time is replayed\./);
  t.regex(cli.stderr, /jobs waited at the beginning, and count as waiting from then/);
});

atLength(
  "a limit that an operator set in that time is replayed from then; the command says it in a table",
  async (t) => {
    const { url, pool, utils } = await world(t);
    const from = Date.now() - 60_000;
    const jobs = Array.from({ length: 60 }, (_, n) => ({
      partition: n % 3 === 0 ? "beta" : "acme",
      at: from + n * 200,
      runMs: 1,
    }));
    await utils.setLimit({ policy: "paced", gate: "throttle", set: { rate: 0 } });
    await table(pool, "overrides").set({ set_at: new Date(from - 600_000) });
    await runLoad({ pool, utils }, "paced", jobs);
    const limit = ["--policy", "paced", "--gate", "throttle", "--key", "acme"];
    const { code, stdout, stderr } = await runCommand(
      url,
      "diff",
      ...limit,
      "--rate",
      "100",
      "--burst",
      "100",
    );
    t.is(code, 0, stderr);
    const lines = stdout.trimEnd().split("\n");
    t.is(lines.length, 3, stdout);
    t.regex(lines[0]!, /^partition +limits +started +waiting +median wait +95 % wait +longest$/i);
    t.regex(lines[1]!, /^acme +as it was +0 +40 +\d+ \w+ +\d+ \w+ +\d+ \w+$/);
    t.regex(lines[2]!, /^ +changed +40 +0 +0 s +0 s +0 s$/);
    t.true(lines.every((line) => line.length <= 80));
    const told = stderr.replace(/\s+/g, " ");
    t.regex(told, /1 other partition would have been the same\. Replayed 60 jobs from \S+ to \S+\. /);
    t.regex(told, /As it was, 0 start in the replay, and 0 did in fact\. $/);
    const [audit] = (await pool.query("select count(*)::int as n from dispatch_policy.audit")).rows;
    t.is(audit.n, 1, "a replay changes nothing");
  },
);

atLength("the policy as the configuration has it: other gates, and what is not replayed", async (t) => {
  const { url, pool, utils } = await world(t);
  const from = Date.now() - 20_000;
  const jobs = Array.from({ length: 12 }, (_, n) => ({ partition: "acme", at: from + n * 100, runMs: 1 }));
  // an operator's limit of a gate that the other definition does not have
  await utils.setLimit({ policy: "paced", gate: "throttle", set: { burst: 12 } });
  await table(pool, "overrides").set({ set_at: new Date(from - 600_000) });
  await runLoad({ pool, utils }, "paced", jobs);
  const cwd = await mkdtemp(path.join(os.tmpdir(), "diff-"));
  t.teardown(() => rm(cwd, { recursive: true, force: true }));
  await writeFile(
    path.join(cwd, "graphile.config.ts"),
    `import { definePolicy, dispatchPolicyPreset } from ${JSON.stringify(INDEX)};
     const paced = definePolicy("paced", {
       partitionBy: (ctx) => ctx.to,
       context: ({ to }) => ({ to }),
       gates: ({ throttle }) => [throttle({ name: "slow", rate: 1, per: "1 hour", burst: 3 })],
     });
     export default { extends: [dispatchPolicyPreset({ policies: [paced] })] };`,
  );
  const asked = ["diff", "--policy", "paced", "--definition"];
  const { code, stdout, stderr } = await runIn({ cwd, env: { DATABASE_URL: url } }, ...asked);
  t.is(code, 0, stderr);
  const lines = stdout.trimEnd().split("\n");
  t.regex(lines[1]!, /^acme +as it was +12 +0 /);
  t.regex(lines[2]!, /^ +changed +3 +9 /);
  const told = stderr.replace(/\s+/g, " ");
  t.regex(
    told,
    /Not replayed: the other context\. Limits are worked out from the contexts that were stored\./,
  );
  t.regex(told, /Not replayed: the other partitionBy\. Jobs keep the partitions that they had\./);
  t.regex(told, /As it was, 12 start in the replay, and 12 did in fact\./);
  const other = await runIn({ cwd, env: { DATABASE_URL: url } }, "diff", "--policy", "pacd", "--definition");
  t.regex(other.stderr, /^diff: the configuration has no policy "pacd": did you mean "paced"\?\n/);
  t.is(other.code, 2);
});

atLength("what cannot be replayed is refused, with the way out", async (t) => {
  const { url, utils } = await world(t);
  const set = { rate: 1 };
  const refused = async (options: object, message: RegExp) => {
    const error = await t.throwsAsync(utils.diff(options as never));
    t.regex(error.message, message);
    return error;
  };
  t.true(
    (await refused({ policy: "nobody", gate: "throttle", set }, /nobody/)) instanceof UnknownPolicyError,
  );
  const none = await refused(
    { policy: "forgetful", gate: "throttle", set },
    /^diff: policy "forgetful" records no load: declare it with load: \{ keep: "1 hour" \}/,
  );
  t.true(none instanceof ArgumentError);
  await refused(
    { policy: "paced", gate: "throttle", set },
    /^diff: policy "paced" records its load, but no job has come/,
  );
  await refused(
    { policy: "paced", gate: "throttle", set: { rat: 1 } },
    /^unknown option "rat" of diff: set: did you mean "rate"\?/,
  );
  await refused({ policy: "paced", gate: "throttle", set, most: 0 }, /^diff: most must be/);
  await refused({ policy: "paced", set }, /^diff: gate is missing/);
  await utils.addJob("paced", { to: "a" });
  await utils.tick({ policy: "paced" });
  await refused({ policy: "paced", gate: "nothing", set }, /^diff: .*gate.*nothing/);
  await refused({ policy: "paced", gate: "throttle", set: { max: 1 } }, /^diff: .*max/);
  t.is((await runCommand(url, "diff", "--policy", "paced", "--gate", "throttle")).code, 2);
  await refused(
    { policy: "paced", definition: {} },
    /^diff: definition must be a policy made by definePolicy/,
  );
  await refused(
    { policy: "paced", definition: capped },
    /^diff: definition is of policy "capped", expected one of/,
  );
  await refused({ policy: "paced", definition: paced, gate: "throttle" }, /^unknown option "gate" of diff/);
  const reading = definePolicy("paced", {
    context: (payload) => payload as { to: string; rate: number },
    partitionBy: (ctx) => ctx.to,
    gates: ({ throttle }) => [throttle({ rate: (ctx) => ctx.rate, per: "1 second" })],
  });
  await refused(
    { policy: "paced", definition: reading },
    /^diff: the definition cannot work out the limits of partition "a" from its stored context: .*rate/,
  );

  const hook = `${import.meta.dirname}/../fixtures/without-pglite.mjs`;
  const { code, stderr } = await runIn(
    { env: { DATABASE_URL: url, NODE_OPTIONS: `--import ${hook}` } },
    ...["diff", "--policy", "paced", "--gate", "throttle", "--rate", "1"],
  );
  t.is(code, 1);
  t.regex(
    stderr.replace(/\s+/g, " "),
    /which is not installed: npm install --save-dev @electric-sql\/pglite@/,
  );
});
