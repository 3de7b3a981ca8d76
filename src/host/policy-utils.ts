import type { WorkerUtils, WorkerUtilsOptions } from "graphile-worker";
import { makeWorkerUtils } from "graphile-worker";
import { declarePolicies } from "../admit/declare.ts";
import type { TickContext, TickResult } from "../admit/tick.ts";
import { type Engine, makeEngine } from "../db/engine.ts";
import { migrate } from "../db/migrate.ts";
import { noEvents } from "../events.ts";
import { type AdmitOptions, admit } from "../operate/admit.ts";
import { hold } from "../operate/hold.ts";
import { jobFunctions } from "../operate/jobs.ts";
import { clearLimit, type LimitValues, limits, type Override, setLimit } from "../operate/limits.ts";
import {
  type Explanation,
  explain,
  type PartitionStatus,
  type PartitionsQuery,
  partitions,
} from "../operate/look.ts";
import { pause } from "../operate/pause.ts";
import { type ReleaseSlotsOptions, releaseSlots } from "../operate/release-slots.ts";
import { type RemoveOptions, remove } from "../operate/remove.ts";
import { resume } from "../operate/resume.ts";
import { type PolicyStatus, status, type WorkerStatus } from "../operate/status.ts";
import { type Repaired, sweepFully } from "../operate/sweep.ts";
import { switchPolicy } from "../operate/switch.ts";
import { take } from "../operate/take.ts";
import type { Changed, LimiterTarget, PartitionTarget, Target, Why } from "../operate/targets.ts";
import { tick } from "../operate/tick.ts";
import type { AnyPolicy, TaskIdentifier, Until } from "../policy/policy.ts";
import { type DispatchPolicyOptions, readSettings, type Settings } from "../settings.ts";
import { makeAdder } from "../stage/adder.ts";
import type { AddJob, AddJobs, JobSpec } from "../stage/stage.ts";
import type { AddedJob } from "../stage/staged-job.ts";

/** Graphile Worker's `schema` stays its schema; ours is `policySchema`. `policies` may come from the preset. */
export type PolicyUtilsOptions = { [K in keyof WorkerUtilsOptions]: WorkerUtilsOptions[K] | undefined } & {
  policies?: readonly AnyPolicy[] | undefined;
  policySchema?: string | undefined;
};

/** What operators and programs can do with policies. */
export interface Operate {
  pause(options: Target & Why & { until?: Date | undefined }): Promise<Changed>;
  resume(options: Target & Why): Promise<Changed>;
  hold(options: PartitionTarget & Until & Why): Promise<Changed>;
  admit(options: AdmitOptions): Promise<Changed & { notDue: number }>;
  remove(options: RemoveOptions): Promise<Changed>;
  /** Gives back what an in-flight job holds, though it has not ended. */
  releaseSlots(options: ReleaseSlotsOptions): Promise<Changed>;
  /** @deprecated Use `releaseSlots`: without options, `release` gives up the utils' connections. */
  release(options: ReleaseSlotsOptions): Promise<Changed>;
  setLimit(
    options: LimiterTarget & { set: LimitValues; from?: Date | undefined; until?: Date | undefined } & Why,
  ): Promise<Changed>;
  clearLimit(options: LimiterTarget & Why): Promise<Changed>;
  limits(options?: { policy?: string }): Promise<readonly Override[]>;
  /** Throttle gates only; never waits. */
  take(options: LimiterTarget & { cost?: number }): Promise<{ taken: boolean; retryAt: Date | null }>;
  explain(options: { id: string } | PartitionTarget): Promise<Explanation>;
  status(options?: {
    policy?: string;
  }): Promise<{ policies: readonly PolicyStatus[]; workers: readonly WorkerStatus[] }>;
  partitions(query?: PartitionsQuery): Promise<readonly PartitionStatus[]>;
  /** Switches a policy off at run time: adds pass through, and ticks empty its staging ungated. */
  disable(options: { policy: string } & Why): Promise<Changed>;
  enable(options: { policy: string } & Why): Promise<Changed>;
  /**
   * One admission pass; without a policy one for every policy, each with a transaction and budget of its own. `now` is
   * for tests: it stands for the database clock in that pass.
   */
  tick(options?: {
    policy?: string | undefined;
    shard?: string | undefined;
    now?: Date | undefined;
  }): Promise<TickResult>;
  /** One repair pass. Every count is zero in a healthy run. Steps that failed are an AggregateError; the others are done. */
  sweep(): Promise<{ repaired: Repaired }>;
}

