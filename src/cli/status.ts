import { keyInWords } from "../operate/gate-words.ts";
import {
  type OldestDue,
  type PolicyStatus,
  status,
  type UndeclaredPolicy,
  type WorkerStatus,
} from "../operate/status.ts";
import type { StopInForce } from "../operate/stops.ts";
import { defineCommand, EXIT } from "./command.ts";
import { LOOK } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { say, sayJson, tell } from "./output/say.ts";
import { table } from "./output/table.ts";
import { atTime, fromNow, grouped, inWords, some } from "./output/words.ts";

/** So many worker pools are named in a sentence. */
const MOST_NAMED = 5;

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
        const live = found.workers.filter(({ alive }) => alive);
        if (found.oldestDue) tell(oldestInWords(found.oldestDue));
        for (const warning of found.policies.flatMap((policy) => warningsOf(policy, live))) tell(warning);
        found.undeclared.forEach(tellOfUndeclared);
      }
      return found.policies.length + found.undeclared.length > 0 ? EXIT.done : EXIT.nothing;
    });
  },
});

/** For how long the oldest due job of each policy has been due. */
export const OLDEST_DUE = {
  title: "OLDEST DUE",
  isNumber: true,
  value: ({ oldestDue }: PolicyStatus) => (oldestDue ? inWords(oldestDue.ageSeconds * 1000) : ""),
} as const;

export function policyTable(policies: readonly PolicyStatus[]): string {
  return table(
    [
      { title: "POLICY", value: ({ policy }) => policy, least: 12 },
      { title: "STATE", value: stateOf },
      { title: "STAGED", isNumber: true, value: ({ staged }) => grouped(staged) },
      OLDEST_DUE,
      { title: "IN FLIGHT", isNumber: true, value: ({ inFlight }) => grouped(inFlight) },
      { title: "PARTITIONS", isNumber: true, value: ({ partitions }) => grouped(partitions) },
    ],
    policies,
  );
}

export function stateOf({ enabled, paused, pausedWithAll, orphaned, sharedBy }: PolicyStatus): string {
  if (!enabled) return "off";
  if (paused) return pausedWithAll ? "paused with all" : "paused";
  if (orphaned) return "on, no worker";
  return sharedBy === null ? "on" : "shared limit";
}

export function workerTable(workers: readonly WorkerStatus[]): string {
  return table(
    [
      { title: "WORKER POOL", value: ({ poolId }) => poolId, least: 23 },
      { title: "STATE", value: ({ alive }) => (alive ? "alive" : "silent") },
      { title: "SLOTS", isNumber: true, value: ({ slots }) => grouped(slots) },
      { title: "HEARTBEAT", value: ({ heartbeatAt }) => fromNow(heartbeatAt) },
      { title: "TASKS", value: ({ tasks }) => tasks.join(", "), least: 14, spare: 1 },
    ],
    workers,
  );
}

function oldestInWords({ id, policy, partition, ageSeconds }: OldestDue): string {
  const of = partition === null ? policy : `${policy}/${keyInWords(partition)}`;
  return `Of ${of}, job ${id} has been due for longest, for ${inWords(ageSeconds * 1000)}. Why: explain ${id}`;
}

function inWordsOfAll({ by, reason, until }: StopInForce): string {
  const why = `${by === null ? "" : ` by ${by}`}${reason === null ? "" : ` (${reason})`}`;
  const end = until ? `until ${atTime(until)}` : "until resume --all";
  return `All policies were paused${why}, ${end}. Those that are declared from now on are paused as well.`;
}

/** Says that jobs wait for a policy that nobody declared. */
export function tellOfUndeclared({ policy, staged }: UndeclaredPolicy): void {
  tell(
    `${some(staged, "job")} ${staged === 1 ? "waits" : "wait"} for policy "${policy}", which nobody declared. ` +
      "Start a worker that has it, or see unstage and remove-policy.",
  );
}

function warningsOf({ policy, ...its }: PolicyStatus, live: readonly WorkerStatus[]): string[] {
  return [
    its.orphaned && `${policy}: ${whoLacks(policy, live)}.`,
    its.tasksTakenBy.length > 0 && `${policy}: ${whoGoverns(policy, its.tasksTakenBy, live)}`,
    its.liveDefinitions > 1 &&
      `${policy}: live workers have ${its.liveDefinitions} definitions of version ${its.version}. Raise the newer one's version.`,
    its.inForceBecause !== "newest" && `${policy}: ${whyInForce(its)}`,
    its.resolving && `${policy}: its limits are being worked out again, because the definition has changed.`,
    its.endedElsewhere > 0 &&
      `${policy}: ${some(its.endedElsewhere, "job")} ended in workers without this package.`,
  ].filter((warning) => warning !== false);
}

function whyInForce({ version, newestVersion, inForceBecause }: Omit<PolicyStatus, "policy">): string {
  const is = `version ${version} is in force`;
  if (inForceBecause === "no_sweep") return `${is}, and the next sweep puts that of live workers in force.`;
  if (inForceBecause === "workers")
    return `${is}, because it is the newest that a live worker has. Version ${newestVersion} was declared, and no live worker has it.`;
  return `${is}, and stays until a worker starts. Version ${newestVersion} was declared.`;
}

/** Why a policy is orphaned: nobody has it, or those that have it run none of its tasks. */
function whoLacks(policy: string, live: readonly WorkerStatus[]): string {
  const having = live.filter(({ policies }) => policies.includes(policy));
  if (having.length === 0) return "no live worker has the policy";
  return `no live worker has its tasks; the policy is in ${named(having)}`;
}

/** Beside a rename some workers have the old name and some the new one. */
function whoGoverns(policy: string, takers: readonly string[], live: readonly WorkerStatus[]): string {
  const parts = [policy, ...takers].map((name) => {
    const having = live.filter(({ policies }) => policies.includes(name));
    return `${name} is in ${having.length === 0 ? "no live worker" : named(having)}`;
  });
  return `its tasks went to ${takers.join(", ")}. ${parts.join("; ")}.`;
}

function named(pools: readonly WorkerStatus[]): string {
  const more = pools.length - MOST_NAMED;
  const names = pools.slice(0, MOST_NAMED).map(({ poolId }) => poolId);
  return `${some(pools.length, "live worker")} (${names.join(", ")}${more > 0 ? `, and ${more} more` : ""})`;
}
