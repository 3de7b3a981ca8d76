/** The application changes its table, and the limits follow. DATABASE_URL names the database, as a superuser. */
import { readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { Logger, run, WorkerPreset } from "graphile-worker";
import { dispatchPolicyPreset, makePolicyUtils } from "graphile-worker-dispatch-policy";
import pg from "pg";
import { fetchEndpoint } from "./policies.ts";

const connectionString = process.env.DATABASE_URL ?? "postgres:///app";
const problemsOnly = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});
const preset = {
  extends: [WorkerPreset, dispatchPolicyPreset({ policies: [fetchEndpoint] })],
  worker: { connectionString, concurrentJobs: 10, logger: problemsOnly },
} satisfies GraphileConfig.Preset;

const utils = await makePolicyUtils({ preset }); // creates both schemas, and declares the policy
const app = new pg.Client({ connectionString });
await app.connect();
const { rows } = await app.query("select from pg_tables where tablename = 'accounts'");
if (rows.length === 0) await app.query(await readFile(new URL("limits.sql", import.meta.url), "utf8"));
await app.query("set role app_accounts"); // the application: it may change accounts, and set no limit itself
await app.query("delete from accounts");
await app.query("insert into accounts values ('acme', 1), ('beta', null)");

/** Jobs go on until the gate opens, so that those that run at once can be counted. */
const running = { acme: 0, beta: 0 };
const { promise: gate, resolve: open } = Promise.withResolvers<void>();
const taskList = {
  fetch_endpoint: fetchEndpoint.task(async ({ account }) => {
    running[account as keyof typeof running]++;
    await gate;
  }),
};
const jobs = ["acme", "beta"].flatMap((account) =>
  Array.from({ length: 6 }, (_, n) => ({
    identifier: "fetch_endpoint",
    payload: { account, endpoint: `${account} ${n}` },
  })),
);
await utils.addJobs(jobs);
const runner = await run({ preset, taskList });

while (running.acme < 1 || running.beta < 4) await delay(20);
console.log(`acme runs ${running.acme} at once, beta ${running.beta}`);
await app.query("update accounts set jobs_at_once = 3 where id = 'acme'");
while (running.acme < 3) await delay(20);
const [limit] = await utils.limits({ policy: "fetch_endpoint" });
console.log(`acme runs ${running.acme} at once; set by: ${limit?.reason}`);

open();
while (running.acme < 6 || running.beta < 6) await delay(20);
await runner.stop();
await utils.release();
await app.end();
console.log("all jobs have run");
