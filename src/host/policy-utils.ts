import type { EventEmitter } from "node:events";
import type { RunnerOptions, WorkerEvents, WorkerUtils, WorkerUtilsOptions } from "graphile-worker";
import { makeWorkerUtils } from "graphile-worker";
import { declarePolicies } from "../admit/declare.ts";
import type { TickContext } from "../admit/tick.ts";
import { anEmitter, checkOptions, optional } from "../checks/options.ts";
import { type Engine, makeEngine } from "../db/engine.ts";
import { migrate } from "../db/migrate.ts";
import { quietPool } from "../db/quiet-pool.ts";
import { rethrowPlainly } from "../db/rethrow-plainly.ts";
import type { Pool } from "../db/stream-pool.ts";
import { type EventSink, safely } from "../events.ts";
import { ours } from "../log.ts";
import type { OperateContext } from "../operate/call.ts";
import { diff } from "../operate/diff.ts";
import { doctor } from "../operate/doctor.ts";
import { explain } from "../operate/explain.ts";
import { exportJobs } from "../operate/export.ts";
import { groups } from "../operate/groups.ts";
import { history } from "../operate/history.ts";
import { jobFunctions } from "../operate/jobs.ts";
import { limits } from "../operate/limits.ts";
import { partitions } from "../operate/look.ts";
import { figures, metrics, readIfAllowed } from "../operate/metrics.ts";
import type { Operate } from "../operate/operate.ts";
import { search } from "../operate/search.ts";
import { status } from "../operate/status.ts";
import { stops } from "../operate/stops.ts";
import { sweepFully } from "../operate/sweep.ts";
import type { ByPolicy } from "../operate/targets.ts";
import { tick } from "../operate/tick.ts";
import { uninstall } from "../operate/uninstall.ts";
import { ROWS, runVerb, type Verbs } from "../operate/verbs.ts";
import type { JobSpec } from "../policy/job.ts";
import { type AnyPolicy, isPolicy, type TaskIdentifier } from "../policy/policy.ts";
import { type DispatchPolicyOptions, readSettings, type Settings } from "../settings.ts";
import { makeAdder } from "../stage/adder.ts";
import type { AddJob, AddJobs } from "../stage/stage.ts";
import type { AddedJob } from "../stage/staged-job.ts";

/** Graphile Worker's options. `schema` is Graphile Worker's schema, `policySchema` this package's. */
export type PolicyUtilsOptions = {
  [K in keyof Omit<WorkerUtilsOptions, "events">]: WorkerUtilsOptions[K] | undefined;
} & {
  /**
   * The policies that this process knows, and declares. Jobs of other policies in the database are staged as well.
   * @default those of the preset in `preset`, else none
   */
  policies?: readonly AnyPolicy[] | undefined;
  /**
   * Graphile Worker's PostgreSQL schema.
   * @default that of the preset in `preset`, else `GRAPHILE_WORKER_SCHEMA` in the environment, else `"graphile_worker"`
   */
  schema?: string | undefined;
  /**
   * This package's PostgreSQL schema.
   * @default that of the preset in `preset`, else `DISPATCH_POLICY_SCHEMA` in the environment, else `"dispatch_policy"`
   */
  policySchema?: string | undefined;
  /**
   * The emitter of this package's events: what this process stages and changes, and its passes and sweeps. `policyEvents`
   * types its listeners.
   * @default `worker.events` of the preset in `preset`, else none
   */
  events?: EventEmitter | WorkerEvents | undefined;
};

