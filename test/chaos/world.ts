// What the processes of a chaos run have in common: the policies, and what is judged by them.
import { concurrency, definePolicy, fixed, type JobGroup, shared } from "../../src/index.ts";

export interface Payload {
  /** Who enqueues chooses it: it stays the job's through retries and copies. */
  readonly id: string;
  readonly account: string;
  readonly ms: number;
  /** How many attempts fail. */
  readonly failures: number;
  /** Its job key: it cancels the run of the older job of this key. */
  readonly key?: string;
  /** Of a callback: what became of the jobs of its group. */
  readonly _group?: JobGroup;
}

export const TASKS = ["work", "call", "render"] as const;
export type TaskName = (typeof TASKS)[number];

/** The limit that work and renderings share. */
export const TOGETHER = "together";

/** What a definition of the policies allows. */
export interface Limits {
  /** How many may run at once, by scope. Null: there is no such gate. */
  readonly caps: { readonly account: number; readonly region: number | null; readonly all: number };
  /** How much of work and renderings may run at once, together. */
  readonly together: number;
  /** Tokens per second and in the bucket, by scope. */
  readonly rates: Readonly<Record<"account" | "all", { readonly rate: number; readonly capacity: number }>>;
  /** For how long calls that the throttles deny are postponed. Null: they wait. */
  readonly delay: "1 second" | null;
  /** Whether work with the earliest deadline goes first. Else it goes in the usual order. */
  readonly byDeadline: boolean;
  /** How many renderings of a region one worker pool may run at once. */
  readonly share: number;
}

/** Two definitions, each narrower than the other somewhere. The second one lacks a gate. */
export const DEFINITIONS = {
  first: {
    caps: { account: 4, region: 10, all: 24 },
    together: 26,
    rates: { account: { rate: 4, capacity: 4 }, all: { rate: 20, capacity: 10 } },
    delay: null,
    byDeadline: false,
    share: 2,
  },
  second: {
    caps: { account: 3, region: null, all: 12 },
    together: 10,
    rates: { account: { rate: 6, capacity: 3 }, all: { rate: 10, capacity: 10 } },
    delay: "1 second",
    byDeadline: true,
    share: 1,
  },
} as const satisfies Record<string, Limits>;

/** What a process brings with it when it starts. */
export interface Release {
  readonly limits: keyof typeof DEFINITIONS;
  readonly version: number;
}

export const FIRST_RELEASE: Release = { limits: "first", version: 0 };

/** One with the other definition. `by`: how much higher its version is; -1: a deployment is rolled back. */
export function nextRelease({ limits, version }: Release, by: 1 | 0 | -1): Release {
  return { limits: limits === "first" ? "second" : "first", version: Math.max(0, version + by) };
}

const ACCOUNTS = 12;
const REGIONS = 3;

export const accounts = Array.from({ length: ACCOUNTS }, (_, n) => `a${n}`);
/** How many queues are fresh at a time, and for how long. Who adds the first job of one inserts its row. */
const QUEUES = 3;
const FRESH_FOR_MS = 1000;
/** A queue that Graphile Worker may not know yet, the same in all processes. */
export const freshQueue = (n: number) => `fresh${Math.floor(Date.now() / FRESH_FOR_MS)}.${n % QUEUES}`;

export const regionOf = (account: string) => `r${Number(account.slice(1)) % REGIONS}`;

/** An operator's limit for the accounts of a region, by their context. It is there before the first job, and stays. */
export const LIMITED = { region: "r2", max: 2 } as const;
/** The most that an operator may allow an account: no definition allows less. */
export const mostByOperator = (account: string) =>
  regionOf(account) === LIMITED.region ? LIMITED.max : DEFINITIONS.second.caps.account;

/**
 * Of the definitions that live workers have, that with the highest version is in force. Of equal versions it is the one whose
 * process started last.
 */
export function policiesOf({ limits, version }: Release) {
  const definition = DEFINITIONS[limits];
  const together = togetherOf(definition, version);
  return {
    work: workOf(definition, version, together),
    call: callOf(definition, version),
    render: renderOf(definition, version, together),
  };
}

/** Half of the jobs have a deadline. */
function contextOf(payload: unknown) {
  const { account, ms } = payload as Payload;
  return { account, region: regionOf(account), dueBy: ms % 2 < 1 ? null : new Date(ms * 1e6).toISOString() };
}

const togetherOf = ({ together: max }: Limits, version: number) =>
  shared(TOGETHER, concurrency({ max, scope: "policy" }), { version });
type Together = ReturnType<typeof togetherOf>;

/** Three scopes that overlap, or two; its key needs JavaScript. */
const workOf = ({ caps, byDeadline }: Limits, version: number, together: Together) =>
  definePolicy("work", {
    version,
    context: contextOf,
    partitionBy: (ctx) => ctx.account,
    gates: ({ concurrency }) => [
      concurrency({ max: caps.account }),
      ...(caps.region === null
        ? []
        : [concurrency({ name: "region", scope: (ctx) => ctx.region, max: caps.region })]),
      concurrency({ name: "all", scope: "policy", max: caps.all }),
      together,
    ],
    ...(byDeadline && { order: { deadline: (ctx: ReturnType<typeof contextOf>) => ctx.dueBy } }),
    backoff: fixed("100 ms"),
  });

/** Throttles, which SQL can work out alone. */
const callOf = ({ rates: { account, all }, delay }: Limits, version: number) =>
  definePolicy("call", {
    version,
    partitionBy: "account",
    gates: ({ throttle }) => [
      throttle({ rate: account.rate, burst: account.capacity, per: "1 second" }),
      throttle({ name: "all", scope: "policy", rate: all.rate, burst: all.capacity, per: "1 second" }),
    ],
    ...(delay !== null && { whenBusy: { delay } }),
    backoff: fixed("100 ms"),
  });

/**
 * Shares of worker pools, in a policy of its own. With a share, each start of work would ask the database. And a full pool
 * would requeue what a pass admits too much, so nobody would see that.
 */
const renderOf = ({ share }: Limits, version: number, together: Together) =>
  definePolicy("render", {
    version,
    context: contextOf,
    partitionBy: (ctx) => ctx.account,
    gates: ({ concurrency }) => [
      concurrency({ scope: (ctx) => ctx.region, max: share, perWorker: true }),
      together,
    ],
    backoff: fixed("100 ms"),
  });

export const STALE_AFTER_MS = 5000;
export const SETTINGS = {
  workerHeartbeatInterval: "500 ms",
  workerStaleAfter: "5 seconds",
  sweepInterval: "1 second",
} as const;

/**
 * A process stopped for longer than this may count as dead: its last heartbeat may be one interval old, and two before
 * it may have failed. One stopped for less may not.
 */
export const SHORT_STOP_MS = 2000;
/**
 * A SQL tick of all policies may wait for locks in each of them. It is cut short after this time, so that the judge knows
 * how long before a policy was off its transaction may have begun.
 */
export const TICK_WITHIN_MS = 1000;
export const LONG_STOP_MS = STALE_AFTER_MS + 2000;

/**
 * Clocks of throttled ticks are wrong by this much. Ahead, tokens come that much earlier, once. Apart by a second or
 * more the engine takes a mark for a wrong clock's, moves it back, and the tokens of that time come twice, by design: so
 * two such steps, and what a pass may last under a time set before, stay below.
 */
export const THROTTLED_STEP_MS = 350;
export const STEPPED_PASS_MS = 150;
/** Clocks of other ticks are wrong by this much. */
export const STEP_MS = 3000;
