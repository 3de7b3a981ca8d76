import { definePolicy, exponential } from "graphile-worker-dispatch-policy";
import { z } from "zod";

/** Checked when a job is added; what is wrong is refused there. */
const delivery = z.object({
  customer: z.string(),
  url: z.url(),
  event: z.object({ id: z.number(), type: z.string() }),
});

/**
 * Each customer's endpoint takes 10 deliveries per second, in bursts of 5, and 5 at once. A customer with several
 * endpoints has 8 at once over all of them, and everybody together 200 per second.
 */
export const deliverWebhook = definePolicy("deliver_webhook", {
  payload: delivery,
  context: ({ customer, url }) => ({ customer, host: new URL(url).host }),
  partitionBy: (ctx) => `${ctx.customer} ${ctx.host}`,
  gates: ({ throttle, concurrency }) => [
    throttle({ rate: 10, per: "1 second", burst: 5 }),
    concurrency({ max: 5 }),
    concurrency({ name: "customer", scope: (ctx) => ctx.customer, max: 8 }),
    throttle({ name: "everybody", scope: "policy", rate: 200, per: "1 second" }),
  ],
  job: { maxAttempts: 8 },
  backoff: exponential({ base: "1 second", factor: 4, max: "1 hour" }), // 1, 4, 16, 64 … seconds
});
