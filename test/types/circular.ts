// The payload type declared once, in the schema, and registered for plain Graphile Worker code from it.
import { z } from "zod";
import { definePolicy, type PolicyPayload } from "../../src/policy/policy.ts";
export const once = definePolicy("declared_once", {
  payload: z.object({ tenant: z.string() }),
  context: (p) => ({ tenant: p.tenant }),
  partitionBy: (ctx) => ctx.tenant,
  gates: ({ concurrency }) => [concurrency({ max: 1, scope: (ctx) => ctx.tenant })],
});
declare global {
  namespace GraphileWorker {
    interface Tasks {
      declared_once: PolicyPayload<typeof once>;
    }
  }
}

import type { Task } from "graphile-worker";
export const t: Task<"declared_once"> = async (p) => {
  p.tenant.length;
  // @ts-expect-error
  p.nope;
};
