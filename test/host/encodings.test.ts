// Databases whose encoding is not UTF-8.
import { randomBytes } from "node:crypto";
import { globSync, readFileSync } from "node:fs";
import test, { type ExecutionContext } from "ava";
import { Logger, run, WorkerPreset } from "graphile-worker";
import pg from "pg";
import { concurrency, definePolicy, dispatchPolicyPreset, makePolicyUtils } from "../../src/index.ts";
import { quietPool } from "../helpers/database.ts";
import { until } from "../helpers/until.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

test("sql/ holds ASCII only: nothing else goes into a database of any encoding", (t) => {
  const wrong: string[] = [];
  for (const file of globSync("sql/**/*.sql", { cwd: ROOT }))
    readFileSync(ROOT + file, "utf8")
      .split("\n")
      .forEach((line, n) => {
        const found = line.match(/[^\t\x20-\x7e]/g);
        if (found) wrong.push(`${file}:${n + 1}: ${found.join(" ")}`);
      });
  t.deepEqual(wrong, []);
});

/** A database of this encoding; it goes when the test ends. */
async function databaseIn(t: ExecutionContext, encoding: string): Promise<pg.Pool> {
  const name = `test_${encoding.toLowerCase()}_${randomBytes(4).toString("hex")}`;
  const admin = new pg.Client({ connectionString: process.env.DATABASE_URL! });
  await admin.connect();
  await admin.query(`create database ${name} encoding '${encoding}' locale 'C' template template0`);
  const at = new URL(process.env.DATABASE_URL!);
  at.pathname = `/${name}`;
  const pool = quietPool(at.href);
  t.teardown(async () => {
    await pool.end();
    await admin.query(`drop database ${name} with (force)`);
    await admin.end();
  });
  return pool;
}

for (const [encoding, key] of [
  ["LATIN1", "Köln"],
  ["SQL_ASCII", "Cologne"],
] as const) {
  test(`a job runs through a database in ${encoding}`, async (t) => {
    const pool = await databaseIn(t, encoding);
    const policy = definePolicy("p", { partitionBy: "key", gates: [concurrency({ max: 1 })] });
    const ran: unknown[] = [];
    const logger = new Logger(() => () => {});
    const preset: GraphileConfig.Preset = {
      extends: [WorkerPreset, dispatchPolicyPreset({ policies: [policy] })],
      worker: { logger, concurrentJobs: 2 },
    };
    const runner = await run({
      preset,
      pgPool: pool,
      noHandleSignals: true,
      taskList: { p: async (payload) => void ran.push(payload) },
    });
    t.teardown(() => runner.stop());
    const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger });
    t.teardown(() => utils.release());
    await utils.addJob("p", { key });
    await pool.query("select dispatch_policy.add_job('p', $1)", [JSON.stringify({ key })]);
    await until("both ran", () => ran.length === 2);
    t.deepEqual(ran, [{ key }, { key }]);
    t.is((await utils.partitions({ policy: "p" })).length, 1);
    for (const query of [key, ` ${key}`, key.replace("n", "m")])
      t.like((await utils.search({ query })).hits, [{ kind: "partition", partition: key }], query);
    await t.throwsAsync(
      pool.query("select dispatch_policy.add_job('p', $1, partition_key => $2)", ["{}", "k".repeat(2000)]),
      {
        message: /partition key of 2000 bytes/,
      },
    );
  });
}
