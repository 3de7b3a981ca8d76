import { definePolicy, fixed } from "graphile-worker-dispatch-policy";
import { z } from "zod";

const WEIGHTS = { free: 1, pro: 2 } as const;

/**
 * One limit for all requests to a partner, which says nothing about what it takes. Each answer lets the limit grow by one,
 * each refusal halves it. Whatever it is, a tenant of the plan "pro" gets twice the requests of a free one.
 */
export const askPartner = definePolicy("ask_partner", {
  payload: z.object({ tenant: z.string(), plan: z.enum(["free", "pro"]), question: z.number() }),
  context: ({ plan }) => ({ plan }),
  partitionBy: "tenant",
  weight: (ctx) => WEIGHTS[ctx.plan],
  gates: ({ adaptiveConcurrency }) => [
    adaptiveConcurrency({ name: "partner", scope: "policy", initialMax: 2, max: 16, targetLagMs: 2000 }),
  ],
  backoff: fixed("100 milliseconds"),
});
