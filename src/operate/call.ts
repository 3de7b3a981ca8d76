import type { WithPgClient } from "graphile-worker";
import { type Arguments, type Engine, makeEngine, type Queryable } from "../db/engine.ts";
import { rethrowPlainly } from "../db/rethrow-plainly.ts";
import { BAD_ARGUMENT, IN_USE, saidBySql, UNKNOWN_POLICY } from "../db/sqlstates.ts";
import { ArgumentError, RemovalError, UnknownPolicyError } from "../errors.ts";
import { type EventSink, emit, type PolicyEventMap } from "../events.ts";
import type { AnyPolicy } from "../policy/policy.ts";
import { makeRegistry, type Registry } from "../policy/registry.ts";
import type { Changed, Reach, Why } from "./targets.ts";

/** The context of every verb. */
export interface OperateContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
  /** The policies of the process. Default: it has none. */
  readonly registry?: Registry | undefined;
  /** Told of what verbs did. Default: nobody is. */
  readonly events?: EventSink | undefined;
  /** The form of the admin pages for which verbs are called. Default: they are called for none. */
  readonly form?: CallingForm | undefined;
}

/** Each call that changes something has a name in the audit, which no other call may have. */
export interface CallingForm {
  readonly name: string;
  /** How many calls have been made. */
  calls: number;
}

/** That of whoever only has connections to one of this package's schemas: pages and commands. */
export function makeContext(
  schema: string,
  withPgClient: WithPgClient,
  policies: readonly AnyPolicy[] = [],
): OperateContext {
  return { withPgClient, engine: makeEngine(schema), registry: makeRegistry(policies) };
}

/** Calls a verb's SQL function. A refusal becomes this package's error, with the database's as its cause. */
export async function call<T>(context: OperateContext, verb: string, args: Arguments): Promise<T> {
  const form = args.dry_run ? undefined : context.form;
  const name = form && `${form.name}.${form.calls}`;
  const [row] = await answered(context, (client) => context.engine.call<T>(client, verb, args, name));
  if (form) form.calls++;
  return row as T;
}

/** Asks the database on a connection of the context. A refusal becomes this package's error. */
export function answered<T>(context: OperateContext, ask: (client: Queryable) => Promise<T>): Promise<T> {
  return asOurs(() => context.withPgClient(ask), context);
}

/** The same for a verb whose dry run says what it concerns. Of a call that is no dry run, SQL leaves that out. */
export async function callOrCount<T extends Changed>(
  context: OperateContext,
  verb: string,
  args: Arguments,
): Promise<T & Reach> {
  const row = await call<T & Record<"partitions" | "staged" | "in_flight", number | null>>(
    context,
    verb,
    args,
  );
  const { partitions, staged, in_flight: inFlight, ...result } = row;
  return (args.dry_run ? { ...result, partitions, staged, inFlight } : result) as unknown as T & Reach;
}

/** Tells listeners of a call that is committed. Its row in the audit says the same. */
export function told<K extends keyof PolicyEventMap>(
  { events }: OperateContext,
  name: K,
  event: PolicyEventMap[K],
): void {
  if (events) emit(events, name, event);
}

/** The part that the events of verbs share. */
export function actOf({ matched, changed }: Changed, { by, reason }: Why) {
  return { matched, changed, by: by ?? null, reason: reason ?? null };
}

/** The policy or partition that a call named. */
export function aimOf(options: object) {
  const { policy, partition } = options as { policy?: string; partition?: string };
  return { policy: policy ?? null, partition: partition ?? null };
}

/** @throws {UnknownPolicyError} for a policy that nobody declared; it lists the known ones */
export async function checkPolicy(client: Queryable, engine: Engine, policy?: string): Promise<void> {
  if (policy === undefined) return;
  const known = await engine.policyNames(client);
  if (!known.includes(policy)) throw new UnknownPolicyError(policy, known);
}

/** Runs a call of SQL. Its refusals become this package's errors. */
export async function asOurs<T>(run: () => Promise<T>, { withPgClient, engine }: OperateContext): Promise<T> {
  try {
    return await run();
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    if (code === UNKNOWN_POLICY) {
      const known = await withPgClient(engine.policyNames);
      throw new UnknownPolicyError(/unknown policy '?(.*?)'?;/.exec(message)?.[1] ?? "", known, {
        cause: error,
      });
    }
    if (BAD_ARGUMENT.has(code)) {
      throw new ArgumentError(saidBySql(message), { cause: error });
    }
    if (code === IN_USE) {
      throw new RemovalError(saidBySql(message), { cause: error });
    }
    rethrowPlainly(error, engine.schemaName);
  }
}
