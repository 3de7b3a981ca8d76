// The commands that only look.
import { once } from "node:events";
import test from "ava";
import { definePolicy, makePolicyUtils } from "../../src/index.ts";
import { rowsOf, runCommand, start } from "../helpers/command.ts";
import { testDatabase } from "../helpers/database.ts";
import { MONTH } from "../helpers/engine.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";
import { worldInTurn as world } from "./world.ts";

const LIMIT = { policy: "fetch_endpoint", gate: "account", key: "acme", set: { max: 2 }, by: "ana" };
const LOOKS = ["status", "top --once", "policies", "partitions", "jobs", "limits", "audit", "search ep"].map(
  (line) => line.split(" "),
);

test("each prints a page of at most 80 columns, without colours, and nothing on stderr that is not words", async (t) => {
  const { cli, utils } = await world(t);
  await utils.setLimit(LIMIT);
  for (const line of LOOKS) {
    const { stdout, code } = await cli(...line);
    t.is(code, 0, line.join(" "));
    t.deepEqual(
      stdout.split("\n").filter((text) => text.length > 80),
      [],
    );
    t.false(stdout.includes("\x1b"), line.join(" "));
  }
});

test("each prints JSON: an object, or a line for each row, with exact values", async (t) => {
  const { cli, utils, first } = await world(t);
  await utils.setLimit(LIMIT);
  const json = async (...line: string[]) => rowsOf((await cli(...line, "--json")).stdout);
  t.like((await json("status"))[0].policies[0], { policy: "fetch_endpoint", staged: 15, inFlight: 3 });
  const [{ oldestDue }] = await json("status");
  t.like((await utils.status()).oldestDue, { id: oldestDue.id, policy: "fetch_endpoint", partition: "ep1" });
  t.true(
    (await cli("status")).stderr.includes(
      `Of fetch_endpoint/ep1, job ${oldestDue.id} has been due for longest`,
    ),
  );
  t.like((await json("policies"))[0], { oldestDueId: oldestDue.id, oldestDuePartition: "ep1" });
  const [frame] = await json("top", "--once");
  t.deepEqual(
    frame.waiting.map(({ partition, reason }: Record<string, unknown>) => [partition, reason]).toSorted(),
    [
      ["di@example.org", "throttle_empty"],
      ["ed@example.org", "throttle_empty"],
      ["ep1", "concurrency_full"],
      ["ep2", "concurrency_full"],
      ["ep3", "paused"],
      ["ep4", "held"],
    ],
  );
  t.like(frame.policies[0], { policy: "fetch_endpoint", admittedPerMinute: null });
  t.is((await json("policies", "--policy", "send_mail"))[0].definition.gates[0].name, "all");
  t.like((await json("partitions", "--search", "ep3"))[0], {
    ...{ partition: "ep3", staged: 6, reason: "paused", stoppedBy: "ana", stopReason: "incident 12" },
  });
  const jobs = await json("jobs", "--policy", "fetch_endpoint", "--state", "staged");
  t.is(jobs.length, 15);
  t.is((await json("jobs", "--limit", "1"))[0].stagedId, first);
  t.like((await json("limits"))[0], { gate: "account", key: "acme", override: { max: 2 }, by: "ana" });
  t.deepEqual(
    (await json("audit")).map(({ verb, by }) => [verb, by]),
    [
      ["set_limit", "ana"],
      ["hold", "bo"],
      ["pause", "ana"],
    ],
  );
});

test("what nothing matches ends with exit code 3, and says so on stderr only", async (t) => {
  const { cli } = await world(t);
  for (const line of [
    ["limits"],
    ["partitions", "--search", "nowhere"],
    ["jobs", "--state", "failed"],
    ["audit", "--by", "nobody"],
    ["history", "--outcome", "failed"],
  ]) {
    const { stdout, stderr, code } = await cli(...line);
    t.deepEqual([stdout, code], ["", 3], line.join(" "));
    t.regex(stderr, /^No .*\.\n$/);
  }
});

test("search finds what a word leads to, shows blanks at ends, and says what to ask next", async (t) => {
  const { cli, utils, first } = await world(t);
  await utils.addJobs(
    ["cust-06", "cust-06 ", "cust-061"].map((tenant) => ({ identifier: "make_report", payload: { tenant } })),
  );
  await utils.tick();
  const found = await cli("search", "cust-06");
  t.is(found.code, 0);
  t.deepEqual(found.stdout.trim().split(/ *\n/), [
    "WHAT       POLICY       PARTITION  STATE  NOTE",
    "partition  make_report  cust-06    idle",
    "partition  make_report  cust-06␠   idle   near match: blanks at its ends differ",
    "partition  make_report  cust-061   idle",
  ]);
  t.is(found.stderr, "Where it stands: explain --policy make_report --partition cust-06\n");
  t.regex((await cli("search", "acme")).stdout, /concurrency_full +account = acme/);
  t.regex((await cli("search", first)).stderr, /^Where it stands: explain \d+\n$/);
  const [hit, ...others] = rowsOf((await cli("search", "ep3", "--json")).stdout);
  t.deepEqual(others, []);
  t.like(hit, {
    kind: "partition",
    policy: "fetch_endpoint",
    partition: "ep3",
    jobId: null,
    state: "paused",
  });
  t.is(
    (await cli("search", "ep", "--max", "2")).stderr.split("\n")[0],
    "More may match: of each kind only 2 are shown.",
  );
  const none = await cli("search", "nowhere ");
  t.deepEqual([none.stdout, none.stderr, none.code], ["", "Nothing matches nowhere␠.\n", 3]);
  for (const wrong of [["search"], ["search", "ep", "--max", "101"]]) t.is((await cli(...wrong)).code, 2);
});

