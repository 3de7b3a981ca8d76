import { show } from "../checks/options.ts";
import { ArgumentError, UnknownPolicyError } from "../errors.ts";
import { type AnyPolicy, isPolicy, tasksOf } from "./policy.ts";

/** The policies of a process, by name and by the task identifiers they govern. */
export interface Registry {
  readonly policies: readonly AnyPolicy[];
  /** The policy that governs a task. Undefined for a task without one. */
  ofTask(identifier: string): AnyPolicy | undefined;
  /** @throws {UnknownPolicyError} listing the known ones */
  named(name: string): AnyPolicy;
}

/** @throws {ArgumentError} if two policies have the same name or govern the same task */
export function makeRegistry(policies: readonly AnyPolicy[]): Registry {
  const byName = new Map<string, AnyPolicy>();
  const byTask = new Map<string, AnyPolicy>();
  for (const policy of policies) {
    if (!isPolicy(policy)) {
      throw new ArgumentError(`policies: expected policies made by definePolicy, got ${show(policy)}`);
    }
    if (byName.has(policy.identifier)) {
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
