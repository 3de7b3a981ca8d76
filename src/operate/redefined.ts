// A recorded load, under another definition of its policy: for `diff`.

import { show } from "../checks/options.ts";
import type { RecordedLoad, RecordedPartition } from "../db/engine.ts";
import { errorText } from "../error-text.ts";
import { ArgumentError } from "../errors.ts";
import { type AnyPolicy, type PolicyDefinition, policyDefinition, resolveLimits } from "../policy/policy.ts";

/** Options that say which job comes where, and at what cost. The recorded jobs have their answers already. */
export type Recorded = "context" | "partitionBy" | "cost";

/**
 * The same load with the limits, weights and shards that the other definition gives the stored contexts. Operators' limits of
 * gates that it does not have, or whose numbers it does not know, are left out.
 *
 * @throws {ArgumentError} if a function of the policy refuses a stored context
 */
export function redefined(recorded: RecordedLoad, policy: AnyPolicy): RecordedLoad {
  const definition = policyDefinition(policy);
  const numbers = new Map(definition.gates.map(({ name, overrides }) => [name, overrides]));
  const known = ({ gate, set }: RecordedLoad["overrides"][number]) =>
    Object.keys(set).every((name) => name in (numbers.get(gate) ?? {}));
  return {
    ...recorded,
    definition,
    settings: { ...recorded.settings, ...ownSettings(definition) },
    partitions: recorded.partitions.map((partition) => ({ ...partition, ...limitsOf(policy, partition) })),
    overrides: recorded.overrides.filter(known),
  };
}

/** What the definition leaves open is as it was: nobody knows here what its preset says. */
function ownSettings({ halfLifeSeconds, admissionBatchSize, tickAdmissionBudget }: PolicyDefinition): object {
  return {
    ...(halfLifeSeconds !== undefined && { halfLifeSeconds }),
    ...(admissionBatchSize !== undefined && { admissionBatchSize }),
    ...(tickAdmissionBudget !== undefined && { tickAdmissionBudget }),
  };
}

function limitsOf(policy: AnyPolicy, { key, context }: RecordedPartition) {
  try {
    return resolveLimits(policy, context);
  } catch (cause) {
    throw new ArgumentError(
      `diff: the definition cannot work out the limits of partition ${show(key)} from its stored context: ${errorText(cause)}. ` +
        "Bring what it reads by refreshContext, or wait for the partition's next job",
      { cause },
    );
  }
}

/** Which of these options differ, and are not replayed. */
export function notReplayed(before: PolicyDefinition, after: PolicyDefinition): readonly Recorded[] {
  const partOf = ({ functions, partitionPaths, cost }: PolicyDefinition): Record<Recorded, unknown> => ({
    context: functions.context,
    partitionBy: functions.partitionBy ?? partitionPaths,
    cost: functions.cost ?? cost,
  });
  const [was, is] = [partOf(before), partOf(after)];
  return (Object.keys(is) as Recorded[]).filter(
    (one) => JSON.stringify(was[one]) !== JSON.stringify(is[one]),
  );
}
