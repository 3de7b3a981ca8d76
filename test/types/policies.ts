import { z } from "zod";
import { concurrency, throttle } from "../../src/gates/index.ts";
import { definePolicy } from "../../src/policy/policy.ts";

declare global {
  namespace GraphileWorker {
    interface Tasks {
      send_email: { to: string; meta: { tenant: string; size: number } };
      plain_task: { n: number };
    }
  }
}

// 1. schema, everything inferred
export const fetchEndpoint = definePolicy("fetch_endpoint", {
  payload: z.object({
    endpointId: z.string(),
    accountId: z.string(),
    ratePerMinute: z.number(),
    at: z.coerce.date().optional(),
  }),
  context: (payload) => ({
    endpoint: payload.endpointId,
    account: payload.accountId,
    rate: payload.ratePerMinute,
  }),
  partitionBy: (ctx) => ctx.endpoint,
  shardBy: () => "default",
  weight: 1,
  cost: (ctx) => (ctx.rate > 100 ? 2 : 1),
  gates: ({ throttle, concurrency }) => [
    throttle({ rate: (ctx) => ctx.rate, per: "1 minute", burst: undefined }),
    concurrency({ max: 5 }),
    concurrency({ name: "account", scope: (ctx) => ctx.account, max: 40 }),
    throttle({ name: "all", scope: "policy", rate: 500, per: "1 second" }),
  ],
  fairness: { halfLife: "1 minute" },
  tickAdmissionBudget: 200,
  admissionBatchSize: 100,
  retries: "restage",
  backoff: (_error, attempt, job) =>
    attempt > 3 ? false : job.priority > 5 ? { after: "1 minute", priority: 1 } : "30 seconds",
});

// 2. GraphileWorker.Tasks, partitionBy by dotted path, constant gates in an array
export const sendEmail = definePolicy("send_email", {
  context: (payload) => ({ tenant: payload.meta.tenant }),
  partitionBy: "meta.tenant",
  gates: [concurrency({ max: 5 }), throttle({ rate: 10, per: "1 second" })],
});

// 3. neither: unknown
export const unknownTask = definePolicy("something_else", {
  partitionBy: "any.path",
  gates: [concurrency({ max: 1 })],
});

// 4. fairness only
export const fair = definePolicy("plain_task", { partitionBy: "n" });

// 5. array form with an annotated context is checked too
type Ctx = { account: string; rate: number };
export const annotated = definePolicy("annotated", {
  payload: z.object({ account: z.string(), rate: z.number() }),
  context: (p): Ctx => ({ account: p.account, rate: p.rate }),
  partitionBy: (ctx) => ctx.account,
  gates: [throttle({ rate: (ctx: Ctx) => ctx.rate, per: "1 minute" })],
});
// 6. a gate shared between policies reads only what it needs
const perAccount = concurrency({
  name: "account",
  scope: (ctx: { account: string }) => ctx.account,
  max: 40,
});
export const shared = definePolicy("shared", {
  payload: z.object({ account: z.string(), rate: z.number() }),
  context: (p) => ({ account: p.account, rate: p.rate }),
  partitionBy: (ctx) => ctx.account,
  gates: ({ throttle }) => [perAccount, throttle({ rate: (ctx) => ctx.rate, per: "1 minute" })],
});
