// The commands that nothing takes back change nothing without --yes.
import test from "ava";
import { worldInTurn as world } from "./world.ts";

const HINT = "Nothing has changed. To do it, add --yes.\n";
const EP3 = ["--policy", "fetch_endpoint", "--partition", "ep3"];

/** Each with what it counts, and a statement that is true once it was done. */
const COMMANDS: readonly (readonly [line: readonly string[], counts: RegExp, done: string])[] = [
  [
    ["admit", ...EP3, "--count", "2"],
    /^2 due jobs of partition ep3 of policy fetch_endpoint would be admitted\.\n$/,
    "select count(*) = 2 from dispatch_policy.in_flight_jobs where partition = 'ep3'",
  ],
  [
    ["move", ...EP3, "--to-partition", "ep1"],
    /^6 staged jobs would move to partition ep1\.\n$/,
    "select count(*) = 9 from dispatch_policy.staged_jobs where partition = 'ep1'",
  ],
  [
    ["remove", ...EP3],
    /^6 staged jobs would be removed\.\n$/,
    "select count(*) = 0 from dispatch_policy.staged_jobs where partition = 'ep3'",
  ],
  [
    ["cancel", "--policy", "fetch_endpoint", "--partition", "ep1"],
    /^5 jobs would be cancelled\.\n$/,
    "select count(*) = 0 from dispatch_policy.jobs where partition = 'ep1' and state <> 'failed'",
  ],
  [
    ["release-slots", "1"],
    /^Job 1 of fetch_endpoint\/ep1 was admitted .* ago; no worker runs it\.\n$/,
    "select count(*) = 0 from dispatch_policy.in_flight_jobs where job_id = 1",
  ],
  [
    ["disable", "--policy", "fetch_endpoint"],
    /^Ticks would admit 15 staged jobs past the gates\.\n$/,
    "select not enabled from dispatch_policy.policies where policy = 'fetch_endpoint'",
  ],
  [
    ["remove-policy", "--policy", "make_report"],
    /^Policy "make_report" would be removed\. No job waits\.\n$/,
    "select count(*) = 0 from dispatch_policy.policies where policy = 'make_report'",
  ],
  [
    ["uninstall"],
    /^17 waiting jobs would go back to Graphile Worker, and the schema\s"dispatch_policy" would be dropped\.\n$/,
    "select to_regnamespace('dispatch_policy') is null",
  ],
];

for (const [line, counts, statement] of COMMANDS)
  test(`${line[0]} only counts without --yes, and with --dry-run`, async (t) => {
    const { cli, pool } = await world(t);
    const isDone = async () => Object.values((await pool.query(statement)).rows[0])[0];
    const without = await cli(...line);
    t.regex(without.stdout, counts);
    t.deepEqual([without.stderr, without.code], [HINT, 2]);
    const dry = await cli(...line, "--dry-run", "--yes");
    t.deepEqual(
      [dry.stdout.replace(/\d+ (s|ms)/, ""), dry.stderr, dry.code],
      [without.stdout.replace(/\d+ (s|ms)/, ""), "", 0],
    );
    t.is(typeof JSON.parse((await cli(...line, "--json", "--dry-run")).stdout), "object");
    t.false(await isDone());
    t.like(await cli(...line, "--yes"), { stderr: "", code: 0 });
    t.true(await isDone());
  });

test("where nothing matches, they say so", async (t) => {
  const { cli } = await world(t);
  t.like(await cli("remove", "999"), { stdout: "0 staged jobs would be removed.\n", stderr: "", code: 3 });
  t.like(await cli("move", "999", ...EP3, "--to-partition", "a", "--to-policy", "make_report", "--yes"), {
    ...{ stdout: "Moved 0 of 0 staged jobs to partition a of policy make_report.\n", code: 3 },
  });
  t.like(await cli("cancel", "999", "--yes"), { stdout: "Cancelled 0 of 0 jobs.\n", code: 3 });
  t.like(await cli("release-slots", "999", "--yes"), { stdout: "Job 999 has no slots.\n", code: 3 });
});
