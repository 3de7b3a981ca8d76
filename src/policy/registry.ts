import { show } from "../checks/options.ts";
import { ArgumentError, UnknownPolicyError } from "../errors.ts";
import { type AnyPolicy, definitionHash, isPolicy, policyDefinition, tasksOf } from "./policy.ts";

/** The policies of a process, by name and by the task identifiers they govern. */
export interface Registry {
  /** The limits that they share come first, as policies without tasks. */
  readonly policies: readonly AnyPolicy[];
  /** The policy that governs a task. Undefined for a task without one. */
  ofTask(identifier: string): AnyPolicy | undefined;
  /** @throws {UnknownPolicyError} listing the known ones */
  named(name: string): AnyPolicy;
}

/** @throws {ArgumentError} if two policies or shared limits have the same name, or two policies govern the same task */
export function makeRegistry(given: readonly AnyPolicy[]): Registry {
  const byName = new Map<string, AnyPolicy>();
  const byTask = new Map<string, AnyPolicy>();
  for (const policy of given) {
    if (!isPolicy(policy))
      throw new ArgumentError(`policies: expected policies made by definePolicy, got ${show(policy)}`);
    for (const limit of sharedLimitsOf(policy)) {
      const other = byName.get(limit.identifier) ?? limit;
      if (other !== limit && hashOf(other) !== hashOf(limit))
        throw new ArgumentError(
          `policies: two shared limits are named "${limit.identifier}", and differ: declare it once, and import it`,
        );
      byName.set(limit.identifier, other);
    }
  }
  const policies = [...byName.values(), ...given];
  for (const policy of given) {
    const named = byName.get(policy.identifier);
    if (named !== undefined && tasksOf(named).length === 0) {
      throw new ArgumentError(
        `policies: a policy and a shared limit are named "${policy.identifier}": give one of them another name`,
      );
    }
    if (named !== undefined) {
      throw new ArgumentError(`policies: two policies are named "${policy.identifier}"`);
    }
    byName.set(policy.identifier, policy);
    for (const task of tasksOf(policy)) {
      const other = byTask.get(task);
      if (other) {
        throw new ArgumentError(
          `policies: task "${task}" is governed by two policies, "${other.identifier}" and "${policy.identifier}"`,
        );
      }
      byTask.set(task, policy);
    }
  }
  return {
    policies,
    ofTask: (identifier) => byTask.get(identifier),
    named: (name) => {
      const policy = byName.get(name);
      if (!policy) throw new UnknownPolicyError(name, [...byName.keys()]);
      return policy;
    },
  };
}

/** The shared limits that a policy's gates name, as policies. */
export function sharedLimitsOf(policy: AnyPolicy): AnyPolicy[] {
  const { gates } = policy["~policy"].declaration;
  return gates.flatMap(({ shared }) => (shared === undefined ? [] : (shared as AnyPolicy)));
}

const hashOf = (policy: AnyPolicy): string => definitionHash(policyDefinition(policy));
