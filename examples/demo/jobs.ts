/** The ten jobs of `--ui`. They sleep where others would ask a partner. */
import { setTimeout as delay } from "node:timers/promises";
import type { Task } from "graphile-worker";
import { type AnyPolicy, definePolicy, fixed, type JobSpec } from "../../src/index.ts";

export interface DemoJob {
  readonly policy: AnyPolicy;
  readonly title: string;
  /** What its card says that it shows. */
  readonly about: string;
  readonly run: Task;
  /** Of one job of a tenant. */
  readonly payload: (tenant: string) => object;
  readonly spec?: JobSpec;
  /** How unequal the tenants are that its button adds jobs for: see `sharesOf`. Default: all alike. */
  readonly skew?: number;
}

interface ByAccount {
  readonly account: string;
}

interface ByEndpoint extends ByAccount {
  readonly endpoint: string;
}

const lasting =
  (ms: number): Task =>
  () =>
    delay(ms);

/** Half of its attempts fail. */
const failing: Task = async () => {
  await delay(100);
  if (Math.random() < 0.5) throw new Error("503 Service Unavailable");
};

const ofAccount = (account: string): ByAccount => ({ account });
const ofEndpoint = (account: string): ByEndpoint => ({
  account,
  endpoint: `${account}/${Math.random() < 0.5 ? "orders" : "invoices"}`,
});

const shardOf = (account: string) => `shard-${Number(/\d+$/.exec(account)?.[0] ?? 0) % 4}`;

/** A policy's name is its task's. */
export const JOBS: readonly DemoJob[] = [
  {
    policy: definePolicy("by_endpoint", {
      partitionBy: "endpoint",
      gates: ({ throttle }) => [throttle({ rate: 60, per: "1 minute", burst: 5 })],
    }),
    title: "Throttle by endpoint",
    about: "Each endpoint gets 5 jobs at once, then one a second.",
    ...{ run: lasting(500), payload: ofEndpoint },
  },
  {
    policy: definePolicy("by_account", {
      partitionBy: "account",
      gates: ({ concurrency }) => [concurrency({ max: 3 })],
    }),
    title: "Concurrency by account",
    about: "At most 3 jobs of an account run at once. Each takes a second.",
    ...{ run: lasting(1000), payload: ofAccount },
  },
  {
    policy: definePolicy("two_limits", {
      context: (payload) => ({ account: (payload as ByEndpoint).account }),
      partitionBy: "endpoint",
      gates: ({ throttle, concurrency }) => [
        throttle({ rate: 2, per: "1 second", smooth: true }),
        concurrency({ name: "account", scope: (ctx) => ctx.account, max: 2 }),
      ],
    }),
    title: "Both limits",
    about: "An endpoint gets 2 jobs a second. Its account, which has two endpoints, runs 2 at once.",
    ...{ run: lasting(700), payload: ofEndpoint },
  },
  {
    policy: definePolicy("later", {
      partitionBy: "account",
      gates: ({ throttle }) => [throttle({ rate: 30, per: "1 minute", burst: 1 })],
    }),
    title: "Jobs for later",
    about: "Due half a minute after they are added. Then an account gets one every two seconds.",
    ...{ run: lasting(10), payload: ofAccount, spec: { wait: "30 seconds" } },
  },
  {
    policy: definePolicy("retries", {
      partitionBy: "account",
      backoff: fixed("2 seconds"),
      job: { maxAttempts: 4 },
      gates: ({ throttle }) => [throttle({ rate: 2, per: "1 second" })],
    }),
    title: "Retries pass the limits",
    about:
      "Half of the attempts fail. The job waits two seconds without a slot, then for a token. It has 4 attempts.",
    ...{ run: failing, payload: ofAccount },
  },
  {
    policy: definePolicy("fast", {
      partitionBy: "account",
      gates: ({ throttle }) => [throttle({ rate: 10_000, per: "1 minute" })],
    }),
    title: "A limit that is far away",
    about: "10,000 a minute of jobs of 10 ms: the workers decide how many go.",
    ...{ run: lasting(10), payload: ofAccount },
  },
  {
    policy: definePolicy("wide", {
      partitionBy: "account",
      gates: ({ concurrency }) => [concurrency({ max: 100, scope: "policy" })],
    }),
    title: "A hundred at once",
    about: "One cap for all accounts, as high as the workers have slots.",
    ...{ run: lasting(100), payload: ofAccount },
  },
  {
    policy: definePolicy("shards", {
      context: (payload) => ({ shard: shardOf((payload as ByAccount).account) }),
      partitionBy: "account",
      shardBy: (ctx) => ctx.shard,
      gates: ({ concurrency }) => [concurrency({ max: 5 })],
    }),
    title: "Shards",
    about: "Four shards, each with a tick loop of its own. At most 5 jobs of an account run at once.",
    ...{ run: lasting(200), payload: ofAccount },
  },
  {
    policy: definePolicy("fair_shares", {
      partitionBy: "account",
      fairness: { halfLife: "30 seconds" },
      gates: ({ concurrency }) => [concurrency({ max: 5, scope: "policy" })],
    }),
    title: "Fair shares",
    about:
      "5 at once of all accounts. Most jobs are of one account, and those of the others do not wait for them.",
    ...{ run: lasting(300), payload: ofAccount, skew: 2 },
  },
  {
    policy: definePolicy("adaptive", {
      partitionBy: "account",
      gates: ({ adaptiveConcurrency }) => [
        adaptiveConcurrency({ initialMax: 3, max: 40, targetLagMs: 1000 }),
      ],
    }),
    title: "A limit that adapts",
    about: "3 at once of an account, then more, until admitted jobs wait a second for a worker.",
    ...{ run: lasting(300), payload: ofAccount },
  },
];
