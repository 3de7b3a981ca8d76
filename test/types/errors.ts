// biome-ignore-all format: an expected error must stay on the line below its comment
import { z } from "zod";
import { concurrency, throttle } from "../../src/gates/index.ts";
import { definePolicy } from "../../src/policy/policy.ts";
import { shared } from "../../src/policy/shared.ts";

const payload = z.object({ endpointId: z.string(), rate: z.number() });

definePolicy("e1", { payload, context: (p) => ({ e: p.endpointId, rate: p.rate }), partitionBy: (ctx) => ctx.e,
  // @ts-expect-error no such property in the context
  gates: ({ throttle }) => [throttle({ rate: (ctx) => ctx.rat, per: "1 minute" })] });
definePolicy("e2", { payload,
  // @ts-expect-error no such property in the payload
  context: (p) => ({ e: p.endpoint }), partitionBy: (ctx) => ctx.e });
definePolicy("e3", { payload, context: (p) => ({ e: p.endpointId }),
  // @ts-expect-error
  partitionBy: (ctx) => ctx.x });
definePolicy("e4", { payload, context: (p) => ({ e: p.endpointId }), partitionBy: (ctx) => ctx.e,
  // @ts-expect-error scope reads the context too
  gates: ({ concurrency }) => [concurrency({ max: 1, scope: (ctx) => ctx.acount })] });
definePolicy("e5", { payload, context: (p) => ({ e: p.endpointId }), partitionBy: (ctx) => ctx.e,
  // @ts-expect-error unknown option
  gates: ({ throttle }) => [throttle({ rate: 1, per: "1 minute", bust: 3 })] });
definePolicy("e6", { payload, context: (p) => ({ e: p.endpointId }), partitionBy: (ctx) => ctx.e,
  // @ts-expect-error not a duration
  gates: ({ throttle }) => [throttle({ rate: 1, per: "1 minuet" })] });
definePolicy("e7", { payload, context: (p) => ({ e: p.endpointId }), partitionBy: (ctx) => ctx.e,
  // @ts-expect-error a bare number is no duration
  gates: [throttle({ rate: 1, per: 60 })] });
// @ts-expect-error partitionBy is required
definePolicy("e8", { payload, context: (p) => ({ e: p.endpointId }), gates: [concurrency({ max: 1 })] });
definePolicy("e9", { payload, context: (p) => ({ e: p.endpointId }),
  // @ts-expect-error no such path in the payload
  partitionBy: "endpoint" });
definePolicy("e10", { payload, context: (p) => ({ e: p.endpointId }), partitionBy: (ctx) => ctx.e,
  // @ts-expect-error unknown policy option
  tickBudget: 3 });
definePolicy("e11", { payload,
  // @ts-expect-error a promise is not JSON: context is synchronous
  context: async (p) => ({ e: p.endpointId }), partitionBy: "endpointId" });
definePolicy("e12", { payload,
  // @ts-expect-error a Date does not survive being stored
  context: (p) => ({ e: p.endpointId, at: new Date() }), partitionBy: "endpointId" });
definePolicy("e13", { payload, context: (p) => ({ e: p.endpointId, rate: p.rate }), partitionBy: (ctx) => ctx.e,
  // @ts-expect-error array form with an unannotated ctx: "ctx is of type unknown"
  gates: [throttle({ rate: (ctx) => ctx.rate, per: "1 minute" })] });
// @ts-expect-error array form, annotated with a context this policy does not have (reported at context and partitionBy)
definePolicy("e14", { payload, context: (p) => ({ e: p.endpointId }), partitionBy: (ctx) => ctx.e,
  gates: [throttle({ rate: (ctx: { rate: number }) => ctx.rate, per: "1 minute" })] });
definePolicy("e15", { partitionBy: "x",
  // @ts-expect-error no context declared: nothing to read
  gates: ({ throttle }) => [throttle({ rate: (ctx) => ctx.rate, per: "1 minute" })] });
definePolicy("send_email", {
  // @ts-expect-error payload from GraphileWorker.Tasks
  context: (p) => ({ t: p.metta }), partitionBy: "meta.tenant" });
// not caught: a dotted path is checked against a schema only (see SchemaPath)
definePolicy("send_email", { partitionBy: "meta.tenannt" });
// gates before context: must at least fail, never pass unchecked
definePolicy("e18", { payload,
  // @ts-expect-error
  gates: ({ throttle }) => [throttle({ rate: (ctx) => ctx.rate, per: "1 minute" })],
  context: (p) => ({ e: p.endpointId, rate: p.rate }), partitionBy: "endpointId" });
definePolicy("e19", { payload, partitionBy: "endpointId",
  // @ts-expect-error not a duration
  runTimeout: "30 secnds" });
// @ts-expect-error a shared limit whose scope reads what this policy's context has not
definePolicy("e20", { payload, context: (p) => ({ e: p.endpointId }), partitionBy: (ctx) => ctx.e,
  gates: [shared("s", throttle({ rate: 1, per: "1 minute", scope: (ctx: { shop: string }) => ctx.shop }))] });

// constant gates in an array beside functions of the context: fine
definePolicy("ok", { payload, context: (p) => ({ e: p.endpointId, rate: p.rate }), partitionBy: (ctx) => ctx.e,
  gates: [throttle({ rate: 1, per: "1 minute" }), concurrency({ max: 2 })], weight: (ctx) => ctx.rate });
