import type { WithPgClient } from "graphile-worker";
import type { Engine, Queryable } from "../db/engine.ts";
import { ArgumentError, UnknownPolicyError } from "../errors.ts";

/** What every verb works with. */
export interface OperateContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
}

/** Calls a verb's SQL function; what it refuses becomes this package's error, with the database's as its cause. */
export async function call<T>(
  { withPgClient, engine }: OperateContext,
  verb: string,
  args: Record<string, unknown>,
): Promise<T> {
  const [row] = await asOurs(() => withPgClient((client) => engine.call<T>(client, verb, args)), {
    withPgClient,
    engine,
  });
  return row as T;
}

/** @throws {UnknownPolicyError} for a policy nobody declared, listing the known ones */
export async function checkPolicy(client: Queryable, engine: Engine, policy?: string): Promise<void> {
  if (policy === undefined) return;
  const known = await engine.policyNames(client);
  if (!known.includes(policy)) throw new UnknownPolicyError(policy, known);
}

/** Error codes that sql/functions raise. */
const UNKNOWN_POLICY = "DPPOL";
const BAD_ARGUMENT = new Set(["DPARG", "DPKEY"]);

/** Runs what calls SQL; its refusals become this package's errors. */
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
    if (code !== undefined && BAD_ARGUMENT.has(code)) {
      throw new ArgumentError(message.replace(/^dispatch_policy: /, ""), { cause: error });
    }
    throw error;
  }
}
