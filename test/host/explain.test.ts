// The command that says why a job waits: run as a user runs it, as a role that may only look.
import test, { type ExecutionContext } from "ava";
import { concurrency, definePolicy, makePolicyUtils, throttle } from "../../src/index.ts";
import { runCommand } from "../helpers/command.ts";
import { testDatabase } from "../helpers/database.ts";
import { roles } from "../helpers/roles.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";

const work = definePolicy("work", {
  context: (payload) => payload as { k: string },
  partitionBy: "k",
  gates: [concurrency({ max: 1 }), concurrency({ name: "account", scope: () => "acme", max: 1 })],
});

const explain = (url: string, ...args: string[]) => runCommand(url, "explain", ...args);

/** Partition b waits for the account's only slot, which partition a's job occupies. */
async function world(t: ExecutionContext) {
  const { pool, url } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  t.teardown(() => utils.release());
  const [first, second] = await utils.addJobs([
    { identifier: "work", payload: { k: "a" } },
    { identifier: "work", payload: { k: "b" } },
  ]);
  await utils.tick({ policy: "work" });
  const { rows } = await pool.query("select job_id from dispatch_policy.in_flight_jobs");
  return { pool, url, utils, first: first!.id, second: second!.id, holder: rows[0].job_id as string };
}

test("by the job's id or by its partition: the reason, the sentence, each gate and who occupies its slot", async (t) => {
  const { url, utils, second, holder } = await world(t);
  await utils.setLimit({ policy: "work", gate: "account", set: { max: 1 }, by: "ana", reason: "invoice" });
  const job = await explain(url, second);
  t.is(job.code, 0, job.stderr);
  const lines = job.stdout.split("\n");
  const gates = lines.findIndex((line) => line.startsWith("  - "));
  const [head, sentence] = [lines[0], lines.slice(1, gates).join(" ")];
  const [own, account, slot] = lines.slice(gates);
  t.is(head, `work/b ${second}  staged  concurrency_full`);
  t.regex(
    sentence,
    new RegExp(`It waits for gate "account" of acme: 1 of 1 are in flight, .* \\(job ${holder}\\)`),
  );
  t.regex(sentence, /ana set this limit \(invoice\)/);
  t.is(own, "  - concurrency of b: 1 of 1 slots free");
  t.is(account, "  x account of acme: 0 of 1 slots free; set for every key by ana");
  t.regex(slot!, new RegExp(`^ {6}job ${holder} of a since `));
  const partition = await explain(url, "--policy", "work", "--partition", "b");
  t.is(partition.stdout.split("\n")[0], "work/b  waiting  concurrency_full");
  t.regex(partition.stdout, /^More: docs\/operating\.md#concurrency_full\n.*\n {4}npx .*\n$/m);
  t.is(partition.stderr, "");
});

test("when it starts, on a line of its own, or why nobody can tell", async (t) => {
  const { pool, url } = await testDatabase(t);
  const slow = definePolicy("slow", {
    context: (payload) => payload as { k: string },
    partitionBy: "k",
    gates: [throttle({ rate: 10, per: "100 seconds" })],
  });
  const utils = await makePolicyUtils({ pgPool: pool, policies: [slow], logger: silent });
  t.teardown(() => utils.release());
  const jobs = await utils.addJobs(
    Array.from({ length: 31 }, () => ({ identifier: "slow", payload: { k: "a" } })),
  );
  await utils.tick({ policy: "slow" });
  const id = jobs.at(-1)!.id;
  t.regex(
    (await explain(url, id)).stdout,
    /^ {2}start unknown: neither a loop nor the crontab ticks its policy$/m,
  );
  await table(pool, "policies").set({ crontab_ticked_at: () => "now()" });
  const { stdout, stderr } = await explain(url, id);
  t.log(stdout);
  t.regex(
    stdout,
    /^ {2}start in 3 min to [45] min, by the tokens of its partition, and a tick each\s+minute$/m,
    stderr,
  );
  t.regex(stdout, /Expected to\s+start\s+in\s+3-[45]\s+min\./);
  const { asOf, estimate, noEstimate } = await utils.explain({ id });
  t.is(noEstimate, null);
  t.true(estimate!.from > asOf && estimate!.until > estimate!.from);
});

test("--json prints what the utils return, of one moment", async (t) => {
  const { url, utils, first, second } = await world(t);
  for (const id of [first, second]) {
    const { stdout } = await explain(url, id, "--json");
    const { asOf, sentence, ...printed } = JSON.parse(stdout);
    t.like(JSON.parse(JSON.stringify(await utils.explain({ id }))), printed);
    t.deepEqual([typeof asOf, typeof sentence], ["string", "string"]);
  }
});

test("if nothing but a tick is missing, it names the page about that", async (t) => {
  const { url, utils } = await world(t);
  await utils.addJobs([{ identifier: "work", payload: { k: "d" } }]);
  const waiting = await explain(url, "--policy", "work", "--partition", "d");
  t.regex(waiting.stdout, /Nothing else holds it back/);
  t.regex(waiting.stdout, /^More: docs\/operating\.md#nobody-ticks$/m);
});

test("what it cannot answer: an unknown job matches nothing, a wrong call and an unknown policy fail", async (t) => {
  const { url } = await world(t);
  const unknown = await explain(url, "999999");
  t.like(unknown, { code: 3, stderr: "" });
  t.regex(unknown.stdout, /unknown\nNothing is known of it/);
  const never = await explain(url, "--policy", "work", "--partition", "never");
  t.like(never, { code: 3, stderr: "" });
  t.regex(never.stdout, /^work\/never {2}unknown\n/);
  t.regex((await explain(url)).stderr, /give a job's id, --policy NAME and --partition KEY, or --key KEY/);
  t.regex((await explain(url, "--policy", "nope", "--partition", "a")).stderr, /unknown policy "?nope/i);
});

test("a role that only looks may ask, and asking sets nothing up", async (t) => {
  const { url, pool, second } = await world(t);
  const role = roles(t, { url, pool }, ["reader"]).nameOf("reader");
  await pool.query(`create role ${role} login password 'x'`);
  await pool.query(`grant usage on schema dispatch_policy to ${role};
    grant execute on function dispatch_policy.explain, dispatch_policy.limiter_shown to ${role};
    grant select on dispatch_policy.policies, dispatch_policy.partitions, dispatch_policy.in_flight_jobs to ${role}`);
  const asReader = new URL(url);
  asReader.username = role;
  asReader.password = "x";
  const { stdout, stderr } = await explain(asReader.href, second);
  t.regex(stdout, /concurrency_full/, stderr);
  await pool.query("drop schema dispatch_policy cascade");
  t.not((await explain(url, second)).code, 0);
  const { rows } = await pool.query("select to_regnamespace('dispatch_policy') as there");
  t.is(rows[0].there, null);
});
