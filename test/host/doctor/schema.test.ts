// The doctor on the schema: missing, older, newer, without an index, open to everybody.
import test from "ava";
import { makeEngine } from "../../../src/db/engine.ts";
import { rowsOf, runCommand } from "../../helpers/command.ts";
import { testDatabase } from "../../helpers/database.ts";
import { patient } from "../../helpers/doctor.ts";
import { roles } from "../../helpers/roles.ts";
import { table } from "../../helpers/table.ts";

const ask = async (url: string) => {
  const { stdout, code } = await runCommand(url, "doctor", "--json");
  const found = rowsOf(stdout) as readonly {
    id: string;
    severity: string;
    mend: string;
    sentence: string;
  }[];
  return { code, found, ids: found.map(({ id }) => id) };
};

test("a missing schema is found, and the command that mends it mends it", async (t) => {
  const { url } = await testDatabase(t, { migrated: false });
  const { code, found } = await ask(url);
  t.is(code, 1);
  t.like(found, [
    { id: "schema-missing", severity: "critical", sentence: 'The database has no schema "dispatch_policy".' },
  ]);
  t.is(found[0]!.mend, "npx graphile-worker-dispatch-policy migrate");
  t.is((await runCommand(url, "migrate")).code, 0);
  t.deepEqual(await ask(url), { code: 0, found: [], ids: [] });
});

test("older functions are a warning, and the doctor answers beside what they lack", async (t) => {
  const { url, pool } = await testDatabase(t);
  await table(pool, "migrations").set({ routines_hash: "older", routines_version: [0, 0, 1] });
  await pool.query("drop function dispatch_policy_internal._lost_slots cascade");
  const { code, found } = await ask(url);
  t.is(code, 0);
  t.like(found, [
    { id: "schema-older", severity: "warning" },
    { id: "not-checked", severity: "info" },
  ]);
  t.regex(found[1]!.sentence, /^The check lostSlots failed: /);
  t.is((await runCommand(url, "migrate")).code, 0);
  t.deepEqual((await ask(url)).ids, []);
});

test("a schema without the last migration is critical", async (t) => {
  const { url, pool } = await testDatabase(t);
  await table(pool, "migrations").set({ id: 0, routines_hash: "older" });
  const { code, found } = await ask(url);
  t.is(code, 1);
  t.like(found, [{ id: "schema-older", severity: "critical" }]);
  t.regex(found[0]!.sentence, /has migration 0, and this package expects \d+\.$/);
});

test("a newer schema is critical, newer functions are a warning", async (t) => {
  const { url, pool } = await testDatabase(t);
  await table(pool, "migrations").set({ routines_hash: "newer", routines_version: [99, 0, 0] });
  t.like((await ask(url)).found, [{ id: "schema-newer", severity: "warning" }]);
  await table(pool, "migrations").add({ id: 999, name: "of tomorrow" });
  const { code, found } = await ask(url);
  t.is(code, 1);
  t.like(found, [{ id: "schema-newer", severity: "critical" }]);
  t.regex(found[0]!.sentence, /has migration 999, and this package expects \d+\.$/);
});

test("a missing index and an invalid one are found, and what it says mends both", async (t) => {
  const { pool, findings } = await patient(t);
  t.deepEqual(await findings("index-broken"), []);
  await pool.query(`drop index dispatch_policy_internal.partitions_ready;
    update pg_index set indisvalid = false where indexrelid = 'dispatch_policy_internal.staged_jobs_for_promotion'::regclass`);
  const found = await findings("index-broken");
  t.deepEqual(
    found.map(({ sentence }) => sentence),
    [
      'Index "partitions_ready" of schema "dispatch_policy_internal" is missing, so ticks get slower.',
      'Index "staged_jobs_for_promotion" of schema "dispatch_policy_internal" is invalid, so ticks get slower.',
    ],
  );
  for (const { mend } of found) await pool.query(mend);
  t.deepEqual(await findings("index-broken"), []);
});

test("what every role may do is found, and what it says revokes it", async (t) => {
  const { pool, findings } = await patient(t);
  await pool.query(`grant usage on schema dispatch_policy to public;
    grant execute on function dispatch_policy.pause to public;
    grant select on dispatch_policy.staged_jobs to public`);
  const [found] = await findings("public-grant");
  t.regex(
    found!.sentence,
    /^Every role has rights on 3 objects of schema 'dispatch_policy', the first is routine /,
  );
  await pool.query(found!.mend);
  t.deepEqual(await findings("public-grant"), []);
});

test("a role that may not look is told so", async (t) => {
  const database = await testDatabase(t);
  const { nameOf, as } = roles(t, database, ["app_poor"]);
  await database.pool.query(`create role ${nameOf("app_poor")} login;
    grant usage on schema dispatch_policy to ${nameOf("app_poor")}`);
  const client = await as("app_poor");
  const { doctor } = await import("../../../src/operate/doctor.ts");
  await t.throwsAsync(
    doctor({ withPgClient: (use) => use(client as never), engine: makeEngine("dispatch_policy") }),
    { code: "missing_grant" },
  );
});