/** Graphile Worker's utils, which stage jobs of tasks with a policy, and the verbs of this package. Usable as WorkerUtils. */
export interface PolicyUtils extends Operate, WorkerUtils {
  /**
   * Adds a job, by its policy or by its task's identifier. It is staged if the task has a policy, which these utils or the
   * database know. It goes to Graphile Worker if not: `staged` of the job says which.
   *
   * The `partition` is null if only a process that has the policy can work it out.
   *
   * @throws {PayloadError} if the payload fails the policy's schema or one of its functions; nothing is written
   * @throws {BacklogFullError} if the policy's `maxPending` is reached and it rejects
   * @example const { id, staged } = await utils.addJob("fetch_endpoint", { endpointId: "ep1", accountId: "acme" }, { priority: 5 });
   */
  addJob: AddJob;
  /**
   * Adds jobs of any tasks in one transaction, as {@link addJob} does. The result is in the order of the input.
   *
   * @throws {PayloadError} as {@link addJob}; none of the jobs is added then
   * @example await utils.addJobs([{ identifier: "fetch_endpoint", payload: { endpointId: "ep1", accountId: "acme" } }]);
   */
  addJobs: AddJobs;
  cleanup: Operate["cleanup"];
  rescheduleJobs: Operate["rescheduleJobs"];
  /**
   * Closes the connections, as in Graphile Worker. To free the slots of a job, call `releaseSlots`.
   *
   * @example await utils.release();
   */
  release(): Promise<void>;
  /** The same as `release()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Graphile Worker's `makeWorkerUtils` with policies: `addJob` and `addJobs` stage jobs of tasks that have a policy, and
 * pass the others on. It migrates both schemas, and records the policies. Call `release()` when done.
 *
 * @throws {ArgumentError} if an option is unknown, or one of this package is wrong; for its own options, Graphile Worker's
 * errors
 * @throws {MissingGrantError} if the connected role may not migrate or declare
 * @example
 * const utils = await makePolicyUtils({ connectionString, policies: [fetchEndpoint] });
 * await utils.addJob(fetchEndpoint, { endpointId: "ep1", accountId: "acme" });
 * await utils.release();
 */
export async function makePolicyUtils(options: PolicyUtilsOptions): Promise<PolicyUtils> {
  checkUtilsOptions("makePolicyUtils", options);
  const settings = utilsSettings(options);
  const worker = await openWorkerUtils(options).catch((error) => rethrowPlainly(error, settings.schema));
  try {
    const engine = makeEngine(settings.schema);
    const install = () => installSchema(worker, settings, workerSchemaOf(options));
    await install();
    await declarePolicies(worker.withPgClient, engine, settings, ours(worker.logger));
    return assemble(
      worker,
      engine,
      settings,
      install,
      safely(eventsOf(options), () => ours(worker.logger)),
    );
  } catch (error) {
    await worker.release();
    throw error;
  }
}

/**
 * Adds one job, and closes its connections: for scripts. A program should make utils once instead.
 *
 * It sets up both schemas if need be. The job is staged if its task has a policy in `policies` or in the database.
 *
 * @throws as {@link PolicyUtils.addJob}
 * @example
 * const job = { endpointId: "ep1", accountId: "acme" };
 * await addJobAdhoc({ connectionString, policies: [fetchEndpoint] }, "fetch_endpoint", job);
 */
export async function addJobAdhoc<T extends TaskIdentifier = string>(
  options: PolicyUtilsOptions,
  identifier: T,
  payload: T extends keyof GraphileWorker.Tasks ? GraphileWorker.Tasks[T] : unknown,
  spec: JobSpec = {},
): Promise<AddedJob> {
  checkUtilsOptions("addJobAdhoc", options);
  const utils = await makePolicyUtils(options);
  try {
    return await utils.addJob(identifier, payload as never, spec);
  } finally {
    await utils.release();
  }
}

/**
 * {@link addJobAdhoc} under its old name.
 *
 * @deprecated Graphile Worker found the name misleading; use `addJobAdhoc`.
 */
export const quickAddJob = addJobAdhoc;

async function openWorkerUtils(options: PolicyUtilsOptions): Promise<WorkerUtils> {
  const { policies: _p, policySchema: _s, ...workerOptions } = options;
  const pool = options.pgPool ? undefined : ownPool(options);
  if (pool === undefined) return makeWorkerUtils(workerOptions as WorkerUtilsOptions);
  const end = () => void pool.end();
  try {
    const { connectionString: _c, ...there } = workerOptions;
    const worker = await makeWorkerUtils({ ...there, pgPool: pool } as WorkerUtilsOptions);
    const release = async () => {
      try {
        await worker.release();
      } finally {
        end();
      }
    };
    return { ...worker, release };
  } catch (error) {
    end();
    throw error;
  }
}

/** Graphile Worker's own would end the process if it lost a connection while it ends. */
function ownPool({ connectionString, preset = {}, maxPoolSize }: PolicyUtilsOptions): Pool | undefined {
  const place = connectionString ?? inPreset(preset, "connectionString") ?? process.env.DATABASE_URL;
  if (!place && !process.env.PGDATABASE) return undefined; // it says so
  return quietPool({
    ...(place && { connectionString: place }),
    max: maxPoolSize ?? inPreset(preset, "maxPoolSize") ?? 10,
  });
}

function installSchema(worker: WorkerUtils, settings: Settings, workerSchema: string): Promise<void> {
  return worker.withPgClient((client) => migrate(client, { workerSchema, schema: settings.schema }));
}

/** This package's options, and those that Graphile Worker takes from whoever shares them with `run`. */
const OPTIONS = Object.keys({
  policies: true,
  policySchema: true,
  connectionString: true,
  pgPool: true,
  preset: true,
  schema: true,
  logger: true,
  maxPoolSize: true,
  events: true,
  forbiddenFlags: true,
  noPreparedStatements: true,
  useNodeTime: true,
  gracefulShutdownAbortTimeout: true,
  minResetLockedInterval: true,
  maxResetLockedInterval: true,
  pollInterval: true,
  concurrency: true,
  noHandleSignals: true,
  taskList: true,
  taskDirectory: true,
  crontab: true,
  crontabFile: true,
  parsedCronItems: true,
} satisfies Record<keyof PolicyUtilsOptions | keyof RunnerOptions, true>);

/** @throws {ArgumentError} naming an unknown option and the nearest right one, or `events` if it is no emitter */
export function checkUtilsOptions(owner: string, options: unknown): void {
  checkOptions(owner, options, OPTIONS);
  optional(`${owner}: events`, options.events, anEmitter);
}

/** The settings of a process that adds or operates: its preset's, unless other options replace them. */
export function utilsSettings(options: PolicyUtilsOptions): Settings {
  const fromPreset = presetOptions(options.preset ?? {});
  const policies = options.policies ?? fromPreset?.policies ?? [];
  const schema = options.policySchema ?? fromPreset?.schema;
  return readSettings({ ...fromPreset, policies, schema }, fromPreset !== undefined);
}

/** Finds this package's options in a preset and those it extends. The outermost go first, as in graphile-config. */
function presetOptions(preset: GraphileConfig.Preset): DispatchPolicyOptions | undefined {
  if (preset.dispatchPolicy) return preset.dispatchPolicy;
  return [...(preset.extends ?? [])]
    .reverse()
    .map(presetOptions)
    .find((found) => found !== undefined);
}

/** An option of Graphile Worker in a preset and those it extends. */
function inPreset<K extends "schema" | "events" | "connectionString" | "maxPoolSize">(
  preset: GraphileConfig.Preset,
  option: K,
): GraphileConfig.WorkerOptions[K] | undefined {
  return (
    preset.worker?.[option] ??
    [...(preset.extends ?? [])]
      .reverse()
      .map((one) => inPreset(one, option))
      .find((found) => found !== undefined)
  );
}

/** The emitter of a process that adds or operates. */
export function eventsOf({ events, preset }: PolicyUtilsOptions): EventEmitter | WorkerEvents | undefined {
  return events ?? inPreset(preset ?? {}, "events");
}

function workerSchemaOf(options: PolicyUtilsOptions): string {
  return (
    options.schema ??
    inPreset(options.preset ?? {}, "schema") ??
    process.env.GRAPHILE_WORKER_SCHEMA ??
    "graphile_worker"
  );
}

/** It is long because each method has a line. */
function assemble(
  worker: WorkerUtils,
  engine: Engine,
  settings: Settings,
  install: () => Promise<void>,
  events: EventSink,
): PolicyUtils {
  const { withPgClient } = worker;
  const { registry, partitionBatchSize } = settings;
  const logger = ours(worker.logger);
  const ticks: TickContext = { withPgClient, engine, registry, events, logger, partitionBatchSize };
  const context: OperateContext = { withPgClient, engine, events, registry };
  const adder = makeAdder(engine, registry, withPgClient, events);
  const verbs = Object.fromEntries(
    ROWS.map(([name]) => [
      name,
      async (options: object) => runVerb(context, name, named<object>(options as ByPolicy<object>) as never),
    ]),
  ) as unknown as Verbs;
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
    ...jobFunctions(context, worker.cleanup),
    ...verbs,
    export: (options) => exportJobs(context, named(options)),
    uninstall: (options) => uninstall(context, options),
    limits: (options) => limits(context, named(options)),
    diff: (options) => diff(context, named(options)),
    stops: (options) => stops(context, named(options)),
    explain: async (options) => {
      if ("id" in options) await readIfAllowed(context); // its history and its groups are part of the answer
      return explain(context, named(options));
    },
    search: (query) => search(context, query),
    history: async (query) => {
      await readIfAllowed(context);
      return history(context, named(query));
    },
    groups: async (query) => {
      await readIfAllowed(context);
      return groups(context, query);
    },
    doctor: (options) => doctor(context, options),
    metrics: () => metrics(context),
    figures: () => figures(context),
    status: (options) => status(context, named(options)),
    partitions: (query) => partitions(context, named(query)),
    tick: (options) => tick(ticks, named(options)),
    sweep: () => sweepFully({ ...ticks, logger, ages: settings }),
    release: close,
    [Symbol.asyncDispose]: close,
  };
}

/** The options with the name of each policy that stands in the place of one. Verbs know policies by their names. */
function named<Options>(options: ByPolicy<Options>): Options;
function named<Options>(options: ByPolicy<Options> | undefined): Options | undefined;
function named(options: unknown): unknown {
  const given = Object.entries(isObject(options) ? options : {}).filter(
    ([option, value]) => ["policy", "toPolicy", "into"].includes(option) && isPolicy(value),
  );
  if (given.length === 0) return options;
  return {
    ...(options as object),
    ...Object.fromEntries(given.map(([option, { identifier }]) => [option, identifier])),
  };
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
