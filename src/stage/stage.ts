import type { AddJobsJobSpec, TaskSpec } from "graphile-worker";
import { check, checkOptions, type Rule, show } from "../checks/options.ts";
import { flawOfPayload } from "../checks/payload-flaw.ts";
import { hasAnswered, rowsOf } from "../db/answers.ts";
import {
  type Engine,
  type JobKeyMode,
  makeEngine,
  type PartitionState,
  type Queryable,
  type StageBatch,
  type StageJob,
} from "../db/engine.ts";
import { isPool } from "../db/isolation.ts";
import { BACKLOG_FULL, BAD_ARGUMENT, BAD_KEY, saidBySql } from "../db/sqlstates.ts";
import { durationSeconds } from "../duration.ts";
import { ArgumentError, BacklogFullError, PayloadError } from "../errors.ts";
import type { Debounce } from "../policy/debounce.ts";
import type { GivenSpecification, JobSpec } from "../policy/job.ts";
import {
  type AnyPolicy,
  isPolicy,
  type PolicyPayload,
  policyDefinition,
  readSpecification,
  resolveJob,
  type TaskIdentifier,
  tasksOf,
} from "../policy/policy.ts";
import { readWhenRunning } from "../policy/when-running.ts";
import { schemaOf } from "../settings.ts";
import { currentTraceparent } from "../traces.ts";
import { callbackOf, type PolicyCallback, type TaskCallback } from "./group.ts";
import { type AddedJob, type StagedJob, toJob } from "./staged-job.ts";

export type { Queryable } from "../db/engine.ts";

/** `addJob("task", payload)` is Graphile Worker's own signature; `addJob(policy, payload)` is typed by the policy. */
export interface AddJob {
  <P extends AnyPolicy>(policy: P, payload: PolicyPayload<P>, spec?: JobSpec): Promise<StagedJob>;
  <T extends TaskIdentifier = string>(
    identifier: T,
    payload: T extends keyof GraphileWorker.Tasks ? GraphileWorker.Tasks[T] : unknown,
    spec?: JobSpec,
  ): Promise<AddedJob>;
}
/**
 * Graphile Worker's `addJobs`: jobs of any tasks, in one call. With `jobKeyPreserveRunAt`, a job that is replaced by its key
 * keeps its `runAt`; default false. With `then` the jobs are a group, and all of their tasks must have a policy: see
 * {@link addPolicyJobs}.
 */
export type AddJobs = <TSpecs extends readonly AddJobsJobSpec[]>(
  jobSpecs: TSpecs,
  jobKeyPreserveRunAt?: boolean,
  options?: { then?: TaskCallback | undefined },
) => Promise<ReadonlyArray<AddedJob>>;

/** A job for `addPolicyJobs`. */
export type PolicyJobSpec<P extends AnyPolicy> = {
  /** The policy, made by `definePolicy`. It governs one task. */
  policy: P;
  /** The job's payload, as the policy's schema takes it. */
  payload: PolicyPayload<P>;
} & JobSpec;

/** One job to be added. Without a policy the database decides: its task may have one that this process does not know. */
export interface JobToAdd {
  readonly policy: AnyPolicy | undefined;
  readonly task: string;
  readonly payload: unknown;
  readonly spec: JobSpec;
  /** Whether it has started before. If so, the policy's `expiresAfter` does not count. */
  readonly hasStarted?: boolean;
}

/**
 * Stages one job of a policy. With a client inside a transaction, the job belongs to that transaction. With a pool, the
 * call has a transaction of its own.
 *
 * @param options `schema`: this package's schema, default "dispatch_policy"
 * @throws {PayloadError} if JSON cannot hold the payload, or it fails the policy's schema or one of its functions; nothing
 * is written
 * @throws {BacklogFullError} if the policy's `maxPending` is reached and it rejects
 * @throws {ArgumentError} if the client is none or does not answer with `{ rows }`, or an option is unknown
 * @throws {SchemaVersionError} if this package's schema is not set up
 * @example await addPolicyJob(client, fetchEndpoint, { endpointId: "ep1", accountId: "acme" }, { priority: 5 });
 */
