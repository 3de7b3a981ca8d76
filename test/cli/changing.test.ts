// The commands that change something, and can be taken back.
import os from "node:os";
import test from "ava";
import { table } from "../helpers/table.ts";
import { worldInTurn as world } from "./world.ts";

const FETCH = ["--policy", "fetch_endpoint"];
const EP1 = [...FETCH, "--partition", "ep1"];

test("stop and go on: a partition, a policy, all", async (t) => {
  const { cli, utils } = await world(t);
  const isPaused = async () => (await utils.status()).policies.map(({ paused }) => paused);
  t.regex(
    (await cli("pause", ...EP1, "--until", "1 hour")).stdout,
    /^Paused partition ep1 of policy fetch_endpoint/,
  );
  t.is((await utils.explain({ policy: "fetch_endpoint", partition: "ep1" })).reason, "paused");
  t.like(await cli("resume", ...EP1), {
    stdout: "Resumed partition ep1 of policy fetch_endpoint.\n",
    code: 0,
  });
  t.like(await cli("pause", ...FETCH), { code: 0 });
  t.deepEqual(await isPaused(), [true, false, false]);
  t.like(await cli("pause", "--all", "--json"), {
    stdout: '{"matched":3,"changed":2,"stored":false}\n',
    code: 0,
  });
  t.deepEqual(await isPaused(), [true, true, true]);
  const status = await cli("status");
  t.regex(status.stdout, /make_report +paused with all/);
  t.regex(
    status.stderr,
    /^All policies were paused by .*, until resume --all\. Those that are declared\s+from now on/m,
  );
  t.regex((await cli("stops")).stdout, /^\(all\) +\(all\) +pause +resume/m);
  t.like(await cli("resume", "--all"), { stdout: "Resumed every policy.\n", code: 0 });
  t.deepEqual(await isPaused(), [false, false, false]);
  t.regex((await cli("stops")).stdout, /^fetch_endpoint +ep3 +pause +resume +ana +incident 12$/m);
  t.like(await cli("hold", ...EP1, "--for", "30 minutes"), { code: 0 });
  t.is((await utils.explain({ policy: "fetch_endpoint", partition: "ep1" })).reason, "held");
  t.like(await cli("resume", ...FETCH, "--partition", "nobody"), { code: 3 });
  const early = [...FETCH, "--partition", "ep9"];
  const told = (stop: string) => `No job has had this key yet: the ${stop} waits for the first.\n`;
  t.like(await cli("pause", ...early), { stderr: told("pause"), code: 0 });
  t.like(await cli("hold", ...early, "--for", "1 hour"), { stderr: told("hold"), code: 0 });
  t.regex((await cli("stops")).stdout, /^fetch_endpoint +ep9 \(no job yet\) +pause/m);
});

test("limits: set, listed, cleared", async (t) => {
  const { cli, utils } = await world(t);
  const account = [...FETCH, "--gate", "account", "--key", "acme"];
  t.like(await cli("set-limit", ...account, "--max", "2", "--until", "1 hour"), { code: 0, stderr: "" });
  t.like((await utils.limits())[0], { key: "acme", override: { max: 2 } });
  t.regex((await cli("limits")).stdout, /acme +max 2 +in 60 min/);
  t.like(await cli("clear-limit", ...account), { code: 0 });
  t.deepEqual(await utils.limits(), []);
  t.like(await cli("clear-limit", ...account), { code: 3 });
  const unknown = await cli("set-limit", ...FETCH, "--gate", "account", "--key", "acmee", "--max", "2");
  t.is(unknown.code, 0);
  t.regex(unknown.stderr, /^No job has had this key yet/);
  t.regex((await cli("limits")).stdout, /acmee \(no job yet\) +max 2/);
  const throttle = [...FETCH, "--gate", "throttle"];
  t.like(await cli("set-limit", ...throttle, "--rate", "5", "--per", "1 second", "--burst", "7"), {
    code: 0,
  });
  t.like(
    (await utils.limits()).find(({ gate }) => gate === "throttle"),
    {
      override: { rate: 5, per: "1 seconds", burst: 7 },
    },
  );
});