/** Graphile Worker's utils, policy-aware, and the verbs of this package. Stands in wherever WorkerUtils is expected. */
export interface PolicyUtils extends WorkerUtils, Operate {
  completeJobs: WorkerUtils["completeJobs"];
  cleanup: WorkerUtils["cleanup"];
  addJob: AddJob;
  addJobs: AddJobs;
  /** Gives up the connections, as in Graphile Worker. */
  release(): Promise<void>;
  /** @deprecated Use `releaseSlots`: without options, `release` gives up the utils' connections. */
  release(options: ReleaseSlotsOptions): Promise<Changed>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Graphile Worker's `makeWorkerUtils`, policy-aware: `addJob` and `addJobs` stage jobs of tasks that have a policy and
 * pass the others on. Migrates both schemas and records the policies. Release it when done.
 *
 * @throws {ArgumentError} for bad options; what Graphile Worker throws for its own
 * @example
 * const utils = await makePolicyUtils({ connectionString, policies: [fetchEndpoint] });
 * await utils.addJob(fetchEndpoint, { endpointId: "ep1", ratePerMinute: 60 });
 * await utils.release();
 */
export async function makePolicyUtils(options: PolicyUtilsOptions): Promise<PolicyUtils> {
  const { policies: _p, policySchema: _s, ...workerOptions } = options;
  const settings = utilsSettings(options);
  const worker = await makeWorkerUtils(workerOptions as WorkerUtilsOptions);
  try {
    const engine = makeEngine(settings.schema);
    const install = () => installSchema(worker, settings, workerSchemaOf(options));
    await install();
    await declarePolicies(worker.withPgClient, engine, settings, worker.logger);
    return assemble(worker, engine, settings, install);
  } catch (error) {
    await worker.release();
    throw error;
  }
}

/**
 * Adds one job and forgets the connection: for scripts. In a program make utils once instead.
 *
 * @example await addJobAdhoc({ connectionString, policies: [fetchEndpoint] }, "fetch_endpoint", { endpointId: "ep1", ratePerMinute: 60 });
 */
export async function addJobAdhoc<T extends TaskIdentifier = string>(
  options: PolicyUtilsOptions,
  identifier: T,
  payload: T extends keyof GraphileWorker.Tasks ? GraphileWorker.Tasks[T] : unknown,
  spec: JobSpec = {},
): Promise<AddedJob> {
  const utils = await makePolicyUtils(options);
  try {
    return await utils.addJob(identifier, payload as never, spec);
  } finally {
    await utils.release();
  }
}

/** @deprecated The name was misleading in Graphile Worker; use `addJobAdhoc`. */
export const quickAddJob = addJobAdhoc;

function installSchema(worker: WorkerUtils, settings: Settings, workerSchema: string): Promise<void> {
  return worker.withPgClient((client) => migrate(client, { workerSchema, schema: settings.schema }));
}

/** The settings of a process that adds or operates: its preset's, with what is given beside it. */
export function utilsSettings(options: PolicyUtilsOptions): Settings {
  const fromPreset = presetOptions(options.preset ?? {});
  const policies = options.policies ?? fromPreset?.policies ?? [];
  const schema = options.policySchema ?? fromPreset?.schema;
  return readSettings({ ...fromPreset, policies, schema }, fromPreset !== undefined);
}

/** Looks through a preset and those it extends for this package's options; the outermost wins, as in graphile-config. */
function presetOptions(preset: GraphileConfig.Preset): DispatchPolicyOptions | undefined {
  if (preset.dispatchPolicy) return preset.dispatchPolicy;
  return [...(preset.extends ?? [])]
    .reverse()
    .map(presetOptions)
    .find((found) => found !== undefined);
}

function workerSchemaOf(options: PolicyUtilsOptions): string {
  const inPreset = (preset: GraphileConfig.Preset): string | undefined =>
    preset.worker?.schema ??
    [...(preset.extends ?? [])]
      .reverse()
      .map(inPreset)
      .find((found) => found !== undefined);
  return (
    options.schema ??
    inPreset(options.preset ?? {}) ??
    process.env.GRAPHILE_WORKER_SCHEMA ??
    "graphile_worker"
  );
}

function assemble(
  worker: WorkerUtils,
  engine: Engine,
  settings: Settings,
  install: () => Promise<void>,
): PolicyUtils {
  const { withPgClient } = worker;
  const { registry, partitionBatchSize } = settings;
  const ticks: TickContext = {
    withPgClient,
    engine,
    registry,
    events: noEvents,
    partitionBatchSize,
  };
  const context = { withPgClient, engine };
  const adder = makeAdder(engine, registry, withPgClient);
  let released = false;
  const close = async () => {
    if (released) return;
    released = true;
    await worker.release();
  };
  return {
    ...worker,
    addJob: adder.addJob as AddJob,
    addJobs: adder.addJobs as unknown as AddJobs,
    async migrate() {
      await worker.migrate();
      await install();
    },
    ...jobFunctions(context, worker.cleanup, registry.policies),
    pause: (options) => pause(context, options),
    resume: (options) => resume(context, options),
    hold: (options) => hold(context, options),
    admit: (options) => admit(context, options),
    remove: (options) => remove(context, options),
    setLimit: (options) => setLimit(context, options),
    clearLimit: (options) => clearLimit(context, options),
    limits: (options) => limits(context, options),
    take: (options) => take(context, options),
    explain: (options) => explain(context, options),
    status: (options) => status(context, options),
    partitions: (query) => partitions(context, query),
    disable: (options) => switchPolicy(context, { ...options, enabled: false }),
    enable: (options) => switchPolicy(context, { ...options, enabled: true }),
    tick: (options) => tick(ticks, options),
    sweep: () => sweepFully({ ...ticks, partitionInactiveAfterMs: settings.partitionInactiveAfterMs }),
    // with anything else (the value of a promise it is the callback of) it closes, as in Graphile Worker
    releaseSlots: (options) => releaseSlots(context, options),
    release: ((options?: ReleaseSlotsOptions) =>
      isObject(options) && "jobId" in options
        ? releaseSlots(context, options)
        : close()) as PolicyUtils["release"],
    [Symbol.asyncDispose]: close,
  };
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
