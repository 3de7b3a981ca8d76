import { definePolicy, fixed } from "graphile-worker-dispatch-policy";
import { z } from "zod";

/** The longest answer that a request asks for. */
const MOST_TOKENS = 400;

/** About four letters are a token. The model counts exactly, but says so only with its answer. */
export const estimated = (prompt: string) => Math.ceil(prompt.length / 4) + MOST_TOKENS;

/**
 * A model that many tenants share. Nobody says how many requests it takes at once, so the limit is found: it grows by one
 * with each answer, and is halved by a refusal. The tokens of a minute are known. A request is admitted for its estimate, and
 * its task says what it has cost.
 */
export const askModel = definePolicy("ask_model", {
  payload: z.object({ tenant: z.string(), prompt: z.string() }),
  context: ({ prompt }) => ({ tokens: estimated(prompt) }),
  partitionBy: "tenant", // fair shares between tenants
  cost: (ctx) => ctx.tokens,
  gates: ({ throttle, adaptiveConcurrency }) => [
    throttle({ name: "tokens", scope: "policy", rate: 12_000, per: "1 minute" }),
    adaptiveConcurrency({
      name: "model",
      scope: "policy",
      initialMax: 2,
      max: 32,
      targetLagMs: 2000, // jobs that wait longer for a worker slot shrink the limit as well
    }),
  ],
  backoff: fixed("200 milliseconds"),
});