test("limits by context: set, listed, cleared, and refused", async (t) => {
  const { cli, utils } = await world(t);
  const free = [...FETCH, "--gate", "throttle", "--where", "account=acme"];
  t.like(await cli("set-limit", ...free, "--rate", "5"), {
    stdout:
      "Set the limit of gate throttle for every partition with account=acme to rate 5,\nuntil clear-limit.\n",
    stderr: "",
    code: 0,
  });
  t.like((await utils.limits())[0], { where: { account: "acme" }, override: { rate: 5 } });
  t.regex((await cli("limits")).stdout, / \(account=acme\) +rate 5/);
  const both = [...FETCH, "--gate", "throttle", "--where", "size=3", "--where", 'account="3"'];
  t.like(await cli("set-limit", ...both, "--rate", "1"), {
    stderr: "No partition has this context yet: the limit applies as soon as one has.\n",
    code: 0,
  });
  t.deepEqual((await utils.limits()).find(({ override }) => override.rate === 1)?.where, {
    size: 3,
    account: "3",
  });
  t.like(await cli("clear-limit", ...free), { code: 0 });
  t.like(await cli("clear-limit", ...free), { code: 3 });
  const wrong = await cli("set-limit", ...FETCH, "--gate", "throttle", "--where", "acme", "--rate", "5");
  t.regex(wrong.stderr, /^set-limit: --where is "acme", expected NAME=VALUE, such as plan=free/);
  t.is(wrong.code, 2);
});

test("another context, of a policy whose limits are no functions, needs no configuration", async (t) => {
  const { cli, pool } = await world(t);
  const ana = ["refresh-context", "--policy", "send_mail", "--partition", "ana@example.org"];
  t.like(await cli(...ana, "--context", "plan=pro", "--context", "seats=3"), {
    stdout: "Changed the context of 1 of 1 partition to plan=pro and seats=3.\n",
    stderr: "",
    code: 0,
  });
  const changes = await table(pool, "arrivals").all({ context: (its) => `${its} <> '{}'` });
  t.deepEqual(
    changes.map(({ context }) => context),
    [{ plan: "pro", seats: 3 }],
  );
  t.like(await cli("refresh-context", "--policy", "make_report", "--context", "plan=pro"), { code: 3 });
  t.like(await cli(...ana, "--context", "plan=free", "--dry-run"), {
    stdout: "Would change the context to plan=free: 1 partition, 0 staged jobs, 1 in flight.\n",
    code: 0,
  });
});

test("jobs are due at another time, and go before others", async (t) => {
  const { cli, pool } = await world(t);
  const { rows } = await pool.query(
    "select id from dispatch_policy.staged_jobs where partition = 'ep1' order by id limit 2",
  );
  const [one, two] = rows.map(({ id }) => id as string) as [string, string];
  const of = async (id: string) =>
    (
      await pool.query(
        "select priority, run_at > now() + interval '1 hour' as later, max_attempts from dispatch_policy.staged_jobs where id = $1",
        [id],
      )
    ).rows[0];
  const before = await of(one);
  const line = [
    "reschedule-jobs",
    one,
    two,
    "--priority",
    "-5",
    "--run-at",
    "2 hours",
    "--max-attempts",
    "3",
  ];
  t.like(await cli(...line, "--dry-run"), { stdout: "2 jobs would be rescheduled.\n", code: 0 });
  t.deepEqual(await of(one), before);
  t.like(await cli(...line), { stdout: "Rescheduled 2 of 2 jobs.\n", stderr: "", code: 0 });
  for (const id of [one, two]) t.deepEqual(await of(id), { priority: -5, later: true, max_attempts: 3 });
  t.like(await cli("reschedule-jobs", one, "999", "--priority", "1", "--json"), {
    stdout: '{"matched":1,"changed":1}\n',
    code: 0,
  });
  t.regex((await cli("reschedule-jobs", one)).stderr, /^reschedule-jobs: nothing to change: give --run-at/);
});

