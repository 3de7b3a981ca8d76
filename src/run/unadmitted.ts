import type { Job, JobHelpers, Logger } from "graphile-worker";
import type { CaughtJob, Engine } from "../db/engine.ts";
import { type EventSink, emit } from "../events.ts";
import { type AnyPolicy, policyDefinition } from "../policy/policy.ts";
import { batchesOf, type JobSpec } from "../stage/stage.ts";
import { timeOf } from "../timestamp.ts";
import { attemptOf, specificationOf } from "./fetched-job.ts";

/** On the event and in the log of a job that completed without running, since a copy of it is staged. */
const TAKEN_OVER = "dispatch_policy:taken_over";

/**
 * Asks the gates for a job that starts without having been admitted, and when they refuse hands it to staging: the
 * caller then completes the original without running it, which costs no attempt and looks like no failure.
 *
 * @throws {PayloadError} when the policy cannot tell the job's partition: the job then fails, as with any bad payload
 */
export async function catchUnadmitted(
  policy: AnyPolicy,
  job: Job,
  helpers: JobHelpers,
  { engine, events }: { engine: Engine; events: EventSink },
): Promise<CaughtJob> {
  const { retries, unmanaged } = policyDefinition(policy);
  // a retry that bypasses the gates counts as in flight while it runs
  const bypasses = job.attempts > 1 && retries === "bypass";
  const spec = { ...specOf(job), queueName: await queueNameOf(job, helpers) };
  const [batch] = batchesOf([{ policy, task: job.task_identifier, payload: job.payload, spec }]);
  const caught = await helpers.withPgClient((client) =>
    engine.catchUnadmitted(client, attemptOf(job), {
      batch,
      unmanaged: bypasses ? "run" : unmanaged,
    }),
  );
  if (caught.verdict === "taken_over") {
    Object.assign(job, { flags: { ...job.flags, [TAKEN_OVER]: true } });
    emit(events, "dispatchPolicy:takeOver", {
      policy: policy.identifier,
      jobId: String(job.id),
      stagedId: caught.stagedId as string,
      setAside: unmanaged === "reject",
    });
  }
  return caught;
}

/** The copy keeps its place in the queue, and the attempts that are left: fetching the original took one of them. */
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

/** Says once for each policy that jobs come past it. */
export function makeUnadmittedLog() {
  const said = new Set<AnyPolicy>();
  return (policy: AnyPolicy, job: Job, logger: Logger): void => {
    if (said.has(policy)) return;
    said.add(policy);
    logger.info(
      `Job ${job.id} of ${job.task_identifier} was added past policy ${policy.identifier} (graphile_worker.add_job, ` +
        `the crontab), which costs a second hop: ${OUTCOMES[policyDefinition(policy).unmanaged]}. Said once.`,
    );
  };
}

const OUTCOMES = {
  enforce: "it runs when the gates let it",
  run: "it runs at once and counts in flight",
  reject: "it is set aside",
} as const;
