// A context and a payload may be of any types whose values survive JSON: an `interface` as well as a type alias.
import { z } from "zod";
import {
  addPolicyJob,
  definePolicy,
  type JsonObject,
  type PolicyUtils,
  type Queryable,
} from "../../src/index.ts";

interface Plan {
  readonly name: "free" | "pro";
  limits?: { max: number | null }[];
}
interface Tree {
  readonly name: string;
  readonly below: readonly Tree[];
}
interface Payload {
  tenant: string;
  plan: Plan;
}
interface Context {
  tenant: string;
  plan: Plan | null;
  tree: Tree;
  pair: readonly [string, number];
  note?: string | undefined;
}
declare function contextOf(payload: Payload): Context;
declare const client: Queryable;
declare const utils: PolicyUtils;

const own = definePolicy("own", {
  context: (payload) => contextOf(payload as Payload),
  partitionBy: (ctx) => ctx.tenant,
  weight: (ctx) => ctx.pair[1],
  gates: ({ throttle, concurrency }) => [
    throttle({
      rate: (ctx) => ctx.tree.below.length,
      per: "1 minute",
      scope: (ctx) => ctx.plan?.name ?? "none",
    }),
    concurrency({ max: (ctx) => ctx.plan?.limits?.[0]?.max ?? 1 }),
  ],
});
declare const whole: Context;
await utils.refreshContext({ policy: "own", context: whole });
await utils.refreshContext({ policy: "own", context: { plan: whole.plan } });
await utils.refreshContext({ policy: "own", context: {} as JsonObject });
// @ts-expect-error a Date does not survive being stored
await utils.refreshContext({ policy: "own", context: { at: new Date() } });

// an interface as the schema's output, and as a registered payload
const schema: z.ZodType<Payload, Payload> = z.any();
const checked = definePolicy("checked", {
  payload: schema,
  context: (payload) => payload,
  partitionBy: "plan.name",
});
const payload: Payload = { tenant: "acme", plan: { name: "pro" } };
await addPolicyJob(client, checked, payload);
await addPolicyJob(client, own, payload);
await utils.addJob(checked, payload);

declare global {
  namespace GraphileWorker {
    interface Tasks {
      of_interface: Payload;
    }
  }
}
definePolicy("of_interface", { context: ({ plan }) => plan, partitionBy: (ctx) => ctx.name });
await utils.addJob("of_interface", payload);

// a context that was stored, and one of a union
definePolicy("stored", { context: (payload) => payload as JsonObject, partitionBy: "tenant" });
definePolicy("either", {
  context: (payload) => payload as Plan | Tree,
  partitionBy: (ctx) => ctx.name,
});

interface Live {
  tenant: string;
  inner: { at: Date };
}
interface Method {
  tenant: string;
  key(): string;
}
const refused = { partitionBy: "tenant" } as const;
// @ts-expect-error a Date does not survive being stored
definePolicy("date", { context: (payload) => payload as Live, ...refused });
// @ts-expect-error neither does a function
definePolicy("method", { context: (payload) => payload as Method, ...refused });
// @ts-expect-error a list of a Map, deep inside
definePolicy("map", { context: () => ({ a: [{ b: new Map<string, string>() }] }), ...refused });
// @ts-expect-error a bigint
definePolicy("bigint", { context: () => ({ n: 1n }), ...refused });
// @ts-expect-error nobody knows what it is
definePolicy("unknown", { context: (payload) => payload as Record<string, unknown>, ...refused });
// @ts-expect-error a list has no names
definePolicy("list", { context: () => ["a"], ...refused });
// @ts-expect-error a text is no object
definePolicy("text", { context: () => "a", ...refused });
