/** A back-fill of twenty rows beside slow exports, in one worker. DATABASE_URL names the database. */
import { setTimeout as delay } from "node:timers/promises";
import { Logger, run, type TaskList, WorkerPreset } from "graphile-worker";
import { dispatchPolicyPreset, makePolicyUtils } from "graphile-worker-dispatch-policy";
import { backfillRow, exportOrders } from "./policies.ts";

const ROWS = 20;
const CUSTOMERS = ["ana", "bo", "cy"];
const problemsOnly = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});
const preset = {
  extends: [WorkerPreset, dispatchPolicyPreset({ policies: [backfillRow, exportOrders] })],
  worker: {
    connectionString: process.env.DATABASE_URL ?? "postgres:///app",
    concurrentJobs: 6,
    logger: problemsOnly,
  },
} satisfies GraphileConfig.Preset;

const filledAt: number[] = [];
let exporting = 0;
let most = 0;
let exported = 0;
const { promise: done, resolve: finish } = Promise.withResolvers<void>();
const finishIfDone = () => {
  if (filledAt.length === ROWS && exported === 2 * CUSTOMERS.length) finish();
};
const taskList: TaskList = {
  backfill_row: () => {
    filledAt.push(performance.now());
    finishIfDone();
  },
  export_orders: async () => {
    most = Math.max(most, ++exporting);
    await delay(100);
    exporting--;
    exported++;
    finishIfDone();
  },
};

const utils = await makePolicyUtils({ preset }); // creates both schemas
await utils.addJobs([
  ...Array.from({ length: ROWS }, (_, row) => ({
    identifier: "backfill_row",
    payload: { table: "orders", row },
  })),
  ...CUSTOMERS.flatMap((customer) =>
    [2025, 2026].map((year) => ({ identifier: "export_orders", payload: { customer, year } })),
  ),
]);
await utils.release();
const runner = await run({ preset, taskList });
await done;
await runner.stop();
const took = (filledAt.at(-1)! - filledAt[0]!) / 1000;
console.log(`filled ${ROWS} rows in ${took.toFixed(1)} s`);
console.log(`made ${exported} exports, at most ${most} at once`);
