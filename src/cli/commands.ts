// The list of commands: their names, what each does, and where it stands. A command is loaded when it is called.
import type { AnyVerb } from "../operate/verb.ts";
import { JOBS } from "../operate/verbs/jobs.ts";
import { LIMITS } from "../operate/verbs/limits.ts";
import { POLICIES } from "../operate/verbs/policies.ts";
import { STOPS } from "../operate/verbs/stops.ts";
import { kebabCase, type VerbName } from "../operate/verbs.ts";
import type { Command } from "./command.ts";

/** The command `adopt` takes several tasks. */
const { adopt, ...OTHER_WAYS } = POLICIES;

/** A command in the list. */
export interface Listed {
  readonly name: string;
  readonly summary: string;
  load(): Promise<{ readonly command: Command }>;
}

/** The commands of verbs, in the order of their table. */
const verbs = (table: Readonly<Record<string, AnyVerb>>): readonly Listed[] =>
  Object.entries(table).map(([name, { summary }]) =>
    listed(kebabCase(name), summary, async () => ({
      command: (await import("./verb.ts")).commandOf(name as VerbName),
    })),
  );

const listed = (name: string, summary: string, load: Listed["load"]): Listed => ({ name, summary, load });

/** In the order of the help. */
export const COMMANDS: readonly Listed[] = [
  // look
  listed("status", "policies and workers at a glance", () => import("./status.ts")),
  listed("top", "the same, live, with the partitions that wait", () => import("./top.ts")),
  listed("search", "what an id, a key or an error leads to", () => import("./search.ts")),
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
  ...verbs(STOPS),
  // limits
  ...verbs(LIMITS),
  listed("diff", "what would have happened under other limits", () => import("./diff.ts")),
  // jobs
  ...verbs(JOBS),
  listed("export", "write staged jobs, with their payloads, as JSON", () => import("./export.ts")),
  listed("reschedule-jobs", "change when and how jobs run", () => import("./reschedule-jobs.ts")),
  // repairs
  listed("tick", "make one admission pass", () => import("./tick.ts")),
  listed("sweep", "make one repair pass", () => import("./sweep.ts")),
  // the way in and out
  listed("init", "add a first policy to a project's files", () => import("./init.ts")),
  listed("migrate", "install or upgrade the database schemas", () => import("./migrate.ts")),
  listed("adopt", adopt.summary, () => import("./adopt.ts")),
  ...verbs(OTHER_WAYS),
  listed("uninstall", "unstage all waiting jobs, and drop the schema", () => import("./uninstall.ts")),
];
