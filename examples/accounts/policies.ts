import { definePolicy } from "graphile-worker-dispatch-policy";
import { z } from "zod";

/** Each account has 4 jobs at once, unless the application's table has a number of its own for it. */
export const fetchEndpoint = definePolicy("fetch_endpoint", {
  payload: z.object({ account: z.string(), endpoint: z.string() }),
  context: ({ account }) => ({ account }),
  partitionBy: "endpoint",
  gates: ({ concurrency }) => [concurrency({ name: "account", scope: (ctx) => ctx.account, max: 4 })],
});
