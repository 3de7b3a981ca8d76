// biome-ignore-all lint/suspicious/noExplicitAny: only any stands for "a policy of whatever payload and context"

import type { Job, Task } from "graphile-worker";
import { callOption, declaring, show } from "../checks/options.ts";
import { ArgumentError } from "../errors.ts";
import { type ResolvedBackoff, readBackoff } from "./backoff-answer.ts";
import { type Declaration, readDeclaration } from "./declaration.ts";
import { describeDeclaration, type PolicyDefinition } from "./definition.ts";
import { checkIdentifier, type JobSpecification } from "./job.ts";
import type { JsonObject, JsonOf } from "./json.ts";
import type { PayloadIn, PayloadOut, PolicyOptions } from "./options.ts";
import { compileResolver, type ResolvedJob, type ResolvedPartition, type Resolver } from "./resolve.ts";
import type { StandardSchema } from "./standard-schema.ts";
import { makeTask, type RunTask } from "./task.ts";

export type { Duration } from "../duration.ts";
export type { Backoff, BackoffFunction } from "./backoff.ts";
export type { ResolvedBackoff } from "./backoff-answer.ts";
export { definitionHash, type PolicyDefinition } from "./definition.ts";
export {
  type JobDefaults,
  type JobInfo,
  type JobSpecification,
  RESERVED_FLAG,
  readSpecification,
} from "./job.ts";
export type { Json, JsonObject } from "./json.ts";
export type { ResolvedLimit } from "./limits.ts";
export type { PayloadIn, PayloadOut, PayloadPath, PolicyOptions } from "./options.ts";
export type { ResolvedJob, ResolvedPartition } from "./resolve.ts";
export type { DispatchPolicyHelpers, PolicyJobHelpers, Until } from "./task.ts";

/** A task identifier. Editors suggest the registered ones; any other is allowed. */
export type TaskIdentifier = keyof GraphileWorker.Tasks | (string & {});

/** A declared policy, made by `definePolicy`: give it to the preset, add jobs with it, make its task with it. Frozen. */
export interface Policy<out Id extends string = string, In = any, Out = any, C = any> {
  /** The policy's name. It is also the task that the policy governs, unless `tasks` names others. */
  readonly identifier: Id;
  /**
   * Makes the Graphile Worker task: `run` gets the payload as its schema returns it, and `helpers.dispatchPolicy`.
   *
   * The task throws {@link UnwrappedTaskError} in a worker that has neither the preset nor wrapped tasks. It throws
   * {@link PayloadError} if a job that was added past the policy fails the schema.
   *
   * @example
   * export default fetchEndpoint.task(async ({ endpointId }, helpers) => {
   *   helpers.logger.info(`asking ${endpointId}, attempt ${helpers.dispatchPolicy.attempt}`);
   * });
   */
  task(run: RunTask<Out>): Task<any>;
  readonly "~types"?: { in: In; out: Out; context: C };
  /** For this package only. */
  readonly "~policy": { readonly declaration: Declaration; readonly resolver: Resolver };
}

/** A policy of whatever payload and context. */
export type AnyPolicy = Policy<string, any, any, any>;

/** The type of the payload that a policy's jobs are added with. */
export type PolicyPayload<P extends AnyPolicy> = NonNullable<P["~types"]>["in"];

/**
 * Declares how the jobs of a task are split into partitions, and which gates limit them.
 *
 * The first argument is the task's identifier, at most 128 characters. With `tasks`, it is a name for a policy over
 * several tasks. {@link PolicyOptions} describes the options.
 *
 * @throws {PolicyDefinitionError} if an option is missing, unknown or of another form
 * @example
 * export const fetchEndpoint = definePolicy("fetch_endpoint", {
 *   payload: z.object({ endpointId: z.string(), ratePerMinute: z.number() }),
 *   context: (payload) => ({ endpoint: payload.endpointId, rate: payload.ratePerMinute }),
 *   partitionBy: (ctx) => ctx.endpoint,
 *   gates: ({ throttle, concurrency }) => [
 *     throttle({ rate: (ctx) => ctx.rate, per: "1 minute" }),
 *     concurrency({ max: 5 }),
 *   ],
 * });
 */
// One signature without overloads: with them TypeScript 7 reports every wrong option as
// "ZodObject is not assignable to undefined" at `payload`.
export function definePolicy<
  const Id extends string, // not `keyof GraphileWorker.Tasks | …`: that alone makes a circle in TypeScript 7
  S extends StandardSchema<any, any> | undefined = undefined,
  // biome-ignore lint/complexity/noBannedTypes: a context that was not declared has nothing to read
  C extends JsonOf<C> = {},
>(identifier: Id, options: PolicyOptions<Id, S, C>): Policy<Id, PayloadIn<Id, S>, PayloadOut<Id, S>, C> {
  declaring("", () => checkIdentifier("the first argument of definePolicy", identifier));
  const declaration = declaring(`policy "${identifier}": `, () => readDeclaration(identifier, options));
  const resolver = compileResolver(declaration);
  return Object.freeze({
    identifier,
    task: (run: RunTask<never>) => makeTask(declaration, run),
    "~policy": Object.freeze({ declaration, resolver }),
  });
}

export function isPolicy(value: unknown): value is AnyPolicy {
  return typeof value === "object" && value !== null && "~policy" in value;
}

/** The task identifiers that a policy governs. */
export function tasksOf(policy: AnyPolicy): readonly string[] {
  return declarationOf(policy).tasks;
}

const definitions = new WeakMap<Declaration, PolicyDefinition>();

/** A policy as JSON. Made once, because it hashes every function's text and each added job needs it. */
export function policyDefinition(policy: AnyPolicy): PolicyDefinition {
  const declaration = declarationOf(policy);
  let definition = definitions.get(declaration);
  if (!definition) {
    definition = Object.freeze(describeDeclaration(declaration));
    definitions.set(declaration, definition);
  }
  return definition;
}

/**
 * Everything that the policy says about a job that is to be added.
 *
 * @throws {PayloadError} if the payload fails the schema, or a function of the policy throws or returns an unusable value
 */
export function resolveJob(policy: AnyPolicy, payload: unknown, spec: JobSpecification): ResolvedJob {
  return internals(policy).resolver.job(payload, spec);
}

/**
 * A partition's limits, weight and shard, worked out again from its stored context.
 *
 * @throws {PayloadError} as {@link resolveJob}
 */
export function resolveLimits(policy: AnyPolicy, context: JsonObject): ResolvedPartition {
  return internals(policy).resolver.partition(context);
}

/**
 * How long a failed job waits. `false`: it is not retried. Null: the policy has no `backoff`, so Graphile Worker's counts.
 *
 * @throws {PolicyDefinitionError} if `backoff` throws, or returns no back-off
 */
export function resolveBackoff(
  policy: AnyPolicy,
  error: unknown,
  attempt: number,
  job: Job,
): ResolvedBackoff | false | null {
  const { name, backoff } = declarationOf(policy);
  if (backoff === undefined) return null;
  return declaring(`policy "${name}": `, () =>
    readBackoff(callOption("backoff", backoff, error, attempt, job)),
  );
}

function declarationOf(policy: AnyPolicy): Declaration {
  return internals(policy).declaration;
}

function internals(policy: AnyPolicy): AnyPolicy["~policy"] {
  if (!isPolicy(policy))
    throw new ArgumentError(`expected a policy made by definePolicy, got ${show(policy)}`);
  return policy["~policy"];
}