test("a dry run of what stops and limits says what it would concern, and changes nothing", async (t) => {
  const { cli, pool } = await world(t);
  const early = [...FETCH, "--partition", "ep9"];
  const account = [...FETCH, "--gate", "account"];
  const later =
    "nothing\\s+matches\\s+yet,\\s+so\\s+it\\s+would\\s+be\\s+stored\\s+for\\s+partitions\\s+to\\s+come";
  const ofPolicy = "4\\s+partitions,\\s+15\\s+staged\\s+jobs,\\s+3\\s+in\\s+flight";
  const ofEp1 = "1\\s+partition,\\s+3\\s+staged\\s+jobs,\\s+2\\s+in\\s+flight";
  const lines: readonly (readonly [line: readonly string[], stdout: string])[] = [
    [["pause", ...EP1], `Would pause partition ep1 of policy fetch_endpoint, until\\s+resume: ${ofEp1}`],
    [["pause", ...FETCH], `Would pause policy fetch_endpoint, until resume: ${ofPolicy}`],
    [["pause", ...early], `Would pause partition ep9 of policy fetch_endpoint, until\\s+resume: ${later}`],
    [["resume", ...EP1], `Would resume partition ep1 of policy fetch_endpoint: ${ofEp1}`],
    [
      ["hold", ...EP1, "--for", "5 minutes"],
      `Would put partition ep1 of policy fetch_endpoint on hold for 5 min: ${ofEp1}`,
    ],
    [["enable", ...FETCH], `Would switch policy fetch_endpoint on: ${ofPolicy}`],
    [
      ["set-limit", ...account, "--key", "acme", "--max", "2"],
      "Would set the limit of gate account for acme to max 2, until clear-limit: 2\\s+partitions,\\s+6\\s+staged\\s+jobs,\\s+3\\s+in\\s+flight",
    ],
    [
      ["set-limit", ...account, "--key", "nobody", "--max", "2"],
      `Would set the limit of gate account for nobody to max 2, until\\s+clear-limit: ${later}`,
    ],
  ];
  for (const [line, stdout] of lines) {
    const dry = await cli(...line, "--dry-run");
    t.regex(dry.stdout, new RegExp(`^${stdout}\\.\n$`.replaceAll(" ", "\\s+")));
    t.deepEqual([dry.stderr, dry.code], ["", 0]);
  }
  t.deepEqual(await cli("clear-limit", ...account, "--key", "acme", "--dry-run"), {
    ...{ stdout: "No limit of gate account for acme is set.\n", stderr: "", code: 3 },
  });
  t.deepEqual(JSON.parse((await cli("pause", ...EP1, "--dry-run", "--json")).stdout), {
    ...{ matched: 1, changed: 0, stored: false, partitions: 1, staged: 3, inFlight: 2 },
  });
  const { rows } = await pool.query("select verb from dispatch_policy.audit order by id");
  t.deepEqual(rows, [{ verb: "pause" }, { verb: "hold" }]); // those of the world
});

test("a key from outside cannot move the cursor where its limit is set", async (t) => {
  const { cli } = await world(t);
  const { stdout } = await cli(
    "set-limit",
    ...FETCH,
    "--gate",
    "account",
    "--key",
    "\x1b[2Jgone",
    "--max",
    "2",
  );
  t.is(stdout, "Set the limit of gate account for \\u001b[2Jgone to max 2, until clear-limit.\n");
});

test("a tick that leaves due jobs to the next one says that they may go now", async (t) => {
  const { cli, utils } = await world(t);
  await utils.addJobs(
    Array.from({ length: 101 }, () => ({ identifier: "make_report", payload: { tenant: "a" } })),
  );
  t.regex(
    (await cli("tick", "--policy", "make_report")).stdout,
    /^Admitted 100 jobs of 1 partition in .*\.\nLeft due jobs in 1 partition: batch\.\nThe next may go now\.\n$/,
  );
});

test("take: exit code 0 with the tokens, 1 without", async (t) => {
  const { cli } = await world(t);
  t.like(await cli("take", ...FETCH, "--gate", "throttle", "--key", "ep9"), { code: 0 });
  const none = await cli("take", "--policy", "send_mail", "--gate", "all", "--json");
  t.is(none.code, 1);
  const { taken, retryAt } = JSON.parse(none.stdout);
  t.false(taken);
  t.true(new Date(retryAt) > new Date());
});

