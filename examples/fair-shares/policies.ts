import { definePolicy } from "graphile-worker-dispatch-policy";
import { z } from "zod";

const WEIGHTS = { free: 1, pro: 3 } as const;

/** Nobody is limited. While workers are busy, a tenant of the plan "pro" gets three times the jobs of a free one. */
export const renderPage = definePolicy("render_page", {
  payload: z.object({ tenant: z.string(), plan: z.enum(["free", "pro"]), page: z.number() }),
  context: ({ plan }) => ({ plan }),
  partitionBy: "tenant",
  weight: (ctx) => WEIGHTS[ctx.plan],
});
