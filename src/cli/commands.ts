// The list of commands: their names, what each does, and where it stands. A command is loaded when it is called.
import type { Command } from "./command.ts";

/** A command in the list. */
export interface Listed {
  readonly name: string;
  readonly summary: string;
  load(): Promise<{ readonly command: Command }>;
}

const listed = (name: string, summary: string, load: Listed["load"]): Listed => ({ name, summary, load });

/** In the order of the help. */
export const COMMANDS: readonly Listed[] = [
  // look
  listed("status", "policies and workers at a glance", () => import("./status.ts")),
  listed("top", "the same, live, with the partitions that wait", () => import("./top.ts")),
  listed("explain", "why a job or a partition waits, and for what", () => import("./explain.ts")),
  listed("doctor", "what is wrong, and what mends it", () => import("./doctor.ts")),
  listed("policies", "each policy with its gates", () => import("./policies.ts")),
  listed("partitions", "what waits in each partition, and why", () => import("./partitions.ts")),
  listed("jobs", "jobs, staged and Graphile Worker's", () => import("./jobs.ts")),
  listed("history", "what happened to jobs, and what they waited for", () => import("./history.ts")),
  listed("groups", "open job groups, and what they wait for", () => import("./groups.ts")),
  listed("stops", "what is paused or on hold, by whom and until when", () => import("./stops.ts")),
  listed("limits", "limits that operators have set", () => import("./limits.ts")),
  listed("audit", "what operators did, and why", () => import("./audit.ts")),
  listed("ui", "the admin pages, on this machine", () => import("./ui.ts")),
  listed("metrics", "figures for a monitoring system", () => import("./metrics.ts")),
  // stop and go on
  listed("pause", "stop a partition, a policy or all until resume", () => import("./pause.ts")),
  listed("resume", "end a pause or a hold", () => import("./resume.ts")),
  listed("hold", "stop a partition for some time", () => import("./hold.ts")),
  listed("disable", "switch a policy off: its jobs go past the gates", () => import("./disable.ts")),
  listed("enable", "switch a policy on again", () => import("./enable.ts")),
  // limits
  listed("set-limit", "change a gate's numbers", () => import("./set-limit.ts")),
  listed("clear-limit", "end such a change", () => import("./clear-limit.ts")),
  listed(
    "refresh-context",
    "change what partitions have in their context",
    () => import("./refresh-context.ts"),
  ),
  listed("diff", "what would have happened under other limits", () => import("./diff.ts")),
  listed("take", "take tokens for work that is no job", () => import("./take.ts")),
  listed("sync", "lower a throttle to what a partner has left", () => import("./sync.ts")),
  // jobs
  listed("admit", "admit due jobs past their gates", () => import("./admit.ts")),
  listed("move", "move staged jobs to another partition or policy", () => import("./move.ts")),
  listed("export", "write staged jobs, with their payloads, as JSON", () => import("./export.ts")),
  listed("remove", "remove staged jobs", () => import("./remove.ts")),
  listed("cancel", "cancel jobs, and tell those that run to end", () => import("./cancel.ts")),
  listed("retry", "bring back jobs that failed for good", () => import("./retry.ts")),
  listed("reschedule-jobs", "change when and how jobs run", () => import("./reschedule-jobs.ts")),
  listed("release-slots", "free the slots of a job that hangs", () => import("./release-slots.ts")),
  // repairs
  listed("tick", "make one admission pass", () => import("./tick.ts")),
  listed("sweep", "make one repair pass", () => import("./sweep.ts")),
  // the way in and out
  listed("init", "add a first policy to a project's files", () => import("./init.ts")),
  listed("migrate", "install or upgrade the database schemas", () => import("./migrate.ts")),
  listed("adopt", "move a task's waiting jobs under its policy", () => import("./adopt.ts")),
  listed("unstage", "unstage a policy's waiting jobs", () => import("./unstage.ts")),
  listed("remove-policy", "remove or rename a policy that no worker has", () => import("./remove-policy.ts")),
  listed("uninstall", "unstage all waiting jobs, and drop the schema", () => import("./uninstall.ts")),
];