test("sync: says what the throttle has, and ends with exit code 1 if somebody has it locked", async (t) => {
  const { cli, pool } = await world(t);
  const bucket = [...FETCH, "--gate", "throttle", "--key", "ep9"];
  t.like(await cli("sync", ...bucket, "--remaining", "3"), {
    stdout: "Lowered gate throttle to 3.\n",
    code: 0,
  });
  t.regex(
    (await cli("sync", ...bucket, "--remaining", "60")).stdout,
    /^Gate throttle has \d+(\.\d\d?)?, which is no more: nothing changed\.\n$/,
  );
  const app = await pool.connect();
  await app.query("begin");
  await app.query("select from dispatch_policy.take('fetch_endpoint', 'throttle', 'ep9')");
  const locked = await cli("sync", ...bucket, "--remaining", "1", "--json");
  await app.query("rollback");
  app.release();
  t.is(locked.code, 1);
  t.deepEqual(JSON.parse(locked.stdout), { lowered: false, tokens: null });
});

test("retry brings back what has failed for good", async (t) => {
  const { cli, utils } = await world(t);
  await utils.permanentlyFailJobs(["1", "2"], "answer 502");
  t.like(await cli("retry", ...FETCH, "--dry-run"), {
    stdout: "2 failed jobs would be brought back.\n",
    code: 0,
  });
  t.like(await cli("retry", "1"), { stdout: "Brought back 1 of 1 failed job.\n", code: 0 });
  t.like(await cli("retry", ...FETCH, "--since", "1 hour", "--error", "502"), { code: 0 });
  t.like(await cli("retry", ...FETCH), { stdout: "Brought back 0 of 0 failed jobs.\n", code: 3 });
});

test("tick and sweep", async (t) => {
  const { cli, utils } = await world(t);
  await utils.addJob("make_report", { tenant: "a" });
  t.regex((await cli("tick", "--policy", "make_report")).stdout, /^Admitted 1 job of 1 partition in /);
  t.like(JSON.parse((await cli("tick", "--json")).stdout), { admitted: 0 });
  t.like(await cli("sweep"), { stdout: "Nothing was to repair.\n", code: 0 });
  t.like(JSON.parse((await cli("sweep", "--json")).stdout), { jobs: 0, counters: 0 });
});

test("a sweep deletes old rows only if the configuration says how old", async (t) => {
  const { cli, pool } = await world(t);
  const audited = async () => (await pool.query("select from dispatch_policy.audit")).rows.length;
  await table(pool, "audit").set({ at: () => "now() - interval '10 years'" });
  t.like(await cli("sweep"), { code: 0 });
  t.is(await audited(), 2);
  const preset = `${import.meta.dirname}/../fixtures/governed/graphile.config.ts`;
  t.like(await cli("sweep", "--config", preset), { code: 0, stderr: "" });
  t.is(await audited(), 0);
});

test("the way in and out: adopt, unstage, migrate", async (t) => {
  const { cli, pool } = await world(t);
  await pool.query("select graphile_worker.add_job('make_report', '{\"tenant\": \"a\"}')");
  t.like(await cli("adopt", "--task", "make_report", "--dry-run"), {
    stdout: "make_report: 1 job to adopt.\n",
  });
  t.like(await cli("adopt", "--task", "make_report"), {
    stdout: "make_report: adopted 1 of 1 job.\n",
    code: 0,
  });
  t.like(await cli("adopt", "--task", "make_report"), {
    stdout: "make_report: no job is left to adopt.\n",
    code: 0,
  });
  t.regex((await cli("unstage", "--policy", "make_report")).stderr, /^unstage: policy 'make_report' is on/);
  await cli("disable", "--policy", "make_report", "--yes");
  t.like(await cli("unstage", "--policy", "make_report"), {
    ...{ stdout: 'Unstaged 1 of 1 waiting job of policy "make_report".\n', code: 0 },
  });
  t.like(await cli("enable", "--policy", "make_report"), { stdout: "Policy make_report is on.\n", code: 0 });
  t.like(await cli("migrate"), { stdout: "Schemas are up to date.\n", stderr: "", code: 0 });
});

test("the audit has who and why; without --by it is the user of the operating system", async (t) => {
  const { cli, pool } = await world(t);
  await cli("pause", ...EP1, "--reason", "incident 13", "--by", "cy");
  await cli("resume", ...EP1);
  const { rows } = await pool.query(
    "select verb, by, reason from dispatch_policy.audit order by id desc limit 2",
  );
  t.deepEqual(rows, [
    { verb: "resume", by: os.userInfo().username, reason: null },
    { verb: "pause", by: "cy", reason: "incident 13" },
  ]);
});
