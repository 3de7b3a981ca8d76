import { definePolicy } from "graphile-worker-dispatch-policy";

/**
 * A shop ships one order at a time. PostgreSQL works out the partition by itself, because it is a path and no other option
 * is a function. With functions or a payload schema, the next tick of a worker works it out.
 */
export const shipOrder = definePolicy("ship_order", {
  partitionBy: "shop",
  gates: ({ concurrency }) => [concurrency({ max: 1 })],
});