export async function addPolicyJob<P extends AnyPolicy>(
  client: Queryable,
  policy: P,
  payload: PolicyPayload<P>,
  spec: JobSpec = {},
  options: { schema?: string | undefined } = {},
): Promise<StagedJob> {
  checkCall("addPolicyJob", client, options);
  check("addPolicyJob: policy", policy, aPolicy);
  const job = { policy, task: onlyTask(policy), payload, spec };
  const [added] = await addJobs(makeEngine(schemaOf(options.schema)), client, [job], modeOf(spec), {
    ends: isPool(client),
  });
  return added as StagedJob;
}

/**
 * Stages jobs of one or several policies in one call and one transaction. The result is in the order of the input.
 *
 * With `then`, the jobs are a group. When the last of them has ended for good, the callback is added, by the next step of
 * a tick loop. Its payload says as `_group` how many succeeded, failed and so on: a {@link JobGroup}. Without any job it is
 * added at once.
 *
 * @param options `schema`: this package's schema, default "dispatch_policy"; `then`: the group's callback, default none
 * @throws {PayloadError} as {@link addPolicyJob}; none of the jobs is staged then
 * @example await addPolicyJobs(client, endpoints.map((payload) => ({ policy: fetchEndpoint, payload })));
 * @example
 * const jobs = endpoints.map((payload) => ({ policy: fetchEndpoint, payload }));
 * await addPolicyJobs(client, jobs, { then: { policy: fetchEndpoint, payload: { endpointId: "last", accountId: "acme" } } });
 */
export async function addPolicyJobs<
  const Ps extends readonly AnyPolicy[],
  Then extends AnyPolicy = AnyPolicy,
>(
  client: Queryable,
  jobs: { readonly [K in keyof Ps]: PolicyJobSpec<Ps[K]> },
  options: { schema?: string | undefined; then?: PolicyCallback<Then> | undefined } = {},
): Promise<StagedJob[]> {
  checkCall("addPolicyJobs", client, options, ["schema", "then"]);
  check("addPolicyJobs: jobs", jobs, listOfJobs);
  const list = (jobs as readonly PolicyJobSpec<AnyPolicy>[]).map(({ policy, payload, ...spec }, n) => {
    return policyJob(`addPolicyJobs: jobs[${n}]`, policy, payload, spec);
  });
  const then = options.then && callbackJob(options.then);
  return (await addJobs(makeEngine(schemaOf(options.schema)), client, list, "replace", {
    then,
    ends: isPool(client),
  })) as StagedJob[];
}

function callbackJob(then: PolicyCallback<AnyPolicy>): JobToAdd {
  check("addPolicyJobs: then", then, anObject);
  const { policy, payload, ...spec } = then;
  return policyJob("addPolicyJobs: then", policy, payload, spec);
}

function policyJob(what: string, policy: AnyPolicy, payload: unknown, spec: JobSpec): JobToAdd {
  check(`${what}.policy`, policy, aPolicy);
  if (spec.jobKeyMode !== undefined) {
    throw new ArgumentError(
      "jobKeyMode is not for addPolicyJobs, as in Graphile Worker's addJobs: use addPolicyJob",
    );
  }
  return { policy, task: onlyTask(policy), payload, spec };
}

const aClient: Rule = {
  expects:
    "a Pool, Client or PoolClient of pg, or an adapter with query(text, values); the policy comes after it",
  accepts: (value) => typeof (value as { query?: unknown } | null | undefined)?.query === "function",
};
const aPolicy: Rule = { expects: "a policy made by definePolicy", accepts: isPolicy };
const anObject: Rule = {
  expects: "an object { policy, payload, ...options }",
  accepts: (value) => typeof value === "object" && value !== null,
};
const listOfJobs: Rule = {
  expects: "an array of { policy, payload, ...options }",
  accepts: (value) => Array.isArray(value) && value.every((one) => typeof one === "object" && one !== null),
};

/** @throws {ArgumentError} naming what is not a client, or the unknown option */
function checkCall(
  what: string,
  client: unknown,
  options: object,
  known: readonly string[] = ["schema"],
): void {
  // a text is probably a connection string, which may have a password
  if (typeof client === "string")
    throw new ArgumentError(
      `${what}: client must be ${aClient.expects}, got a string: for a connection string, make a pool of it`,
    );
  check(`${what}: client`, client, aClient);
  checkOptions(`${what} (its last argument)`, options, known);
}

