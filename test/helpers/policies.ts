import { definePolicy } from "../../src/index.ts";

/** The plainest policy: one job at a time per name. */
export const greet = definePolicy("greet", {
  partitionBy: "name",
  gates: ({ concurrency }) => [concurrency({ max: 1 })],
});
