// The doctor on failovers: commits that do not wait, standbys that lag, a promotion, and jobs that are locked and not run.
import test from "ava";
import pg from "pg";
import { startPostgres } from "../../../scripts/postgres/start.ts";
import { makePolicyUtils } from "../../../src/index.ts";
import { rowsOf, runCommand } from "../../helpers/command.ts";
import { testDatabase } from "../../helpers/database.ts";
import { patient } from "../../helpers/doctor.ts";
import { greet } from "../../helpers/policies.ts";
import { roles } from "../../helpers/roles.ts";
import { silent } from "../../helpers/silent.ts";
import { table, workerTable } from "../../helpers/table.ts";

test("on a server of its own: commits that do not wait for the disk, and a standby that is not waited for", async (t) => {
  const server = await startPostgres({
    own: true,
    settings: { synchronous_commit: "off", wal_level: "replica" },
  });
  t.teardown(() => server.stop());
  const utils = await makePolicyUtils({ connectionString: server.url, policies: [greet], logger: silent });
  await utils.release();
  const standby = new pg.Client({ connectionString: server.url, replication: "true" } as pg.ClientConfig);
  await standby.connect();
  t.teardown(() => standby.end());
  const { code, stdout, stderr } = await runCommand(server.url, "doctor", "--json");
  t.is(code, 0, stderr);
  const found = rowsOf(stdout);
  t.deepEqual(
    found.map(({ id, severity }) => [id, severity]),
    [
      ["commits-early", "warning"],
      ["asynchronous-standby", "info"],
    ],
  );
});

test("a promotion is told for a day, and which workers have not said yet what they run", async (t) => {
  const it = await patient(t);
  const promotedBefore = (ms: number) =>
    it.pool.query(
      "select setval('dispatch_policy_internal.promoted_at', (extract(epoch from clock_timestamp()) * 1000)::bigint - $1)",
      [ms],
    );
  t.deepEqual(await it.findings("promoted"), []);
  await promotedBefore(180_000);
  const [info] = await it.findings("promoted");
  t.like(info, { severity: "info" });
  t.regex(info!.sentence, /^Another server was promoted 3 min ago, to timeline 1\. .* what they run: 0\.$/);
  await it.pool.query(
    "select dispatch_policy_internal._worker_alive('a', 1, '{greet}', 'host1', 7, '1 hour', '0', '7:0')",
  );
  t.like((await it.findings("promoted"))[0], { severity: "warning" });
  await promotedBefore(86_400_001);
  t.deepEqual(await it.findings("promoted"), []);
});

test("a worker that has more jobs locked for long than it runs is found", async (t) => {
  const it = await patient(t);
  await it.pool.query(
    "select dispatch_policy_internal._worker_alive('a', 1, '{greet}', 'host1', 7, '1 hour', '0')",
  );
  await it.pool.query("select graphile_worker.add_job('other', '{}') from generate_series(1, 2)");
  const jobs = workerTable(it.pool);
  await jobs.set({ locked_by: "a", locked_at: () => "now() - interval '5 minutes'", attempts: 1 });
  t.deepEqual(await it.findings("locked-idle"), [], "a local queue keeps jobs for so long");
  await jobs.set({ locked_at: () => "now() - interval '7 minutes'" });
  const [found] = await it.findings("locked-idle");
  t.is(found!.sentence, "The worker of process 7 on host1 has 2 jobs locked for long, and runs 1 at once.");
  await table(it.pool, "workers").set({ slots: 2 });
  t.deepEqual(await it.findings("locked-idle"), []);
});

test("a sequence that the schema's owner may not set is found: after a promotion its ids would come again", async (t) => {
  const database = await testDatabase(t);
  const { nameOf } = roles(t, database, ["poor"]);
  const it = await patient(t, [greet], database);
  t.deepEqual(await it.findings("fixed-ids"), []);
  const owner = nameOf("poor");
  await it.pool.query(`create role ${owner};
    alter function dispatch_policy_internal._meet_server() owner to ${owner};
    grant usage on schema graphile_worker to ${owner}`);
  const [found] = await it.findings("fixed-ids");
  t.like(found, { severity: "warning" });
  await it.pool.query(found!.mend);
  t.deepEqual(await it.findings("fixed-ids"), []);
});
