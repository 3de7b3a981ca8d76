/** Two accounts of one partner, which refuses one of them for a second. DATABASE_URL names the database. */
import { Logger, run, WorkerPreset } from "graphile-worker";
import { dispatchPolicyPreset, makePolicyUtils } from "graphile-worker-dispatch-policy";
import { startPartner } from "./partner.ts";
import { sendOrder } from "./policies.ts";
import { makeSendOrder } from "./task.ts";

const ORDERS = 8; // of each account
// a refusal is an error of its job for Graphile Worker, which logs it; here only other problems are shown
const problemsOnly = new Logger(() => (level, message) => {
  if ((level === "error" || level === "warning") && !message.includes("429")) console.error(message);
});
const preset = {
  extends: [WorkerPreset, dispatchPolicyPreset({ policies: [sendOrder] })],
  worker: {
    connectionString: process.env.DATABASE_URL ?? "postgres:///app",
    concurrentJobs: 4,
    logger: problemsOnly,
  },
} satisfies GraphileConfig.Preset;

const partner = await startPartner();
const utils = await makePolicyUtils({ preset }); // creates both schemas
await utils.addJobs(
  ["acme", "beta"].flatMap((account) =>
    Array.from({ length: ORDERS }, (_, order) => ({ identifier: "send_order", payload: { account, order } })),
  ),
);
await utils.release();

const { promise: done, resolve: finish } = Promise.withResolvers<void>();
const runner = await run({ preset, taskList: { send_order: makeSendOrder(partner.url) } });
let left = 2 * ORDERS;
runner.events.on("job:success", ({ job }) => {
  if (job.task_identifier === "send_order" && --left === 0) finish();
});
await done;
await runner.stop();
partner.close();

const { asked } = partner;
const refusals = asked.filter(({ status }) => status === 429);
const refused = refusals[0]!;
const next = asked.find(({ account, at }) => account === "acme" && at > refused.at)!;
const meanwhile = asked.filter(({ account, at }) => account === "beta" && at > refused.at && at < next.at);
console.log(`accepted ${asked.length - refusals.length} orders, refused ${refusals.length}`);
console.log(`acme asked again after ${Math.round(next.at - refused.at)} ms`);
console.log(`beta sent ${meanwhile.length} orders meanwhile`);
