/** Twelve downloads, each of which adds a job of another policy. DATABASE_URL names the database. */
import { setTimeout as delay } from "node:timers/promises";
import { Logger, run, type TaskList, WorkerPreset } from "graphile-worker";
import { dispatchPolicyPreset, makePolicyUtils } from "graphile-worker-dispatch-policy";
import pg from "pg";
import { downloadReport, renderReport } from "./policies.ts";
import { download, render } from "./tasks.ts";

const ACCOUNTS = ["ana", "bo", "cy"];
const MONTHS = [1, 2, 3, 4];
const connectionString = process.env.DATABASE_URL ?? "postgres:///app";
// the crash below is an error of its job for Graphile Worker, which logs it; here only other problems are shown
const problemsOnly = new Logger(() => (level, message) => {
  if ((level === "error" || level === "warning") && !message.includes("killed")) console.error(message);
});
const preset = {
  extends: [WorkerPreset, dispatchPolicyPreset({ policies: [downloadReport, renderReport] })],
  worker: { connectionString, concurrentJobs: 6, logger: problemsOnly },
} satisfies GraphileConfig.Preset;

let downloads = 0;
let rendering = 0;
let most = 0;
const taskList: TaskList = {
  download_report: async (payload, helpers) => {
    await download(payload, helpers);
    if (++downloads === 3) throw new Error("the worker was killed behind the commit");
  },
  render_report: async (payload, helpers) => {
    most = Math.max(most, ++rendering);
    await render(payload, helpers);
    rendering--;
  },
};

const app = new pg.Client({ connectionString });
await app.connect();
await app.query(
  "create table if not exists reports (account text, month int, text text, rendered int default 0, primary key (account, month))",
);
await app.query("truncate reports");
const utils = await makePolicyUtils({ preset }); // creates both schemas
await utils.addJobs(
  ACCOUNTS.flatMap((account) =>
    MONTHS.map((month) => ({ identifier: "download_report", payload: { account, month } })),
  ),
);
const runner = await run({ preset, taskList });
const reports = ACCOUNTS.length * MONTHS.length;
const figures = "select count(*)::int as stored, coalesce(sum(rendered), 0)::int as rendered from reports";
const count = async () => (await app.query<{ stored: number; rendered: number }>(figures)).rows[0]!;
let { stored, rendered } = await count();
while (rendered < reports || downloads <= reports) {
  await delay(50);
  ({ stored, rendered } = await count());
}
await runner.stop();
await utils.release();
await app.end();
console.log(`stored ${stored} reports in ${downloads} downloads`);
console.log(`rendered ${rendered} reports, at most ${most} at once`);
