import type { WithPgClient } from "graphile-worker";
import type { Engine } from "../db/engine.ts";
import { type AnyPolicy, isPolicy } from "../policy/policy.ts";
import type { Registry } from "../policy/registry.ts";
import { addJobs, type JobSpec, modeOf, onlyTask } from "./stage.ts";
import type { AddedJob } from "./staged-job.ts";

/** addJob and addJobs with Graphile Worker's signatures. The database knows the policies that the registry lacks. */
export function makeAdder(engine: Engine, registry: Registry, withPgClient: WithPgClient) {
  return {
    async addJob(task: string | AnyPolicy, payload: unknown, spec: JobSpec = {}): Promise<AddedJob> {
      const policy = isPolicy(task) ? task : registry.ofTask(task);
      const identifier = isPolicy(task) ? onlyTask(task) : task;
      const job = { policy, task: identifier, payload, spec };
      const [added] = await withPgClient((client) => addJobs(engine, client, [job], modeOf(spec)));
      return added as AddedJob;
    },
    addJobs(specs: readonly (JobSpec & { identifier: string; payload: unknown })[], preserveRunAt?: boolean) {
      const jobs = specs.map(({ identifier, payload, ...spec }) => ({
        policy: registry.ofTask(identifier),
        task: identifier,
        payload,
        spec,
      }));
      const mode = preserveRunAt ? "preserve_run_at" : "replace";
      return withPgClient((client) => addJobs(engine, client, jobs, mode));
    },
  };
}
