/** Two tenants have a backlog. A third one comes last, with one job. DATABASE_URL names the database. */
import { setTimeout as delay } from "node:timers/promises";
import { Logger, run, WorkerPreset } from "graphile-worker";
import { dispatchPolicyPreset, makePolicyUtils } from "graphile-worker-dispatch-policy";
import { renderPage } from "./policies.ts";

const BACKLOG = 60;
const problemsOnly = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});
const preset = {
  extends: [WorkerPreset, dispatchPolicyPreset({ policies: [renderPage] })],
  worker: {
    connectionString: process.env.DATABASE_URL ?? "postgres:///app",
    concurrentJobs: 2,
    logger: problemsOnly,
  },
} satisfies GraphileConfig.Preset;

const jobs = (tenant: string, plan: "free" | "pro", count: number) =>
  Array.from({ length: count }, (_, page) => ({
    identifier: "render_page",
    payload: { tenant, plan, page },
  }));

const rendered: string[] = [];
const { promise: done, resolve: finish } = Promise.withResolvers<void>();
const taskList = {
  render_page: renderPage.task(async ({ tenant }) => {
    await delay(10);
    if (rendered.push(tenant) === 2 * BACKLOG + 1) finish();
  }),
};

const utils = await makePolicyUtils({ preset }); // creates both schemas
await utils.addJobs([
  ...jobs("small", "free", BACKLOG),
  ...jobs("large", "pro", BACKLOG),
  ...jobs("late", "free", 1),
]);
await utils.release();

const runner = await run({ preset, taskList });
await done;
await runner.stop();

const first = rendered.slice(0, 40);
const of = (tenant: string) => first.filter((it) => it === tenant).length;
console.log(`of the first 40 jobs: large ${of("large")}, small ${of("small")}, late ${of("late")}`);
console.log(`the late tenant's job came as number ${rendered.indexOf("late") + 1}`);
