import { type PolicyStatus, status, type WorkerStatus } from "../operate/status.ts";
import type { StopInForce } from "../operate/stops.ts";
import { defineCommand, EXIT } from "./command.ts";
import { LOOK } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { say, sayJson, tell } from "./output/say.ts";
import { table } from "./output/table.ts";
import { atTime, fromNow, grouped, some } from "./output/words.ts";

/** Policies and workers at a glance. */
export const command = defineCommand({
  options: {
    policy: { kind: "text", meaning: "only this policy, and all workers", default: "all" },
    ...LOOK,
  },
  examples: [["--watch 5", "again every 5 seconds"]],
  async run(values) {
    return looks(values, async (context) => {
      const { policy } = values;
      const found = await status(context, { policy });
      if (values.json) sayJson(found);
      else {
        if (found.policies.length > 0) say(policyTable(found.policies));
        else tell("No policy was declared.");
        if (found.workers.length > 0) say(`\n${workerTable(found.workers)}`);
        else tell("No worker pool is known.");
        if (found.pauseOfAll) tell(inWordsOfAll(found.pauseOfAll));
        for (const warning of found.policies.flatMap(warningsOf)) tell(warning);
      }
      return found.policies.length > 0 ? EXIT.done : EXIT.nothing;
    });
  },
});

export function policyTable(policies: readonly PolicyStatus[]): string {
  return table(
    [
      { title: "POLICY", value: ({ policy }) => policy, least: 12 },
      { title: "STATE", value: stateOf },
      { title: "STAGED", isNumber: true, value: ({ staged }) => grouped(staged) },
      { title: "IN FLIGHT", isNumber: true, value: ({ inFlight }) => grouped(inFlight) },
      { title: "PARTITIONS", isNumber: true, value: ({ partitions }) => grouped(partitions) },
    ],
    policies,
  );
}

export function stateOf({ enabled, paused, pausedWithAll, orphaned }: PolicyStatus): string {
  if (!enabled) return "off";
  if (paused) return pausedWithAll ? "paused with all" : "paused";
  return orphaned ? "on, no worker" : "on";
}

export function workerTable(workers: readonly WorkerStatus[]): string {
  return table(
    [
      { title: "WORKER POOL", value: ({ poolId }) => poolId, least: 12 },
      { title: "STATE", value: ({ alive }) => (alive ? "alive" : "silent") },
      { title: "SLOTS", isNumber: true, value: ({ slots }) => grouped(slots) },
      { title: "HEARTBEAT", value: ({ heartbeatAt }) => fromNow(heartbeatAt) },
      { title: "TASKS", value: ({ tasks }) => tasks.join(", "), least: 10 },
    ],
    workers,
  );
}

function inWordsOfAll({ by, reason, until }: StopInForce): string {
  const why = `${by === null ? "" : ` by ${by}`}${reason === null ? "" : ` (${reason})`}`;
  const end = until ? `until ${atTime(until)}` : "until resume --all";
  return `All policies were paused${why}, ${end}. Those that are declared from now on are paused as well.`;
}

function warningsOf({ policy, ...its }: PolicyStatus): string[] {
  return [
    its.orphaned && `${policy}: no live worker has the policy and its tasks.`,
    its.liveDefinitions > 1 &&
      `${policy}: live workers have ${its.liveDefinitions} definitions of version ${its.version}. Raise the newer one's version.`,
    its.resolving && `${policy}: its limits are being worked out again, because the definition has changed.`,
    its.endedElsewhere > 0 &&
      `${policy}: ${some(its.endedElsewhere, "job")} ended in workers without this package.`,
  ].filter((warning) => warning !== false);
}
