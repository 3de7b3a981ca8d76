import os from "node:os";
import type { WithPgClient } from "graphile-worker";
import type { Engine } from "../db/engine.ts";
import { isLockTimeout } from "../db/outage.ts";
import { BAD_ARGUMENT, saidBySql } from "../db/sqlstates.ts";
import { PolicyDefinitionError } from "../errors.ts";
import type { Logger } from "../log.ts";
import { type AnyPolicy, definitionHash, policyDefinition } from "../policy/policy.ts";
import { policySettings, type Settings } from "../settings.ts";
import { goOnResolving } from "./resolve-again.ts";

/** This process. While no worker lives, of equal versions the definition of the process that started last is in force. */
const THIS_PROCESS = {
  startedAt: new Date(Date.now() - performance.now()),
  host: os.hostname(),
  pid: process.pid,
} as const;

/** Records this process's policies in the database. If a policy has changed, its partitions get the new limits. */
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
    const declare = () =>
      asDefinitionError(() =>
        withPgClient((client) => engine.declare(client, definition, hash, own, THIS_PROCESS)),
      );
    const { in_force, to_resolve } = await withPatience(declare, () =>
      logger.warn(
        `Cannot declare policy "${policy.identifier}" yet, trying again: another transaction has locked it, for ` +
          "example a pause that is not committed",
      ),
    );
    if (in_force && to_resolve) await goOnResolving(withPgClient, engine, settings, logger);
  }
}

/**
 * Declares the policies of a process when they are first needed, once for each pool of connections. It is for hosts
 * that do not know when a worker starts. If it fails, the next call tries again.
 *
 * @returns null if they are declared
 */
export function declareOnce(
  engine: Engine,
  settings: Settings,
): (withPgClient: WithPgClient, logger: Logger) => Promise<void> | null {
  const states = new WeakMap<WithPgClient, Promise<void> | "declared">();
  return (withPgClient, logger) => {
    const known = states.get(withPgClient);
    if (known === "declared") return null;
    if (known) return known;
    const declaring = declarePolicies(withPgClient, engine, settings, logger).then(
      () => void states.set(withPgClient, "declared"),
      (error) => {
        states.delete(withPgClient);
        throw error;
      },
    );
    states.set(withPgClient, declaring);
    return declaring;
  };
}

/** A declaration that the server refuses: it does not know a gate's time zone. */
async function asDefinitionError<T>(declare: () => Promise<T>): Promise<T> {
  try {
    return await declare();
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    if (!BAD_ARGUMENT.has(code)) throw error;
    throw new PolicyDefinitionError(saidBySql(message), { cause: error });
  }
}

/** Repeats an action until no lock times out. */
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

/** Version and hash of each policy's definition, by name. */
export function definitionsOf(policies: readonly AnyPolicy[]): object {
  const entries = policies.map((policy) => {
    const definition = policyDefinition(policy);
    return [policy.identifier, { version: definition.version, hash: definitionHash(definition) }];
  });
  return Object.fromEntries(entries);
}
