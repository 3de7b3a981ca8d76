import { definePolicy, fixed } from "../../src/index.ts";

export const TASK = "bench";
/** Has no policy. */
export const OTHER_TASK = "other";

const PER_CALL = 10_000;
/** More than a run gets through. */
const NEVER_BINDS = 1_000_000;

/** Three gates, one over the whole policy; none binds. */
export const openPolicy = definePolicy(TASK, {
  partitionBy: "tenant",
  gates: ({ throttle, concurrency }) => [
    throttle({ rate: NEVER_BINDS, per: "1 second" }),
    concurrency({ max: NEVER_BINDS }),
    throttle({ name: "all", scope: "policy", rate: NEVER_BINDS, per: "1 second" }),
  ],
});

export const oneAtATime = definePolicy(TASK, {
  partitionBy: "tenant",
  gates: ({ concurrency }) => [concurrency({ max: 1 })],
});

/** How many jobs of a tenant may run at once. */
export const CAP = 3;

export const cappedPolicy = definePolicy(TASK, {
  partitionBy: "tenant",
  gates: ({ concurrency }) => [concurrency({ max: CAP })],
});

/** Has limits that an operator may touch, and failed jobs that soon run again. None binds. */
export const touchedPolicy = definePolicy(TASK, {
  partitionBy: "tenant",
  gates: ({ throttle, concurrency }) => [
    throttle({ rate: NEVER_BINDS, per: "1 second" }),
    concurrency({ max: NEVER_BINDS }),
    throttle({ name: "all", scope: "policy", rate: NEVER_BINDS, per: "1 second" }),
  ],
  backoff: fixed("300 ms"),
});

/** The task of another policy beside it. */
export const ELSEWHERE = "elsewhere";
export const elsewherePolicy = definePolicy(ELSEWHERE, {
  partitionBy: "tenant",
  gates: ({ throttle }) => [throttle({ name: "all", scope: "policy", rate: NEVER_BINDS, per: "1 second" })],
});

export type FairBy = "jobs" | "work";

/** Nothing but fairness. */
export const mixedPolicy = (by: FairBy) =>
  definePolicy(TASK, { partitionBy: "tenant", fairness: { halfLife: "1 minute", by } });

/** Fairness alone, with tenants that count double or a hundredfold. */
export const weightedPolicy = definePolicy(TASK, {
  context: (payload) => ({ tenant: (payload as { tenant: string }).tenant }),
  partitionBy: ({ tenant }) => tenant,
  weight: ({ tenant }) => (tenant === "double" ? 2 : tenant.startsWith("heavy") ? 100 : 1),
});

/** Jobs of so many tenants in turn, as both addJobs take them. */
export function specsOf(count: number, tenants: number) {
  return Array.from({ length: count }, (_, id) => ({
    identifier: TASK,
    payload: { tenant: `tenant-${id % tenants}`, id },
  }));
}

type Spec = ReturnType<typeof specsOf>[number];

/** Adds them some at a time, as a program with many to add would. */
export async function addInCalls(
  utils: { addJobs(specs: Spec[]): Promise<unknown> },
  specs: readonly Spec[],
  perCall = PER_CALL,
): Promise<void> {
  await inCalls(specs, (some) => utils.addJobs(some), perCall);
}

export async function inCalls<Item>(
  items: readonly Item[],
  call: (some: Item[]) => Promise<unknown>,
  perCall = PER_CALL,
): Promise<void> {
  for (let from = 0; from < items.length; from += perCall) await call(items.slice(from, from + perCall));
}
