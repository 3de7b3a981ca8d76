import type { AddJobsJobSpec, TaskSpec } from "graphile-worker";
import {
  type Engine,
  type JobKeyMode,
  makeEngine,
  type PartitionState,
  type Queryable,
  type StageBatch,
  type StageJob,
} from "../db/engine.ts";
import { ArgumentError, BacklogFullError } from "../errors.ts";
import {
  type AnyPolicy,
  type PolicyPayload,
  policyDefinition,
  readSpecification,
  resolveJob,
  type TaskIdentifier,
  tasksOf,
} from "../policy/policy.ts";
import { schemaOf } from "../settings.ts";
import { type AddedJob, type StagedJob, toJob } from "./staged-job.ts";

export type { Queryable } from "../db/engine.ts";

/** Graphile Worker's TaskSpec, kind to exactOptionalPropertyTypes: `{ runAt: maybeDate }` compiles. */
export type JobSpec = { [K in keyof TaskSpec]: TaskSpec[K] | undefined };

/** `addJob("task", payload)` is Graphile Worker's own signature; `addJob(policy, payload)` is typed by the policy. */
export interface AddJob {
  <P extends AnyPolicy>(policy: P, payload: PolicyPayload<P>, spec?: JobSpec): Promise<StagedJob>;
  <T extends TaskIdentifier = string>(
    identifier: T,
    payload: T extends keyof GraphileWorker.Tasks ? GraphileWorker.Tasks[T] : unknown,
    spec?: JobSpec,
  ): Promise<AddedJob>;
}
export type AddJobs = <TSpecs extends readonly AddJobsJobSpec[]>(
  jobSpecs: TSpecs,
  jobKeyPreserveRunAt?: boolean,
) => Promise<ReadonlyArray<AddedJob>>;

export type PolicyJobSpec<P extends AnyPolicy> = { policy: P; payload: PolicyPayload<P> } & JobSpec;

/** One job on its way to be staged: its policy, or none to pass it on. */
export interface JobToAdd {
  readonly policy: AnyPolicy | undefined;
  readonly task: string;
  readonly payload: unknown;
  readonly spec: JobSpec;
}

/**
 * Stages one job of a policy. A client inside a transaction joins it; a pool gives the call a transaction of its own.
 *
 * @param options `schema`: this package's schema, default "dispatch_policy"
 * @throws {PayloadError} when the payload fails the policy's schema or one of its functions; nothing is written
 * @throws {BacklogFullError} when the policy's `maxPending` is reached and it rejects
 * @example await addPolicyJob(client, fetchEndpoint, { endpointId: "ep1", ratePerMinute: 60 }, { priority: 5 });
 */
export async function addPolicyJob<P extends AnyPolicy>(
  client: Queryable,
  policy: P,
  payload: PolicyPayload<P>,
  spec: JobSpec = {},
  options: { schema?: string } = {},
): Promise<StagedJob> {
  const job = { policy, task: onlyTask(policy), payload, spec };
  const [added] = await addJobs(makeEngine(schemaOf(options.schema)), client, [job], modeOf(spec));
  return added as StagedJob;
}

/**
 * Stages jobs of one or several policies in one call and one transaction; the result is in the order of the input.
 *
 * @throws {PayloadError} as {@link addPolicyJob}; then none of the jobs is staged
 * @example await addPolicyJobs(client, endpoints.map((payload) => ({ policy: fetchEndpoint, payload })));
 */
export async function addPolicyJobs<const Ps extends readonly AnyPolicy[]>(
  client: Queryable,
  jobs: { readonly [K in keyof Ps]: PolicyJobSpec<Ps[K]> },
  options: { schema?: string } = {},
): Promise<StagedJob[]> {
  const list = (jobs as readonly PolicyJobSpec<AnyPolicy>[]).map(({ policy, payload, ...spec }) => {
    if (spec.jobKeyMode !== undefined) {
      throw new ArgumentError(
        "jobKeyMode is not for addPolicyJobs, as in Graphile Worker's addJobs: use addPolicyJob",
      );
    }
    return { policy, task: onlyTask(policy), payload, spec };
  });
  return (await addJobs(makeEngine(schemaOf(options.schema)), client, list, "replace")) as StagedJob[];
}