/**
 * Resolves and stages jobs in one statement. With `then` they are a group.
 *
 * @param ends whether the transaction ends with it
 */
export async function addJobs(
  engine: Engine,
  client: Queryable,
  jobs: readonly JobToAdd[],
  mode: JobKeyMode,
  { then, ends }: { then?: JobToAdd | undefined; ends: boolean },
): Promise<AddedJob[]> {
  if (jobs.length === 0 && then === undefined) return [];
  const traceparent = currentTraceparent();
  const batches = batchesOf(jobs, traceparent, mode);
  // the mode keeps the policy's debounce away: SQL applies it when the callback is added
  const resolve = (job: JobToAdd) => batchesOf([job], traceparent, "preserve_run_at")[0]?.jobs[0] as StageJob;
  const callback = then && callbackOf(then, jobs.length, resolve);
  // staging would be done by the time that the form of its answer is seen
  if (!hasAnswered(client)) await rowsOf(client, "select 1 as one", []);
  const staging = callback
    ? engine.stageGroup(client, batches, mode, callback)
    : engine.stage(client, batches, mode, { ends });
  const rows = await staging.catch(rethrow);
  const added = new Array<AddedJob>(rows.length);
  for (const row of rows) added[row.n] = toJob(row, jobs[row.n]?.payload);
  return added;
}

function rethrow(error: unknown): never {
  const { code, message } = error as { code?: string; message: string };
  // what JSON.stringify wrote is refused for nothing else; the detail would say so, but some drivers leave it out
  if (code === "22P05" || (code === "22P02" && message.includes("json"))) {
    throw new ArgumentError(
      "a payload has \\u0000 or half of a surrogate pair, which PostgreSQL cannot store; none of the jobs was added",
      { cause: error },
    );
  }
  const said = saidBySql(message);
  if (code === BACKLOG_FULL) throw new BacklogFullError(said, { cause: error });
  // SQL works out keys only of tasks whose policy this process does not know
  const [, policy, flaw] = /^policy "(.*?)": (the payload .*)$/s.exec(said) ?? [];
  if (code === BAD_KEY && policy !== undefined && flaw !== undefined)
    throw new PayloadError(policy, flaw, { cause: error });
  if (BAD_ARGUMENT.has(code)) throw new ArgumentError(said, { cause: error });
  throw error;
}

export function modeOf(spec: JobSpec): JobKeyMode {
  return spec.jobKey ? (spec.jobKeyMode ?? "replace") : "replace";
}

/** Resolves jobs into the batches of one staging statement. */
export function batchesOf(
  jobs: readonly JobToAdd[],
  traceparent?: string,
  mode: JobKeyMode = "replace",
): StageBatch[] {
  checkKeys(jobs);
  const batches = new Map<AnyPolicy | undefined, OpenBatch>();
  jobs.forEach((job, n) => {
    let batch = batches.get(job.policy);
    if (!batch) {
      batch = openBatch(job.policy, mode);
      batches.set(job.policy, batch);
    }
    addToBatch(batch, job, n, traceparent);
  });
  return [...batches.values()].map(({ policy, version, partitions, jobs }) => {
    return { policy, version, partitions, jobs };
  });
}

/** A batch that is being filled, with the place of each partition and the defaults of the policy's jobs. */
interface OpenBatch extends StageBatch {
  readonly partitions: PartitionState[];
  readonly jobs: StageJob[];
  readonly places: Map<string, number>;
  readonly defaults: object;
  /** The policy's, in seconds. */
  readonly expiresAfter: number | null;
  readonly debounce: Debounce | null;
  readonly mode: JobKeyMode;
  /** Whether the policy goes by deadlines. */
  readonly byDeadline: boolean;
}

function openBatch(policy: AnyPolicy | undefined, mode: JobKeyMode): OpenBatch {
  const none = { version: 0, job: {}, expiresAfterSeconds: null, debounce: null, order: null };
  const { version, job, expiresAfterSeconds, debounce, order } = policy ? policyDefinition(policy) : none;
  return {
    policy: policy?.identifier ?? null,
    version,
    partitions: [],
    jobs: [],
    places: new Map(),
    defaults: job,
    expiresAfter: expiresAfterSeconds,
    debounce,
    mode,
    byDeadline: order === "deadline",
  };
}

