import type { WithPgClient } from "graphile-worker";
import { check, checkOptions, text } from "../checks/options.ts";
import type { Engine } from "../db/engine.ts";
import { type EventSink, emit } from "../events.ts";
import type { JobSpec } from "../policy/job.ts";
import { type AnyPolicy, isPolicy } from "../policy/policy.ts";
import type { Registry } from "../policy/registry.ts";
import type { TaskCallback } from "./group.ts";
import { addJobs, type JobToAdd, modeOf, onlyTask } from "./stage.ts";
import type { AddedJob } from "./staged-job.ts";

/** addJob and addJobs with Graphile Worker's signatures. The database knows the policies that the registry lacks. */
export function makeAdder(engine: Engine, registry: Registry, withPgClient: WithPgClient, events: EventSink) {
  return {
    async addJob(task: string | AnyPolicy, payload: unknown, spec: JobSpec = {}): Promise<AddedJob> {
      const policy = isPolicy(task) ? task : registry.ofTask(task);
      const identifier = isPolicy(task) ? onlyTask(task) : task;
      const job = { policy, task: identifier, payload, spec };
      const [added] = await withPgClient((client) =>
        addJobs(engine, client, [job], modeOf(spec), { ends: true }),
      );
      tellStaged([added as AddedJob], events);
      return added as AddedJob;
    },
    async addJobs(
      specs: readonly (JobSpec & { identifier: string; payload: unknown })[],
      preserveRunAt?: boolean,
      options: { then?: TaskCallback | undefined } = {},
    ) {
      const jobs = specs.map(({ identifier, payload, ...spec }) => ({
        policy: registry.ofTask(identifier),
        task: identifier,
        payload,
        spec,
      }));
      const mode = preserveRunAt ? "preserve_run_at" : "replace";
      const then = callbackJob(registry, options);
      const added = await withPgClient((client) => addJobs(engine, client, jobs, mode, { then, ends: true }));
      tellStaged(added, events);
      return added;
    },
  };
}

function callbackJob(registry: Registry, options: { then?: TaskCallback | undefined }): JobToAdd | undefined {
  checkOptions("addJobs (its last argument)", options, ["then"]);
  const { then } = options;
  if (then === undefined) return undefined;
  check("addJobs: then.identifier", (then as Partial<TaskCallback> | null)?.identifier, text(128));
  const { identifier, payload, ...spec } = then;
  return { policy: registry.ofTask(identifier), task: identifier, payload, spec };
}

/** One event for each policy. A call is a transaction of its own, so it is committed by now. */
function tellStaged(added: readonly AddedJob[], events: EventSink): void {
  const staged = new Map<string, { partition: string | null; count: number }>();
  for (const job of added) {
    if (!job.staged || job.dropped) continue;
    const { partition, count } = staged.get(job.policy) ?? { partition: job.partition, count: 0 };
    staged.set(job.policy, { partition: partition === job.partition ? partition : null, count: count + 1 });
  }
  for (const [policy, one] of staged) emit(events, "dispatchPolicy:stage", { policy, ...one });
  for (const job of added)
    if (job.staged && job.admitted)
      emit(events, "dispatchPolicy:admit", { policy: job.policy, shard: null, count: 1 });
}
