// Limits whose overruns can be seen from outside, by the starts and ends that tasks report.
import { definePolicy, fixed } from "../../src/index.ts";

/** What adders keep filled: `depth` jobs of this task and key wait or run. */
export const LINES = [
  { task: "work", key: "t0", depth: 12 },
  { task: "work", key: "t1", depth: 12 },
  { task: "call", key: "e0", depth: 50 },
  { task: "slide", key: "w0", depth: 40 },
] as const;
export type Line = (typeof LINES)[number];
export type TaskName = Line["task"];

export interface Payload {
  readonly id: string;
  readonly key: string;
  readonly ms: number;
}

/** The caps of work. Two tenants share an account, so that both caps are reached. */
export const CAPS = { tenant: 5, account: 8 } as const;
/** Calls: so many at once, and per second. */
export const RATE = 20;
/** Slides: so many in any stretch of that time. */
export const WINDOW = { rate: 30, ms: 3000 } as const;

export const accountOf = (tenant: string) => `a${Math.floor(Number(tenant.slice(1)) / 2)}`;
const keyOf = (payload: unknown) => (payload as Payload).key;

export const POLICIES = {
  work: definePolicy("work", {
    context: (payload) => ({ tenant: keyOf(payload), account: accountOf(keyOf(payload)) }),
    partitionBy: (ctx) => ctx.tenant,
    gates: ({ concurrency }) => [
      concurrency({ max: CAPS.tenant }),
      concurrency({ name: "account", scope: (ctx) => ctx.account, max: CAPS.account }),
    ],
    backoff: fixed("200 ms"),
  }),
  call: definePolicy("call", {
    partitionBy: "key",
    gates: ({ throttle }) => [throttle({ rate: RATE, per: "1 second" })],
    backoff: fixed("200 ms"),
  }),
  slide: definePolicy("slide", {
    partitionBy: "key",
    gates: ({ throttle }) => [
      throttle({ rate: WINDOW.rate, per: `${WINDOW.ms / 1000} seconds`, window: "sliding" }),
    ],
    backoff: fixed("200 ms"),
  }),
};
