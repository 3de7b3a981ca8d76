import type { Job, JobHelpers } from "graphile-worker";
import { sleep } from "../admit/sleeper.ts";
import type { Engine, Share } from "../db/engine.ts";
import { type EventSink, emit } from "../events.ts";
import type { AnyPolicy } from "../policy/policy.ts";
import { attemptOf } from "./fetched-job.ts";
import { exactPayload } from "./unadmitted.ts";
import { throwUnlessAway, UncountedRunError } from "./uncounted.ts";

/** A flag on the event of a job that completed without running, because it is staged again. Logs show it. */
const REQUEUED = "dispatch_policy:requeued";
/** If another transaction has a row locked, the job is asked about again after this. */
const AGAIN_MS = 50;

/** A job that starts, as far as a share concerns it. */
export interface Starting {
  readonly runs: boolean;
  readonly admission: string | null;
  readonly cancelled?: object | null;
  readonly shares?: readonly Share[];
}

export interface ShareContext {
  readonly engine: Engine;
  readonly events: EventSink;
  /** Rejects if the job is not this pool's any more. */
  readonly confirm: (job: Job) => Promise<void> | null;
}

/** What a job that starts does with the share of its worker pool. */
export interface InShare<S extends Starting> {
  readonly start: S;
  /** Frees what the job occupies of the share. It may be called again. */
  readonly leave: () => void;
}

/**
 * Lets a job start only while its worker pool runs less than its share. A job for which there is no room is requeued: it is
 * staged again, and completes without running. That is no failure, and costs no attempt.
 *
 * The check and the count stand in one step without an await, so two jobs that start at once cannot both take the last place.
 */
export async function startInShare<S extends Starting>(
  ask: () => Promise<S>,
  policy: AnyPolicy,
  { job, abortSignal, withPgClient }: JobHelpers,
  { engine, events, confirm }: ShareContext,
): Promise<InShare<S>> {
  const pool = occupiedBy(abortSignal);
  for (;;) {
    const start = await ask();
    const { runs, admission, cancelled, shares = [] } = start;
    if (!runs || admission === null || cancelled) return { start, leave: () => {} };
    const full = shares.filter((share) => !share.forced && pool.occupied(policy, share) >= share.max);
    if (full.length === 0) return { start, leave: pool.enter(policy, shares) };
    const sent = await withPgClient((client) =>
      engine.requeue(client, attemptOf(job), {
        admission,
        gates: full.map(({ gate }) => gate),
        payload: exactPayload(job),
      }),
    ).catch((error) => {
      throwUnlessAway(error, job);
      return false; // perhaps only the answer was lost: the next question tells
    });
    if (sent) {
      tell(job, policy, full[0] as Share, events);
      return { start: { ...start, runs: false, admission: null }, leave: () => {} };
    }
    await sleep(AGAIN_MS, abortSignal);
    if (abortSignal.aborted)
      throw new UncountedRunError(
        `Job ${job.id} did not start, and keeps its attempt: its worker shuts down`,
      );
    await confirm(job); // others may have the job by now, and the next question would be about theirs
  }
}

function tell(job: Job, policy: AnyPolicy, { gate, key, max }: Share, events: EventSink): void {
  Object.assign(job, { flags: { ...job.flags, [REQUEUED]: true } });
  emit(events, "dispatchPolicy:requeue", {
    policy: policy.identifier,
    jobId: String(job.id),
    gate,
    key,
    max,
  });
}

/** How many jobs a worker pool runs, by policy, gate and scope key. */
function makeOccupied() {
  const counts = new Map<string, number>();
  const nameOf = (policy: AnyPolicy, { gate, key }: Share) => JSON.stringify([policy.identifier, gate, key]);
  const change = (name: string, by: number) => {
    const count = (counts.get(name) ?? 0) + by;
    if (count > 0) counts.set(name, count);
    else counts.delete(name);
  };
  return {
    occupied: (policy: AnyPolicy, share: Share): number => counts.get(nameOf(policy, share)) ?? 0,
    /** Counts a job, until the function that it returns is called. */
    enter(policy: AnyPolicy, shares: readonly Share[]): () => void {
      let names = shares.map((share) => nameOf(policy, share));
      for (const name of names) change(name, 1);
      return () => {
        for (const name of names) change(name, -1);
        names = [];
      };
    },
  };
}

/** By the pool's own signal: a process may have several pools, and each has its share. */
const pools = new WeakMap<AbortSignal, ReturnType<typeof makeOccupied>>();

function occupiedBy(pool: AbortSignal): ReturnType<typeof makeOccupied> {
  const known = pools.get(pool) ?? makeOccupied();
  pools.set(pool, known);
  return known;
}
