import type { TaskSpec } from "graphile-worker";
import { z } from "zod";
import { concurrency } from "../../src/gates/index.ts";
import { exponential, fixed, list, polynomial } from "../../src/policy/backoff.ts";
import type { JobSpec } from "../../src/policy/job.ts";
import { type AnyPolicy, definePolicy, type JobInfo, type PolicyPayload } from "../../src/policy/policy.ts";
import { RetryAfter } from "../../src/run/retry-after.ts";

const payload = z.object({
  accountId: z.string(),
  endpoint: z.object({ id: z.number(), tags: z.array(z.string()) }),
  at: z.coerce.date().optional(),
});

// every option at once, and each of them may be undefined (exactOptionalPropertyTypes)
export const everything = definePolicy("everything", {
  tasks: ["a", "b"],
  payload,
  context: (parsed, { task, queueName, priority, runAt, flags, jobKey }) => {
    const all: JobInfo = { task, queueName, priority, runAt, flags, jobKey };
    return { account: parsed.accountId, task: all.task, late: runAt === undefined };
  },
  partitionBy: ["accountId", "endpoint.id"],
  job: { queueName: undefined, priority: 3, maxAttempts: undefined, flags: ["slow"] },
  fairness: null,
  tickAdmissionBudget: null,
  admissionBatchSize: undefined,
  ahead: "1 second",
  retries: "bypass",
  backoff: exponential({ base: "1 second", factor: 2, max: "1 hour", jitter: "full" }),
  version: 3,
  enabled: false,
});
const policies: readonly AnyPolicy[] = [everything];
void policies;

definePolicy("fixed", { partitionBy: "x", backoff: fixed("5 minutes") });
definePolicy("polynomial", {
  partitionBy: "x",
  backoff: polynomial({ base: "30 seconds", power: 5 }),
});
definePolicy("list", { partitionBy: "x", backoff: list(["1 minute", "1 hour"]) });
definePolicy("undefined", {
  payload: undefined,
  context: undefined,
  partitionBy: "x",
  gates: undefined,
  fairness: undefined,
  weight: undefined,
  cost: undefined,
  shardBy: undefined,
  job: undefined,
  retries: undefined,
  backoff: undefined,
  version: undefined,
  enabled: undefined,
  tasks: undefined,
  tickAdmissionBudget: undefined,
  ahead: undefined,
});
new RetryAfter("1 second", { reason: undefined, cause: undefined });
definePolicy("unbounded", { partitionBy: "x", ahead: null });
definePolicy("counted", { partitionBy: "x", ahead: 20 });

definePolicy("bad_path", {
  payload,
  // @ts-expect-error no such path in the payload
  partitionBy: ["accountId", "endpoint.name"],
});
definePolicy("array_path", {
  payload,
  // @ts-expect-error a list is no key
  partitionBy: "endpoint.tags",
});
definePolicy("bad_info", {
  // @ts-expect-error no such thing is known of a job
  context: (_payload, { jobkey }) => ({ jobkey }),
  partitionBy: "x",
});
definePolicy("bad_job", {
  partitionBy: "x",
  // @ts-expect-error unknown default
  job: { queue: "slow" },
});
definePolicy("bad_retries", {
  partitionBy: "x",
  // @ts-expect-error neither "restage" nor "bypass"
  retries: "never",
});
definePolicy("bad_backoff", {
  partitionBy: "x",
  // @ts-expect-error a bare number is no duration
  backoff: () => 30,
});
// @ts-expect-error a bare number is no duration
fixed(30);
// @ts-expect-error power is missing
polynomial({ base: "30 seconds" });
// @ts-expect-error a bare number is no duration
exponential({ base: 30 });
// @ts-expect-error neither "full" nor "equal"
exponential({ base: "1 second", jitter: "half" });
// @ts-expect-error not a scope
concurrency({ max: 1, scope: "tenant" });

// a task sees the parsed payload, an adder gives the unparsed one
export const task = everything.task(async (parsed, helpers) => {
  parsed.at satisfies Date | undefined;
  const { policy, partition, stagedId, attempt, admittedAt, lagMs } = helpers.dispatchPolicy;
  [policy, partition, stagedId] satisfies string[];
  attempt satisfies number;
  admittedAt satisfies Date | null;
  lagMs satisfies number | null;
  await helpers.dispatchPolicy.hold({ until: new Date(), reason: "429" });
  await helpers.dispatchPolicy.take({ gate: "all", key: "k", cost: 2 });
  // @ts-expect-error a hold needs an end
  await helpers.dispatchPolicy.hold({ reason: "429" });
});
({ accountId: "a", endpoint: { id: 1, tags: [] } }) satisfies PolicyPayload<typeof everything>;

// a job's options are Graphile Worker's and this package's own, all of them, and each may be undefined
type LooseTaskSpec = { [K in keyof TaskSpec]: TaskSpec[K] | undefined };
export const fromGraphileWorker: (
  spec: Required<LooseTaskSpec>,
) => Required<Omit<JobSpec, "wait" | "expiresAt" | "expiresAfter" | "debounce" | "whenRunning">> = (spec) =>
  spec;
export const toGraphileWorker: (spec: Required<JobSpec>) => Required<LooseTaskSpec> = (spec) => spec;