function addToBatch(batch: OpenBatch, job: JobToAdd, n: number, traceparent: string | undefined): void {
  const { policy, task, payload } = job;
  checkPayload(policy, task, payload);
  const read = readSpecification(job.spec);
  const { wait, expiresAfter, debounce: _, whenRunning, ...given } = read;
  const spec: TaskSpec & { expiresAt?: Date } = { ...batch.defaults, ...given };
  const { jobKeyMode: _mode, ...stored } = spec;
  const staged: StageJob = { ...stored, n, task, payload: payload ?? {} };
  if (wait !== undefined) staged.wait = durationSeconds(wait);
  if (expiresAfter !== undefined) staged.expiresAfter = durationSeconds(expiresAfter);
  else if (batch.expiresAfter !== null && spec.expiresAt === undefined && !job.hasStarted)
    staged.expiresAfter = batch.expiresAfter;
  if (whenRunning !== undefined) {
    if (!policy)
      throw new ArgumentError(
        `a job of ${task}: whenRunning is ${show(whenRunning)}, expected none: this process has no policy of the task. Give it the policy, or declare whenRunning there`,
      );
    staged.cancelsAfter = readWhenRunning("a job: whenRunning", whenRunning);
  }
  const debounced = debounceOf(batch, read);
  if (debounced) Object.assign(staged, { wait: debounced.waitSeconds, maxWait: debounced.maxWaitSeconds });
  if (policy) {
    const resolved = resolveJob(policy, staged.payload, { ...spec, task });
    const lane = laneKey(resolved);
    let place = batch.places.get(lane);
    const { partitions } = batch;
    const before = partitions[place ?? -1];
    if (place === undefined) {
      place = partitions.length;
      batch.places.set(lane, place);
    }
    // the last job of a lane in the call has the newest context
    partitions[place] = {
      key: resolved.partition,
      ...(resolved.lane !== null && { lane: resolved.lane }),
      shard: before?.shard ?? resolved.shard,
      context: resolved.context,
      weight: resolved.weight,
      limits: resolved.limits,
    };
    staged.p = place;
    if (resolved.cost !== 1) staged.cost = resolved.cost;
    if (batch.byDeadline) staged.byDeadline = true;
    if (resolved.deadline) staged.deadline = resolved.deadline;
  }
  if (traceparent !== undefined) staged.traceparent = traceparent;
  batch.jobs.push(staged);
}

/** Tells a partition's lanes apart in a call. No key has half of a surrogate pair. */
const laneKey = ({ partition, lane }: ReturnType<typeof resolveJob>) =>
  lane === null ? partition : `${partition}\ud800${lane}`;

/** A job's own, else the policy's if nothing else says when the job is due. */
function debounceOf(
  batch: OpenBatch,
  { jobKey, runAt, wait, debounce }: GivenSpecification,
): Debounce | null {
  if (debounce === undefined)
    return jobKey && batch.mode === "replace" && !runAt && !wait ? batch.debounce : null;
  if (batch.mode !== "replace")
    throw new ArgumentError(
      `a job: debounce moves the job of its key, and needs the mode "replace", got "${batch.mode}": leave one of the two out`,
    );
  return { waitSeconds: durationSeconds(debounce.wait), maxWaitSeconds: durationSeconds(debounce.maxWait) };
}

/** @throws {PayloadError} if JSON would refuse or empty a value; without a policy {@link ArgumentError} */
function checkPayload(policy: AnyPolicy | undefined, task: string, payload: unknown): void {
  const flaw = flawOfPayload(payload);
  if (flaw === undefined) return;
  const message = `${flaw}, expected values that JSON can hold: make it a string, a number, an array or a plain object`;
  if (policy) throw new PayloadError(policy.identifier, message);
  throw new ArgumentError(`a job of ${task}: ${message}`);
}

function checkKeys(jobs: readonly JobToAdd[]): void {
  const keys = new Set<string>();
  for (const { spec } of jobs) {
    if (!spec.jobKey) continue;
    if (keys.has(spec.jobKey)) {
      throw new ArgumentError(
        `two jobs of one call have the jobKey ${JSON.stringify(spec.jobKey)}; add them in two calls`,
      );
    }
    keys.add(spec.jobKey);
  }
}

/** The task of a policy. @throws {ArgumentError} if it governs several */
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
