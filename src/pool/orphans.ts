import type { WithPgClient } from "graphile-worker";
import type { Engine } from "../db/engine.ts";
import type { Logger } from "../log.ts";

const AGAIN_MS = 3_600_000;
const MOST_COUNTED = 10_000;

/**
 * Warns of policies for which jobs wait, and which no live worker has. They were renamed or removed in the code, and
 * hardly anybody admits their jobs. During a deployment that may be so for a moment. So it warns at the second look in
 * a row, and then once an hour.
 */
export function makeOrphans(logger: Logger, now = () => performance.now()) {
  let seen = new Set<string>();
  const warnedAt = new Map<string, number>();

  return {
    async look(withPgClient: WithPgClient, engine: Engine): Promise<void> {
      const orphans = await withPgClient(engine.orphanedPolicies);
      for (const { policy, jobs, declared } of orphans) {
        if (!seen.has(policy) || now() - (warnedAt.get(policy) ?? Number.NEGATIVE_INFINITY) < AGAIN_MS)
          continue;
        warnedAt.set(policy, now());
        logger.warn(declared ? orphaned(policy, jobs) : undeclared(policy, jobs), { policy, jobs });
      }
      seen = new Set(orphans.map(({ policy }) => policy));
    },
  };
}

const orphaned = (policy: string, jobs: number) =>
  `${waiting(jobs)} for policy "${policy}", which no live worker has. ` +
  "At most the crontab's tick admits them, once a minute. If the policy was renamed, move them: " +
  `remove-policy --policy ${policy} --into NAME. If it was removed, switch it off and call unstage and remove-policy. ` +
  "Else start a worker that has it";

const undeclared = (policy: string, jobs: number) =>
  `${waiting(jobs)} for policy "${policy}", which nobody declared. ` +
  `Nobody admits them. If the policy was renamed, move them: remove-policy --policy ${policy} --into NAME. ` +
  `If it was removed, call unstage --policy ${policy}, and restart the process that adds them. ` +
  "Else start a worker that has it";

function waiting(jobs: number): string {
  if (jobs === 1) return "1 job waits";
  return `${jobs}${jobs === MOST_COUNTED ? " jobs or more" : " jobs"} wait`;
}
