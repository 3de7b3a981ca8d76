import {
  aDate,
  callOption,
  check,
  checkReturned,
  numberFromZero,
  positiveNumber,
  type Rule,
  text,
} from "../checks/options.ts";
import { asStored } from "../checks/payload-flaw.ts";
import { ArgumentError, PayloadError } from "../errors.ts";
import { aClass, classedWeight } from "./class.ts";
import type { ContextFunction, Declaration } from "./declaration.ts";
import { checkFlags, type JobSpecification, jobInfo } from "./job.ts";
import { checkJsonObject, type JsonObject } from "./json.ts";
import { keyFromPaths, keyText } from "./key.ts";
import { compileLimits, haveLanes, laneOf, type ResolvedLimit } from "./limits.ts";
import { parsePayload } from "./payload.ts";

/** Everything that a policy says about one job. It is sent to the database with the job. */
export interface ResolvedJob {
  readonly policy: string;
  readonly version: number;
  readonly partition: string;
  /** See {@link laneOf}. */
  readonly lane: string | null;
  readonly shard: string;
  readonly context: JsonObject;
  /** With its class, see {@link classedWeight}. */
  readonly weight: number;
  readonly cost: number;
  /** Its own deadline, if its policy's context gives deadlines; null: it has none. */
  readonly deadline?: Date | null;
  /** In the gates' order. Frozen. One list for all jobs if no limit depends on the context. */
  readonly limits: readonly ResolvedLimit[];
}

/** The part of a {@link ResolvedJob} that follows from the partition's context alone. */
export type ResolvedPartition = Pick<ResolvedJob, "limits" | "lane" | "weight" | "shard">;

/** A declaration's two questions, compiled once. */
export interface Resolver {
  job(payload: unknown, spec: JobSpecification): ResolvedJob;
  partition(context: JsonObject): ResolvedPartition;
}

const NO_CONTEXT: JsonObject = Object.freeze({});
const shardName = text(255);

export function compileResolver(declaration: Declaration): Resolver {
  const { name, version, schema } = declaration;
  const partitionOf = compilePartition(declaration);
  const costOf = compileNumber("cost", declaration.cost, numberFromZero);
  const deadlineOf = compileDeadline(declaration.deadline);
  const ofContext = compileOfContext(declaration);

  const resolve = (payload: unknown, spec: JobSpecification): ResolvedJob => {
    if (spec.flags !== undefined) checkFlags("flags", spec.flags);
    const stored = asStored(payload);
    const parsed = schema === undefined ? stored : parsePayload(name, schema, stored, stored === payload);
    const context = contextOf(declaration, parsed, spec);
    const partition = partitionOf(context, stored);
    const { limits, lane, weight, shard } = ofContext(context);
    const cost = costOf(context);
    const resolved = { policy: name, version, partition, lane, shard, context, weight, cost, limits };
    return deadlineOf === null ? resolved : { ...resolved, deadline: deadlineOf(context) };
  };
  return {
    job: (payload, spec) => refusing(name, () => resolve(payload, spec)),
    partition: (context) => refusing(name, () => ofContext(context)),
  };
}

/** Turns the error about a value into the refusal of the job, which names the policy. */
function refusing<T>(policy: string, resolve: () => T): T {
  try {
    return resolve();
  } catch (error) {
    if (!(error instanceof ArgumentError)) throw error;
    throw new PayloadError(policy, error.message, { cause: error.cause });
  }
}

function contextOf({ context, job }: Declaration, payload: unknown, spec: JobSpecification): JsonObject {
  if (context === undefined) return NO_CONTEXT;
  const value = callOption("context", context, payload, jobInfo(spec, job));
  checkJsonObject("context", value);
  return value;
}

/** Paths lead into the payload as it is stored, so that SQL finds the same key; functions see the context. */
function compilePartition({ partitionBy }: Declaration): (ctx: JsonObject, payload: unknown) => string {
  if (typeof partitionBy === "function")
    return (ctx) => keyText("partitionBy", callOption("partitionBy", partitionBy, ctx));
  const paths = partitionBy.map((path) => path.split("."));
  return (_ctx, payload) => keyFromPaths(paths, payload);
}

function compileOfContext(declaration: Declaration): (ctx: JsonObject) => ResolvedPartition {
  const limitsOf = compileLimits(declaration.gates);
  const weightOf = compileNumber("weight", declaration.weight, positiveNumber);
  const classOf = declaration.class === null ? null : compileNumber("class", declaration.class, aClass);
  const shardOf = compileShard(declaration.shardBy);
  const hasLanes = haveLanes(declaration.gates);
  return (ctx) => {
    const limits = limitsOf(ctx);
    const jobClass = classOf === null ? 0 : classOf(ctx);
    const weight = classedWeight(weightOf(ctx), jobClass);
    const lane = hasLanes || jobClass > 0 ? laneOf(limits, weight) : null;
    return { limits, lane, weight, shard: shardOf(ctx) };
  };
}

function compileNumber(
  option: string,
  value: number | ContextFunction,
  rule: Rule,
): (ctx: JsonObject) => number {
  if (typeof value === "number") return () => value;
  return (ctx) => {
    const number = callOption(option, value, ctx);
    if (!rule.accepts(number)) checkReturned(`${option} returned by its function`, number, rule);
    return number as number;
  };
}

/** JavaScript reads a text without an offset as local time, which differs between processes. */
const OFFSET = /T.*(?:Z|[+-]\d\d:?\d\d)$/;

const aDeadline: Rule = {
  expects: 'a valid Date, a text in ISO 8601 with its offset, such as "2026-12-01T09:00:00Z", or null',
  accepts: (value) =>
    aDate.accepts(value) ||
    (typeof value === "string" && OFFSET.test(value) && !Number.isNaN(Date.parse(value))),
};

function compileDeadline(deadline: ContextFunction | null): ((ctx: JsonObject) => Date | null) | null {
  if (deadline === null) return null;
  return (ctx) => {
    const value = callOption("order: deadline", deadline, ctx);
    if (value === null || value === undefined) return null;
    if (!aDeadline.accepts(value)) checkReturned("deadline returned by its function", value, aDeadline);
    return new Date(value as Date | string);
  };
}

function compileShard(shardBy: ContextFunction | undefined): (ctx: JsonObject) => string {
  if (shardBy === undefined) return () => DEFAULT_SHARD;
  return (ctx) => {
    const shard = callOption("shardBy", shardBy, ctx);
    check("shard returned by shardBy", shard, shardName);
    return shard as string;
  };
}

export const DEFAULT_SHARD = "default";
