// The causes that the study "drill" plants: each has a policy of its own, in which a job waits.

import { asSent } from "../../src/db/releasing.ts";
import {
  type AnyPolicy,
  concurrency,
  definePolicy,
  type PolicyOptions,
  type PolicyUtils,
  type Reason,
  throttle,
} from "../../src/index.ts";
import type { World } from "../engine/world.ts";

const HOUR_MS = 3_600_000;

type Payload = { readonly partition: string };

export interface Place {
  readonly utils: PolicyUtils;
  readonly query: World["query"];
}

export interface Cause {
  readonly policy: AnyPolicy;
  /** What is to be said of it. */
  readonly reason: Reason | null;
  readonly gate: string | null;
  /** Who did it. Default: nobody. */
  readonly author?: string;
  /** Whether a time ends it. Default: false. */
  readonly ends?: boolean;
  /** Whether jobs in flight have the slots that it waits for. Default: false. */
  readonly isHeld?: boolean;
  /** Whether a live worker runs the loop of its policy. Default: true. */
  readonly ticked?: boolean;
  /** Returns the id of the job that waits. */
  plant(place: Place, policy: string): Promise<string>;
}

function policy(
  name: string,
  options: Omit<PolicyOptions<string, undefined, Payload>, "partitionBy" | "context"> = {},
) {
  return definePolicy(name, {
    context: (payload: unknown) => payload as Payload,
    partitionBy: "partition",
    ...options,
  });
}

/** Adds a job for each of these partitions, and returns the id of the last. */
async function add(
  { utils }: Place,
  task: string,
  partitions: readonly string[],
  runAt?: Date,
): Promise<string> {
  const jobs = partitions.map((partition) => ({
    ...{ identifier: task, payload: { partition } },
    ...(runAt && { runAt }),
  }));
  const added = await utils.addJobs(jobs as never);
  return added.at(-1)!.id;
}

/** The same, and a pass that admits what it can. */
async function addAndTick(place: Place, task: string, partitions: readonly string[]): Promise<string> {
  const id = await add(place, task, partitions);
  await place.utils.tick({ policy: task });
  return id;
}

/** Adds from SQL, which leaves the key to the next pass. */
async function addFromSql({ query }: Place, task: string): Promise<string> {
  await query("select from dispatch_policy.add_job($1, $2)", [task, JSON.stringify({ partition: "a" })]);
  const [job] = await query<{ id: string }>("select id from dispatch_policy.staged_jobs where policy = $1", [
    task,
  ]);
  return job!.id;
}

/** The job in flight ends with an error, as a worker says it. */
async function fail({ query }: Place, policy: string): Promise<void> {
  const jobs = await query<{ job_id: string }>(
    "select job_id from dispatch_policy.in_flight_jobs where policy = $1",
    [policy],
  );
  const ids = jobs.map(({ job_id }) => job_id);
  await query("select count(*) from graphile_worker.complete_jobs($1)", [ids]);
  const ended = asSent(
    ids.map((job) => ({
      ...{ job, task: policy, ok: false, ends: true, retry: null },
      ...{ lagMs: 5, durationMs: 5, attempt: null, admission: null },
    })),
  );
  await query("select left_ids from dispatch_policy_internal._release($1, null)", [JSON.stringify(ended)]);
}

/** A pass as a tick loop runs it, which keeps jobs just ahead of the workers. */
async function tickAhead({ query }: Place, policy: string): Promise<void> {
  await query("select dispatch_policy_internal._route($1, null, 1000)", [policy]);
  await query("select from dispatch_policy_internal._admit($1, null, 50, null, true)", [policy]);
}

/** Graphile Worker takes no job of this partition. */
const REFUSE = `create function public.refuse() returns trigger language plpgsql as $$
    begin raise exception 'no room in the archive'; end $$;
  create trigger refuse before insert on graphile_worker._private_jobs for each row
    when (new.payload ->> 'partition' = 'refused') execute function public.refuse()`;

export const CAUSES: Readonly<Record<string, Cause>> = {
  throttled: {
    policy: policy("drill_throttled", { gates: [throttle({ rate: 1, per: "1 hour" })] }),
    ...{ reason: "throttle_empty", gate: "throttle", ends: true },
    plant: (place, task) => addAndTick(place, task, ["a", "a"]),
  },
  "own slot full": {
    policy: policy("drill_own_slot", { gates: [concurrency({ max: 1 })] }),
    ...{ reason: "concurrency_full", gate: "concurrency", isHeld: true },
    plant: (place, task) => addAndTick(place, task, ["a", "a"]),
  },
  "shared slot full": {
    policy: policy("drill_shared_slot", {
      gates: [concurrency({ name: "shared", scope: "policy", max: 5 })],
    }),
    ...{ reason: "concurrency_full", gate: "shared", author: "ana", isHeld: true },
    async plant(place, task) {
      const why = { reason: "partner is slow", by: "ana" };
      await place.utils.setLimit({ policy: task, gate: "shared", set: { max: 1 }, ...why });
      await addAndTick(place, task, ["b"]);
      return addAndTick(place, task, ["a"]);
    },
  },
  paused: {
    policy: policy("drill_paused"),
    ...{ reason: "paused", gate: null, author: "ana" },
    async plant(place, task) {
      await place.utils.pause({ policy: task, reason: "incident 12", by: "ana" });
      return addAndTick(place, task, ["a"]);
    },
  },
  "held after a 429": {
    policy: policy("drill_held"),
    ...{ reason: "held", gate: null, author: "task", ends: true },
    async plant(place, task) {
      const id = await add(place, task, ["a"]);
      await place.utils.hold({ policy: task, partition: "a", forMs: HOUR_MS, reason: "429", by: "task" });
      await place.utils.tick({ policy: task });
      return id;
    },
  },
  breaker: {
    policy: policy("drill_breaker", { breaker: { failures: 1, within: "1 minute", cooldown: "1 hour" } }),
    ...{ reason: "breaker_open", gate: null, author: "breaker", ends: true },
    async plant(place, task) {
      await addAndTick(place, task, ["a"]);
      await fail(place, task);
      await place.utils.tick({ policy: task });
      return addAndTick(place, task, ["a"]);
    },
  },
  "not yet due": {
    policy: policy("drill_not_due"),
    ...{ reason: "not_due", gate: null, ends: true },
    plant: (place, task) => add(place, task, ["a"], new Date(Date.now() + HOUR_MS)),
  },
  "nobody ticking": {
    policy: policy("drill_not_ticked"),
    ...{ reason: null, gate: null, ticked: false },
    plant: (place, task) => add(place, task, ["a"]),
  },
  budget: {
    policy: policy("drill_budget", { tickAdmissionBudget: 1 }),
    ...{ reason: "tick_budget", gate: null },
    plant: (place, task) => addAndTick(place, task, ["a", "a", "a"]),
  },
  ahead: {
    policy: policy("drill_ahead", { ahead: 1 }),
    ...{ reason: "ahead_full", gate: "ahead", isHeld: true },
    async plant(place, task) {
      const id = await add(place, task, Array(20).fill("a"));
      await tickAhead(place, task);
      return id;
    },
  },
  quarantine: {
    policy: policy("drill_quarantined"),
    ...{ reason: "quarantined", gate: null, ends: true },
    async plant(place, task) {
      await place.query(REFUSE);
      const id = await addAndTick(place, task, ["refused"]);
      await place.query("drop function public.refuse() cascade");
      return id;
    },
  },
  "waiting for its key": {
    policy: policy("drill_waiting_key"),
    ...{ reason: "waiting_key", gate: null },
    plant: addFromSql,
  },
};
