import type { Logger, WithPgClient } from "graphile-worker";
import { show } from "../checks/options.ts";
import type { Engine } from "../db/engine.ts";
import { isLockTimeout } from "../db/outage.ts";
import { type AnyPolicy, definitionHash, policyDefinition, resolveLimits } from "../policy/policy.ts";
import { policySettings, type Settings } from "../settings.ts";

/** When this process started: at equal versions the process that started last declares what holds. */
const STARTED_AT = new Date(Date.now() - performance.now());
const PAGE = 1000;

/** Records this process's policies in the database; partitions of a policy that changed are resolved anew. */
export async function declarePolicies(
  withPgClient: WithPgClient,
  engine: Engine,
  settings: Settings,
  logger: Logger,
): Promise<void> {
  for (const policy of settings.registry.policies) {
    const definition = policyDefinition(policy);
    const own = policySettings(policy, settings);
    const hash = definitionHash(definition);
    const declare = () => withPgClient((client) => engine.declare(client, definition, hash, own, STARTED_AT));
    const { in_force, changed } = await withPatience(declare, () =>
      logger.warn(
        `Cannot declare policy "${policy.identifier}" yet: another transaction has it locked, such as a pause that is ` +
          "not committed. Trying again",
      ),
    );
    if (in_force && changed) await resolveAgain(withPgClient, engine, policy, logger);
  }
}

/** Again and again while somebody holds a lock that it needs. */
async function withPatience<T>(act: () => Promise<T>, onLocked: () => void): Promise<T> {
  for (;;) {
    try {
      return await act();
    } catch (error) {
      if (!isLockTimeout(error)) throw error;
      onLocked();
    }
  }
}

/**
 * From the stored contexts, a page at a time; the router applies what comes of it like any arrival. Contexts of earlier
 * definitions may lack what the new one reads: such a partition keeps its limits until its next job brings a new context.
 */
async function resolveAgain(
  withPgClient: WithPgClient,
  engine: Engine,
  policy: AnyPolicy,
  logger: Logger,
): Promise<void> {
  const { version } = policyDefinition(policy);
  const failed: { key: string; error: unknown }[] = [];
  let looked = 0;
  let after: string | null = null;
  for (;;) {
    const page = await withPgClient((client) =>
      engine.partitionsAfter(client, policy.identifier, after, PAGE),
    );
    const last = page.at(-1);
    if (!last) break;
    const partitions: object[] = [];
    for (const { key, context } of page) {
      try {
        partitions.push({ key, context, ...resolveLimits(policy, context) });
      } catch (error) {
        failed.push({ key, error });
      }
    }
    if (partitions.length > 0)
      await withPgClient((client) => engine.resolveAgain(client, policy.identifier, version, partitions));
    looked += page.length;
    after = last.id;
  }
  const [first] = failed;
  if (first) {
    logger.warn(
      `The definition of policy "${policy.identifier}" has changed, and of ${looked} partitions ${failed.length} keep ` +
        "the limits they had until their next job is added: the new ones cannot be worked out from the stored " +
        `contexts. The first is ${show(first.key)}: ${first.error instanceof Error ? first.error.message : String(first.error)}`,
      { error: first.error },
    );
  }
}
