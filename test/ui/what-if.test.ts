// Before a limit is set: what would have happened under it, if the policy records its load. test/features/diff.test.ts replays.
import test from "ava";
import { type Diff, definePolicy, MissingPackageError, makePolicyUtils } from "../../src/index.ts";
import { whatIf } from "../../src/ui/parts/what-if.ts";
import { makeReplays } from "../../src/ui/replays.ts";
import { createUi } from "../../src/ui/ui.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { HERE } from "./world.ts";

const gates: Parameters<typeof definePolicy>[1]["gates"] = ({ throttle }) => [
  throttle({ rate: 2, per: "1 second" }),
];
const recorded = definePolicy("recorded", { partitionBy: "to", gates, load: { keep: "1 hour" } });
const forgetful = definePolicy("forgetful", { partitionBy: "to", gates });

const span = (from: number, to = from) => ({ from, to });
const figures = (started: number, seconds: number) => ({
  started: span(started),
  waiting: span(0, 3),
  medianWaitSeconds: span(seconds),
  p95WaitSeconds: span(seconds, 90),
  longestWaitSeconds: span(seconds, 90),
});
const FOUND: Diff = {
  policy: "recorded",
  from: new Date("2026-01-02T03:04:05Z"),
  until: new Date("2026-01-02T03:14:05Z"),
  jobs: 500,
  recordedJobs: 1200,
  waited: 4,
  waitedReplayed: 4,
  isInterval: true,
  notReplayed: [],
  partitions: [
    { partition: "<acme>", came: 300, admitted: 290, before: figures(291, 2), after: figures(1500, 0) },
    { partition: "quiet", came: 7, admitted: 7, before: figures(7, 0), after: figures(7, 0) },
    ...Array.from({ length: 11 }, (_, n) => ({
      ...{ partition: n === 0 ? null : `p${n}`, came: 1, admitted: 1 },
      ...{ before: figures(1, 1), after: figures(1, 0) },
    })),
  ],
};

test("the page of set-limit offers a replay if the load is recorded, and says why there is none", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [recorded, forgetful], logger: silent });
  t.teardown(() => utils.release());
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "operator" }) });
  const page = async (policy: string) =>
    (await ui(new Request(`${HERE}/act/set-limit?policy=${policy}`))).text();
  t.regex(
    await page("recorded"),
    /<button name="replay" value="1" formnovalidate>what would have happened\?</,
  );
  t.notRegex(await page("forgetful"), /replay/);
  const replay = async (policy: string, rate: string) => {
    const form = { policy, gate: "throttle", key: "acme", rate, reason: "a trial", replay: "1" };
    const headers = { "sec-fetch-site": "same-origin" };
    const init = { method: "POST", body: new URLSearchParams(form), headers };
    return (await ui(new Request(`${HERE}/act/set-limit`, init))).text();
  };
  const answer = await replay("recorded", "7");
  t.regex(answer, /role="alert">diff: policy &quot;recorded&quot; records its load, but no job has come/);
  for (const kept of [/name="rate" value="7"/, /name="key" value="acme"/, /name="reason" value="a trial"/])
    t.regex(answer, kept);
  t.regex(await replay("forgetful", "7"), /role="alert">diff: policy &quot;forgetful&quot; records no load/);
  t.regex(await replay("recorded", ""), /role="alert">diff: /, "no number was given");
  t.deepEqual(await utils.limits(), []);
});

test("one replay runs at a time; a package that is missing is named, other errors go on", async (t) => {
  const replays = makeReplays();
  const { promise, resolve } = Promise.withResolvers<Diff>();
  const first = replays.run(() => promise);
  t.regex(String(await replays.run(async () => FOUND)), /A replay is running already/);
  resolve(FOUND);
  t.regex(String(await first), /What would have happened/);
  const missing = new MissingPackageError("diff replays in a PGlite, which is not installed");
  t.regex(
    String(await replays.run(() => Promise.reject(missing))),
    /role="alert">.*PGlite, which is not installed/,
  );
  await t.throwsAsync(
    replays.run(() => Promise.reject(new Error("away"))),
    { message: "away" },
  );
  t.regex(String(await replays.run(async () => FOUND)), /What would have happened/);
});

test("a replay is shown with both limits, and with how far to trust it", (t) => {
  const page = String(whatIf(FOUND));
  const rows = page
    .split("<tr>")
    .slice(2)
    .map((row) =>
      row
        .replace(/<[^>]*>/g, " ")
        .trim()
        .split(/ {2,}/),
    );
  t.is(rows.length, 20);
  t.deepEqual(rows[0]?.slice(0, 7), [
    ...["&lt;acme&gt;", "as it was", "291", "0 to 3", "2 s", "2 s to 1 min 30 s", "2 s to 1 min 30 s"],
  ]);
  t.deepEqual(rows[1]?.slice(1, 3), ["changed", "1,500"]);
  t.deepEqual(rows[2]?.slice(0, 2), ["(others)", "as it was"]);
  t.notRegex(page, /quiet/);
  t.regex(page, /2 more partitions would differ/);
  t.regex(page, /Replayed 500 jobs from .*As it was, 309 start in the replay, and 308 did in fact/s);
  t.regex(
    page,
    /1,200 jobs came in all.*4 jobs waited at the beginning.*depend on how long jobs run.*\(others\)/s,
  );
  t.regex(String(whatIf({ ...FOUND, partitions: [] })), /Nothing would have been different/);
});
