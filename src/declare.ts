import type { WithPgClient } from "graphile-worker";
import type { Engine } from "./db/engine.ts";
import { type AnyPolicy, definitionHash, policyDefinition, resolveLimits } from "./policy.ts";
import { policySettings, type Settings } from "./settings.ts";

/** When this process started: at equal versions the process that started last declares what holds. */
const STARTED_AT = new Date(Date.now() - performance.now());
const PAGE = 1000;

/** Records this process's policies in the database; partitions of a policy that changed are resolved anew. */
export async function declarePolicies(
  withPgClient: WithPgClient,
  engine: Engine,
  settings: Settings,
): Promise<void> {
  for (const policy of settings.registry.policies) {
    const definition = policyDefinition(policy);
    const own = policySettings(policy, settings);
    const hash = definitionHash(definition);
    const { in_force, changed } = await withPgClient((client) =>
      engine.declare(client, definition, hash, own, STARTED_AT),
    );
    if (in_force && changed) await resolveAgain(withPgClient, engine, policy, definition.version);
  }
}

/** From the stored contexts, a page at a time; the router applies what comes of it like any arrival. */
async function resolveAgain(
  withPgClient: WithPgClient,
  engine: Engine,
  policy: AnyPolicy,
  version: number,
): Promise<void> {
  let after: string | null = null;
  for (;;) {
    const page = await withPgClient((client) =>
      engine.partitionsAfter(client, policy.identifier, after, PAGE),
    );
    const last = page.at(-1);
    if (!last) return;
    const partitions = page.map(({ key, context }) => ({
      key,
      context,
      ...resolveLimits(policy, context),
    }));
    await withPgClient((client) => engine.resolveAgain(client, policy.identifier, version, partitions));
    after = last.id;
  }
}
