import { definePolicy } from "graphile-worker-dispatch-policy";

/** Twenty rows a second, evenly spaced, whatever the workers could do. The rest of the database's time is for others. */
export const backfillRow = definePolicy("backfill_row", {
  partitionBy: "table",
  gates: ({ throttle }) => [throttle({ rate: 20, per: "1 second", smooth: true })],
  job: { priority: 10 }, // behind the jobs of other tasks, wherever they meet
  retries: "restage", // a row that fails waits for its back-off, and passes the throttle again
});

/** Exports take long, and each has the database busy. One customer has one at once, and all together two. */
export const exportOrders = definePolicy("export_orders", {
  partitionBy: "customer",
  gates: ({ concurrency }) => [
    concurrency({ name: "customer", max: 1 }),
    concurrency({ name: "all", scope: "policy", max: 2 }),
  ],
  fairness: { by: "work" }, // long exports count for what they take
  slotTimeout: "1 hour", // one that hangs does not keep its slot for ever
});