test("partitions says that jobs wait for a first tick, where it lists none", async (t) => {
  const { cli, utils } = await world(t);
  await utils.addJob("make_report", { tenant: "globex" });
  const { stderr, code } = await cli("partitions", "--policy", "make_report");
  t.is(code, 3);
  t.is(
    stderr.replace(/\s+/g, " "),
    "No partition matches. 1 staged job of make_report has no partition yet, because no tick has seen it: see doctor. ",
  );
});

test("a page that is full names the next one", async (t) => {
  const { cli } = await world(t);
  const page = await cli("partitions", "--policy", "send_mail", "--limit", "2");
  t.is(page.stderr, 'For more, add --after "bo@example.org"\n');
  const next = await cli("partitions", "--policy", "send_mail", "--limit", "2", "--after", "bo@example.org");
  t.regex(next.stdout, /cy@example\.org[\s\S]*di@example\.org/);
  t.regex((await cli("jobs", "--limit", "3")).stderr, /^For more, add --after \d+\n$/);
});

test("explain --key finds the policy, and lists them if several have the key", async (t) => {
  const { cli, utils } = await world(t);
  const byKey = await cli("explain", "--key", "ep1");
  t.is(byKey.code, 0);
  t.is(byKey.stdout.split("\n")[0], "fetch_endpoint/ep1  waiting  concurrency_full");
  t.regex(byKey.stdout, / {2}x concurrency of ep1: 0 of 2 slots free\n/);
  await utils.addJob("make_report", { tenant: "ep1" });
  await utils.addJob("send_mail", { to: "ep1" }); // no tick has seen it
  const several = await cli("explain", "--key", "ep1");
  t.deepEqual(
    several.stdout.split("\n").filter((line) => /^\S/.test(line)),
    ["fetch_endpoint/ep1  waiting  concurrency_full", "make_report/ep1  waiting", "send_mail/ep1  waiting"],
  );
  t.regex(several.stdout, /It waits for gate "concurrency" of ep1: 2 of 2\s+are in flight/);
  t.is(several.stderr, "For more of one: explain --policy NAME --partition KEY\n");
  const rows = rowsOf((await cli("explain", "--key", "ep1", "--json")).stdout);
  t.deepEqual(
    rows.map(({ policy }) => policy),
    ["fetch_endpoint", "make_report", "send_mail"],
  );
  const none = await cli("explain", "--key", "EP");
  t.deepEqual([none.stdout, none.code], ["", 3]);
  t.is(
    none.stderr.replace(/\s+/g, " ").trim(),
    `No partition has the key "EP". Near it: ${[1, 2, 3, 4].map((n) => `fetch_endpoint/ep${n}`).join(", ")}`,
  );
  t.is((await cli("explain", "--key", "nowhere")).stderr, 'No partition has the key "nowhere".\n');
});

test("--watch prints again and again", async (t) => {
  const { cli, url } = await world(t);
  const child = start(url, "limits", "--watch", "0.1");
  const gone = once(child, "exit");
  let said = "";
  child.stderr.on("data", (text) => (said += text));
  await until("it has said it three times", () => said.split("No limit is set.").length > 3);
  child.kill("SIGINT");
  await gone;
  t.is((await cli("limits", "--watch", "0.01")).code, 2);
});

test("a key from outside cannot move the cursor, and is cut to fit", async (t) => {
  const { cli, utils } = await world(t);
  await utils.addJob("make_report", { tenant: "\x1b[2Jgone\u202e" });
  await utils.tick();
  const { stdout } = await cli("partitions", "--policy", "make_report");
  t.false(stdout.includes("\x1b") || stdout.includes("\u202e"));
  t.true(stdout.includes("\\u001b[2Jgone\\u202e"));
  await utils.addJob("make_report", { tenant: "北京".repeat(60) });
  await utils.tick();
  t.regex((await cli("partitions", "--policy", "make_report")).stdout, /^(北京)+北?…/m);
});

test("a calendar window in words: what it has left, and when what was spent returns", async (t) => {
  const { url, pool } = await testDatabase(t);
  const [, timeZone] = MONTH.split(" ");
  const policy = definePolicy("export_rows", {
    partitionBy: "partner",
    gates: ({ throttle }) => [
      throttle({ name: "quota", rate: 1_000, per: "1 month", window: "calendar", timeZone }),
    ],
  });
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  await utils.addJob("export_rows", { partner: "acme" });
  await utils.take({ policy: "export_rows", gate: "quota", key: "acme", cost: 1_000 });
  await utils.tick({ policy: "export_rows" });
  const explained = await runCommand(url, "explain", "--policy", "export_rows", "--partition", "acme");
  const said = explained.stdout.replace(/\s+/g, " ");
  const month = `month in ${timeZone}`;
  t.true(said.includes(`"quota" of acme: 0.00 of 1000.00 per ${month} are left, enough in `), said);
  t.regex(
    said,
    new RegExp(`quota of acme: 0 of 1,000 tokens, 1,000 per ${month}; enough in \\d+ (min|h|days)`),
  );
  const { stdout } = await runCommand(url, "policies");
  t.true(stdout.includes(`gate quota: throttle over the partition; 1000 per ${month}`), stdout);
});
