import type { Job, WithPgClient } from "graphile-worker";
import type { Engine } from "../db/engine.ts";
import type { EventSink } from "../events.ts";
import type { Logger } from "../log.ts";
import type { AnyPolicy } from "../policy/policy.ts";
import { attemptOf } from "./fetched-job.ts";
import { finishedJob, replacedJob, unstartedJob } from "./finished-job.ts";
import type { ReleaseQueue } from "./release-queue.ts";
import type { RunningJob } from "./running-jobs.ts";
import type { UncountedRunError } from "./uncounted.ts";

export interface JobEndsContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
  readonly logger: Logger;
  readonly events: EventSink;
}

/** Turns the ends of jobs into releases. */
export function makeJobEnds(
  releases: Pick<ReleaseQueue, "push">,
  { withPgClient, engine, logger, events }: JobEndsContext,
) {
  return {
    /** A job that occupies a slot ended. Resolves when its release was flushed once. */
    release(job: Job, running: RunningJob, error: unknown): Promise<void> {
      const finished = finishedJob(job, running, error, { logger, events });
      return releases.push({ ...finished, ends: true }, running.policy.identifier);
    },
    /** A job ended whose task did not run, which is no attempt. */
    releaseUnstarted(job: Job, policy: AnyPolicy | undefined, error: UncountedRunError): Promise<void> {
      return releases.push({ ...unstartedJob(job, policy, error), ends: true }, policy?.identifier ?? "");
    },
    /** A job without a slot ended. If it had replaced one with a slot under its key, that slot is freed. */
    async releaseReplaced(job: Job): Promise<void> {
      try {
        const admission = await withPgClient((client) => engine.replacedAdmission(client, attemptOf(job)));
        if (admission === null) return;
        await releases.push(replacedJob(job, admission), "");
      } catch (error) {
        const { message } = error as Error;
        const what = `Could not check which slot job ${job.id} occupied; a sweep frees it`;
        logger.warn(`${what}: ${message}`, { error });
      }
    },
  };
}