/** Resolves and stages jobs in one statement. */
export async function addJobs(
  engine: Engine,
  client: Queryable,
  jobs: readonly JobToAdd[],
  mode: JobKeyMode,
): Promise<AddedJob[]> {
  if (jobs.length === 0) return [];
  const batches = batchesOf(jobs);
  const rows = await engine.stage(client, batches, mode).catch(rethrow);
  const added = new Array<AddedJob>(rows.length);
  for (const row of rows) added[row.n] = toJob(row, jobs[row.n]?.payload);
  return added;
}

/** What SQL raises when a backlog is full. */
const BACKLOG_FULL = "DPFUL";

function rethrow(error: unknown): never {
  const { code, message, detail } = error as { code?: string; message: string; detail?: string };
  if (code === "22P05" || (code === "22P02" && detail?.includes("surrogate"))) {
    throw new ArgumentError(
      "a payload holds \\u0000 or half of a surrogate pair, which PostgreSQL cannot work with; none of the jobs was added",
      { cause: error },
    );
  }
  if (code !== BACKLOG_FULL) throw error;
  throw new BacklogFullError(message.replace(/^dispatch_policy: /, ""), { cause: error });
}

export function modeOf(spec: JobSpec): JobKeyMode {
  return spec.jobKey ? (spec.jobKeyMode ?? "replace") : "replace";
}

/** Resolves jobs into what one staging statement takes. */
export function batchesOf(jobs: readonly JobToAdd[]): StageBatch[] {
  checkKeys(jobs);
  const batches = new Map<AnyPolicy | undefined, OpenBatch>();
  jobs.forEach((job, n) => {
    let batch = batches.get(job.policy);
    if (!batch) {
      batch = openBatch(job.policy);
      batches.set(job.policy, batch);
    }
    addToBatch(batch, job, n);
  });
  return [...batches.values()].map(({ places: _p, defaults: _d, ...batch }) => batch);
}

/** A batch that is being filled: where each partition stands, and what the policy's jobs have by default. */
interface OpenBatch extends StageBatch {
  readonly partitions: PartitionState[];
  readonly jobs: StageJob[];
  readonly places: Map<string, number>;
  readonly defaults: object;
}

function openBatch(policy: AnyPolicy | undefined): OpenBatch {
  const { version, job } = policy ? policyDefinition(policy) : { version: 0, job: {} };
  return {
    policy: policy?.identifier ?? null,
    version,
    partitions: [],
    jobs: [],
    places: new Map(),
    defaults: job,
  };
}

function addToBatch(batch: OpenBatch, job: JobToAdd, n: number): void {
  const { policy, task, payload } = job;
  const spec: TaskSpec = { ...batch.defaults, ...readSpecification(job.spec) };
  const { jobKeyMode: _, ...stored } = spec;
  const staged: StageJob = { ...stored, n, task, payload: payload ?? {} };
  if (policy) {
    const resolved = resolveJob(policy, payload, { ...spec, task });
    let place = batch.places.get(resolved.partition);
    const { partitions } = batch;
    if (place === undefined) {
      place = partitions.length;
      batch.places.set(resolved.partition, place);
    }
    // the last job of a partition in the call has the newest context
    partitions[place] = {
      key: resolved.partition,
      shard: partitions[place]?.shard ?? resolved.shard,
      context: resolved.context,
      weight: resolved.weight,
      limits: resolved.limits,
    };
    staged.p = place;
    if (resolved.cost !== 1) staged.cost = resolved.cost;
  }
  batch.jobs.push(staged);
}

function checkKeys(jobs: readonly JobToAdd[]): void {
  const keys = new Set<string>();
  for (const { spec } of jobs) {
    if (!spec.jobKey) continue;
    if (keys.has(spec.jobKey)) {
      throw new ArgumentError(
        `two jobs of one call have the jobKey ${JSON.stringify(spec.jobKey)}; add them apart`,
      );
    }
    keys.add(spec.jobKey);
  }
}

/** The task a job of a policy is for, where the policy governs one. */
export function onlyTask(policy: AnyPolicy): string {
  const tasks = tasksOf(policy);
  if (tasks.length > 1) {
    throw new ArgumentError(
      `policy "${policy.identifier}" governs several tasks (${tasks.join(", ")}): add its jobs by task identifier, ` +
        "with utils.addJob or helpers.addJob",
    );
  }
  return tasks[0] as string;
}
