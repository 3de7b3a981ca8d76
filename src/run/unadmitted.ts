import type { Job, JobHelpers } from "graphile-worker";
import type { CaughtJob, Engine } from "../db/engine.ts";
import type { StageBatch } from "../db/staging.ts";
import { type EventSink, emit } from "../events.ts";
import type { Logger } from "../log.ts";
import type { JobSpec } from "../policy/job.ts";
import { isExact } from "../policy/key.ts";
import { type AnyPolicy, policyDefinition } from "../policy/policy.ts";
import { batchesOf } from "../stage/stage.ts";
import { timeOf } from "../timestamp.ts";
import { attemptOf, specificationOf, traceOf } from "./fetched-job.ts";

/** A flag on the event of a job that completed without running, because a copy of it is staged. Logs show it. */
const COPIED = "dispatch_policy:copied";

/**
 * Asks the gates about a job that starts without an admission. If they deny it, a copy is staged. The caller then
 * completes the original without running it: that is no failure, and costs no attempt.
 *
 * @throws {PayloadError} if the policy cannot work out the job's partition: the job fails, as with any bad payload
 */
export async function catchUnadmitted(
  policy: AnyPolicy,
  job: Job,
  helpers: JobHelpers,
  { engine, events }: { engine: Engine; events: EventSink },
): Promise<CaughtJob & { partition: string | undefined }> {
  const { retries, unmanaged } = policyDefinition(policy);
  // a retry that bypasses the gates counts as in flight while it runs
  const bypasses = job.attempts > 1 && retries === "bypass";
  const spec = { ...specOf(job), queueName: await queueNameOf(job, helpers) };
  const [batch] = batchesOf(
    [{ policy, task: job.task_identifier, payload: job.payload, spec, hasStarted: job.attempts > 1 }],
    traceOf(job)?.traceparent,
  ) as [StageBatch];
  const caught = await helpers.withPgClient((client) =>
    engine.catchUnadmitted(client, attemptOf(job), {
      batch,
      payload: exactPayload(job),
      unmanaged: bypasses ? "run" : unmanaged,
    }),
  );
  if (caught.verdict === "copied") {
    Object.assign(job, { flags: { ...job.flags, [COPIED]: true } });
    emit(events, "dispatchPolicy:copy", {
      policy: policy.identifier,
      jobId: String(job.id),
      stagedId: caught.stagedId as string,
      quarantined: unmanaged === "reject",
    });
  }
  return { ...caught, partition: batch.partitions[0]?.key };
}

/** A job's payload as JSON. Null: JavaScript may have rounded a number in it, so SQL has to copy what is stored. */
export function exactPayload({ payload }: Job): string | null {
  return hasExactNumbers(payload) ? JSON.stringify(payload) : null;
}

function hasExactNumbers(value: unknown): boolean {
  if (typeof value === "number") return isExact(value) && !Object.is(value, -0);
  return typeof value !== "object" || value === null || Object.values(value).every(hasExactNumbers);
}

/** The options of the copy. It keeps the job's place, and the remaining attempts: fetching the original used one. */
function specOf(job: Job): JobSpec {
  const { task: _, ...added } = specificationOf(job);
  const runAt = timeOf(job.run_at);
  return {
    ...added,
    ...(runAt !== null && Number.isFinite(runAt) ? { runAt: new Date(runAt) } : {}),
    maxAttempts: Math.max(job.max_attempts - job.attempts + 1, 1),
  };
}

async function queueNameOf(job: Job, helpers: JobHelpers): Promise<string | undefined> {
  if (job.job_queue_id === null) return undefined;
  return (await helpers.getQueueName()) ?? undefined;
}

/** Logs once for each policy that jobs are added past it. */
export function makeUnadmittedLog() {
  const said = new Set<AnyPolicy>();
  return (policy: AnyPolicy, job: Job, logger: Logger): void => {
    if (said.has(policy)) return;
    said.add(policy);
    const { unmanaged } = policyDefinition(policy);
    logger[unmanaged === "reject" ? "warn" : "info"](
      `Job ${job.id} of ${job.task_identifier} was added past policy "${policy.identifier}". ` +
        `${OUTCOMES[unmanaged]} (logged once per policy)`,
    );
  };
}

const OUTCOMES = {
  enforce: "It waits for its gates. Add it with addPolicyJob to save a step",
  run: "It runs at once, and counts in flight. Add it with addPolicyJob, and it waits for its gates",
  reject:
    "It is quarantined and does not run, as each such job. Add jobs with addPolicyJob. " +
    "Let those that were quarantined go with rescheduleJobs, or remove them: staged_jobs.error names them",
} as const;
