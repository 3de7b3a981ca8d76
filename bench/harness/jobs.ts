import { type AnyPolicy, definePolicy, fixed } from "../../src/index.ts";

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

/** One job of all tenants. */
export const oneOfAll = definePolicy(TASK, {
  partitionBy: "tenant",
  gates: ({ concurrency }) => [concurrency({ name: "all", scope: "policy", max: 1 })],
});

/** Policies by what holds jobs back. */
export const BY_GATES = {
  "cap of one": oneAtATime,
  "shared cap of one": oneOfAll,
  "none that binds": openPolicy,
};
export type Gates = keyof typeof BY_GATES;

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

export const WAITS = [
  "own throttle",
  "own cap",
  "own cap, mixed",
  "account's cap",
  "policy's throttle",
] as const;
/** What the jobs of the study "estimate" wait for. */
export type WaitsFor = (typeof WAITS)[number];

/** Its policy. An account has all tenants, so with `cap` for each of them. */
export function waitingPolicy(
  waitsFor: WaitsFor,
  { rate, cap, tenants, halfLifeMs }: WaitingSize,
): AnyPolicy {
  return definePolicy(TASK, {
    context: (payload) => ({ tenant: (payload as { tenant: string }).tenant }),
    partitionBy: ({ tenant }) => tenant,
    fairness: { halfLife: `${halfLifeMs} milliseconds` },
    gates: ({ throttle, concurrency }) => {
      if (waitsFor === "own throttle") return [throttle({ rate, per: "1 second" })];
      if (waitsFor === "policy's throttle")
        return [throttle({ rate: rate * tenants, per: "1 second", scope: "policy" })];
      if (waitsFor === "account's cap")
        return [concurrency({ name: "account", max: cap * tenants, scope: () => "acme" })];
      return [concurrency({ max: cap })];
    },
  });
}

export interface WaitingSize {
  readonly tenants: number;
  /** Jobs a second of each tenant, if a throttle is what they wait for. */
  readonly rate: number;
  /** Jobs of each tenant at once, if a cap is. */
  readonly cap: number;
  readonly halfLifeMs: number;
}
