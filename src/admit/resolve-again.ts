import type { WithPgClient } from "graphile-worker";
import { show } from "../checks/options.ts";
import type { Engine } from "../db/engine.ts";
import { errorText } from "../error-text.ts";
import type { Logger } from "../log.ts";
import { type AnyPolicy, definitionHash, policyDefinition, resolveLimits } from "../policy/policy.ts";
import type { Registry } from "../policy/registry.ts";

const PAGE = 1000;

/**
 * Works out again the limits of those policies of this process whose definition has changed. A process that began may have
 * been killed, so another one that has the same definition goes on from where it was.
 */
export async function goOnResolving(
  withPgClient: WithPgClient,
  engine: Engine,
  { registry }: { readonly registry: Registry },
  logger: Logger,
): Promise<void> {
  for (const resolution of await withPgClient(engine.resolutions)) {
    const policy = registry.policies.find(({ identifier }) => identifier === resolution.policy);
    if (policy && definitionHash(policyDefinition(policy)) === resolution.hash)
      await resolveAgain(withPgClient, engine, policy, resolution, logger);
  }
}

/**
 * Works out limits from the stored contexts, a page at a time. The router applies them like any arrival.
 *
 * A context of an earlier definition may lack a value that the new one reads. Such a partition keeps its limits until its
 * next job brings a new context.
 */
async function resolveAgain(
  withPgClient: WithPgClient,
  engine: Engine,
  policy: AnyPolicy,
  resolution: { policy: string; hash: string; after: string | null },
  logger: Logger,
): Promise<void> {
  const failed: { key: string; error: unknown }[] = [];
  let read = 0;
  let { after } = resolution;
  for (;;) {
    const from = after;
    const page = await withPgClient((client) =>
      engine.partitionsToResolve(client, policy.identifier, from, PAGE),
    );
    const partitions: object[] = [];
    for (const { id, key, context, arrival_id: arrivalId } of page) {
      try {
        partitions.push({ id, key, context, arrivalId, ...resolveLimits(policy, context) });
      } catch (error) {
        failed.push({ key, error });
      }
    }
    const last = page.at(-1)?.id ?? null;
    const goesOn = await withPgClient((client) =>
      engine.resolveAgain(client, { ...resolution, after: from }, last, partitions),
    );
    if (!goesOn) break;
    read += page.length;
    if (last === null) break;
    after = last;
  }
  const [first] = failed;
  if (first) {
    logger.warn(
      `The definition of policy "${policy.identifier}" has changed. ${failed.length} of ${read} partitions keep their limits ` +
        "until their next job is added, because the new ones cannot be worked out from the stored contexts. " +
        `The first is ${show(first.key)}: ${errorText(first.error)}`,
      { error: first.error },
    );
  }
}
