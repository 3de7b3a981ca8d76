import { z } from "zod3";
import { definePolicy } from "../../src/policy/policy.ts";
export const p3 = definePolicy("z3", {
  payload: z.object({ tenant: z.string(), n: z.number().default(1) }),
  context: (p) => ({ t: p.tenant, n: p.n }),
  partitionBy: (ctx) => ctx.t,
  gates: ({ throttle }) => [throttle({ rate: (ctx) => ctx.n, per: "1 minute" })],
});
