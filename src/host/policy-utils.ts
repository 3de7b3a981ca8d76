import type { WorkerUtils, WorkerUtilsOptions } from "graphile-worker";
import { makeWorkerUtils } from "graphile-worker";
import { declarePolicies } from "../admit/declare.ts";
import type { TickContext } from "../admit/tick.ts";
import { type Engine, makeEngine } from "../db/engine.ts";
import { migrate } from "../db/migrate.ts";
import { noEvents } from "../events.ts";
import { admit } from "../operate/admit.ts";
import { hold } from "../operate/hold.ts";
import { jobFunctions } from "../operate/jobs.ts";
import { clearLimit, limits, setLimit } from "../operate/limits.ts";
import { explain, partitions } from "../operate/look.ts";
import type { Operate } from "../operate/operate.ts";
import { pause } from "../operate/pause.ts";
import { type ReleaseSlotsOptions, releaseSlots } from "../operate/release-slots.ts";
import { remove } from "../operate/remove.ts";
import { resume } from "../operate/resume.ts";
import { status } from "../operate/status.ts";
import { sweepFully } from "../operate/sweep.ts";
import { switchPolicy } from "../operate/switch.ts";
import { take } from "../operate/take.ts";
import type { Changed } from "../operate/targets.ts";
import { tick } from "../operate/tick.ts";
import type { AnyPolicy, TaskIdentifier } from "../policy/policy.ts";
import { type DispatchPolicyOptions, readSettings, type Settings } from "../settings.ts";
import { makeAdder } from "../stage/adder.ts";
import type { AddJob, AddJobs, JobSpec } from "../stage/stage.ts";
import type { AddedJob } from "../stage/staged-job.ts";

/** Graphile Worker's `schema` stays its schema; ours is `policySchema`. `policies` may come from the preset. */
export type PolicyUtilsOptions = { [K in keyof WorkerUtilsOptions]: WorkerUtilsOptions[K] | undefined } & {
  policies?: readonly AnyPolicy[] | undefined;
  policySchema?: string | undefined;
};

/** Graphile Worker's utils, policy-aware, and the verbs of this package. Stands in wherever WorkerUtils is expected. */
export interface PolicyUtils extends Operate, WorkerUtils {
  /**
   * Adds a job, by its policy or by its task's identifier. It is staged if the task has a policy that these utils know, and
   * goes to Graphile Worker if not: `staged` of the job says which.
   *
   * @throws {PayloadError} if the payload fails the policy's schema or one of its functions; nothing is written
   * @throws {BacklogFullError} if the policy's `maxPending` is reached and it rejects
   * @example const { id, staged } = await utils.addJob("fetch_endpoint", { endpointId: "ep1", accountId: "acme" }, { priority: 5 });
   */
  addJob: AddJob;
  /**
   * Adds jobs of any tasks in one transaction, as {@link addJob} does; the result is in the order of the input.
   *
   * @throws {PayloadError} as {@link addJob}; then none of the jobs is added
   * @example await utils.addJobs([{ identifier: "fetch_endpoint", payload: { endpointId: "ep1", accountId: "acme" } }]);
   */
  addJobs: AddJobs;
  cleanup: Operate["cleanup"];
  /**
   * Gives up the connections, as in Graphile Worker. To give back the slots of a job, call `releaseSlots`.
   *
   * @example await utils.release();
   */
  release(): Promise<void>;
  /** @deprecated Use `releaseSlots`. */
  release(options: ReleaseSlotsOptions): Promise<Changed>;
  /** As `release()`: for `await using`. */
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
