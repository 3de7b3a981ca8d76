// The table of verbs, and how a method calls one. Commands (`cli/verb.ts`) and forms (`ui/pages/actions.ts`) derive from it.
import { call, callOrCount, type OperateContext, told } from "./call.ts";
import type { Changed } from "./targets.ts";
import { type AnyVerb, checkCall, type Verb } from "./verb.ts";
import { JOBS, type JobVerbs } from "./verbs/jobs.ts";
import { LIMITS, type LimitVerbs } from "./verbs/limits.ts";
import { POLICIES, type PolicyVerbs } from "./verbs/policies.ts";
import { STOPS, type StopVerbs } from "./verbs/stops.ts";

export interface Verbs extends StopVerbs, LimitVerbs, JobVerbs, PolicyVerbs {}

export type VerbName = keyof Verbs;

/** In the order of the command line's help. */
export const VERBS = { ...STOPS, ...LIMITS, ...JOBS, ...POLICIES } satisfies Record<VerbName, AnyVerb>;

/** The same, row by row. */
export const ROWS = Object.entries(VERBS) as readonly (readonly [VerbName, AnyVerb])[];

type OptionsOf<N extends VerbName> = (typeof VERBS)[N] extends Verb<infer O, object> ? O : never;
type ResultOf<N extends VerbName> = (typeof VERBS)[N] extends Verb<never, infer R> ? R : never;

/**
 * Calls a verb.
 *
 * @throws {ArgumentError} naming the verb, the option, the value and the expectation
 */
export async function runVerb<N extends VerbName>(
  context: OperateContext,
  name: N,
  options: OptionsOf<N>,
): Promise<ResultOf<N>> {
  const verb: Verb<object, Changed> = VERBS[name] as never;
  checkCall(name, verb, options);
  if (verb.run) return (await verb.run(context, options)) as ResultOf<N>;
  const { dryRun, ...given } = options as { dryRun?: boolean };
  const args = { ...(verb.args?.(options) ?? inSnakeCase(given)), dry_run: dryRun };
  const sql = verb.sql ?? snakeCase(name);
  const result = verb.dryRun
    ? await callOrCount<Changed>(context, sql, args)
    : await call<Changed>(context, sql, args);
  const event = dryRun ? undefined : verb.event?.(options, result);
  if (event) told(context, event[0], event[1] as never);
  return result as unknown as ResultOf<N>;
}

export const snakeCase = (name: string): string => name.replace(/[A-Z]/g, (one) => `_${one.toLowerCase()}`);
export const kebabCase = (name: string): string => name.replace(/[A-Z]/g, (one) => `-${one.toLowerCase()}`);

function inSnakeCase(options: object) {
  return Object.fromEntries(Object.entries(options).map(([name, value]) => [snakeCase(name), value]));
}
